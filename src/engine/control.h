/*
 * control.h - a channel's control block: what one member shows the others, in its own segment.
 *
 * A channel is a group's place in its members' segments (channel.h). Every member has a block; only its
 * owner writes it, the poison word of the first member's excepted, and all members read it.
 *
 *   offset  bytes  field      writer                readers
 *        0    128  units[0]   owner                 all, who await it: rounds with an even number
 *      128    128  units[1]   owner                 all: rounds with an odd number
 *      256    512  calls[8]   owner                 all, to compare: the last operations entered
 *      768    128  entered..  owner                 all, when they have waited for a while, are about to write
 *                                                   where the owner may read, or are through with a round
 *                                                   while it sleeps
 *      896    128  poison     anybody, once, by compare-and-swap (first member's only)
 *                                                   all, in every wait (see ch_poison_value())
 *     1024    512  record     owner, once, before the poison word is set to its place
 *
 * Rounds of all operations of a channel are counted together (sched.h); the first has number CH_FIRST_ROUND,
 * so that the round before the last always has a number. A flag is a round's number and a step in it, and
 * only grows: who sees a flag of a later round knows that all of the earlier one has come to pass.
 *
 * A unit's flag, check and payload are in one or two cache lines that travel together. `check` is what the
 * owner says of the operation (describe.h; of gather and scatter also rooted.h) when it raises a flag. Who reads it may find that
 * of a later operation: one that agrees is as good as the descriptor, of one that does not the descriptor
 * must be asked.
 */
#ifndef CH_CONTROL_H
#define CH_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/compiler.h"

enum {
    CH_LINE_NBYTES = CH_CACHE_UNIT - 16, /* LINE of schedules: payload beside a flag */
    CH_CALLS_KEPT = 8,
    CH_FIRST_ROUND = 2,
    CH_FLAG_BITS = 16,
    CH_POISON_BITS = 16, /* a place, or the number of ranks: see CH_ALGO_RANKS_MAX */
};

struct ch_unit {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t flag;
    _Atomic uint64_t check;
    unsigned char line[CH_LINE_NBYTES];
};

/* Lengths may differ; they do, as the root of a gather or scatter knows. */
enum { CH_UNEVEN_MAY = 1, CH_UNEVEN_DIFFER };

/* What a rank called, in slot number % CH_CALLS_KEPT. Half of the slots at a time are written again, only when
 * all members are through with the operations that they described (runner.c). Kept as words: whoever looks further
 * back, to find where calls began to differ, may meet the owner at it. */
struct ch_call_slot {
    _Atomic uint64_t words[8];
};

struct ch_call_desc {
    uint64_t seq;     /* as the group counts, for people */
    uint64_t check;   /* hash of this call and of all before it */
    uint64_t counts;  /* hash of the lengths that all must agree on */
    uint64_t longest; /* elements of the longest block, as far as the rank knows */
    double factor;    /* premul-sum: the rank's own, not compared */
    uint32_t root;
    uint16_t type; /* choir_optype */
    uint8_t dtype, redop, coll;
    uint8_t reduces, rooted, uneven; /* which of the above count; 0 or CH_UNEVEN_ */
    uint64_t number;                 /* as the channel counts: from 1 */
};
_Static_assert(sizeof(struct ch_call_desc) == sizeof(struct ch_call_slot), "one cache line");

struct ch_control {
    struct ch_unit units[2];
    struct ch_call_slot calls[CH_CALLS_KEPT];
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t entered; /* the number of the last call */
    _Atomic uint64_t through; /* the number of the last round that the owner is through with */
    _Atomic uint64_t token;   /* which use of this block it is; 0: none */
    _Atomic uint32_t closed;  /* the owner has left and reads nobody's blocks any more */
    _Atomic uint32_t
        gated; /* the owner waits for others to be through with a round: ring it then */
    /* Whose channel it is, and who was first to fail it. */
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t poison;
    _Alignas(CH_CACHE_UNIT) choir_error record;
};
_Static_assert(offsetof(struct ch_control, calls) == 256, "as in the table above");
_Static_assert(offsetof(struct ch_control, entered) == 768, "as in the table above");
_Static_assert(offsetof(struct ch_control, poison) == 896, "as in the table above");
_Static_assert(offsetof(struct ch_control, record) == 1024, "as in the table above");
_Static_assert(sizeof(struct ch_control) == 1536, "as in the table above");

/* The poison word of the channel for which its first member's block was given `token`: `who` is 1 + the place
 * of whoever was first, 0 for nobody. A late poisoner of the channel that had the block before finds another
 * token there and changes nothing. For the first token "nobody" is 0, as in a new segment: others may look, and
 * poison, before the owner has come. */
static inline uint64_t ch_poison_value(uint64_t token, uint32_t who)
{
    return (token - 1) << CH_POISON_BITS | who;
}

static inline uint64_t ch_flag_value(uint64_t round, uint32_t flag)
{
    return round << CH_FLAG_BITS | flag;
}

/* The last round that somebody with this flag is known to be through with. */
static inline uint64_t ch_flag_through(uint64_t value)
{
    uint64_t round = value >> CH_FLAG_BITS;

    return round > 0 ? round - 1 : 0;
}

#endif
