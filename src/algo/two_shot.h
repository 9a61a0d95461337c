/*
 * two_shot.h - the first half of two-shot reductions: every rank reduces its own share.
 *
 * Each rank shows the shares that belong to others (1), awaits all, and reduces its own share from the
 * others' slots and its own input, in rank order. What follows depends on where the result is wanted.
 */
#ifndef CH_TWO_SHOT_H
#define CH_TWO_SHOT_H

#include "algo/staging.h"

/* Our share of block 0, the sum of all, goes to `dst`. */
static inline void ch_two_shot_reduce(struct ch_builder *b, const struct ch_shape *shape,
                                      struct ch_range dst)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_build_gate(b);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t s = ch_after(me, i, n);

        ch_build_copy(b, ch_stage(me, 0, 0, s, n), ch_in(me, 0, s, n));
    }
    ch_build_post(b, 1);
    ch_build_await_all(b, 1);
    ch_build_reduce(b, dst);
    for (uint32_t r = 0; r < n; r++)
        ch_build_range(b, r == me ? ch_in(me, 0, me, n) : ch_stage(r, 0, 0, me, n));
}

#endif
