/*
 * check.h - the proof that an algorithm is right for N ranks.
 *
 * All ranks' schedules are executed together over abstract memory, `rounds` times back to back, in
 * alternating halves of the stage. A cell of memory holds the expression of contributions that made it:
 * so not only the sum is proven right, but that all ranks have the same bits. Vector clocks order the
 * steps; flags, gates and messages are the only order there is between ranks. Proved, for that N:
 *
 *   - every OUT is what the operation promises, each contribution in it exactly once;
 *   - no two steps that are not ordered touch the same cell, unless both read; IN is not written (in
 *     place: not read any more once it was), and a region that is not the rank's own is not written at all;
 *   - no cell is read before it was written in this round;
 *   - nobody waits for ever; every message sent is received, with the length that was expected;
 *   - STAGE and LINE are not written before the round's gate, flags only rise, and who awaits a flag awaits
 *     one that is really raised to just that.
 *
 * A SEND is taken to block until the peer receives it: what passes needs no buffering at all. What that
 * means and why one execution is enough is in docs/design/schedules.md.
 */
#ifndef CH_CHECK_H
#define CH_CHECK_H

#include <choir/status.h>

#include "sched/sched.h"

enum { CH_CHECK_TRACE_MAX = 4096 };

/* What was seen on the way; for an algorithm's word about itself. */
struct ch_check_facts {
    bool rank_order; /* every result is the sum from the first rank to the last */
    bool partial;    /* there were COMBINE steps */
};

/* CHOIR_OK, or CHOIR_ERR_INVALID with the reason as error text and, in `trace` (of CH_CHECK_TRACE_MAX, may
 * be NULL), a short counterexample: which steps of which ranks, in order. `scheds` are of ranks 0 to
 * nranks - 1 of one operation. */
choir_status ch_check(struct ch_sched *const *scheds, uint32_t nranks, uint32_t rounds,
                      char *trace);

/* The same for any operations one after the other, as on a group's channel: rounds[i] are the schedules of
 * round i. `facts` may be NULL; it is written on success only. */
choir_status ch_check_sequence(struct ch_sched *const *const *rounds, uint32_t nrounds,
                               uint32_t nranks, struct ch_check_facts *facts, char *trace);

#endif
