/*
 * place.h - from a schedule's names to memory: windows, shares, addresses.
 *
 * A round moves the next window of every block. How long it is follows from what all ranks know alike (the
 * schedule's slots, the channel's stage, the number of ranks), so that all have as many rounds.
 *
 * What is short leaves most of its slot in the stage free, and takes another piece of it each time: lines that a peer has
 * just read are slow to be written again (docs/design/performance.md).
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
    size_t count, nbytes; /* elements, and what they take */
};

/* Where range `number` of the schedule is in this round, of one or of several. */
struct ch_place ch_place_in_round(const struct ch_channel *channel, const struct ch_run *run,
                                  uint32_t number);

static inline char *ch_piece_start(const struct ch_blocks *blocks, uint32_t index, size_t size)
{
    if (blocks->pieces != NULL)
        return blocks->pieces[index].data;
    /* There may be nothing, nowhere. */
    return blocks->base == NULL ? NULL : blocks->base + index * blocks->count * size;
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
        return spot->at + (run->round % 2 != 0 ? spot->stride : 0) + run->turn_at;
    case CH_LINE:
    case CH_NREGIONS:
        break;
    }
    return spot->at + (run->round % 2 != 0 ? spot->stride : 0);
}

/* Where in its slots a round begins; the halves of the stage take turns with every round, this with every other. */
static inline size_t ch_place_turn(const struct ch_plan *plan, uint64_t round)
{
    return (round / 2 & plan->turn_mask) * plan->turn_nbytes;
}

/* The same, quickly if it was laid out beforehand. */
static inline struct ch_place ch_place_of(const struct ch_channel *channel,
                                          const struct ch_run *run, uint32_t number)
{
    const struct ch_spot *spot;

    if (CH_UNLIKELY(run->plan->spots == NULL))
        return ch_place_in_round(channel, run, number);
    spot = &run->plan->spots[number];
    if (spot->count == 0)
        return (struct ch_place){ .at = NULL, .count = 0 };
    return (struct ch_place){ .at = ch_spot_start(channel, run, spot) + spot->offset,
                              .count = spot->count,
                              .nbytes = spot->nbytes };
}

/* Fill in the window and the sizes of slots for the plan's schedule. False if the stage is too small for it. */
bool ch_place_plan(const struct ch_channel *channel, struct ch_plan *plan);

/* Where a range is in the only round of a plan for operations like `op`. */
struct ch_spot ch_place_spot(const struct ch_channel *channel, const struct ch_plan *plan,
                             const struct ch_op *op, const struct ch_range *range);

#endif
