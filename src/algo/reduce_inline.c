/*
 * reduce_inline.c - the payload rides beside the flag; the root alone adds up.
 *
 * Cost:   moves 2n, the root (N+1)n. One wait of the root. Room: a line.
 * Choose: for what fits the line.
 */
#include "algo/staging.h"

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_build_await_all(b, 1);
        ch_reduce_shown(b, CH_LINE, shape, 0);
    } else {
        ch_show_in(b, CH_LINE, shape->rank, 0);
    }
    return ch_staging_needs(CH_LINE, 1, 1);
}

const struct ch_algo ch_algo_reduce_inline = {
    .coll = CH_REDUCE,
    .name = "inline",
    .help = "payload in the flags' own cache lines; the root reduces them",
    .uses_memory = true,
    .in_line = true,
    .even_only = true,
    .emit = emit,
};
