/*
 * alltoall_staged.c - everyone shows everyone its block.
 *
 * Cost:   moves 4n - 2n/N (4n(N-1)/N in place), n being all blocks of a rank. One wait. Room: N-1 slots.
 * Choose: always where memory is shared; blocks of any lengths, in place or not.
 */
#include "algo/exchange.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    return ch_emit_alltoall(shape, b, CH_STAGE);
}

const struct ch_algo ch_algo_alltoall_staged = {
    .coll = CH_ALLTOALL,
    .name = "staged",
    .help = "everyone copies each block to a slot, everyone collects its own",
    .uses_memory = true,
    .emit = emit,
};
