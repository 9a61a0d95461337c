/*
 * broadcast_binomial.c - whoever has it hands it on, so that in each step twice as many have it.
 *
 * Cost:   the root sends ceil(log2 N) messages of n bytes, others up to one less, leaves none; log2 N waits
 *         on the longest way. Room: none.
 * Choose: short payloads over messages; for long ones the root sends n log2 N bytes.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks, v = ch_tree_virtual(shape);
    const bool root = me == shape->root;

    if (!root)
        ch_recv_one(b, ch_tree_rank(shape, ch_tree_parent(v)), ch_out(me, 0, 0, 1));
    for (uint32_t d = ch_tree_reach(v, n) / 2; d > 0; d /= 2) {
        if (v + d < n)
            ch_send_one(b, ch_tree_rank(shape, v + d),
                        root ? ch_in(me, 0, 0, 1) : ch_out(me, 0, 0, 1));
    }
    if (root)
        ch_keep_block(b, shape, 0);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_broadcast_binomial = {
    .coll = CH_BROADCAST,
    .name = "binomial",
    .help = "whoever has it hands it on along a binomial tree",
    .emit = emit,
};
