/*
 * staging.h - what the algorithms on shared memory have in common.
 *
 * Payload goes through STAGE or, if it is tiny, through LINE; beside that the two are the same steps.
 * Peers are visited from the next rank on, so that not all of them pull at the same memory at once.
 */
#ifndef CH_STAGING_H
#define CH_STAGING_H

#include "algo/algo.h"

/* The rank `i` places after `me`, around. */
static inline uint32_t ch_after(uint32_t me, uint32_t i, uint32_t nranks)
{
    return (me + i) % nranks;
}

/* Where `owner` keeps what is for `dest`: nobody keeps a slot for itself. */
static inline uint32_t ch_slot_for(uint32_t owner, uint32_t dest)
{
    return dest < owner ? dest : dest - 1;
}

/* All of a block, in a slot of STAGE or of LINE. */
static inline struct ch_range ch_shown(enum ch_region region, uint32_t rank, uint32_t slot,
                                       uint32_t block)
{
    return ch_range(region, rank, slot, block, 0, 1);
}

/* Flags, and slots in one of the two regions. */
static inline struct ch_needs ch_staging_needs(enum ch_region region, uint32_t flags,
                                               uint32_t slots)
{
    return (struct ch_needs){ .flags = flags,
                              .stage_slots = region == CH_STAGE ? slots : 0,
                              .line_slots = region == CH_LINE ? slots : 0 };
}

/* Show our IN of `block` to all others. */
static inline void ch_show_in(struct ch_builder *b, enum ch_region region, uint32_t me,
                              uint32_t block)
{
    ch_build_gate(b);
    ch_build_copy(b, ch_shown(region, me, 0, block), ch_in(me, block, 0, 1));
    ch_build_post(b, 1);
}

/* OUT of `block` is the sum of what the others show in slot 0 and of our own IN. */
static inline void ch_reduce_shown(struct ch_builder *b, enum ch_region region,
                                   const struct ch_shape *shape, uint32_t block)
{
    ch_build_reduce(b, ch_out(shape->rank, block, 0, 1));
    for (uint32_t r = 0; r < shape->nranks; r++)
        ch_build_range(b, r == shape->rank ? ch_in(r, block, 0, 1) : ch_shown(region, r, 0, block));
}

/* Our own part of the result, which no other rank has to touch. */
static inline void ch_keep_own(struct ch_builder *b, const struct ch_shape *shape, uint32_t block)
{
    if (!shape->in_place)
        ch_build_copy(b, ch_out(shape->rank, block, 0, 1), ch_in(shape->rank, block, 0, 1));
}

#endif
