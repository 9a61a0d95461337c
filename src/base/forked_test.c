/* forked_test.c - a forked child touches nothing of its parent's. */
#include "choir_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/forked.h"
#include "base/sys.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

/* --- the parent had nothing open ---------------------------------------------------------------- */

static void use_the_library(void *arg)
{
    int fd;

    (void)arg;
    CHOIR_CHECK_OK(ch_forked());
    fd = ch_sys_eventfd(0);
    CHOIR_CHECK_LE(0, fd);
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 1);
    ch_sys_close(fd);
}

CHOIR_TEST(a_child_of_an_idle_parent_is_usable)
{
    /* Opened and closed before: the handlers are in place, nothing is open. */
    ch_sys_close(ch_sys_eventfd(0));
    choir_test_join(choir_test_fork(use_the_library, NULL));
}

CHOIR_TEST(a_child_of_a_parent_that_never_used_the_library_is_usable)
{
    choir_test_join(choir_test_fork(use_the_library, NULL));
}

/* --- the parent had descriptors open ------------------------------------------------------------ */

struct parent {
    int ours[2];    /* a socket pair of the library's */
    int foreign[2]; /* a pipe of the program's */
};

static struct parent open_things(void)
{
    struct parent p;

    CHOIR_CHECK_EQ(ch_sys_socketpair(AF_UNIX, SOCK_STREAM, p.ours), 0);
    CHOIR_CHECK_EQ(pipe(p.foreign), 0);
    return p;
}

static void close_things(struct parent *p)
{
    ch_sys_close(p->ours[0]);
    ch_sys_close(p->ours[1]);
    close(p->foreign[0]);
    close(p->foreign[1]);
}

static void look_at_descriptors(void *arg)
{
    const struct parent *p = arg;

    CHOIR_CHECK(!is_open(p->ours[0]));
    CHOIR_CHECK(!is_open(p->ours[1]));
    CHOIR_CHECK(is_open(p->foreign[0]));
    CHOIR_CHECK(is_open(p->foreign[1]));
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
}

CHOIR_TEST(the_childs_copies_are_closed_and_the_parents_are_not)
{
    struct parent p = open_things();

    choir_test_join(choir_test_fork(look_at_descriptors, &p));
    CHOIR_CHECK(is_open(p.ours[0]) && is_open(p.ours[1]));
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 2);
    CHOIR_CHECK_OK(ch_forked());
    close_things(&p);
}

static void try_calls(void *arg)
{
    int pair[2] = { -7, -7 };

    (void)arg;
    CHOIR_CHECK(ch_is_forked());
    CHOIR_CHECK_STATUS(ch_forked(), CHOIR_ERR_FORKED);
    CHOIR_CHECK_HAS(choir_last_error(), "forked");
    CHOIR_CHECK_EQ(ch_sys_eventfd(0), -1);
    CHOIR_CHECK_EQ(errno, EOWNERDEAD);
    CHOIR_CHECK_STATUS(ch_fail_errno("eventfd"), CHOIR_ERR_FORKED);
    CHOIR_CHECK_EQ(ch_sys_socketpair(AF_UNIX, SOCK_STREAM, pair), -1);
    CHOIR_CHECK_EQ(pair[0], -7);
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
}

CHOIR_TEST(calls_in_the_child_fail_with_the_reason)
{
    struct parent p = open_things();

    choir_test_join(choir_test_fork(try_calls, NULL));
    close_things(&p);
}

static void fork_again(void *arg)
{
    choir_test_join(choir_test_fork(try_calls, arg));
    CHOIR_CHECK(ch_is_forked());
}

CHOIR_TEST(a_grandchild_is_a_fork_too)
{
    struct parent p = open_things();

    choir_test_join(choir_test_fork(fork_again, NULL));
    close_things(&p);
}

/* The number of a descriptor that was ours soon belongs to somebody else; objects of the parent's,
 * destroyed in the child, must not close it. */
static void reuse_the_number(void *arg)
{
    const struct parent *p = arg;

    CHOIR_CHECK_EQ(dup2(p->foreign[0], p->ours[0]), p->ours[0]);
    ch_sys_close(p->ours[0]);
    CHOIR_CHECK(is_open(p->ours[0]));
}

CHOIR_TEST(close_in_the_child_closes_nothing_foreign)
{
    struct parent p = open_things();

    choir_test_join(choir_test_fork(reuse_the_number, &p));
    close_things(&p);
}

/* --- what it is for ----------------------------------------------------------------------------- */

static void stay_until_told(void *arg)
{
    const struct parent *p = arg;
    char byte;

    CHOIR_CHECK_EQ(read(p->foreign[0], &byte, 1), 1);
}

