/*
 * channel.h - a group's place in its members' segments.
 *
 * Making one takes an exchange: every member offers a control block and some stage of its own segment, learns
 * the others' offers (through the parent group; the first group's are known beforehand), and opens the
 * channel with all of them.
 *
 *   ch_channel_offer(rank, nranks, &mine);
 *   ... all-gather of the offers ...
 *   ch_channel_open(rank, members, nranks, me, offers, &channel);
 *
 * A control block and its stage are given to another channel only when all members have closed this one (or
 * have died): until then somebody may still read what this rank left there.
 */
#ifndef CH_CHANNEL_H
#define CH_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <choir/status.h>

#include "algo/algo.h"
#include "engine/control.h"
#include "engine/plan.h"
#include "engine/rank.h"
#include "kernel/copy_over.h"
#include "sched/cache.h"

/* What a member offers; the same size everywhere, to be exchanged as it is. Host byte order: it does not
 * leave the host. */
struct ch_channel_offer {
    uint64_t token; /* which use of the block it is; a rank never has the same twice */
    uint64_t stage_at, stage_nbytes;
    uint32_t rank; /* of the first group */
    uint32_t slot;
};

struct ch_member {
    struct ch_neighbour *neighbour;
    struct ch_control *control;
    char *stage; /* both halves */
    uint64_t token;
    uint64_t through; /* the last round with which it is known to be */
    /* It was reported as frozen (suspect.c); written by whoever waits for it, several threads perhaps. */
    _Atomic bool frozen;
};

struct ch_agreement; /* agree.c */
struct ch_rooted;    /* rooted.c */

struct ch_channel {
    struct ch_rank *rank;
    struct ch_list link; /* of the rank's channels, or of those leaving; under its lock */
    uint64_t id;         /* the same on all members, and no other channel of theirs has it */
    uint32_t nranks, me;
    struct ch_member *members;
    struct ch_control *control; /* our own */
    struct ch_lot lot;          /* our own */
    bool has_stage;             /* its pages were made, with the first operation that needs them */
    size_t stage_half;          /* bytes, the same on all members */
    size_t pair_max[CH_NCOLLS]; /* bytes of a block that needs no agreement (rooted.h); 0: all do */
    uint32_t looks;             /* at a flag that is not there yet, before anything else is done */
    char name[64];              /* of the group, for texts */

    /* The word that poisons the channel, in the first member's block; and whether this rank has a cause to
     * tell (poison.h). */
    _Atomic uint64_t *poison;
    uint64_t unpoisoned; /* what it is as long as nobody has */
    _Atomic uint32_t recording;

    /* What follows belongs to whoever runs the group's collectives: one thread at a time. */
    uint64_t ncalls;        /* entered so far */
    uint64_t differs_since; /* when somebody was first seen to call something else */
    uint64_t check;         /* the hash of them all */
    uint64_t round;         /* the next */
    bool gated;             /* as our control block says */
    uint64_t all_through;   /* every member is through with this one */
    /* The last round of the calls whose slots are written again next (runner.c). */
    uint64_t half_ended;
    const struct ch_said *shown[CH_CALLS_KEPT]; /* what our slots say; NULL: something else */
    struct ch_said unplanned;                   /* of a call that is entered without a plan */
    /* What came after the last barrier that something came after: a broadcast or scatter (led) of this root. */
    uint32_t leader;
    bool led, after_barrier;
    struct ch_sched_cache *schedules;
    struct ch_plan plans[CH_PLANS_KEPT]; /* by their hash (plan.h) */
    struct ch_plan *last_plan;           /* the one asked for last; NULL: none yet */
    bool stepwise;                       /* plans are run step by step, all of them: for tests */
    uint64_t one_shot_max[CH_NCOLLS];    /* by measured figures (plan.c); 0: not asked yet */
    struct ch_copy_ways *to_stage;       /* by the member who reads it; the last: all do (move.c) */
    /* A step that copies what the reduction before it has copied already (move.c), until it is passed over; or NULL. */
    const struct ch_step *copied;
    struct ch_agreement *agreement;
    struct ch_rooted *rooted;
    char *scratch;
    size_t scratch_nbytes;
    struct iovec *iov; /* of SEND and RECV */
    void **places;     /* of REDUCE and COMBINE */
    double *factors;   /* of all members, for premul-sum */
    size_t nplaces;
};

/* Reserve our own part of a channel for `nranks`. Ends with ch_channel_open(), whatever comes of it, or with
 * ch_channel_withdraw().
 * Threads: any. */
choir_status ch_channel_offer(struct ch_rank *rank, uint32_t nranks,
                              struct ch_channel_offer *offer_out);
void ch_channel_withdraw(struct ch_rank *rank, const struct ch_channel_offer *offer);

/* What rank `who` offers for its first channel: known without asking, if that is one of all ranks. */
struct ch_channel_offer ch_channel_first_offer(const struct ch_rank *rank, uint32_t who);

/* Open it. `offers` are the members', in the order of the group; `me` is our place among them.
 * Errors: CHOIR_ERR_UNSUPPORTED if a member is on another host. */
choir_status ch_channel_open(struct ch_rank *rank, const struct ch_channel_offer *offers,
                             uint32_t nranks, uint32_t me, const char *name,
                             struct ch_channel **channel_out);

/* The first channel of a rank, of all ranks, which are on this host: offers ours, and knows the others'. */
choir_status ch_channel_open_first(struct ch_rank *rank, const char *name,
                                   struct ch_channel **channel_out);

/* Leave it. Nothing may run on it. Accepts NULL. */
void ch_channel_close(struct ch_channel *channel);

/* The rank ends: all its channels are closed, and what they left is its own. */
void ch_channels_forget(struct ch_rank *rank);

/* Contexts of messages (p2p.h): those of schedules, and those of users. */
static inline uint64_t ch_channel_context(const struct ch_channel *channel, bool users)
{
    return channel->id * 2 + users;
}

static inline bool ch_context_is_users(uint64_t context)
{
    return context % 2 != 0;
}

/* The member with that number in the first group; CHOIR_NO_RANK if it is none. */
int ch_channel_member(const struct ch_channel *channel, int rank);

/* A transfer's failure, which knows ranks by their number in the first group, as this thread's error about the
 * channel. Returns its code. */
choir_status ch_channel_transfer_error(const struct ch_channel *channel, const choir_error *error);

/* Whether a member has left the channel, or is about to have: it enters no operation any more. */
bool ch_member_has_left(const struct ch_member *member);

/* After a store that members may be waiting for: wake those who sleep. */
void ch_channel_ring(const struct ch_channel *channel);

#endif
