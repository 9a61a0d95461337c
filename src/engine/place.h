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

/* Fill in run->window and the sizes of slots for its schedule. False if the stage is too small for it. */
bool ch_place_plan(const struct ch_channel *channel, struct ch_run *run);

#endif
