/*
 * reduce_scatter_one_shot.c - everyone shows every owner its block, owners reduce.
 *
 * Cost:   moves (3 - 1/N)n, n being all blocks: copy in 2n(N-1)/N, reduce n + n/N. One wait. Room: N-1 slots.
 * Choose: always where memory is shared: no byte is read twice, and one wait is the least there can be.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_reduce_scatter(shape, b, CH_STAGE);
}

const struct ch_algo ch_algo_reduce_scatter_one_shot = {
    .coll = CH_REDUCE_SCATTER,
    .name = "one-shot",
    .help = "everyone copies each owner's block to a slot, owners reduce all slots",
    .uses_memory = true,
    .emit = emit,
};
