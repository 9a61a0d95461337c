/*
 * broadcast_scatter_ring.c - the root deals out shares along a tree, then they travel around the ring.
 *
 * Virtual rank v gets the shares of the tree below it, keeps its own and hands the others on. In the ring a
 * share is not sent to who has it already from the tree: the root receives nothing.
 *
 * Cost:   at most N-1 + log2 N messages, about 2n bytes sent (the root too, however many ranks). N-1 + log2 N
 *         waits on the longest way. Room: none.
 * Choose: long payloads over messages.
 */
#include "algo/messages.h"

/* Where this rank has a share: the root has no other place yet than its input. */
static struct ch_range held(const struct ch_shape *shape, uint32_t share)
{
    return ch_range(shape->rank == shape->root ? CH_IN : CH_OUT, shape->rank, 0, 0, share,
                    shape->nranks);
}

static void deal(const struct ch_shape *shape, struct ch_builder *b, uint32_t v)
{
    const uint32_t n = shape->nranks;

    if (v != 0) {
        ch_build_recv(b, ch_tree_rank(shape, ch_tree_parent(v)));
        for (uint32_t i = 0; i < ch_tree_size(v, n); i++)
            ch_build_range(b, held(shape, v + i));
    }
    for (uint32_t d = ch_tree_reach(v, n) / 2; d > 0; d /= 2) {
        if (v + d >= n)
            continue;
        ch_build_send(b, ch_tree_rank(shape, v + d));
        for (uint32_t i = 0; i < ch_tree_size(v + d, n); i++)
            ch_build_range(b, held(shape, v + d + i));
    }
}

static bool was_dealt(uint32_t v, uint32_t share, uint32_t n)
{
    return share >= v && share - v < ch_tree_size(v, n);
}

/* In step i virtual rank v hands on share v - i, and gets v - 1 - i. */
static void go_around(const struct ch_shape *shape, struct ch_builder *b, uint32_t v)
{
    const uint32_t n = shape->nranks;
    const uint32_t next = ch_plus(v, 1, n), before = ch_minus(v, 1, n);
    const uint32_t to = ch_tree_rank(shape, next), from = ch_tree_rank(shape, before);

    for (uint32_t i = 0; i < n - 1; i++) {
        uint32_t goes = ch_minus(v, i, n), comes = ch_minus(before, i, n);
        bool sends = !was_dealt(next, goes, n), receives = !was_dealt(v, comes, n);

        if (sends && receives)
            ch_swap(b, to, held(shape, goes), from, held(shape, comes));
        else if (sends)
            ch_send_one(b, to, held(shape, goes));
        else if (receives)
            ch_recv_one(b, from, held(shape, comes));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t v = ch_tree_virtual(shape);

    deal(shape, b, v);
    go_around(shape, b, v);
    if (v == 0)
        ch_keep_block(b, shape, 0);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_broadcast_scatter_ring = {
    .coll = CH_BROADCAST,
    .name = "scatter-ring",
    .help = "the root deals shares out along a tree, then they travel around the ring",
    .emit = emit,
};
