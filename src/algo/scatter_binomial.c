/*
 * scatter_binomial.c - blocks go down a binomial tree, fewer and fewer in one message.
 *
 * Cost:   the root sends ceil(log2 N) messages and all blocks but its own, others up to one message less.
 *         log2 N waits on the longest way; a block is sent up to log2 N times. Room: as many slots as there
 *         are ranks below.
 * Choose: short blocks over messages. Even only: a rank must know how long the blocks below it are.
 */
#include "algo/messages.h"

/* Where virtual rank `v`, which is ours, has the block of the rank `i` places behind it. */
static struct ch_range kept(const struct ch_shape *shape, uint32_t v, uint32_t i)
{
    const uint32_t me = shape->rank, block = ch_tree_rank(shape, v + i);

    if (me == shape->root)
        return ch_in(me, block, 0, 1);
    return i == 0 ? ch_out(me, block, 0, 1) : ch_scratch(me, i - 1, block, 0, 1);
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t n = shape->nranks, v = ch_tree_virtual(shape);

    if (v != 0) {
        ch_build_recv(b, ch_tree_rank(shape, ch_tree_parent(v)));
        for (uint32_t i = 0; i < ch_tree_size(v, n); i++)
            ch_build_range(b, kept(shape, v, i));
    }
    for (uint32_t d = ch_tree_reach(v, n) / 2; d > 0; d /= 2) {
        if (v + d >= n)
            continue;
        ch_build_send(b, ch_tree_rank(shape, v + d));
        for (uint32_t i = 0; i < ch_tree_size(v + d, n); i++)
            ch_build_range(b, kept(shape, v, d + i));
    }
    if (v == 0)
        ch_keep_block(b, shape, shape->rank);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_scatter_binomial = {
    .coll = CH_SCATTER,
    .name = "binomial",
    .help = "blocks go down a binomial tree from the root",
    .even_only = true,
    .emit = emit,
};
