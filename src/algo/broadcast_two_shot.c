/*
 * broadcast_two_shot.c - every reader takes one share over, and all read from all.
 *
 * The root shows its buffer; reader i copies share i to its own slot and posts; everyone collects each
 * share from whoever took it over. So most bytes are read from N-1 places instead of one.
 *
 * Cost:   moves 2n + 2n/(N-1), the root 4n (2n in place). Two waits, the root none. Room: one slot.
 * Choose: where one memory or one core's cache cannot feed all readers (many ranks, several sockets).
 */
#include "algo/staging.h"

/* Who takes which share over: the readers, counted from the rank after the root. */
static uint32_t reader(const struct ch_shape *shape, uint32_t share)
{
    return ch_after(shape->root, share + 1, shape->nranks);
}

static void read_shares(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks, k = n - 1;
    const uint32_t mine = (me + n - shape->root) % n - 1;

    ch_build_gate(b);
    ch_build_await(b, shape->root, 1);
    ch_build_copy(b, ch_stage(me, 0, 0, mine, k), ch_stage(shape->root, 0, 0, mine, k));
    ch_build_post(b, 2);
    ch_build_copy(b, ch_out(me, 0, mine, k), ch_stage(me, 0, 0, mine, k));
    for (uint32_t i = 1; i < k; i++) {
        uint32_t share = ch_after(mine, i, k), from = reader(shape, share);

        ch_build_await(b, from, 2);
        ch_build_copy(b, ch_out(me, 0, share, k), ch_stage(from, 0, 0, share, k));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    if (shape->rank == shape->root) {
        ch_show_in(b, CH_STAGE, shape->rank, 0);
        ch_keep_own(b, shape, 0);
    } else {
        read_shares(shape, b);
    }
    return (struct ch_needs){ .flags = 2, .stage_slots = 1 };
}

const struct ch_algo ch_algo_broadcast_two_shot = {
    .coll = CH_BROADCAST,
    .name = "two-shot",
    .help = "each reader takes one share over from the root, all read from all",
    .uses_memory = true,
    .emit = emit,
};
