/*
 * barrier_central.c - everyone tells the root, which tells everyone.
 *
 * A barrier has no root of its own: it is whoever should leave first.
 *
 * Cost:   moves nothing; the root reads N-1 cache lines, the others one. Two waits in a row.
 * Choose: where a broadcast or a scatter is about to follow, whose root the others wait for in any case. With flags
 *         whoever came last leaves first, only to wait for that root; here the root's data follow its word at once.
 *         Where ranks outnumber processors, it goes on while the others wait for their turn of one.
 */
#include "algo/algo.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_build_await_all(b, 1);
        ch_build_post(b, 2);
    } else {
        ch_build_post(b, 1);
        ch_build_await(b, shape->root, 2);
    }
    return (struct ch_needs){ .flags = 2 };
}

const struct ch_algo ch_algo_barrier_central = {
    .coll = CH_BARRIER,
    .name = "central",
    .help = "everyone tells the root, which tells everyone",
    .uses_memory = true,
    .emit = emit,
};
