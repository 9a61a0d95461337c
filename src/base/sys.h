/*
 * sys.h - the one door to the operating system.
 *
 * Everything the library asks of the kernel goes through ch_sys_<name>(), listed in sys.def: so that
 * a test can make the k-th call fail (fault.h), and a simulator can replace the world
 * (ch_sys_replace()). The calls keep the manners of the system calls they stand for: -1 and errno.
 * EINTR is retried inside, except by the calls that wait.
 *
 * Every descriptor made or received here is close-on-exec and marked as ours until ch_sys_close().
 * The marks let a forked child close them (forked.h) and let tests see a leak.
 */
#ifndef CH_SYS_H
#define CH_SYS_H

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#define CH_SYS(ret, fail, err, name, params, args) ret ch_sys_##name params;
#include "base/sys.def"
#undef CH_SYS

/* What cannot fail. */
uint64_t ch_sys_clock_ns(void); /* CLOCK_MONOTONIC */
uint64_t ch_sys_wall_ns(void);  /* CLOCK_REALTIME: for records that people read, never to wait by */
void ch_sys_yield(void);
void ch_sys_close(int fd); /* ignores -1; in a forked child does nothing; keeps errno */
void ch_sys_unmap(void *addr, size_t nbytes); /* ignores NULL; in a forked child does nothing */

/* Mark a descriptor that came by another way (SCM_RIGHTS, inherited from a launcher) as ours. False,
 * with errno set and the descriptor closed, if it cannot be kept. */
bool ch_sys_adopt_fd(int fd);

/* How many descriptors are ours now. */
int ch_sys_fd_count(void);

struct ch_sys_ops {
#define CH_SYS(ret, fail, err, name, params, args) ret(*name) params;
#include "base/sys.def"
#undef CH_SYS
    uint64_t (*clock_ns)(void);
    uint64_t (*wall_ns)(void);
    void (*yield)(void);
    void (*close)(int fd);
    void (*unmap)(void *addr, size_t nbytes);
};

/* The real calls; copy, change some, and install the copy, which is borrowed until replaced. NULL
 * restores the real ones. Not while other threads are inside the library. */
extern const struct ch_sys_ops ch_sys_real;
void ch_sys_replace(const struct ch_sys_ops *ops);

#endif
