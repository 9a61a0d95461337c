/*
 * doorbell_stress_test.c - ten million posts between two processes, none lost.
 *
 * Two processes play rounds. In a round one posts a burst of a random length, the other waits for
 * the last post of it and then plays back. Nobody posts again before it was answered, so a ring that
 * gets lost is not healed by the next one: both sleep until the deadline, and the test fails. Each
 * wait spins, yields or goes to sleep at once, at random, and posts come after random pauses, so
 * that they fall into every moment of the other's going to sleep.
 */
#include "choir_test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/fault.h"
#include "base/sys.h"
#include "base/wait.h"

enum { MAX_BURST = 64, LOST_AFTER_MS = 10000 };

struct shared {
    struct ch_bell_word word[2];
    struct {
        _Alignas(CH_CACHE_UNIT) _Atomic uint64_t flag;
    } side[2];
};

static uint64_t posts_wanted(void)
{
    return 10000000 / choir_test_slowness();
}

/* Raw on purpose: the io layer's own descriptor passing has its own tests. */
static void send_fd(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    CHOIR_CHECK_EQ(sendmsg(socket, &msg, 0), 1);
}

static int receive_fd(int socket)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fd;

    CHOIR_CHECK_EQ(recvmsg(socket, &msg, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
    return fd;
}

struct player {
    int me, socket;
    bool fences; /* play with the fence on the posters' side, as on kernels without membarrier */
    struct shared *shared;
    struct ch_waiter waiter;
    struct ch_bell other;
    struct choir_test_random random; /* own stream: pauses and moods */
    struct choir_test_random bursts; /* the same stream in both: how long each burst is */
    uint64_t sleeps;
};

/* Mostly none, often a few nanoseconds, sometimes long enough for the other to fall asleep. */
static void pause_at_random(struct player *p)
{
    uint64_t r = choir_test_random(&p->random);
    unsigned turns = 0;

    if (r % 8 == 0)
        turns = (unsigned)(r >> 8) % 64;
    else if (r % 1000 == 1)
        turns = (unsigned)(r >> 8) % 4096;
    while (turns-- > 0)
        ch_arch_relax();
}

static void choose_mood(struct player *p)
{
    uint64_t r = choir_test_random(&p->random) % 8;
    bool at_once = r == 0, yields = r == 1;

    p->waiter.spin_ns = p->waiter.spin_min_ns = p->waiter.spin_max_ns = at_once || yields
                                                                            ? 0
                                                                            : 20 * CH_US;
    p->waiter.yield_ns = at_once ? 0 : 10 * CH_US;
    p->sleeps += at_once;
}

/* A sleeper who was not rung still finds its flag raised when the deadline wakes it, so the time
 * tells, not the status. */
static void wait_for_burst(struct player *p, uint64_t last)
{
    uint64_t began = ch_now();
    struct ch_wait wait = { .waiter = &p->waiter,
                            .until = began + LOST_AFTER_MS * (uint64_t)CH_MS,
                            .what = "the other's burst" };

    CHOIR_CHECK_OK(ch_wait_flag(&wait, &p->shared->side[!p->me].flag, last));
    if (ch_now() >= wait.until)
        CHOIR_FAIL("a wake-up was lost: post %llu was there, nobody rang",
                   (unsigned long long)last);
}

static void play(struct player *p)
{
    uint64_t posts = 0, seen = 0, total = posts_wanted() / 2;

    for (int turn = 0; posts < total || seen < total; turn++) {
        uint64_t burst = 1 + choir_test_random(&p->bursts) % MAX_BURST;

        if (turn % 2 == p->me) {
            for (uint64_t i = 0; i < burst; i++) {
                if (i + 1 == burst)
                    pause_at_random(p);
                ch_post(&p->other, &p->shared->side[p->me].flag, ++posts);
            }
        } else {
            seen += burst;
            choose_mood(p);
            wait_for_burst(p, seen);
        }
    }
    printf("side %d: %llu posts, %llu waits slept at once\n", p->me, (unsigned long long)posts,
           (unsigned long long)p->sleeps);
}

static void play_side(void *arg)
{
    struct player *p = arg;
    int other_fd;

    if (p->fences)
        ch_fault_arm(CH_FAULT_membarrier, 1, ENOSYS); /* as on a kernel that has none */
    CHOIR_CHECK_OK(ch_waiter_init(&p->waiter, &p->shared->word[p->me]));
    CHOIR_CHECK_EQ(ch_fault_disarm(), p->fences);
    CHOIR_CHECK_EQ(p->waiter.bell.fence, p->fences || !ch_bell_owner_orders());
    send_fd(p->socket, p->waiter.bell.fd);
    other_fd = receive_fd(p->socket); /* after it the other's word is complete */
    ch_bell_attach(&p->other, &p->shared->word[!p->me], other_fd);
    play(p);
    close(other_fd);
    ch_waiter_fini(&p->waiter);
}

static void two_processes(bool fences)
{
    struct player players[2] = { { .me = 0 }, { .me = 1 } };
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int sockets[2], pids[2];

    CHOIR_CHECK(shared != MAP_FAILED);
    CHOIR_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    for (int i = 0; i < 2; i++) {
        players[i].shared = shared;
        players[i].socket = sockets[i];
        players[i].fences = fences;
        players[i].random.state = 1000 + (uint64_t)i;
        players[i].bursts.state = 77;
        pids[i] = choir_test_fork(play_side, &players[i]);
    }
    for (int i = 0; i < 2; i++)
        choir_test_join(pids[i]);
    munmap(shared, sizeof(*shared));
    close(sockets[0]);
    close(sockets[1]);
}

CHOIR_TEST_TIMED(ten_million_posts_none_lost_alone, 120)
{
    two_processes(false);
}

CHOIR_TEST_TIMED(ten_million_posts_with_fences_none_lost_alone, 120)
{
    two_processes(true);
}
