/* sys_test.c - the manners of the ch_sys_ calls: close-on-exec, nonblocking, counted, exact in time. */
#include "choir_test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fdmarks.h"
#include "base/sys.h"

static int make_open(void)
{
    return ch_sys_open("/dev/null", O_RDWR, 0);
}

static int make_memfd(void)
{
    return ch_sys_memfd("sys_test");
}

static int make_socket(void)
{
    return ch_sys_socket(AF_INET, SOCK_STREAM, 0);
}

static int make_eventfd(void)
{
    return ch_sys_eventfd(0);
}

static int make_pidfd(void)
{
    return ch_sys_pidfd_open(getpid());
}

static const struct {
    const char *name;
    int (*make)(void);
    bool nonblocking;
} makers[] = {
    { "open", make_open, false },
    { "memfd", make_memfd, false },
    { "socket", make_socket, true },
    { "eventfd", make_eventfd, true },
    { "epoll", ch_sys_epoll_create, false },
    { "pidfd", make_pidfd, false },
};

static void check_fd(int fd, bool nonblocking)
{
    CHOIR_CHECK_LE(0, fd);
    CHOIR_CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    if (nonblocking)
        CHOIR_CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

CHOIR_TEST(descriptors_close_on_exec_and_are_counted)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(makers); i++) {
        int fd = makers[i].make();

        CHOIR_ROW("%s", makers[i].name);
        if (fd < 0 && errno == ENOSYS)
            continue; /* valgrind does not know pidfd_open() */
        check_fd(fd, makers[i].nonblocking);
        CHOIR_CHECK_EQ(ch_sys_fd_count(), 1);
        errno = EPIPE;
        ch_sys_close(fd);
        CHOIR_CHECK_EQ(errno, EPIPE);
        CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
        CHOIR_CHECK_EQ(fcntl(fd, F_GETFD), -1);
    }
}

CHOIR_TEST(accepted_and_paired_sockets_have_the_same_manners)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(addr);
    int listener = make_socket(), client = make_socket(), server, pair[2];

    CHOIR_CHECK_EQ(ch_sys_bind(listener, (struct sockaddr *)&addr, len), 0);
    CHOIR_CHECK_EQ(ch_sys_listen(listener, 1), 0);
    CHOIR_CHECK_EQ(ch_sys_getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    CHOIR_CHECK_EQ(ch_sys_accept(listener, NULL, NULL), -1);
    CHOIR_CHECK_EQ(errno, EAGAIN);
    if (ch_sys_connect(client, (struct sockaddr *)&addr, len) != 0)
        CHOIR_CHECK_EQ(errno, EINPROGRESS);
    CHOIR_CHECK_EQ(ch_sys_poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, -1), 1);
    server = ch_sys_accept(listener, NULL, NULL);
    check_fd(server, true);
    CHOIR_CHECK_EQ(ch_sys_socketpair(AF_UNIX, SOCK_STREAM, pair), 0);
    check_fd(pair[0], true);
    check_fd(pair[1], true);
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 5);
    ch_sys_close(listener);
    ch_sys_close(client);
    ch_sys_close(server);
    ch_sys_close(pair[0]);
    ch_sys_close(pair[1]);
}

/* A peer that went away is an error code, not a signal that ends the process. */
CHOIR_TEST(sending_to_nobody_raises_no_signal)
{
    char byte = 'x';
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };
    int pair[2];

    signal(SIGPIPE, SIG_DFL);
    CHOIR_CHECK_EQ(ch_sys_socketpair(AF_UNIX, SOCK_STREAM, pair), 0);
    ch_sys_close(pair[1]);
    CHOIR_CHECK_EQ(ch_sys_sendmsg(pair[0], &msg), -1);
    CHOIR_CHECK_EQ(errno, EPIPE);
    ch_sys_close(pair[0]);
}

CHOIR_TEST(only_what_is_ours_is_closed)
{
    int foreign = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ch_sys_close(-1);
    ch_sys_close(foreign);
    CHOIR_CHECK_NE(fcntl(foreign, F_GETFD), -1);
    CHOIR_CHECK(ch_sys_adopt_fd(foreign));
    CHOIR_CHECK(ch_sys_adopt_fd(foreign)); /* twice is once */
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 1);
    ch_sys_close(foreign);
    CHOIR_CHECK_EQ(fcntl(foreign, F_GETFD), -1);
    ch_sys_close(foreign); /* and again: no longer ours */
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
}

CHOIR_TEST(marks_have_limits)
{
    CHOIR_CHECK(!ch_fdmark_set(-1));
    CHOIR_CHECK(!ch_fdmark_set(CH_FD_MAX));
    CHOIR_CHECK(!ch_fdmark_clear(-1));
    CHOIR_CHECK(!ch_fdmark_clear(CH_FD_MAX));
    CHOIR_CHECK(ch_fdmark_set(CH_FD_MAX - 1));
    CHOIR_CHECK(ch_fdmark_clear(CH_FD_MAX - 1));
    CHOIR_CHECK(!ch_fdmark_clear(CH_FD_MAX - 1));
}

