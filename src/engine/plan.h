/*
 * plan.h - how an operation of one kind and length is carried out: algorithm, schedule, windows, places.
 *
 * Most programs do the same few operations over and over. What follows from kind and length alone is found out
 * once and remembered by the channel; what is left to an operation is its caller's memory and the round.
 *
 * Threads: one at a time for each channel; its group's token is enough.
 */
#ifndef CH_PLAN_H
#define CH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/op.h"
#include "sched/cache.h"

struct ch_channel;
struct ch_run;

/* A range of the schedule as memory, for plans of one round (place.h). `at` is the place in an even round, and
 * `stride` bytes further in an odd one; of IN and OUT it is NULL, and `offset` is counted in block `index`. */
struct ch_spot {
    char *at;
    size_t stride, offset;
    size_t count, nbytes; /* elements, and what they take */
    uint32_t index;
    uint8_t region; /* enum ch_region */
};

/* What calls by one plan say of themselves (describe.h), as long as type and counts are these. */
struct ch_said {
    choir_optype type; /* CHOIR_OP_UNKNOWN: nothing that holds for another call */
    uint64_t counts;
    uint64_t hash; /* of all that must be the same on all ranks */
};

/* What a plan depends on: alike on all ranks, but for in_place. */
struct ch_plan_key {
    size_t longest;   /* elements of the longest block of all ranks */
    const char *algo; /* asked for by name; NULL: chosen */
    uint32_t root;
    uint8_t coll, dtype, redop;
    bool reduces, in_place, uneven;
    bool led;      /* a barrier that `root` should leave first */
    uint64_t kind; /* all from `root` on in one word, to compare */
};

/* A schedule as one function (fused.h). */
typedef choir_status (*ch_fused_fn)(struct ch_channel *channel, struct ch_run *run);

struct ch_plan {
    struct ch_said said; /* of the last call, but for those that agree on lengths first */
    struct ch_plan_key key;
    struct ch_cached_sched *cached; /* NULL: there is no plan here */
    const struct ch_sched *sched;
    ch_fused_fn fused; /* what is done instead of its steps; NULL: they are */

    /* How long things are: elements, and bytes of an element and of a slot. */
    size_t window;         /* elements of a block that a round moves */
    size_t nrounds;        /* at least 1 */
    size_t size, acc_size; /* of an element, and of an accumulator */
    choir_type acc;
    size_t stage_slot, line_slot, scratch_slot;
    size_t turn_nbytes; /* how much further in its slot each use of the stage begins (place.h) */
    uint32_t turn_mask; /* of the uses' number: after that it begins anew */
    bool
        past_caches; /* results are longer than what the caches keep of them until somebody reads */
    bool line_goes_on; /* LINE is longer than what fits into the flag's own cache line */
    bool plain;        /* there are spots, and all copies are of bytes as they are */

    /* One for each range of the schedule; NULL: there are several rounds. In `room`, which only grows. */
    struct ch_spot *spots, *room;
    size_t room_for;
    uint64_t used; /* the number of the call that last asked for it, or of one before */
};

/* By a hash of the key, in sets in which the least recently used one makes room. */
enum { CH_PLANS_KEPT = 32, CH_PLANS_IN_SET = 4 };

/* The plan for `op`, if its longest block has `longest` elements. It stays until the next one is asked for.
 * Errors: CHOIR_ERR_INVALID for an algorithm there is not, CHOIR_ERR_UNSUPPORTED for one that cannot; the
 * same on all ranks. CHOIR_ERR_NOMEM. */
choir_status ch_plan_find(struct ch_channel *channel, const struct ch_op *op, const char *algo,
                          size_t longest, bool uneven, const struct ch_plan **plan_out);

/* Forget them all. */
void ch_plans_drop(struct ch_channel *channel);

#endif
