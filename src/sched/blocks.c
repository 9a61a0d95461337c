/*
 * blocks.c - who holds which block; see the table in sched.h.
 */
#include "sched/blocks.h"

/* What a rank holds of an operation's blocks. */
enum hold { NONE, ALL, OWN, ROOT_ALL, ROW, COLUMN };

static const struct coll_rule {
    enum hold in, out;
    uint8_t blocks; /* nranks to this power; barrier has none */
    bool reduces, rooted;
} rules[CH_NCOLLS] = {
    [CH_ALLREDUCE] = { ALL, ALL, 0, true, false },
    [CH_REDUCE] = { ALL, ROOT_ALL, 0, true, true },
    [CH_BROADCAST] = { ROOT_ALL, ALL, 0, false, true },
    [CH_ALLGATHER] = { OWN, ALL, 1, false, false },
    [CH_GATHER] = { OWN, ROOT_ALL, 1, false, true },
    [CH_SCATTER] = { ROOT_ALL, OWN, 1, false, true },
    [CH_REDUCE_SCATTER] = { ALL, OWN, 1, true, false },
    [CH_ALLTOALL] = { ROW, COLUMN, 2, false, false },
    [CH_BARRIER] = { NONE, NONE, 0, false, false },
};

bool ch_coll_reduces(enum ch_coll coll)
{
    return rules[coll].reduces;
}

bool ch_coll_rooted(enum ch_coll coll)
{
    return rules[coll].rooted;
}

uint64_t ch_coll_nblocks(enum ch_coll coll, uint32_t nranks)
{
    uint64_t n = coll == CH_BARRIER ? 0 : 1;

    for (unsigned i = 0; i < rules[coll].blocks; i++)
        n *= nranks;
    return n;
}

bool ch_coll_holds(enum ch_coll coll, uint32_t nranks, uint32_t root, enum ch_region region,
                   uint32_t rank, uint64_t block)
{
    if (block >= ch_coll_nblocks(coll, nranks))
        return false;
    switch (region == CH_IN ? rules[coll].in : rules[coll].out) {
    case ALL:
        return true;
    case ROOT_ALL:
        return rank == root;
    case OWN:
        return block == rank;
    case ROW:
        return block / nranks == rank;
    case COLUMN:
        return block % nranks == rank;
    case NONE:
        break;
    }
    return false;
}

bool ch_coll_in_under_out(enum ch_coll coll, uint32_t nranks, uint32_t root, uint32_t rank,
                          uint64_t out_block, uint64_t *in_block_out)
{
    uint64_t in_block = out_block;

    if (coll == CH_ALLTOALL)
        in_block = rank * (uint64_t)nranks + out_block / nranks;
    if (!ch_coll_holds(coll, nranks, root, CH_IN, rank, in_block))
        return false;
    *in_block_out = in_block;
    return true;
}