CHOIR_TEST(a_sealed_file_is_shared_memory_of_a_fixed_size)
{
    enum { NBYTES = 8192 };
    int fd = make_memfd();
    struct stat st;
    char *one, *two;

    CHOIR_CHECK_EQ(ch_sys_fallocate(fd, 0, NBYTES), 0);
    CHOIR_CHECK_EQ(ch_sys_add_seals(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    CHOIR_CHECK((ch_sys_get_seals(fd) & F_SEAL_SHRINK) != 0);
    CHOIR_CHECK_EQ(ch_sys_fallocate(fd, NBYTES, NBYTES), -1);
    CHOIR_CHECK_EQ(ch_sys_fstat(fd, &st), 0);
    CHOIR_CHECK_EQ(st.st_size, NBYTES);
    one = ch_sys_map_shared(fd, NBYTES);
    two = ch_sys_map_shared(fd, NBYTES);
    CHOIR_CHECK(one != NULL && two != NULL && one != two);
    one[NBYTES - 1] = 'x';
    CHOIR_CHECK_EQ(two[NBYTES - 1], 'x');
    ch_sys_unmap(one, NBYTES);
    ch_sys_unmap(two, NBYTES);
    ch_sys_unmap(NULL, 0);
    ch_sys_close(fd);
    CHOIR_CHECK(ch_sys_map_shared(fd, NBYTES) == NULL);
}

static const struct {
    int64_t timeout_ns;
    const char *why;
} timeouts[] = {
    { 0, "not at all" },
    { 300000, "less than a millisecond" },
    { 3700000, "not a whole number of milliseconds" },
};

/* Waits end at their time or soon after; never before, which a caller would take for the deadline. */
CHOIR_TEST(waits_are_finer_than_milliseconds)
{
    int epfd = ch_sys_epoll_create(), bell = make_eventfd();
    struct epoll_event event = { .events = EPOLLIN };

    CHOIR_CHECK_EQ(ch_sys_epoll_ctl(epfd, EPOLL_CTL_ADD, bell, &event), 0);
    for (size_t i = 0; i < CH_ARRAY_LEN(timeouts); i++) {
        struct pollfd pfd = { .fd = bell, .events = POLLIN };
        int64_t want = timeouts[i].timeout_ns, least = INT64_MAX;

        CHOIR_ROW("%lld ns: %s", (long long)want, timeouts[i].why);
        for (int round = 0; round < 10; round++) {
            uint64_t before = ch_sys_clock_ns(), between, after;

            CHOIR_CHECK_EQ(ch_sys_epoll_wait(epfd, &event, 1, want), 0);
            between = ch_sys_clock_ns();
            CHOIR_CHECK_EQ(ch_sys_poll(&pfd, 1, want), 0);
            after = ch_sys_clock_ns();
            CHOIR_CHECK_LE(want, (int64_t)(between - before));
            CHOIR_CHECK_LE(want, (int64_t)(after - between));
            if ((int64_t)(between - before) < least)
                least = (int64_t)(between - before);
        }
        CHOIR_CHECK_LT(least, want + 20000000); /* the best of ten on a busy machine */
    }
    CHOIR_CHECK_EQ(ch_sys_write(bell, &(uint64_t){ 1 }, 8), 8);
    CHOIR_CHECK_EQ(ch_sys_epoll_wait(epfd, &event, 1, -1), 1);
    ch_sys_close(bell);
    ch_sys_close(epfd);
}

static void *signal_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return NULL;
}

CHOIR_TEST(our_threads_take_no_signal)
{
    sigset_t theirs, before, after;
    pthread_t thread;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    CHOIR_CHECK_EQ(ch_sys_thread_create(&thread, signal_mask, &theirs), 0);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHOIR_CHECK(sigismember(&theirs, SIGTERM) == 1 && sigismember(&theirs, SIGINT) == 1);
    CHOIR_CHECK_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

CHOIR_TEST(randomness_fills_the_whole_buffer)
{
    enum { NBYTES = 1000 }; /* more than one call of the kernel gives at once */
    unsigned char a[NBYTES] = { 0 }, b[NBYTES] = { 0 };
    int zeros = 0;

    CHOIR_CHECK_EQ(ch_sys_random(a, NBYTES), 0);
    CHOIR_CHECK_EQ(ch_sys_random(b, NBYTES), 0);
    CHOIR_CHECK_NE(memcmp(a, b, NBYTES), 0);
    for (int i = NBYTES - 100; i < NBYTES; i++)
        zeros += a[i] == 0;
    CHOIR_CHECK_LT(zeros, 20);
}

CHOIR_TEST(the_rest_answers)
{
    cpu_set_t set;
    uint64_t before = ch_sys_clock_ns();

    CHOIR_CHECK_EQ(ch_sys_getaffinity(sizeof(set), &set), 0);
    CHOIR_CHECK_LT(0, CPU_COUNT(&set));
    ch_sys_yield();
    CHOIR_CHECK_LE(before, ch_sys_clock_ns());
    if (ch_sys_membarrier(MEMBARRIER_CMD_QUERY) < 0)
        CHOIR_CHECK(errno == ENOSYS || errno == EPERM); /* an old kernel or a sandbox */
}

/* --- a replaced world -------------------------------------------------------------------------- */

static uint64_t frozen_clock(void)
{
    return 42;
}

static int no_eventfd(unsigned initial)
{
    errno = (int)initial;
    return -1;
}

CHOIR_TEST(a_simulator_can_replace_calls)
{
    struct ch_sys_ops ops = ch_sys_real;
    int fd;

    ops.clock_ns = frozen_clock;
    ops.eventfd = no_eventfd;
    ch_sys_replace(&ops);
    CHOIR_CHECK_EQ(ch_sys_clock_ns(), 42u);
    CHOIR_CHECK_EQ(ch_sys_eventfd(ENFILE), -1);
    CHOIR_CHECK_EQ(errno, ENFILE);
    fd = make_open(); /* not replaced: as ever */
    CHOIR_CHECK_LE(0, fd);
    ch_sys_close(fd);
    ch_sys_replace(NULL);
    CHOIR_CHECK_NE(ch_sys_clock_ns(), 42u);
}
