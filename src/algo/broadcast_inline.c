/*
 * broadcast_inline.c - the payload rides beside the root's flag.
 *
 * Cost:   moves 2n, the root 4n (2n in place). One wait, the root none. Room: a line.
 * Choose: for what fits the line.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_show_in(b, CH_LINE, shape->rank, 0);
        ch_keep_own(b, shape, 0);
    } else {
        ch_build_await(b, shape->root, 1);
        ch_build_copy(b, ch_out(shape->rank, 0, 0, 1), ch_line(shape->root, 0, 0));
    }
    return ch_staging_needs(CH_LINE, 1, 1);
}

const struct ch_algo ch_algo_broadcast_inline = {
    .coll = CH_BROADCAST,
    .name = "inline",
    .help = "payload in the cache lines of the root's flag",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
