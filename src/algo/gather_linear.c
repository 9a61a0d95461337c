/*
 * gather_linear.c - everyone sends its block to the root.
 *
 * Cost:   sends 1 message of n/N bytes; the root receives N-1. One wait, N-1 of the root. Room: none.
 * Choose: over messages when blocks are long or of different lengths.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    if (me != shape->root) {
        ch_send_one(b, shape->root, ch_in(me, me, 0, 1));
        return (struct ch_needs){ 0 };
    }
    ch_keep_block(b, shape, me);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_plus(me, i, n);

        ch_recv_one(b, r, ch_out(me, r, 0, 1));
    }
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_gather_linear = {
    .coll = CH_GATHER,
    .name = "linear",
    .help = "everyone sends its block to the root",
    .emit = emit,
};
