/*
 * sys.c - the real system calls behind sys.def, and the marks on our descriptors.
 */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/forked.h"
#include "base/fdmarks.h"

/* Wait calls report EINTR: a signal may be what the caller waits for. All others are retried. */
#define RETRY(call)                                                                                \
    __extension__({                                                                                \
        __typeof__(call) rc_;                                                                      \
        do                                                                                         \
            rc_ = (call);                                                                          \
        while (rc_ == -1 && errno == EINTR);                                                       \
        rc_;                                                                                       \
    })

bool ch_sys_adopt_fd(int fd)
{
    int err = 0;

    if (ch_is_forked())
        err = EOWNERDEAD;
    else if (!ch_forked_watch())
        err = errno;
    else if (!ch_fdmark_set(fd))
        err = EMFILE;
    if (err == 0)
        return true;
    close(fd);
    errno = err;
    return false;
}

/* What every call that makes a descriptor ends with. */
static int ours(int fd)
{
    if (fd < 0)
        return -1;
    return ch_sys_adopt_fd(fd) ? fd : -1;
}

/* --- files ------------------------------------------------------------------------------------- */

static int real_open(const char *path, int flags, int mode)
{
    return ours(RETRY(open(path, flags | O_CLOEXEC, mode)));
}

static ssize_t real_read(int fd, void *buf, size_t nbytes)
{
    return RETRY(read(fd, buf, nbytes));
}

static ssize_t real_write(int fd, const void *buf, size_t nbytes)
{
    return RETRY(write(fd, buf, nbytes));
}

static int real_fstat(int fd, struct stat *st_out)
{
    return fstat(fd, st_out);
}

static int real_fallocate(int fd, size_t offset, size_t nbytes)
{
    return RETRY(fallocate(fd, 0, (off_t)offset, (off_t)nbytes));
}

/* --- memory ------------------------------------------------------------------------------------ */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int real_memfd(const char *name)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, flags);
    return ours(fd);
}

static int real_add_seals(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals);
}

static int real_get_seals(int fd)
{
    return fcntl(fd, F_GET_SEALS);
}

static void *real_map_shared(int fd, size_t nbytes)
{
    void *addr = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return addr == MAP_FAILED ? NULL : addr;
}

static int real_madvise(void *addr, size_t nbytes, int advice)
{
    return madvise(addr, nbytes, advice);
}

static void real_unmap(void *addr, size_t nbytes)
{
    /* In a forked child the range was never mapped (DONTFORK) and may since be somebody else's. */
    if (addr != NULL && !ch_is_forked())
        munmap(addr, nbytes);
}

/* --- sockets ----------------------------------------------------------------------------------- */

