/*
 * rank.h - a rank's context: what all its groups share.
 *
 * One for each choir_init(), also when ranks are threads of one process. The first group makes it, its
 * children refer to it, the last to go ends it.
 *
 *   ch_rank_create()     segment and waiter: one can wait for the other ranks now
 *   ch_rank_connect()    those of this host are neighbours, and are watched
 *   ch_rank_unref()
 *
 * What it watches for: the service thread sees the pidfd of every neighbour; one that ends with a channel
 * open poisons every channel that both are in. And as long as an operation waits, the service thread rings
 * this rank's own bell a few times a second, so that whoever waits looks whether there is a reason not to
 * (suspect.h): nobody who sleeps on memory alone would.
 */
#ifndef CH_RANK_H
#define CH_RANK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <choir/status.h>

#include "algo/select.h"
#include "algo/machine.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/ref.h"
#include "engine/hostlink.h"
#include "engine/pool.h"
#include "io/service.h"
#include "transport/p2p.h"

enum { CH_TICK_MS = 200, CH_HOST_NAME_MAX = 64 };

struct ch_watched;

struct ch_rank {
    struct ch_ref refs;
    int rank;        /* of the first group's, as all ranks here */
    uint32_t nranks; /* of the first group */
    char host[CH_HOST_NAME_MAX];
    uint32_t processors;           /* that the ranks of this host have together */
    struct ch_overrules overrules; /* CHOIR_ALGO */
    bool measured;                 /* all ranks of this host have the same figures of it */
    choir_machine machine;
    struct ch_hostlink link;
    struct ch_p2p *p2p;
    struct ch_service *service;

    struct ch_lock lock; /* guards the next four */
    struct ch_pool pool;
    uint64_t noffers;        /* ever made (channel.h) */
    struct ch_list channels; /* open */
    struct ch_list leaving;  /* closed here, not yet by all members */

    struct ch_watched *watched; /* one for each neighbour; the service thread's */
    _Atomic uint32_t nwaiting;  /* operations that wait now; written by whoever runs them */
    _Atomic uint32_t unsettled; /* one of them is the service thread, see ch_rank_settle() */
    _Atomic uint32_t
        ticks; /* how often the bell was rung for them; written by the service thread */
    _Atomic uint32_t
        ticking; /* the timer runs, or is about to: set by who waits, cleared by the timer */
    struct ch_timer timer;
    struct ch_task start_task, tick_task, stop_task;
    _Atomic uint64_t stopped; /* posted by stop_task */
};

/* The context with nothing but its own segment, doorbell and pidfd. */
choir_status ch_rank_create(int rank, struct ch_rank **rank_out);

/* Connect to the ranks of this host (hostlink.h); `nranks` are there in all, `host` is this host's name.
 * Collective over the members. */
choir_status ch_rank_connect(struct ch_rank *rank, uint32_t nranks, const char *host,
                             const struct ch_hostlink_member *members, size_t count,
                             const struct ch_patience *patience);

struct ch_rank *ch_rank_ref(struct ch_rank *rank);

/* The last reference ends it, and waits for the service thread to let go. Accepts NULL. */
void ch_rank_unref(struct ch_rank *rank);

static inline struct ch_waiter *ch_rank_waiter(struct ch_rank *rank)
{
    return &rank->link.waiter;
}

/* An operation of this rank waits, or waits no more: see above. */
void ch_rank_wait_begins(struct ch_rank *rank);
void ch_rank_wait_ends(struct ch_rank *rank);

/* A send or receive has failed, or was taken back: what the other side is to be told of that and could not be yet, for want of
 * room, the service thread tells. */
void ch_rank_settle(struct ch_rank *rank);

#endif
