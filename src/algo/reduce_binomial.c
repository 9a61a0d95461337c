/*
 * reduce_binomial.c - partial sums climb a binomial tree to the root.
 *
 * Each rank adds what comes from the ranks below it, nearest first, in their order counted from the root,
 * and sends the sum up.
 *
 * Cost:   sends 1 message of n bytes (accumulators), the root none but receives ceil(log2 N). log2 N waits on
 *         the longest way. Room: 2 accumulators.
 * Choose: over messages.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks, v = ch_tree_virtual(shape);
    const struct ch_range sum = ch_scratch(me, 0, 0, 0, 1), came = ch_scratch(me, 1, 0, 0, 1);

    ch_build_copy(b, sum, ch_in(me, 0, 0, 1));
    for (uint32_t d = 1; d < ch_tree_reach(v, n) && v + d < n; d *= 2) {
        ch_recv_one(b, ch_tree_rank(shape, v + d), came);
        ch_combine_two(b, sum, sum, came);
    }
    if (me == shape->root)
        ch_build_finish(b, ch_out(me, 0, 0, 1), sum);
    else
        ch_send_one(b, ch_tree_rank(shape, ch_tree_parent(v)), sum);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_reduce_binomial = {
    .coll = CH_REDUCE,
    .name = "binomial",
    .help = "partial sums climb a binomial tree to the root",
    .any_order = true,
    .partial = true,
    .emit = emit,
};
