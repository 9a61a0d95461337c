/*
 * barrier_dissemination.c - empty messages over distances 1, 2, 4, ...
 *
 * After the step at distance d a rank knows that the 2d-1 ranks before it have come.
 *
 * Cost:   sends ceil(log2 N) empty messages. ceil(log2 N) waits.
 * Choose: over messages.
 */
#include "algo/messages.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    for (uint32_t d = 1; d < n; d *= 2)
        ch_build_sendrecv(b, ch_plus(me, d, n), ch_minus(me, d, n));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_barrier_dissemination = {
    .coll = CH_BARRIER,
    .name = "dissemination",
    .help = "empty messages over distances 1, 2, 4, ...",
    .alike = CH_ALIKE,
    .emit = emit,
};
