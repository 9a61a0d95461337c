/*
 * allgather_bruck.c - in each step a rank has twice as many blocks, for any number of ranks.
 *
 * Before the step at distance d rank r has blocks r .. r+d-1, around. It sends them to rank r-d and gets those
 * of rank r+d, in the last step only as many as are missing. A message is a list of places, so blocks
 * come to lie where they belong at once.
 *
 * Cost:   sends ceil(log2 N) messages, n(N-1)/N bytes, n being all blocks. ceil(log2 N) waits. Room: none.
 * Choose: short payloads over messages.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_keep_block(b, shape, me);
    for (uint32_t d = 1; d < n; d *= 2) {
        uint32_t count = d < n - d ? d : n - d;

        ch_build_sendrecv(b, ch_minus(me, d, n), ch_plus(me, d, n));
        for (uint32_t i = 0; i < count; i++)
            ch_build_range(b, ch_out(me, ch_plus(me, i, n), 0, 1));
        ch_build_sendrecv_to(b);
        for (uint32_t i = 0; i < count; i++)
            ch_build_range(b, ch_out(me, ch_plus(me, d + i, n), 0, 1));
    }
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allgather_bruck = {
    .coll = CH_ALLGATHER,
    .name = "bruck",
    .help = "in each step everyone gets as many blocks as it has, from distance 1, 2, 4, ...",
    .alike = CH_ALIKE,
    .emit = emit,
};
