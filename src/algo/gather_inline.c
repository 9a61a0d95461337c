/*
 * gather_inline.c - the payload rides beside the flag; the root collects.
 *
 * Cost:   moves 2n/N, the root 2n. One wait of the root. Room: a line.
 * Choose: when a block fits the line.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_gather(shape, b, CH_LINE);
}

const struct ch_algo ch_algo_gather_inline = {
    .coll = CH_GATHER,
    .name = "inline",
    .help = "payload in the flags' own cache lines; the root collects",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
