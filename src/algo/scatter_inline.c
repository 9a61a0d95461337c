/*
 * scatter_inline.c - blocks ride beside the root's flag.
 *
 * Cost:   moves 2n/N, the root 2n. One wait, the root none. Room: N-1 lines of the root.
 * Choose: when all blocks fit the root's line.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_scatter(shape, b, CH_LINE);
}

const struct ch_algo ch_algo_scatter_inline = {
    .coll = CH_SCATTER,
    .name = "inline",
    .help = "blocks in the cache lines of the root's flag",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
