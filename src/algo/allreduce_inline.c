/*
 * allreduce_inline.c - the payload rides beside the flag: whoever sees the flag has it already.
 *
 * Each rank copies its input to its line and raises its flag; when all flags are up, each reduces all lines
 * and its own input to its output, in rank order.
 *
 * Cost:   moves (N+3)n: copy in 2n, reduce N sources to n. One wait. Room: a line.
 * Choose: for what fits the line. One miss per peer, for flag and payload together.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    ch_show_in(b, CH_LINE, shape->rank, 0);
    ch_build_await_all(b, 1);
    ch_reduce_shown(b, CH_LINE, shape, 0);
    return ch_staging_needs(CH_LINE, 1, 1);
}

const struct ch_algo ch_algo_allreduce_inline = {
    .coll = CH_ALLREDUCE,
    .name = "inline",
    .help = "payload in the flag's own cache lines; everyone reduces everything",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
