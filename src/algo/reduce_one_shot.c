/*
 * reduce_one_shot.c - everyone shows its input, the root reduces everything.
 *
 * Cost:   moves 2n, the root (N+1)n. One wait of the root. Room: one slot.
 * Choose: small payloads, or very few ranks: the root alone does the arithmetic.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_build_await_all(b, 1);
        ch_reduce_shown(b, CH_STAGE, shape, 0);
    } else {
        ch_show_in(b, CH_STAGE, shape->rank, 0);
    }
    return ch_staging_needs(CH_STAGE, 1, 1);
}

const struct ch_algo ch_algo_reduce_one_shot = {
    .coll = CH_REDUCE,
    .name = "one-shot",
    .help = "everyone copies its input to its slot, the root reduces all slots",
    .uses_memory = true,
    .emit = emit,
};
