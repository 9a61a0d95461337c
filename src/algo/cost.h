/*
 * cost.h - what one rank's schedule costs, counted from its steps.
 */
#ifndef CH_COST_H
#define CH_COST_H

#include <stdint.h>

#include "sched/sched.h"

/* How long things are; shares are taken as exact fractions. */
struct ch_lengths {
    uint64_t block_nbytes; /* of every block */
    uint32_t widening;     /* bytes of an accumulator per byte of an element: 1, 2 or 4 */
};

struct ch_cost {
    uint32_t messages; /* sent */
    uint32_t
        waits;    /* flags awaited, not counting how many ranks raise them, and messages received */
    double sent;  /* bytes in messages */
    double moved; /* bytes read and written by copies and reductions, messages not counted */
};

struct ch_cost ch_cost_of(const struct ch_sched *sched, const struct ch_lengths *lengths);

#endif
