/*
 * alltoall_inline.c - blocks ride beside the flag.
 *
 * Cost:   moves 4n - 2n/N (4n(N-1)/N in place), n being all blocks of a rank. One wait. Room: N-1 lines.
 * Choose: when all blocks of a rank fit its line.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_alltoall(shape, b, CH_LINE);
}

const struct ch_algo ch_algo_alltoall_inline = {
    .coll = CH_ALLTOALL,
    .name = "inline",
    .help = "blocks in the flag's own cache lines",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
