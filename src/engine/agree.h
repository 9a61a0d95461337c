/*
 * agree.h - when no rank knows all lengths, the ranks compare and agree before they move anything.
 *
 * Of an uneven gather, scatter or all-to-all a rank knows only what it sends and receives itself. But all
 * must have as many rounds, and no rank may take a block whose length the sender sees differently. So every
 * rank tells every other, in an all-to-all of three words, how long the block between the two is, and the
 * longest and the shortest that it knows of. Gather and scatter have a shorter way (rooted.h), but where an algorithm is
 * asked for.
 */
#ifndef CH_AGREE_H
#define CH_AGREE_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/op.h"

bool ch_agree_is_needed(const struct ch_channel *channel, const struct ch_op *op);

/* The all-to-all, to be run first; it is the channel's, until the next one. */
choir_status ch_agree_prepare(struct ch_channel *channel, const struct ch_op *op,
                              const struct ch_op **first_out);

/* `from` has `sent` elements for us, we expect another number: CHOIR_ERR_MISMATCH, and the channel's end. */
choir_status ch_agree_refuse(struct ch_channel *channel, const struct ch_op *op, uint32_t from,
                             uint64_t sent, uint64_t expected);

/* What came of it: CHOIR_ERR_MISMATCH, which also is the channel's end, if two ranks differ. */
choir_status ch_agree_conclude(struct ch_channel *channel, const struct ch_op *op,
                               size_t *longest_out, bool *uneven_out);

#endif
