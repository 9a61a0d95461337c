/*
 * allreduce_ring.c - shares travel around the ring twice: once collecting, once handing out.
 *
 * Share s starts at rank s and is added to by every rank it passes; rank s-1 is the last, finishes it, and
 * the finished shares go around once more. Every share is added up by one rank at a time, in the order of
 * the ring: all ranks get the same bits.
 *
 * Cost:   sends 2(N-1) messages, 2n(N-1)/N bytes (the first half as accumulators). 2(N-1) waits in a row.
 *         Room: 2 accumulators.
 * Choose: long payloads over links: nobody sends less, and only to its neighbour. Waits grow with N.
 */
#include "algo/messages.h"

static void collect(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;
    const uint32_t next = ch_plus(me, 1, n), before = ch_minus(me, 1, n);

    for (uint32_t i = 0; i < n - 1; i++) {
        uint32_t goes = ch_minus(me, i, n), comes = ch_minus(me, i + 1, n);

        ch_swap(b, next, ch_scratch(me, 0, 0, goes, n), before, ch_scratch(me, 1, 0, comes, n));
        ch_combine_two(b, ch_scratch(me, 0, 0, comes, n), ch_scratch(me, 1, 0, comes, n),
                       ch_scratch(me, 0, 0, comes, n));
    }
}

static void hand_out(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;
    const uint32_t next = ch_plus(me, 1, n), before = ch_minus(me, 1, n);

    for (uint32_t i = 0; i < n - 1; i++) {
        uint32_t goes = ch_minus(next, i, n), comes = ch_minus(me, i, n);

        ch_swap(b, next, ch_out(me, 0, goes, n), before, ch_out(me, 0, comes, n));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks, mine = ch_plus(me, 1, n);

    ch_build_copy(b, ch_scratch(me, 0, 0, 0, 1), ch_in(me, 0, 0, 1));
    collect(shape, b);
    ch_build_finish(b, ch_out(me, 0, mine, n), ch_scratch(me, 0, 0, mine, n));
    hand_out(shape, b);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allreduce_ring = {
    .coll = CH_ALLREDUCE,
    .name = "ring",
    .help = "shares travel around the ring, once to be added up, once to be handed out",
    .any_order = true,
    .partial = true,
    .alike = CH_ALIKE,
    .emit = emit,
};