static int real_socket(int domain, int type, int protocol)
{
    return ours(socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

static int real_socketpair(int domain, int type, int fds_out[2])
{
    int fds[2];

    if (socketpair(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return -1;
    if (!ch_sys_adopt_fd(fds[0])) {
        int err = errno;

        close(fds[1]);
        errno = err;
        return -1;
    }
    if (!ch_sys_adopt_fd(fds[1])) {
        ch_sys_close(fds[0]);
        return -1;
    }
    fds_out[0] = fds[0];
    fds_out[1] = fds[1];
    return 0;
}

static int real_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    return bind(fd, addr, len);
}

static int real_listen(int fd, int backlog)
{
    return listen(fd, backlog);
}

static int real_accept(int fd, struct sockaddr *addr_out, socklen_t *len_io)
{
    return ours(RETRY(accept4(fd, addr_out, len_io, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

static int real_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return RETRY(connect(fd, addr, len));
}

static int real_getsockname(int fd, struct sockaddr *addr_out, socklen_t *len_io)
{
    return getsockname(fd, addr_out, len_io);
}

static int real_getpeername(int fd, struct sockaddr *addr_out, socklen_t *len_io)
{
    return getpeername(fd, addr_out, len_io);
}

static int real_getsockopt(int fd, int level, int option, void *value_out, socklen_t *len_io)
{
    return getsockopt(fd, level, option, value_out, len_io);
}

static int real_setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
    return setsockopt(fd, level, option, value, len);
}

/* MSG_NOSIGNAL: a peer that went away is an error code, not a SIGPIPE in the user's process. */
static ssize_t real_sendmsg(int fd, const struct msghdr *msg)
{
    return RETRY(sendmsg(fd, msg, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static ssize_t real_recvmsg(int fd, struct msghdr *msg_io)
{
    return RETRY(recvmsg(fd, msg_io, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
}

static int real_shutdown(int fd, int how)
{
    return shutdown(fd, how);
}

/* SOCK_STREAM only: without it every address comes once per kind of socket. */
static int real_lookup(const char *host, struct sockaddr_storage *addrs_out, int max, int *why_io)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    int count = 0, why = getaddrinfo(host, NULL, &hints, &list);

    if (why != 0) {
        *why_io = why;
        return -1;
    }
    for (struct addrinfo *a = list; a != NULL && count < max; a = a->ai_next) {
        if (a->ai_addrlen <= sizeof(addrs_out[0]))
            memcpy(&addrs_out[count++], a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(list);
    return count;
}

/* --- waiting ----------------------------------------------------------------------------------- */

static int real_eventfd(unsigned initial)
{
    return ours(eventfd(initial, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int real_epoll_create(void)
{
    return ours(epoll_create1(EPOLL_CLOEXEC));
}

static int real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    return epoll_ctl(epfd, op, fd, event);
}

static const struct timespec *timespec_of(int64_t timeout_ns, struct timespec *store)
{
    if (timeout_ns < 0)
        return NULL;
    store->tv_sec = timeout_ns / 1000000000;
    store->tv_nsec = timeout_ns % 1000000000;
    return store;
}

static int real_poll(struct pollfd *fds_io, size_t count, int64_t timeout_ns)
{
    struct timespec ts;

    return ppoll(fds_io, count, timespec_of(timeout_ns, &ts), NULL);
}

/* Set once epoll_pwait2() turned out not to be there, so that it is asked for only once. */
static _Atomic bool no_pwait2;

/* epoll_wait() counts in milliseconds; our deadlines are exact. epoll_pwait2() is as fine as we
 * want, but older kernels (before 5.11) and some seccomp filters do not have it: then a poll of the
 * epoll descriptor sleeps as finely, at the price of a second call. */
static int real_epoll_wait(int epfd, struct epoll_event *events_out, int max, int64_t timeout_ns)
{
    struct pollfd pfd = { .fd = epfd, .events = POLLIN };
    struct timespec ts;
    int n;

    if (timeout_ns <= 0)
        return epoll_wait(epfd, events_out, max, timeout_ns == 0 ? 0 : -1);
    /* Relaxed: who does not see it yet asks once more. */
    if (!atomic_load_explicit(&no_pwait2, memory_order_relaxed)) {
        n = epoll_pwait2(epfd, events_out, max, timespec_of(timeout_ns, &ts), NULL);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n;
        atomic_store_explicit(&no_pwait2, true, memory_order_relaxed);
    }
    n = real_poll(&pfd, 1, timeout_ns);
    return n > 0 ? epoll_wait(epfd, events_out, max, 0) : n;
}

static int real_membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* --- processes and threads --------------------------------------------------------------------- */

static int real_pidfd_open(pid_t pid)
{
    return ours((int)syscall(SYS_pidfd_open, pid, 0));
}

/* The library's threads take no signal: they are the host program's, for its own threads. */
static int real_thread_create(pthread_t *thread_out, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(thread_out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = err;
    return err == 0 ? 0 : -1;
}

static int real_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    errno = pthread_atfork(prepare, parent, child);
    return errno == 0 ? 0 : -1;
}

static int real_getaffinity(size_t nbytes, cpu_set_t *set_out)
{
    return sched_getaffinity(0, nbytes, set_out);
}

static int real_random(void *buf, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = RETRY(getrandom((char *)buf + done, nbytes - done, 0));

        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

/* --- what cannot fail -------------------------------------------------------------------------- */

static uint64_t real_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void real_yield(void)
{
    sched_yield();
}

static void real_close(int fd)
{
    int keep = errno;

    /* Only what is marked is ours to close. In a forked child nothing is: the number may by now
     * belong to somebody else. */
    if (fd >= 0 && ch_fdmark_clear(fd))
        close(fd);
    errno = keep;
}

const struct ch_sys_ops ch_sys_real = {
#define CH_SYS(ret, fail, err, name, params, args) .name = real_##name,
#include "base/sys.def"
#undef CH_SYS
    .clock_ns = real_clock_ns,
    .yield = real_yield,
    .close = real_close,
    .unmap = real_unmap,
};

static const struct ch_sys_ops *installed = &ch_sys_real;

void ch_sys_replace(const struct ch_sys_ops *ops)
{
    installed = ops != NULL ? ops : &ch_sys_real;
}

#define CH_SYS(ret, fail, err, name, params, args)                                                 \
    ret ch_sys_##name params                                                                       \
    {                                                                                              \
        if (ch_fault_hit(CH_FAULT_##name, err))                                                    \
            return fail;                                                                           \
        return installed->name args;                                                               \
    }
#include "base/sys.def"
#undef CH_SYS

uint64_t ch_sys_clock_ns(void)
{
    return installed->clock_ns();
}

void ch_sys_yield(void)
{
    installed->yield();
}

void ch_sys_close(int fd)
{
    installed->close(fd);
}

void ch_sys_unmap(void *addr, size_t nbytes)
{
    installed->unmap(addr, nbytes);
}

int ch_sys_fd_count(void)
{
    return ch_fdmark_count();
}
