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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/op.h"

enum { CH_CALL_TEXT_MAX = 96 };

/* Describe the operation and say that we have entered it. Sets channel->ncalls and ->check. */
void ch_call_enter(struct ch_channel *channel, const struct ch_op *op);

/* Whether `who` has entered the operation we are in, and whether it calls it what we do. */
enum ch_view { CH_NOT_ENTERED, CH_AGREES, CH_DIFFERS };
enum ch_view ch_call_view(const struct ch_channel *channel, uint32_t who);

/* The factor of `who`, who has entered the operation we are in. */
double ch_call_factor(const struct ch_channel *channel, uint32_t who);

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
