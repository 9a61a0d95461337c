/*
 * scatter_staged.c - the root shows everyone its block.
 *
 * Cost:   moves 2n/N, the root 2n. One wait, the root none. Room: N-1 slots of the root.
 * Choose: always where memory is shared.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_scatter(shape, b, CH_STAGE);
}

const struct ch_algo ch_algo_scatter_staged = {
    .coll = CH_SCATTER,
    .name = "staged",
    .help = "the root copies each block to a slot, everyone takes its own",
    .uses_memory = true,
    .emit = emit,
};
