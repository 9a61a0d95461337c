/*
 * wait.h - the one way to wait.
 *
 * Every call of the library that has to wait ends up in ch_wait(): it watches the caller's
 * condition, an absolute deadline, the group's poison word and an interrupt flag; it spins for a
 * while, yields for a while, and then sleeps. Nothing else in the library blocks, except the event
 * loops of io.
 *
 * A waiter is what a rank sleeps on: its doorbell (bell.h), and an epoll set for the rank's sockets
 * and pidfds, so that memory and network are one sleep. Several threads may wait on one waiter at
 * once. Each sleeps on a seat, an epoll instance of its own that watches bell and set edge-triggered:
 * a ring gets everybody up exactly once, nobody has to empty the bell, and a descriptor that is ready
 * but nobody's concern wakes nobody twice.
 *
 *      ch_wait()   spin ---> yield ---> sleep --+      leaves from any phase, at once, when
 *                                ^              |      the condition holds            CHOIR_OK
 *                                |   (rung: look again, sleep again)                  
 *                                +------<-------+      poisoned                       CHOIR_ERR_REMOTE
 *                                                      interrupted                    CHOIR_ERR_INTERRUPTED
 *                                                      the deadline passed            CHOIR_ERR_TIMEOUT
 */
#ifndef CH_WAIT_H
#define CH_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/lock.h"

struct ch_waiter {
    struct ch_bell bell; /* our own, for posts from inside this process */
    int epfd;            /* the set: others add and remove descriptors as they like */
    struct ch_lock lock; /* guards the next four */
    uint32_t nasleep;    /* threads asleep or about to be */
    int *free_seats;     /* the first nfree are free; room for nseats */
    size_t nseats, nfree;
    _Atomic uint32_t interrupted; /* set by anybody, a signal handler too; cleared by the owner */
    _Atomic uint32_t spin_ns;     /* adapts between the limits below; written by waiting threads */
    uint32_t spin_min_ns, spin_max_ns, yield_ns; /* by ch_waiter_set_crowd() */
    bool crowded;                                /* ranks outnumber processors */
    int processors; /* that this process may use, or its ranks share; asked once, it takes a dozen files */
};

/* `word` is in memory that the posters see, zeroed, and stays the caller's. Half-built waiters are
 * fine for fini, if they were zeroed. */
choir_status ch_waiter_init(struct ch_waiter *waiter, struct ch_bell_word *word);
void ch_waiter_fini(struct ch_waiter *waiter);

/* Tell how many ranks share this host's processors: spinning while ranks outnumber processors costs
 * whole time slices. One is assumed until told.
 * Threads: while nobody waits. */
void ch_waiter_set_crowd(struct ch_waiter *waiter, int ranks_on_host);

/* Make every wait on this waiter return CHOIR_ERR_INTERRUPTED until cleared. Async-signal-safe. */
void ch_waiter_interrupt(struct ch_waiter *waiter);
void ch_waiter_clear_interrupt(struct ch_waiter *waiter);

/*
 * For an event loop that has something to do whenever the waiter is rung: a seat of its own, a descriptor that
 * becomes readable then. Who sits counts as asleep until it stands up, so it looks once more at what it
 * waits for after sitting down; and each time the seat is readable it clears it first, then looks.
 * Errors: no seat can be had.
 */
choir_status ch_waiter_sit(struct ch_waiter *waiter, int *seat_out);
void ch_waiter_clear_seat(int seat);
void ch_waiter_stand(struct ch_waiter *waiter, int seat);

/* For a condition that tells posters by a word of its own which posts it needs, so that they ring for no others:
 * to be called after a store to that word, for those who count as asleep already. They look again. */
void ch_waiter_wants_more(struct ch_waiter *waiter);

struct ch_wait {
    struct ch_waiter *waiter;

    /* True when there is nothing left to wait for. Called often, from the waiting thread; may move
     * things along (poll sockets, run steps), must not block. What makes it true must either come
     * with a post to the waiter's bell or be news on a descriptor of its set, or on the next. */
    bool (*ready)(void *arg);

    /* Asked before each sleep, if not NULL: one more descriptor whose poll(2) events end it, or -1. So
     * threads that share a connection can take turns in watching it. */
    int (*also)(void *arg, short *events_out);
    void *arg;
    bool looked; /* ready() was asked just now, and said no */

    ch_deadline until;
    const _Atomic uint32_t *poison; /* non-zero: give up. NULL: there is none */
    const char *what;               /* for the error text: "a reply from the store" */
};

/*
 * Wait until wait->ready() says true.
 * Blocks:  until ready, deadline, poison or interrupt. A condition that holds wins over all three.
 * Errors:  CHOIR_ERR_TIMEOUT, CHOIR_ERR_INTERRUPTED, CHOIR_ERR_REMOTE (poisoned; the caller knows the
 *          group's record and replaces the text), CHOIR_ERR_FORKED.
 */
choir_status ch_wait(const struct ch_wait *wait);

/*
 * Where ranks outnumber processors: let others run, up to `turns` times, before setting up all that a wait needs. True as soon as
 * ready() says so; false at once where they do not, or are not to yield.
 */
bool ch_wait_turns(struct ch_waiter *waiter, int turns, bool (*ready)(void *arg), void *arg);

/* The same for a descriptor: until poll(2) reports one of `events` (or an error or hang-up, which
 * the caller's next read or write will tell). */
choir_status ch_wait_fd(struct ch_waiter *waiter, int fd, short events, ch_deadline until,
                        const _Atomic uint32_t *poison, const char *what);

/* The same for a flag that ch_post() raises; the common case, with its first look inline. */
choir_status ch_wait_flag_slow(const struct ch_wait *wait, _Atomic uint64_t *flag, uint64_t value);

static inline choir_status ch_wait_flag(const struct ch_wait *wait, _Atomic uint64_t *flag,
                                        uint64_t value)
{
    if (CH_LIKELY(ch_flag_reached(flag, value)))
        return CHOIR_OK;
    return ch_wait_flag_slow(wait, flag, value);
}

#endif
