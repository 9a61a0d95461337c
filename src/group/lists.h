/*
 * lists.h - what the calls with a buffer for each rank have in common: all-gather, reduce-scatter, gather, scatter.
 */
#ifndef CH_LISTS_H
#define CH_LISTS_H

#include "group/call.h"
#include "group/memory.h"

/* --- one buffer for each rank ---------------------------------------------------------------------- */

/* Checked, and as N pieces in the call's room. `ways` are enum ch_way. */
choir_status ch_list_pieces(struct ch_call *call, const char *name, const choir_buf *bufs,
                            choir_type type, unsigned ways, struct ch_piece **pieces_out);

/* This rank's single buffer against the list: its own entry has its size; the same memory is in place. */
choir_status ch_list_check_own(struct ch_call *call, const char *name, const choir_buf *own,
                               const char *list_name, const choir_buf *list);

/* Lengths that every rank knows: op.longest, uneven, counts. */
void ch_list_lengths(struct ch_call *call, choir_type type, const struct ch_piece *pieces);

size_t ch_longest(const struct ch_piece *pieces, uint32_t count);
bool ch_differ(const struct ch_piece *pieces, uint32_t count);

/* --- N equal parts of one buffer ------------------------------------------------------------------- */

/* `whole` has N times the elements of `part`. */
choir_status ch_check_multiple(struct ch_call *call, const char *part_name, const choir_buf *part,
                               const char *whole_name, const choir_buf *whole);

/* The same as the call's blocks: what is this rank's and goes `way`, and the whole, which goes the other. In place if it
 * is where its part of the whole is. */
choir_status ch_part_and_whole(struct ch_call *call, const char *part_name, const choir_buf *part,
                               const char *whole_name, const choir_buf *whole, enum ch_way way);

/* --- k at once: a rank's block is its k buffers behind each other ---------------------------------------- */

/* The j-th slice of block i, of N ranks: bufs[i * k + j], or the i-th part of bufs[j]. */
typedef struct ch_slice (*ch_slice_of)(const choir_buf *bufs, size_t k, size_t n, size_t i,
                                       size_t j);
struct ch_slice ch_slice_of_list(const choir_buf *bufs, size_t k, size_t n, size_t i, size_t j);
struct ch_slice ch_slice_of_whole(const choir_buf *bufs, size_t k, size_t n, size_t i, size_t j);

/* All blocks; and the one that is k buffers. */
choir_status ch_coalesced_blocks(struct ch_call *call, const choir_buf *bufs, size_t k,
                                 ch_slice_of slice, unsigned ways, struct ch_piece **pieces_out);
choir_status ch_coalesced_own(struct ch_call *call, const choir_buf *bufs, size_t k, unsigned ways,
                              struct ch_piece *piece_out);

/* k parts and k wholes of N times their length, all of one type, apart. */
choir_status ch_check_parts(struct ch_call *call, const char *part_name, const choir_buf *parts,
                            const char *whole_name, const choir_buf *wholes, size_t k);

/* Lengths inside the blocks: what j-th buffers have must agree too, not only their sums. */
void ch_hash_inner(struct ch_call *call, const choir_buf *bufs, size_t count);

#endif
