/*
 * reduce_scatter_inline.c - blocks ride beside the flag, their owners reduce them.
 *
 * Cost:   moves about 3n, n being all blocks: copy in 2n(N-1)/N, reduce n + n/N. One wait. Room: N-1 lines.
 * Choose: when all blocks of a rank fit its line.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_reduce_scatter(shape, b, CH_LINE);
}

const struct ch_algo ch_algo_reduce_scatter_inline = {
    .coll = CH_REDUCE_SCATTER,
    .name = "inline",
    .help = "blocks in the flag's own cache lines; each owner reduces its block",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
