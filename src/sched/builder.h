/*
 * builder.h - what the parser needs of the builder beyond sched.h: to look at a draft.
 */
#ifndef CH_BUILDER_H
#define CH_BUILDER_H

#include "sched/sched.h"

/* The numbers that ch_builder_end() will be given, if they are known before. */
void ch_builder_promise(struct ch_builder *b, uint32_t nflags, uint32_t stage_slots,
                        uint32_t line_slots);

/* Whether all went well so far, the last step included, as far as it is there. */
choir_status ch_builder_validate_last(const struct ch_builder *b);

/*
 * A tally: steps with how much they move, but not where, and unchecked: for playing schedules of so many ranks that
 * their ranges could not be kept. Amounts are in blocks: a range is 1/nshares of one.
 */
struct ch_tally_step {
    uint8_t kind;        /* enum ch_step_kind */
    uint32_t peer, flag; /* as in struct ch_step */
    double out,
        in; /* sent and received; of steps that move bytes, `out` is what they read and write */
};

struct ch_tally {
    uint32_t nsteps;
    struct ch_tally_step *steps; /* ch_free() */
};

/* `widening` as in algo/cost.h: what a range of SCRATCH counts for, in operations that reduce. */
choir_status ch_builder_begin_tally(enum ch_coll coll, const char *algo, uint32_t rank,
                                    uint32_t nranks, uint32_t root, uint32_t widening,
                                    struct ch_builder **builder_out);
/* Ends the builder, also on failure. */
choir_status ch_builder_end_tally(struct ch_builder *builder, struct ch_tally *tally_out);

/* Drop it; accepts NULL. */
void ch_builder_drop(struct ch_builder *b);

#endif
