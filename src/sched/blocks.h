/*
 * blocks.h - which blocks an operation has and who holds them: the table in sched.h as functions.
 */
#ifndef CH_BLOCKS_H
#define CH_BLOCKS_H

#include "sched/sched.h"

/* Whether contributions are reduced: only then are there accumulators. */
bool ch_coll_reduces(enum ch_coll coll);

/* Whether one rank is its root. */
bool ch_coll_rooted(enum ch_coll coll);

uint64_t ch_coll_nblocks(enum ch_coll coll, uint32_t nranks);

/* Whether that region of that rank (IN or OUT) holds a block. */
bool ch_coll_holds(enum ch_coll coll, uint32_t nranks, uint32_t root, enum ch_region region,
                   uint32_t rank, uint64_t block);

/*
 * In place: which block of IN is the same memory as that block of OUT. False if none is, that is, if
 * the rank has no such IN. Mostly it is the block itself; in an all-to-all the place at which the block
 * to rank j lies is the one at which that from rank j arrives.
 */
bool ch_coll_in_under_out(enum ch_coll coll, uint32_t nranks, uint32_t root, uint32_t rank,
                          uint64_t out_block, uint64_t *in_block_out);

#endif
