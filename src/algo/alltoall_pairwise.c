/*
 * alltoall_pairwise.c - in each step pairs of ranks exchange their blocks for each other.
 *
 * In step s rank r is paired with s - r, around: a pairing for any number of ranks, and the same two exchange
 * both blocks in one step, so that in place one slot is enough to hold the one that leaves.
 *
 * Cost:   sends N-1 messages, n(N-1)/N bytes, n being all blocks of a rank. At most N waits
 *         in a row. Room: in place one slot.
 * Choose: over messages, unless blocks are short and of equal lengths.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_keep_block(b, shape, me * n + me);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t partner = ch_minus(s, me, n), goes = me * n + partner;
        struct ch_range what = ch_in(me, goes, 0, 1);

        if (partner == me)
            continue;
        if (shape->in_place) {
            what = ch_scratch(me, 0, goes, 0, 1);
            ch_build_copy(b, what, ch_in(me, goes, 0, 1));
        }
        ch_swap(b, partner, what, partner, ch_out(me, partner * n + me, 0, 1));
    }
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_alltoall_pairwise = {
    .coll = CH_ALLTOALL,
    .name = "pairwise",
    .help = "in each step pairs of ranks exchange their blocks for each other",
    .alike = CH_ALIKE,
    .emit = emit,
};
