/*
 * allgather_inline.c - the payload rides beside the flag.
 *
 * Cost:   moves 2n(1 + 1/N), n being all blocks. One wait. Room: a line.
 * Choose: when a block fits the line.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_allgather(shape, b, CH_LINE);
}

const struct ch_algo ch_algo_allgather_inline = {
    .coll = CH_ALLGATHER,
    .name = "inline",
    .help = "payload in the flag's own cache lines",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
