/*
 * broadcast_staged.c - the root shows its buffer, all others read it there.
 *
 * Cost:   moves 2n, the root 4n (2n in place). One wait, the root none. Room: one slot of the root.
 * Choose: almost always: nobody moves a byte more than it must, and the copies out of one place go on at
 *         the same time. Rounds overlap: the root fills one half while the other is read.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_show_in(b, CH_STAGE, shape->rank, 0);
        ch_keep_own(b, shape, 0);
    } else {
        ch_build_await(b, shape->root, 1);
        ch_build_copy(b, ch_out(shape->rank, 0, 0, 1), ch_stage(shape->root, 0, 0, 0, 1));
    }
    return ch_staging_needs(CH_STAGE, 1, 1);
}

const struct ch_algo ch_algo_broadcast_staged = {
    .coll = CH_BROADCAST,
    .name = "staged",
    .help = "the root copies to its slot, all others read it there",
    .uses_memory = true,
    .emit = emit,
};
