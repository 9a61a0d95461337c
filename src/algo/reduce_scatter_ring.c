/*
 * reduce_scatter_ring.c - blocks travel around the ring to their owners, growing on the way.
 *
 * Block r starts at rank r+1 and is added to by every rank it passes, last by its owner.
 *
 * Cost:   sends N-1 messages, n(N-1)/N bytes (accumulators), n being all blocks. N-1 waits in a row.
 *         Room: 2 accumulators of a block.
 * Choose: long payloads over messages.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;
    const uint32_t next = ch_plus(me, 1, n), before = ch_minus(me, 1, n);

    ch_build_copy(b, ch_scratch(me, 0, before, 0, 1), ch_in(me, before, 0, 1));
    for (uint32_t i = 1; i < n; i++) {
        uint32_t goes = ch_minus(me, i, n), comes = ch_minus(me, i + 1, n);
        struct ch_range sum = ch_scratch(me, 0, comes, 0, 1), came = ch_scratch(me, 1, comes, 0, 1);

        ch_swap(b, next, ch_scratch(me, 0, goes, 0, 1), before, came);
        ch_build_copy(b, sum, ch_in(me, comes, 0, 1));
        ch_combine_two(b, sum, came, sum);
    }
    ch_build_finish(b, ch_out(me, me, 0, 1), ch_scratch(me, 0, me, 0, 1));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_reduce_scatter_ring = {
    .coll = CH_REDUCE_SCATTER,
    .name = "ring",
    .help = "blocks travel around the ring to their owners, growing on the way",
    .any_order = true,
    .partial = true,
    .alike = CH_ALIKE,
    .emit = emit,
};
