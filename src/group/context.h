/*
 * context.h - what the groups of one rank share: one for each choir_init(), or for a fake group.
 *
 * The first group makes it, those split from it refer to it, the last to go ends it.
 */
#ifndef CH_CONTEXT_H
#define CH_CONTEXT_H

#include <pthread.h>

#include "base/ref.h"
#include "base/wait.h"
#include "engine/channel.h"
#include "engine/rank.h"
#include "group/attend.h"
#include "group/flightwatch.h"
#include "group/meet.h"
#include "group/record.h"
#include "trace/flight.h"

struct ch_caller;

struct ch_context {
    struct ch_ref refs;
    pthread_t home;   /* who made it: ranks may be threads of one process */
    bool is_thread;   /* they are: another rank is in this process (threadend.h) */
    int rank, nranks; /* of the first group */
    struct ch_waiter
        *waiter; /* what this rank sleeps on: the rank's, or our own if it has no peers */
    struct ch_attendant attendant;
    struct ch_caller *caller; /* caller.c; under the attendant's lock; NULL: not needed so far */

    /* How the ranks met; nothing of it in fake groups. */
    struct ch_rank *engine;
    struct ch_flight *flight; /* NULL: nothing is recorded */
    struct ch_flightwatch flightwatch;
    struct ch_channel *first_channel; /* until the first group takes it */
    struct ch_meeting_place place;
    choir_store *round;        /* this meeting's corner of place.store */
    bool counted;              /* as our rank, there */
    struct ch_record *records; /* of all ranks */
    int *hosts;                /* of all ranks: which host, counted by lowest rank */
    bool one_host;             /* all ranks share memory */
    char origin[512];

    struct ch_bell_word bell; /* of `alone` */
    struct ch_waiter alone;
};

/* A context of nobody but ourselves. */
choir_status ch_context_create_alone(int rank, int nranks, struct ch_context **context_out);

/* Join a job: see choir_init(). All options are filled in. */
choir_status ch_context_join(const choir_init_opts *opts, struct ch_context **context_out);

struct ch_context *ch_context_ref(struct ch_context *context);
void ch_context_unref(struct ch_context *context);

#endif
