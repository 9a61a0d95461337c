/*
 * allgather_recursive_doubling.c - partners at distance 1, 2, 4, ... exchange all they have.
 *
 * Cost:   sends log2 N messages, n(N-1)/N bytes, n being all blocks. log2 N waits. Room: none.
 * Choose: as Bruck, where N is a power of two and links work best both ways between the same two ranks.
 */
#include "algo/messages.h"

static bool is_pow2(uint32_t nranks)
{
    return (nranks & (nranks - 1)) == 0;
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const uint32_t me = shape->rank, n = shape->nranks;

    ch_keep_block(b, shape, me);
    for (uint32_t d = 1; d < n; d *= 2) {
        uint32_t partner = me ^ d, mine = me & ~(d - 1), theirs = partner & ~(d - 1);

        ch_build_sendrecv(b, partner, partner);
        for (uint32_t i = 0; i < d; i++)
            ch_build_range(b, ch_out(me, mine + i, 0, 1));
        ch_build_sendrecv_to(b);
        for (uint32_t i = 0; i < d; i++)
            ch_build_range(b, ch_out(me, theirs + i, 0, 1));
    }
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allgather_recursive_doubling = {
    .coll = CH_ALLGATHER,
    .name = "recursive-doubling",
    .help = "partners at distance 1, 2, 4, ... exchange all they have; ranks a power of two",
    .fits = is_pow2,
    .alike = CH_ALIKE_POW2,
    .emit = emit,
};