/* A peer waits for a hang-up: a child that lives on must not keep the connection open. */
CHOIR_TEST(a_hang_up_is_seen_while_a_child_lives)
{
    struct parent p = open_things();
    int pid = choir_test_fork(stay_until_told, &p);
    struct pollfd peer = { .fd = p.ours[1], .events = POLLIN };
    char byte;

    ch_sys_close(p.ours[0]);
    CHOIR_CHECK_EQ(ch_sys_poll(&peer, 1, INT64_C(10000000000)), 1);
    CHOIR_CHECK_EQ(ch_sys_read(p.ours[1], &byte, 1), 0);
    CHOIR_CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0); /* it is alive */
    CHOIR_CHECK_EQ(write(p.foreign[1], "x", 1), 1);
    choir_test_join(pid);
    close_things(&p);
}

struct mapped {
    char *base;
    size_t nbytes;
};

static void unmap_in_child(void *arg)
{
    const struct mapped *m = arg;
    char *mine;

    CHOIR_CHECK_EQ(msync(m->base, m->nbytes, MS_ASYNC), -1);
    CHOIR_CHECK_EQ(errno, ENOMEM); /* nothing is mapped there: room for our own */
    mine = mmap(m->base, m->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                -1, 0);
    CHOIR_CHECK(mine == m->base);
    mine[0] = 'y';
    ch_sys_unmap(m->base, m->nbytes);
    CHOIR_CHECK_EQ(mine[0], 'y'); /* a SIGSEGV if it was unmapped */
}

CHOIR_TEST(a_child_has_no_segment_and_unmaps_nothing)
{
    struct mapped m = { .nbytes = 4096 };
    int fd = ch_sys_memfd("forked_test");

    CHOIR_CHECK_EQ(ch_sys_fallocate(fd, 0, m.nbytes), 0);
    m.base = ch_sys_map_shared(fd, m.nbytes);
    CHOIR_CHECK(m.base != NULL);
    m.base[0] = 'x';
    choir_test_join(choir_test_fork(unmap_in_child, &m));
    ch_sys_unmap(m.base, m.nbytes);
    ch_sys_close(fd);
}

CHOIR_TEST(without_fork_handlers_there_is_no_descriptor)
{
    ch_fault_arm(CH_FAULT_atfork, 1, 0);
    CHOIR_CHECK_EQ(ch_sys_eventfd(0), -1);
    CHOIR_CHECK_EQ(errno, ENOMEM);
    CHOIR_CHECK(ch_fault_disarm());
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
    ch_sys_close(ch_sys_eventfd(0)); /* the next try installs them */
}

/* The numbers of our descriptors are the program's now: not a byte of ours may go there. */
static void write_to_reused_numbers(void *arg)
{
    const struct parent *p = arg;
    const char noise = '!';
    int own[2];
    char byte;

    CHOIR_CHECK_EQ(pipe(own), 0);
    CHOIR_CHECK_EQ(own[1], p->ours[1]); /* the lowest free numbers */
    CHOIR_CHECK_EQ(ch_sys_write(p->ours[1], &noise, 1), -1);
    CHOIR_CHECK_EQ(errno, EOWNERDEAD);
    CHOIR_CHECK_STATUS(ch_fail_errno("write"), CHOIR_ERR_FORKED);
    ch_sys_close(p->ours[1]);
    CHOIR_CHECK_EQ(write(own[1], "x", 1), 1);
    CHOIR_CHECK_EQ(read(own[0], &byte, 1), 1);
    CHOIR_CHECK_EQ(byte, 'x');
}

CHOIR_TEST(a_child_does_not_touch_reused_numbers)
{
    struct parent p = open_things();

    choir_test_join(choir_test_fork(write_to_reused_numbers, &p));
    close_things(&p);
}

/* --- forks while other threads open and close --------------------------------------------------- */

static _Atomic bool stop;

static void *open_and_close(void *arg)
{
    while (!stop)
        ch_sys_close(ch_sys_eventfd(0));
    return arg;
}

/* Every descriptor of the child, through a name: an eventfd can only be the library's. */
static void look_for_ours(void *arg)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    char target[64];

    (void)arg;
    CHOIR_CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

        target[n > 0 ? n : 0] = '\0';
        if (strstr(target, "eventfd") != NULL)
            CHOIR_FAIL("descriptor %s of the child is the parent's %s", entry->d_name, target);
    }
    closedir(folder);
}

CHOIR_TEST(a_child_forked_beside_busy_threads_keeps_nothing)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    for (unsigned i = 0; i < 300 / choir_test_slowness(); i++)
        choir_test_join(choir_test_fork(look_for_ours, NULL));
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}
