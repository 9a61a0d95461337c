/*
 * reduce_two_shot.c - everyone reduces one share, the root collects the shares.
 *
 * As two-shot all-reduce, but only the root copies out; its own share it reduces straight to its output.
 *
 * Cost:   moves (3 - 1/N)n: copy in 2n(N-1)/N, reduce n + n/N; the root 2n(N-1)/N more.
 *         Two waits. Room: one slot.
 * Choose: from where the root's reading all N inputs takes longer than a second wait.
 */
#include "algo/two_shot.h"

static void collect(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_await(b, r, 2);
        ch_build_copy(b, ch_out(me, 0, r, n), ch_stage(r, 0, 0, r, n));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    if (me == shape->root) {
        ch_two_shot_reduce(b, shape, ch_out(me, 0, me, n));
        collect(shape, b);
    } else {
        ch_two_shot_reduce(b, shape, ch_stage(me, 0, 0, me, n));
        ch_build_post(b, 2);
    }
    return (struct ch_needs){ .flags = 2, .stage_slots = 1 };
}

const struct ch_algo ch_algo_reduce_two_shot = {
    .coll = CH_REDUCE,
    .name = "two-shot",
    .help = "everyone reduces its share of all slots, the root collects the shares",
    .uses_memory = true,
    .emit = emit,
};
