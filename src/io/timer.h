/*
 * timer.h - deadlines in order: which is the next, and what to do when it comes.
 *
 * The links are in the timers themselves (a pairing heap), so that setting one cannot fail and costs
 * no allocation; start is O(1), stop and expiry O(log n) on average. One thread at a time: a set of
 * timers belongs to an event loop (loop.h), which is where most readers want to look.
 */
#ifndef CH_TIMER_H
#define CH_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

struct ch_timers;

struct ch_timer {
    void (*fire)(struct ch_timer *timer); /* may start or stop any timer, and free this one */
    ch_deadline at;
    uint64_t number;      /* the order of starting decides between equal deadlines */
    struct ch_timers *in; /* NULL: not running */
    /* The heap: a timer's children are a list, whose first has the parent as `prev`. */
    struct ch_timer *child, *next, *prev;
};

struct ch_timers {
    struct ch_timer *root; /* the earliest, NULL if there is none */
    uint64_t started;      /* ever */
    ch_deadline firing;    /* while ch_timers_fire() runs: its `now`, otherwise 0 */
};

/* Have timer->fire() called at `at`, or as soon as possible after. Starting a timer that runs moves
 * it. The rest of a new `timer` must be zeroed. */
void ch_timer_start(struct ch_timers *timers, struct ch_timer *timer, ch_deadline at);

/* Ignores a timer that is not running. */
void ch_timer_stop(struct ch_timer *timer);

static inline bool ch_timer_is_running(const struct ch_timer *timer)
{
    return timer->in != NULL;
}

/* When the next one is due; CH_NEVER if there is none. */
ch_deadline ch_timers_next(const struct ch_timers *timers);

/* Fire, in order, all that are due at `now`, and say how many. What is started meanwhile waits for
 * the next call, even if it is due: a timer that restarts itself cannot keep the caller here. */
int ch_timers_fire(struct ch_timers *timers, uint64_t now);

#endif
