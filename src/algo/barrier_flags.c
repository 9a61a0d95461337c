/*
 * barrier_flags.c - everyone raises its flag and looks at all the others'.
 *
 * Cost:   moves nothing; reads N-1 cache lines. One wait.
 * Choose: where memory is shared, and nobody should leave first (barrier_central.c).
 */
#include "algo/algo.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    (void)shape;
    ch_build_post(b, 1);
    ch_build_await_all(b, 1);
    return (struct ch_needs){ .flags = 1 };
}

const struct ch_algo ch_algo_barrier_flags = {
    .coll = CH_BARRIER,
    .name = "flags",
    .help = "everyone raises its flag and awaits all others'",
    .uses_memory = true,
    .emit = emit,
};
