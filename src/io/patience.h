/*
 * patience.h - how a caller of io is prepared to wait: on what, until when, and what ends it early.
 *
 * One value that goes down the stack unchanged, so that a call made of several waits (look a name
 * up, connect, send) still has one deadline, and every one of them can be interrupted.
 */
#ifndef CH_PATIENCE_H
#define CH_PATIENCE_H

#include "base/wait.h"

struct ch_patience {
    struct ch_waiter *waiter; /* the calling rank's */
    ch_deadline until;
    const _Atomic uint32_t *poison; /* NULL: there is none */
};

/* Wait until poll(2) reports one of `events` on `fd`. `what` is for the error text. */
static inline choir_status ch_patience_wait(const struct ch_patience *patience, int fd,
                                            short events, const char *what)
{
    return ch_wait_fd(patience->waiter, fd, events, patience->until, patience->poison, what);
}

#endif
