/*
 * gather_staged.c - everyone shows its block, the root collects.
 *
 * Cost:   moves 2n/N, the root 2n. One wait of the root. Room: one slot.
 * Choose: always where memory is shared.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_gather(shape, b, CH_STAGE);
}

const struct ch_algo ch_algo_gather_staged = {
    .coll = CH_GATHER,
    .name = "staged",
    .help = "everyone copies its block to its slot, the root collects",
    .uses_memory = true,
    .emit = emit,
};
