/*
 * rooted.h - gathers and scatters, of whose lengths only the root knows all.
 *
 * Both ends of a pair know how long the block between them is, and both operations are stars: so no exchange is needed
 * before anything moves. A block that fits a slot goes in the operation's first round, which all ranks have. How it goes
 * (in the flag's line, or staged) and where it lies follows from its own length alone (place.h). The length is compared
 * with the check, into which it is mixed beside the flag:
 *
 *   gather    every rank posts its own length; the root compares each with its list
 *   scatter   the root posts the length if all are alike; else it posts DIFFER, and each length is in the last line of
 *             the rank's slot
 *
 * A reader that finds neither asks the descriptor, as always (control.h).
 *
 * Blocks that do not fit go after that round, in which they count as empty. A rank that has one hears from the root
 * whether all ranks have one, and the longest; then they go in as many rounds as it takes. If only some have one, the
 * others are gone after the first round and count no more of them: then long blocks go by messages, in no round.
 *
 *   ENTERING --> HEADING (the round) --> HEARING (the root's word, a message) --> RUNNING (what is long)
 *          \---> RUNNING (the round), if no block that this rank knows of is long
 *
 * With an algorithm asked for by name, or next to no stage, the ranks agree on lengths first, as in an all-to-all
 * (agree.h).
 */
#ifndef CH_ROOTED_H
#define CH_ROOTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/describe.h"
#include "engine/op.h"
#include "kernel/kernel.h"

/* Fill in channel->pair_max: what fits into the first round, or 0 where ranks agree first. The same on all ranks. */
void ch_rooted_init(struct ch_channel *channel);

static inline bool ch_rooted_is(const struct ch_channel *channel, const struct ch_op *op)
{
    return op->uneven && channel->pair_max[op->coll] != 0 && op->algo == NULL;
}

/* Whether a block of this length does not fit. */
static inline bool ch_rooted_is_long(const struct ch_channel *channel, const struct ch_op *op,
                                     size_t length)
{
    return length * ch_type_bytes[op->dtype] > channel->pair_max[op->coll];
}

/* What to post beside the flag in `round`. A root of a scatter whose blocks differ in length also leaves each rank's with
 * its block: after the gate. */
uint64_t ch_rooted_tell(struct ch_channel *channel, const struct ch_op *op, uint64_t round);

/* `who` posted `check` in `round`. CHOIR_ERR_MISMATCH, which also is the channel's end, if it means another length or
 * another operation. */
choir_status ch_rooted_compare(struct ch_channel *channel, const struct ch_op *op, uint32_t who,
                               uint64_t check, uint64_t round);

/* --- blocks that do not fit ------------------------------------------------------------------------- */

/* The first round without them; the root's word; and what comes of it. Each op is the channel's until the next one. */
choir_status ch_rooted_head(struct ch_channel *channel, const struct ch_op *op,
                            const struct ch_op **head_out);
const struct ch_op *ch_rooted_word(struct ch_channel *channel, const struct ch_op *op);

struct ch_rooted_rest {
    const struct ch_op *op;
    size_t longest;
    bool uneven;
    bool some; /* only some ranks are in it: by messages, in no round */
};
struct ch_rooted_rest ch_rooted_rest(struct ch_channel *channel, const struct ch_op *op);

/* Of all messages between some ranks only: by this algorithm, and nothing is not sent. */
extern const char ch_rooted_algo[];

#endif
