/*
 * exchange.h - operations in which every rank has something of its own for every other.
 *
 * Each rank keeps a slot for every other one. What they hold goes through STAGE or LINE alike.
 */
#ifndef CH_EXCHANGE_H
#define CH_EXCHANGE_H

#include "algo/staging.h"

/* Reduce-scatter: show each owner its block, reduce our own from the others' slots and our input. */
static inline struct ch_needs ch_emit_reduce_scatter(const struct ch_shape *shape,
                                                     struct ch_builder *b, enum ch_region region)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_build_gate(b);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_copy(b, ch_shown(region, me, ch_slot_for(me, r), r), ch_in(me, r, 0, 1));
    }
    ch_build_post(b, 1);
    ch_build_await_all(b, 1);
    ch_build_reduce(b, ch_out(me, me, 0, 1));
    for (uint32_t r = 0; r < n; r++)
        ch_build_range(b,
                       r == me ? ch_in(me, me, 0, 1) : ch_shown(region, r, ch_slot_for(r, me), me));
    return ch_staging_needs(region, 1, n - 1);
}

/* All-to-all: show everyone its block, take ours as they get ready. In place the block to a peer and
 * the block from it lie in one place: ours is out of the way before the peer's comes. */
static inline struct ch_needs ch_emit_alltoall(const struct ch_shape *shape, struct ch_builder *b,
                                               enum ch_region region)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_build_gate(b);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n), block = me * n + r;

        ch_build_copy(b, ch_shown(region, me, ch_slot_for(me, r), block), ch_in(me, block, 0, 1));
    }
    ch_build_post(b, 1);
    ch_keep_own(b, shape, me * n + me);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n), block = r * n + me;

        ch_build_await(b, r, 1);
        ch_build_copy(b, ch_out(me, block, 0, 1), ch_shown(region, r, ch_slot_for(r, me), block));
    }
    return ch_staging_needs(region, 1, n - 1);
}

/* All-gather: show our block, take the others' as they get ready. */
static inline struct ch_needs ch_emit_allgather(const struct ch_shape *shape, struct ch_builder *b,
                                                enum ch_region region)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_show_in(b, region, me, me);
    ch_keep_own(b, shape, me);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_await(b, r, 1);
        ch_build_copy(b, ch_out(me, r, 0, 1), ch_shown(region, r, 0, r));
    }
    return ch_staging_needs(region, 1, 1);
}

/* Gather: all show their block, the root takes them as they get ready. */
static inline struct ch_needs ch_emit_gather(const struct ch_shape *shape, struct ch_builder *b,
                                             enum ch_region region)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    if (me != shape->root) {
        ch_show_in(b, region, me, me);
        return ch_staging_needs(region, 1, 1);
    }
    ch_keep_own(b, shape, me);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_await(b, r, 1);
        ch_build_copy(b, ch_out(me, r, 0, 1), ch_shown(region, r, 0, r));
    }
    return ch_staging_needs(region, 1, 1);
}

/* Scatter: the root shows everyone its block. */
static inline struct ch_needs ch_emit_scatter(const struct ch_shape *shape, struct ch_builder *b,
                                              enum ch_region region)
{
    const uint32_t me = shape->rank, n = shape->nranks, root = shape->root;

    if (me != root) {
        ch_build_await(b, root, 1);
        ch_build_copy(b, ch_out(me, me, 0, 1), ch_shown(region, root, ch_slot_for(root, me), me));
        return ch_staging_needs(region, 1, n - 1);
    }
    ch_build_gate(b);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_copy(b, ch_shown(region, me, ch_slot_for(me, r), r), ch_in(me, r, 0, 1));
    }
    ch_build_post(b, 1);
    ch_keep_own(b, shape, me);
    return ch_staging_needs(region, 1, n - 1);
}

#endif
