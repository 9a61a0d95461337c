/*
 * allreduce_one_shot.c - everyone shows its input, everyone reduces everything.
 *
 * Each rank copies its input to its slot and posts; when all have posted, each reduces all slots and its own
 * input to its output, in rank order. Nobody waits for a result of somebody else.
 *
 * Cost:   moves (N+3)n: copy in 2n, reduce N sources to n. One wait. Room: one slot.
 * Choose: small payloads: one wait instead of two-shot's two, for N times the reading.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    ch_show_in(b, CH_STAGE, shape->rank, 0);
    ch_build_await_all(b, 1);
    ch_reduce_shown(b, CH_STAGE, shape, 0);
    return ch_staging_needs(CH_STAGE, 1, 1);
}

const struct ch_algo ch_algo_allreduce_one_shot = {
    .coll = CH_ALLREDUCE,
    .name = "one-shot",
    .help = "everyone copies its input to its slot, everyone reduces all slots",
    .uses_memory = true,
    .emit = emit,
};
