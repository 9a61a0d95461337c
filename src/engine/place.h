/*
 * place.h - from a schedule's names to memory: windows, shares, addresses.
 *
 * A round moves the next window of every block. How long it is follows from what all ranks know alike (the
 * schedule's slots, the channel's stage, the number of ranks), so that all have as many rounds.
 *
 * In a gather or scatter a block is where its own length puts it, whatever the others' lengths: it is in LINE if all
 * would fit if they were as long. So its two ranks, who may know no more, look for it in the same place (rooted.h).
 */
#ifndef CH_PLACE_H
#define CH_PLACE_H

#include <stddef.h>

#include "engine/runner.h"

struct ch_place {
    char *at;
    size_t count; /* elements */
};

/* Where a range is in this round, of one or of several. */
struct ch_place ch_place_in_round(const struct ch_channel *channel, const struct ch_run *run,
                                  const struct ch_range *range);

static inline char *ch_piece_start(const struct ch_blocks *blocks, uint32_t index, size_t size)
{
    if (blocks->pieces != NULL)
        return blocks->pieces[index].data;
    return blocks->base + index * blocks->count * size;
}

static inline char *ch_spot_start(const struct ch_channel *channel, const struct ch_run *run,
                                  const struct ch_spot *spot)
{
    switch ((enum ch_region)spot->region) {
    case CH_IN:
        return ch_piece_start(&run->op->in, spot->index, run->plan->size);
    case CH_OUT:
        return ch_piece_start(&run->op->out, spot->index, run->plan->size);
    case CH_SCRATCH:
        return channel->scratch;
    case CH_STAGE:
    case CH_LINE:
    case CH_NREGIONS:
        break;
    }
    return spot->at + (run->round % 2 != 0 ? spot->stride : 0);
}

/* The same, quickly if it was laid out beforehand. */
static inline struct ch_place ch_place_of(const struct ch_channel *channel,
                                          const struct ch_run *run, const struct ch_range *range)
{
    const struct ch_plan *plan = run->plan;
    const struct ch_spot *spot;

    if (plan->spots == NULL)
        return ch_place_in_round(channel, run, range);
    spot = &plan->spots[range - plan->sched->ranges];
    if (spot->count == 0)
        return (struct ch_place){ .at = NULL, .count = 0 };
    return (struct ch_place){ .at = ch_spot_start(channel, run, spot) + spot->offset,
                              .count = spot->count };
}

/* Bytes of an element there. */
size_t ch_place_size(const struct ch_run *run, const struct ch_range *range);

/* Fill in the window and the sizes of slots for the plan's schedule. False if the stage is too small for it. */
bool ch_place_plan(const struct ch_channel *channel, struct ch_plan *plan);

/* Where a range is in the only round of a plan for operations like `op`. */
struct ch_spot ch_place_spot(const struct ch_channel *channel, const struct ch_plan *plan,
                             const struct ch_op *op, const struct ch_range *range);

#endif
