/*
 * messages.h - what the algorithms with messages have in common: exchanges, rings and binomial trees.
 *
 * A SEND may block until it is received, so ranks that send to each other, or in a circle, use SENDRECV.
 *
 * Trees are drawn over virtual ranks, counted from the root: 0 is the root, the parent of v is v without
 * its lowest bit, and the ranks below v are the next ones after it, up to its lowest bit.
 */
#ifndef CH_MESSAGES_H
#define CH_MESSAGES_H

#include "algo/algo.h"

/* Send one range and receive another at once. */
static inline void ch_swap(struct ch_builder *b, uint32_t to, struct ch_range what, uint32_t from,
                           struct ch_range where)
{
    ch_build_sendrecv(b, to, from);
    ch_build_range(b, what);
    ch_build_sendrecv_to(b);
    ch_build_range(b, where);
}

static inline void ch_send_one(struct ch_builder *b, uint32_t peer, struct ch_range what)
{
    ch_build_send(b, peer);
    ch_build_range(b, what);
}

static inline void ch_recv_one(struct ch_builder *b, uint32_t peer, struct ch_range where)
{
    ch_build_recv(b, peer);
    ch_build_range(b, where);
}

/* dst = first + second, in this order. */
static inline void ch_combine_two(struct ch_builder *b, struct ch_range dst, struct ch_range first,
                                  struct ch_range second)
{
    ch_build_combine(b, dst);
    ch_build_range(b, first);
    ch_build_range(b, second);
}

static inline void ch_keep_block(struct ch_builder *b, const struct ch_shape *shape, uint32_t block)
{
    if (!shape->in_place)
        ch_build_copy(b, ch_out(shape->rank, block, 0, 1), ch_in(shape->rank, block, 0, 1));
}

/* --- circles --------------------------------------------------------------------------------------- */

static inline uint32_t ch_plus(uint32_t rank, uint32_t distance, uint32_t nranks)
{
    return (rank + distance) % nranks;
}

static inline uint32_t ch_minus(uint32_t rank, uint32_t distance, uint32_t nranks)
{
    return (rank + nranks - distance % nranks) % nranks;
}

/* The largest power of two that is at most `n`, which is not 0. */
static inline uint32_t ch_floor_pow2(uint32_t n)
{
    uint32_t p = 1;

    while (p <= n / 2)
        p *= 2;
    return p;
}

/* --- trees ----------------------------------------------------------------------------------------- */

static inline uint32_t ch_tree_virtual(const struct ch_shape *shape)
{
    return ch_minus(shape->rank, shape->root, shape->nranks);
}

static inline uint32_t ch_tree_rank(const struct ch_shape *shape, uint32_t v)
{
    return ch_plus(shape->root, v, shape->nranks);
}

static inline uint32_t ch_tree_parent(uint32_t v)
{
    return v & (v - 1);
}

/* Children of v are v + 1, v + 2, v + 4, ... below this distance, as long as there are such ranks. */
static inline uint32_t ch_tree_reach(uint32_t v, uint32_t nranks)
{
    return v == 0 ? 2 * ch_floor_pow2(nranks) : v & (~v + 1);
}

/* How many ranks the tree below v has, v with them. */
static inline uint32_t ch_tree_size(uint32_t v, uint32_t nranks)
{
    uint32_t reach = ch_tree_reach(v, nranks);

    return reach < nranks - v ? reach : nranks - v;
}

#endif
