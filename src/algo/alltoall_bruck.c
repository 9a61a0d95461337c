/*
 * alltoall_bruck.c - blocks hop over distances 1, 2, 4, ..., many in one message.
 *
 * A block has to go o places, o = destination - source, around. In step k every rank sends those of its
 * blocks whose o has bit k set to the rank 2^k after it; so after step k a block has gone the lowest k+1
 * bits of o, and in the end it is there. One block per o is at every rank at any time.
 *
 * A block that leaves and the one that takes its place are in the same exchange, so each o has two slots,
 * used in turn. A block in its last hop goes straight to the output; in place that may still hold a
 * block that has not left, so there it waits in its slot for the end.
 *
 * Cost:   sends ceil(log2 N) messages, about (n/2) log2 N bytes, n being all blocks of a rank. ceil(log2 N)
 *         waits. Room: 2(N-1) slots.
 * Choose: short blocks over messages. Even only: a rank must know how long blocks in transit are.
 */
#include "algo/messages.h"

/* The block that has to go `o` places and is with rank `at` after it has gone `gone` of them. */
static uint32_t block_at(uint32_t at, uint32_t o, uint32_t gone, uint32_t n)
{
    uint32_t source = ch_minus(at, gone, n);

    return source * n + ch_plus(source, o, n);
}

static uint32_t count_bits(uint32_t x)
{
    uint32_t count = 0;

    for (; x != 0; x &= x - 1)
        count++;
    return count;
}

/* Where we keep it: it has come in by as many hops as `gone` has bits. */
static struct ch_range kept(const struct ch_shape *shape, uint32_t o, uint32_t gone)
{
    const uint32_t me = shape->rank, n = shape->nranks, block = block_at(me, o, gone, n);

    if (gone == 0)
        return ch_in(me, block, 0, 1);
    if (gone == o && !shape->in_place)
        return ch_out(me, block, 0, 1);
    return ch_scratch(me, 2 * (o - 1) + count_bits(gone) % 2, block, 0, 1);
}

static void hop(const struct ch_shape *shape, struct ch_builder *b, uint32_t d)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_build_sendrecv(b, ch_plus(me, d, n), ch_minus(me, d, n));
    for (uint32_t o = d; o < n; o++) {
        if (o & d)
            ch_build_range(b, kept(shape, o, o & (d - 1)));
    }
    ch_build_sendrecv_to(b);
    for (uint32_t o = d; o < n; o++) {
        if (o & d)
            ch_build_range(b, kept(shape, o, o & (2 * d - 1)));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_keep_block(b, shape, me * n + me);
    for (uint32_t d = 1; d < n; d *= 2)
        hop(shape, b, d);
    for (uint32_t o = 1; shape->in_place && o < n; o++)
        ch_build_copy(b, ch_out(me, block_at(me, o, o, n), 0, 1), kept(shape, o, o));
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_alltoall_bruck = {
    .coll = CH_ALLTOALL,
    .name = "bruck",
    .help = "blocks hop over distances 1, 2, 4, ..., many in one message",
    .even_only = true,
    .alike = CH_ALIKE,
    .emit = emit,
};
