/*
 * memory.h - the caller's buffers as the backend sees them: blocks of plain memory.
 *
 * What does not lie in memory as a block does (strided arrays, several buffers that make one block) is staged:
 * packed into memory of the call when the operation begins, unpacked when it has gone well.
 */
#ifndef CH_MEMORY_H
#define CH_MEMORY_H

#include "group/call.h"

/* Which way a buffer's elements go. */
enum ch_way { CH_GOES_IN = 1, CH_COMES_OUT = 2 };

enum { CH_DIMS_MAX = 64 };

/* Elements `first` to `first + count` of a buffer, in row-major order. */
struct ch_slice {
    const choir_buf *buf;
    size_t first, count;
};

/* CHOIR_OK if shape and strides make sense: sizes as many as `count`, no element in two places. */
choir_status ch_shape_check(const choir_buf *buf);

/* Whether its elements lie behind each other. */
bool ch_is_plain(const choir_buf *buf);

/* One block made of `nslices` slices behind each other: where they are, if they are plain and lie that way, or
 * staged. `ways` are enum ch_way. piece_out->count is the sum. */
choir_status ch_block_make(struct ch_call *call, const struct ch_slice *slices, size_t nslices,
                           unsigned ways, struct ch_piece *piece_out);

/* The same for a whole buffer. */
choir_status ch_block_of(struct ch_call *call, const choir_buf *buf, unsigned ways,
                         struct ch_piece *piece_out);

/* The same, but staged in any case: for input that lies where output comes. */
choir_status ch_block_copy(struct ch_call *call, const choir_buf *buf, struct ch_piece *piece_out);

/* Blocks from pieces, which stay (they are in the call's room): even if they lie behind each other and are of
 * one length. */
void ch_blocks_of(struct ch_blocks *blocks, uint32_t first, uint32_t step, uint32_t nblocks,
                  const struct ch_piece *pieces, size_t size);

/* `nblocks` equal blocks behind each other. */
static inline void ch_blocks_even(struct ch_blocks *blocks, uint32_t first, uint32_t step,
                                  uint32_t nblocks, void *base, size_t count)
{
    blocks->first = first;
    blocks->step = step;
    blocks->nblocks = nblocks;
    blocks->base = base;
    blocks->count = count;
    blocks->pieces = NULL;
}

/* When the operation begins, and when it has gone well. `all`: also what only comes out is packed, for a backend
 * that may leave it as it is. */
void ch_memory_pack(struct ch_call *call, bool all);
void ch_memory_unpack(struct ch_call *call);

/* Free all room of a call. */
void ch_memory_release(struct ch_call *call);

#endif
