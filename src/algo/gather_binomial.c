/*
 * gather_binomial.c - blocks climb a binomial tree to the root, more and more in one message.
 *
 * Cost:   sends 1 message, of all blocks below the rank; the root receives ceil(log2 N). log2 N waits on the
 *         longest way; a block is sent up to log2 N times. Room: as many slots as there are ranks below.
 * Choose: short blocks over messages. Even only: a rank must know how long the blocks below it are.
 */
#include "algo/messages.h"

/* Where virtual rank `v`, which is ours, keeps the block of the rank `i` places behind it. */
static struct ch_range kept(const struct ch_shape *shape, uint32_t v, uint32_t i)
{
    const uint32_t me = shape->rank, block = ch_tree_rank(shape, v + i);

    if (me == shape->root)
        return ch_out(me, block, 0, 1);
    return i == 0 ? ch_in(me, block, 0, 1) : ch_scratch(me, i - 1, block, 0, 1);
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t n = shape->nranks, v = ch_tree_virtual(shape);

    for (uint32_t d = 1; d < ch_tree_reach(v, n) && v + d < n; d *= 2) {
        ch_build_recv(b, ch_tree_rank(shape, v + d));
        for (uint32_t i = 0; i < ch_tree_size(v + d, n); i++)
            ch_build_range(b, kept(shape, v, d + i));
    }
    if (v == 0) {
        ch_keep_block(b, shape, shape->rank);
        return (struct ch_needs){ 0 };
    }
    ch_build_send(b, ch_tree_rank(shape, ch_tree_parent(v)));
    for (uint32_t i = 0; i < ch_tree_size(v, n); i++)
        ch_build_range(b, kept(shape, v, i));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_gather_binomial = {
    .coll = CH_GATHER,
    .name = "binomial",
    .help = "blocks climb a binomial tree to the root",
    .even_only = true,
    .emit = emit,
};
