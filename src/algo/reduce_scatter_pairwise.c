/*
 * reduce_scatter_pairwise.c - everyone sends every owner its block; owners add up, in rank order.
 *
 * In step i a rank sends to the rank i places after it and receives from the one i places before. All
 * contributions are kept until the last is there, so that they are added from the first rank to the last.
 *
 * Cost:   sends N-1 messages, n(N-1)/N bytes (accumulators), n being all blocks. N-1 waits, none of which needs
 *         what came in the one before. Room: N accumulators of a block.
 * Choose: short payloads over messages, and where the sum must be that of the ranks' order.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    /* Slot r is for rank r's contribution. Our own comes last: until then its slot is for what we send. */
    for (uint32_t i = 1; i < n; i++) {
        uint32_t to = ch_plus(me, i, n), from = ch_minus(me, i, n);

        ch_build_copy(b, ch_scratch(me, me, to, 0, 1), ch_in(me, to, 0, 1));
        ch_swap(b, to, ch_scratch(me, me, to, 0, 1), from, ch_scratch(me, from, me, 0, 1));
    }
    ch_build_copy(b, ch_scratch(me, me, me, 0, 1), ch_in(me, me, 0, 1));
    ch_build_combine(b, ch_scratch(me, 0, me, 0, 1));
    for (uint32_t r = 0; r < n; r++)
        ch_build_range(b, ch_scratch(me, r, me, 0, 1));
    ch_build_finish(b, ch_out(me, me, 0, 1), ch_scratch(me, 0, me, 0, 1));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_reduce_scatter_pairwise = {
    .coll = CH_REDUCE_SCATTER,
    .name = "pairwise",
    .help = "everyone sends every owner its block; owners add up in rank order",
    .partial = true,
    .alike = CH_ALIKE,
    .emit = emit,
};
