/*
 * allreduce_recursive_doubling.c - exchange everything with a partner twice as far away each time.
 *
 * After step k each rank has the sum of the 2^k ranks around it. Both partners add the lower ranks' sum
 * first, so they have the same bits. Not a power of two: fold.h.
 *
 * Cost:   sends log2(p) messages of n bytes (accumulators), p the power of two below N; where N is not one,
 *         the ranks folded away send 1, their partners 1 more. log2(p) waits (+ 2). Room: 2 accumulators.
 * Choose: short payloads over messages: the fewest waits.
 */
#include "algo/fold.h"

static void double_up(const struct ch_fold *f, uint32_t me, struct ch_builder *b)
{
    const struct ch_range sum = ch_scratch(me, 0, 0, 0, 1), came = ch_scratch(me, 1, 0, 0, 1);

    for (uint32_t d = 1; d < f->size; d *= 2) {
        uint32_t partner = ch_fold_rank(f, f->index ^ d);

        ch_swap(b, partner, sum, partner, came);
        if (me < partner)
            ch_combine_two(b, sum, sum, came);
        else
            ch_combine_two(b, sum, came, sum);
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const struct ch_fold f = ch_fold_of(shape);
    const uint32_t me = shape->rank;

    ch_fold_in(&f, shape, b);
    if (!f.away) {
        double_up(&f, me, b);
        ch_build_finish(b, ch_out(me, 0, 0, 1), ch_scratch(me, 0, 0, 0, 1));
    }
    ch_fold_out(&f, shape, b);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allreduce_recursive_doubling = {
    .coll = CH_ALLREDUCE,
    .name = "recursive-doubling",
    .help = "exchange everything with partners at distance 1, 2, 4, ...",
    .any_order = true,
    .partial = true,
    .alike = CH_ALIKE_POW2,
    .emit = emit,
};
