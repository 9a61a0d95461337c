/*
 * place.h - from a schedule's names to memory: windows, shares, addresses.
 *
 * A round moves the next window of every block. How long it is follows from what all ranks know alike (the
 * schedule's slots, the channel's stage, the number of ranks), so that all have as many rounds.
 */
#ifndef CH_PLACE_H
#define CH_PLACE_H

#include <stddef.h>

#include "engine/runner.h"

struct ch_place {
    char *at;
    size_t count; /* elements */
};

/* Where a range is in this round. */
struct ch_place ch_place_of(const struct ch_channel *channel, const struct ch_run *run,
                            const struct ch_range *range);

/* Bytes of an element there. */
size_t ch_place_size(const struct ch_run *run, const struct ch_range *range);

/* Fill in the window and the sizes of slots for the plan's schedule. False if the stage is too small for it. */
bool ch_place_plan(const struct ch_channel *channel, struct ch_plan *plan);

/* Where a range is in the only round of a plan for operations like `op`. */
struct ch_spot ch_place_spot(const struct ch_channel *channel, const struct ch_plan *plan,
                             const struct ch_op *op, const struct ch_range *range);

#endif
