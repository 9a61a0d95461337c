/*
 * allgather_staged.c - everyone shows its block, everyone collects.
 *
 * Cost:   moves 2n(1 + 1/N), n being all blocks: copy in 2n/N, copy out 2n. One wait. Room: one slot.
 * Choose: always where memory is shared.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_allgather(shape, b, CH_STAGE);
}

const struct ch_algo ch_algo_allgather_staged = {
    .coll = CH_ALLGATHER,
    .name = "staged",
    .help = "everyone copies its block to its slot, everyone collects all slots",
    .uses_memory = true,
    .emit = emit,
};
