/*
 * runner.h - running the schedule of a collective, as far as it goes without waiting.
 *
 *   ch_run_begin()   nothing but what it needs; nobody is told yet
 *   ch_run_step()    enter the operation when the descriptor's slot is free; choose the algorithm; then round
 *                    by round, step by step; CHOIR_IN_PROGRESS wherever it would have to wait, the first time
 *                    at once: the caller has something to do that need not be done before others can go on
 *   ch_run_end()     takes back transfers that are still under way
 *
 *   ENTERING --> [AGREEING, if nobody knows all lengths; HEADING, HEARING: rooted.h] --> RUNNING --> DONE
 *
 * A channel runs one at a time. On a warm path nothing is allocated: plans are kept (plan.h), scratch and tables
 * grow to what was needed most.
 */
#ifndef CH_RUNNER_H
#define CH_RUNNER_H

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/op.h"
#include "engine/suspect.h"

enum ch_run_phase {
    CH_RUN_ENTERING,
    CH_RUN_AGREEING,
    CH_RUN_HEADING,
    CH_RUN_HEARING,
    CH_RUN_RUNNING
};

struct ch_run {
    enum ch_run_phase phase;
    const struct ch_op *op; /* whose blocks are moved: the caller's, or one made for a phase */
    const struct ch_plan *plan;

    const struct ch_op *pairs; /* lengths in the checks beside flags (rooted.h); NULL: none */
    bool some; /* only some ranks are in it: by messages, in no round, and nothing is not sent */

    /* Counters have something between them: a compiler would count a pair in one vector, for which the processor has
     * to wait until both were stored. */
    uint64_t round;       /* now */
    uint32_t step;        /* the next of the schedule; a fused plan has a count of its own */
    uint64_t rounds_left; /* this one included */
    int waits_for;        /* the member, or CH_FOR_ALL */
    size_t offset;        /* elements of each block that earlier rounds have moved */
    size_t turn_at;       /* bytes into the slots of the stage */

    struct ch_vigil vigil;

    bool
        lingers; /* where it has to wait it looks again for a moment: not the first time, see ch_run_step() */
    bool got_on; /* bytes of a message have moved */
    bool moving; /* the two below were started for this step */
    struct ch_transfer out, in;
};

/* begin() sets `run` up. */
choir_status ch_run_begin(struct ch_channel *channel, const struct ch_op *op, struct ch_run *run);
choir_status ch_run_step(struct ch_channel *channel, struct ch_op *op, struct ch_run *run);
void ch_run_end(struct ch_channel *channel, struct ch_run *run);

#endif
