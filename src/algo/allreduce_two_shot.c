/*
 * allreduce_two_shot.c - everyone reduces one share and shows it, everyone collects all shares.
 *
 * Each rank copies all shares but its own to its slot and posts; when all have, it reduces its own share of
 * all inputs, in rank order, into the place that share has in its slot, and posts again; then it copies
 * every rank's share to its output as it gets ready.
 *
 * Cost:   moves (5 - 1/N)n: copy in 2n(N-1)/N, reduce n + n/N, copy out 2n. Two waits. Room: one slot.
 * Choose: from where moving N+3 times the payload costs more than a second wait.
 */
#include "algo/two_shot.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_two_shot_reduce(b, shape, ch_stage(me, 0, 0, me, n));
    ch_build_post(b, 2);
    ch_build_copy(b, ch_out(me, 0, me, n), ch_stage(me, 0, 0, me, n));
    for (uint32_t i = 1; i < n; i++) {
        uint32_t r = ch_after(me, i, n);

        ch_build_await(b, r, 2);
        ch_build_copy(b, ch_out(me, 0, r, n), ch_stage(r, 0, 0, r, n));
    }
    return (struct ch_needs){ .flags = 2, .stage_slots = 1 };
}

const struct ch_algo ch_algo_allreduce_two_shot = {
    .coll = CH_ALLREDUCE,
    .name = "two-shot",
    .help = "everyone reduces its share of all slots, then collects all shares",
    .uses_memory = true,
    .emit = emit,
};
