/*
 * sys.c - the real system calls behind sys.def, and the marks on our descriptors.
 */
#include "base/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fdmarks.h"
#include "base/forked.h"

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

/* What every call that makes a descriptor ends with. Made and marked without a fork in between, or
 * the child would keep a copy that nobody knows of. */
#define MAKE_OURS(call)                                                                            \
    __extension__({                                                                                \
        int made_ = -1;                                                                            \
        if (ch_fork_hold()) {                                                                      \
            made_ = ours(call);                                                                    \
            ch_fork_release();                                                                     \
        }                                                                                          \
        made_;                                                                                     \
    })

static int ours(int fd)
{
    if (fd < 0)
        return -1;
    return ch_sys_adopt_fd(fd) ? fd : -1;
}

/* --- files ------------------------------------------------------------------------------------- */

static int real_open(const char *path, int flags, int mode)
{
    return MAKE_OURS(RETRY(open(path, flags | O_CLOEXEC, mode)));
}

static ssize_t real_read(int fd, void *buf, size_t nbytes)
{
    return RETRY(read(fd, buf, nbytes));
}

static ssize_t real_write(int fd, const void *buf, size_t nbytes)
{
    return RETRY(write(fd, buf, nbytes));
}

static ssize_t real_pread(int fd, void *buf, size_t nbytes, off_t offset)
{
    return RETRY(pread(fd, buf, nbytes, offset));
}

static ssize_t real_pwrite(int fd, const void *buf, size_t nbytes, off_t offset)
{
    return RETRY(pwrite(fd, buf, nbytes, offset));
}

static int real_unlink(const char *path)
{
    return unlink(path);
}

static int real_rename(const char *from, const char *to)
{
    return rename(from, to);
}

static int real_fstat(int fd, struct stat *st_out)
{
    return fstat(fd, st_out);
}

static int real_truncate(int fd, off_t nbytes)
{
    return RETRY(ftruncate(fd, nbytes));
}

/* Of the open file, not of the process: it goes with the last descriptor of that opening, and two
 * openings in one process keep each other out. */
static int real_lock_byte(int fd, int type, off_t place)
{
    struct flock range = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = place, .l_len = 1
    };

    return RETRY(fcntl(fd, F_OFD_SETLK, &range));
}

static int real_byte_is_locked(int fd, off_t place)
{
    struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1 };

    if (fcntl(fd, F_OFD_GETLK, &range) != 0)
        return -1;
    return range.l_type != F_UNLCK;
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
    int fd = MAKE_OURS(memfd_create(name, flags | MFD_NOEXEC_SEAL));

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = MAKE_OURS(memfd_create(name, flags));
    return fd;
}

static int real_add_seals(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals);
}

static int real_get_seals(int fd)
{
    return fcntl(fd, F_GET_SEALS);
}

/* Kept from forked children, with no fork in between. */
static void *real_map_shared(int fd, size_t nbytes)
{
    void *addr;

    if (!ch_fork_hold())
        return NULL;
    addr = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (addr != MAP_FAILED && madvise(addr, nbytes, MADV_DONTFORK) != 0) {
        int err = errno;

        munmap(addr, nbytes);
        addr = MAP_FAILED;
        errno = err;
    }
    ch_fork_release();
    return addr == MAP_FAILED ? NULL : addr;
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
    return MAKE_OURS(socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

/* Both become ours, or neither. */
static int adopt_pair(const int fds[2])
{
    int err;

    if (ch_sys_adopt_fd(fds[0])) {
        if (ch_sys_adopt_fd(fds[1]))
            return 0;
        err = errno;
        ch_fdmark_clear(fds[0]);
        close(fds[0]);
    } else {
        err = errno;
        close(fds[1]);
    }
    errno = err;
    return -1;
}

static int real_socketpair(int domain, int type, int fds_out[2])
{
    int fds[2], rc;

    if (!ch_fork_hold())
        return -1;
    rc = socketpair(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds);
    if (rc == 0)
        rc = adopt_pair(fds);
    ch_fork_release();
    if (rc == 0)
        memcpy(fds_out, fds, sizeof(fds));
    return rc;
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
    return MAKE_OURS(RETRY(accept4(fd, addr_out, len_io, SOCK_CLOEXEC | SOCK_NONBLOCK)));
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

/* What came along is ours from the first moment, in case of a fork. Who receives adopts each again,
 * and so learns of those that cannot be kept. */
static void mark_passed(struct msghdr *msg)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        size_t nbytes = cmsg->cmsg_len - CMSG_LEN(0);

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= nbytes; at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + at, sizeof(fd));
            (void)ch_fdmark_set(fd);
        }
    }
}

