/*
 * lock.h - mutexes with a rank, so that two threads can never take two locks in opposite order.
 *
 * Locks are taken in rising rank; debug builds check it. No user code runs and nothing blocks with a
 * lock held.
 */
#ifndef CH_LOCK_H
#define CH_LOCK_H

#include <pthread.h>

#include "base/assert.h"
#include "base/compiler.h"

/* Taken in this order; a thread never holds two of one rank. */
enum ch_lock_rank {
    CH_LOCK_COMM = 1,  /* nccl/: the communicators of this process, and each of them */
    CH_LOCK_SERVICE,   /* io/service.c: starting and stopping the service thread */
    CH_LOCK_SEGMENTS,  /* io/segment.c: the table of mappings */
    CH_LOCK_REGISTRY,  /* group/registry.c: the groups of this process by name */
    CH_LOCK_GROUP,     /* group/: what is queued and under way in one group */
    CH_LOCK_ATTENDANT, /* group/attend.c: which groups the service thread looks after */
    CH_LOCK_RANK,      /* engine/: the channels of a rank, and what it still has to give */
    CH_LOCK_STORE,     /* store/: what the threads that use one store share */
    CH_LOCK_P2P,       /* transport/p2p.c: all transfers of a rank */
    CH_LOCK_WAITER,    /* base/wait.c: how many threads sleep */
    CH_LOCK_TRACE,     /* trace/flight.c: the flight records of this process and their groups */
};

struct CH_CAPABILITY ch_lock {
    pthread_mutex_t mutex;
    enum ch_lock_rank rank;
};

#define CH_LOCK_INIT(rank_)                                                                        \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (rank_)                                        \
    }

void ch_lock_init(struct ch_lock *lock, enum ch_lock_rank rank);
void ch_lock_fini(struct ch_lock *lock);
void ch_lock(struct ch_lock *lock) CH_ACQUIRES(lock);
void ch_unlock(struct ch_lock *lock) CH_RELEASES(lock);

/* For the first line of a function whose name ends in _locked. Checks in debug builds only. */
void ch_lock_assert_held(const struct ch_lock *lock);

#endif
