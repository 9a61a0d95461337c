/*
 * describe.h - what ranks say of the operations they enter, and how it is compared.
 *
 * A rank that enters an operation describes it in its control block (control.h), with a hash of this call and
 * of all calls before it: the check. Ranks whose checks agree have made the same calls all along. The
 * comparison is one word, beside the flag that is looked at anyway; words for people are made only when it
 * fails.
 *
 * Where two ranks do not meet in the operation in which they differ (one-way operations, trees), the hash
 * tells at their next meeting, and the descriptors that are kept tell where it began.
 */
#ifndef CH_DESCRIBE_H
#define CH_DESCRIBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/op.h"

enum { CH_CALL_TEXT_MAX = 96 };

/* What is said of `op`, in `said`, which is the channel's: its plan's, or channel->unplanned. */
void ch_call_say(struct ch_channel *channel, const struct ch_op *op, struct ch_said *said);

/* Whether that was said of an operation with the same plan, and holds for this one. */
static inline bool ch_call_is_said(const struct ch_said *said, const struct ch_op *op)
{
    return ((said->type ^ op->type) | (said->counts ^ op->counts)) == 0; /* one branch */
}

/* Turned, so that the next product's low bits are made of this one's high ones. */
static inline uint64_t ch_call_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash << 32 | hash >> 32;
}

/* A word of a descriptor. Relaxed: published by what follows, the release of `entered` or of a flag. */
static inline void ch_call_put(struct ch_call_slot *slot, size_t offset, uint64_t word)
{
    atomic_store_explicit(&slot->words[offset / sizeof(word)], word, memory_order_relaxed);
}

/* The words of a slot that change only with what is said. */
void ch_call_show(struct ch_channel *channel, uint64_t number, const struct ch_op *op,
                  const struct ch_said *said);

/* Describe the operation and say that we have entered it. Sets channel->ncalls and ->check. Inline, and of few
 * instructions: it is in the way of every operation. */
static inline void ch_call_enter(struct ch_channel *channel, const struct ch_op *op,
                                 const struct ch_said *said)
{
    struct ch_control *control = channel->control;
    uint64_t number = ++channel->ncalls;
    struct ch_call_slot *slot = &control->calls[number % CH_CALLS_KEPT];
    uint64_t check = ch_call_mix(channel->check, said->hash);

    channel->check = check;
    if (CH_UNLIKELY(channel->shown[number % CH_CALLS_KEPT] != said))
        ch_call_show(channel, number, op, said);
    ch_call_put(slot, offsetof(struct ch_call_desc, seq), op->seq);
    ch_call_put(slot, offsetof(struct ch_call_desc, check), check);
    ch_call_put(slot, offsetof(struct ch_call_desc, number), number);
    /* Release, pairs with the acquire in entered_by(). Nobody is rung: who sleeps waits for flags, and
     * looks here only when that takes long. */
    atomic_store_explicit(&control->entered, number, memory_order_release);
}

/* Whether `who` has entered the operation we are in, and whether it calls it what we do. */
enum ch_view { CH_NOT_ENTERED, CH_AGREES, CH_DIFFERS };
enum ch_view ch_call_view(const struct ch_channel *channel, uint32_t who);

/* The factor of `who`, who has entered the operation we are in. */
double ch_call_factor(const struct ch_channel *channel, uint32_t who);

/* The longest block that `who` knows of, and whether it is the root and its blocks differ; the same. */
uint64_t ch_call_longest(const struct ch_channel *channel, uint32_t who);
bool ch_call_differs(const struct ch_channel *channel, uint32_t who);

/* Somebody differs: the channel fails with CHOIR_ERR_MISMATCH and a table of who called what, in the first
 * operation that differs. CHOIR_IN_PROGRESS for a moment, so that those still to come are in the table and
 * it shows who is the odd one out. */
choir_status ch_call_mismatch(struct ch_channel *channel);

/* "allreduce, number 17": what is being done, for texts. */
const char *ch_op_text(const struct ch_op *op, char *buf, size_t size);

/* The same of the last operation that `who` has entered; "none". */
const char *ch_call_text_last(const struct ch_channel *channel, uint32_t who, char *buf,
                              size_t size);

/* "rank 2", "ranks 0, 2-5": those for whom `is` says true; cut if it does not fit. Returns how many. */
uint32_t ch_ranks_text(const struct ch_channel *channel,
                       bool (*is)(const struct ch_channel *channel, uint32_t who, const void *arg),
                       const void *arg, char *buf, size_t size);

#endif
