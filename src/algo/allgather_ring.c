/*
 * allgather_ring.c - blocks travel around the ring.
 *
 * Cost:   sends N-1 messages, n(N-1)/N bytes, n being all blocks. N-1 waits in a row. Room: none.
 * Choose: long payloads over messages.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;
    const uint32_t next = ch_plus(me, 1, n), before = ch_minus(me, 1, n);

    ch_keep_block(b, shape, me);
    for (uint32_t i = 0; i < n - 1; i++)
        ch_swap(b, next, ch_out(me, ch_minus(me, i, n), 0, 1), before,
                ch_out(me, ch_minus(before, i, n), 0, 1));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allgather_ring = {
    .coll = CH_ALLGATHER,
    .name = "ring",
    .help = "blocks travel around the ring",
    .alike = CH_ALIKE,
    .emit = emit,
};
