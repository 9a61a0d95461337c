/*
 * scatter_linear.c - the root sends everyone its block.
 *
 * Cost:   the root sends N-1 messages of n/N bytes, others none. One wait, N-1 of the root. Room: none.
 * Choose: over messages when blocks are long or of different lengths.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    if (me != shape->root) {
        ch_recv_one(b, shape->root, ch_out(me, me, 0, 1));
        return (struct ch_needs){ 0 };
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_plus(me, i, n);

        ch_send_one(b, r, ch_in(me, r, 0, 1));
    }
    ch_keep_block(b, shape, me);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_scatter_linear = {
    .coll = CH_SCATTER,
    .name = "linear",
    .help = "the root sends everyone its block",
    .emit = emit,
};