static ssize_t real_recvmsg(int fd, struct msghdr *msg_io)
{
    ssize_t n;

    if (msg_io->msg_controllen == 0)
        return RETRY(recvmsg(fd, msg_io, MSG_DONTWAIT));
    if (!ch_fork_hold())
        return -1;
    n = RETRY(recvmsg(fd, msg_io, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
    if (n >= 0)
        mark_passed(msg_io);
    ch_fork_release();
    return n;
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
    return MAKE_OURS(eventfd(initial, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int real_epoll_create(void)
{
    return MAKE_OURS(epoll_create1(EPOLL_CLOEXEC));
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

static int real_timerfd(void)
{
    return MAKE_OURS(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

static int real_timerfd_set(int fd, int64_t after_ns)
{
    struct itimerspec when = { 0 };

    timespec_of(after_ns, &when.it_value);
    return timerfd_settime(fd, 0, &when, NULL);
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

static ssize_t real_read_process(pid_t pid, const struct iovec *to, int nto,
                                 const struct iovec *from, int nfrom)
{
    return process_vm_readv(pid, to, (unsigned long)nto, from, (unsigned long)nfrom, 0);
}

/* --- processes and threads --------------------------------------------------------------------- */

static int real_pidfd_open(pid_t pid)
{
    return MAKE_OURS((int)syscall(SYS_pidfd_open, pid, 0));
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

static int real_sigaction(int number, const struct sigaction *action, struct sigaction *old_out)
{
    return sigaction(number, action, old_out);
}

static int real_getaffinity(size_t nbytes, cpu_set_t *set_out)
{
    return sched_getaffinity(0, nbytes, set_out);
}

/* Local: its names are nobody else's. Never unloaded: threads of it may run. */
static void *real_dlopen(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *real_dlsym(void *library, const char *name)
{
    return dlsym(library, name);
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

static uint64_t real_wall_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
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
    if (fd >= 0 && ch_fork_hold()) { /* held: the handlers came with the first descriptor */
        if (ch_fdmark_clear(fd))
            close(fd);
        ch_fork_release();
    }
    errno = keep;
}

const struct ch_sys_ops ch_sys_real = {
#define CH_SYS(ret, fail, err, name, params, args) .name = real_##name,
#include "base/sys.def"
#undef CH_SYS
    .clock_ns = real_clock_ns,
    .wall_ns = real_wall_ns,
    .yield = real_yield,
    .close = real_close,
    .unmap = real_unmap,
};

static const struct ch_sys_ops *installed = &ch_sys_real;

void ch_sys_replace(const struct ch_sys_ops *ops)
{
    installed = ops != NULL ? ops : &ch_sys_real;
}

/* In a forked child our descriptors are closed, and their numbers may be the program's by now. */
static bool refused_in_fork(void)
{
    if (CH_LIKELY(!ch_is_forked()))
        return false;
    errno = EOWNERDEAD;
    return true;
}

#define CH_SYS(ret, fail, err, name, params, args)                                                 \
    ret ch_sys_##name params                                                                       \
    {                                                                                              \
        if (ch_fault_hit(CH_FAULT_##name, err) || refused_in_fork())                               \
            return fail;                                                                           \
        return installed->name args;                                                               \
    }
#include "base/sys.def"
#undef CH_SYS

uint64_t ch_sys_clock_ns(void)
{
    return installed->clock_ns();
}

uint64_t ch_sys_wall_ns(void)
{
    return installed->wall_ns();
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
