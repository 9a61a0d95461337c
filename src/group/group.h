/*
 * group.h - the group object.
 *
 * A group is a handle, a backend that carries its operations out, and what is queued and under way. What it
 * shares with the other groups of the same rank is in its context (context.h).
 *
 * Collectives run one at a time, in the order issued; whoever holds the token runs them: a thread that waits
 * for one, or the service thread (attend.h). Sends and receives are each on their own.
 */
#ifndef CH_GROUP_H
#define CH_GROUP_H

#include <choir/group.h>
#include <choir/trace.h>

#include "backend/backend.h"
#include "backend/backend_fake.h"
#include "base/forked.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/ref.h"
#include "group/call.h"
#include "group/context.h"
#include "group/token.h"
#include "trace/flight.h"

struct choir_group {
    int rank, nranks;
    struct ch_context *context;
    char *name, *description;
    int *global; /* which ranks of the first group ours are; NULL: the same */
    choir_store
        *store; /* of a group that was split off: made when first asked for; under the lock */

    const struct ch_backend_ops *backend;
    void *backend_self;
    bool direct;                    /* collectives may go the short way (direct.h) */
    struct ch_fake fake;            /* backend_self of fake groups */
    struct ch_flight_group *flight; /* NULL: nothing is recorded */

    struct ch_ref refs;       /* the handle's, each work's, each note's, the attendant's */
    struct ch_token token;    /* who runs the queue */
    struct ch_lock lock;      /* guards the next block */
    struct ch_list queue;     /* collectives issued, not done: struct ch_call.link, in order */
    struct ch_list transfers; /* works that are sends and receives under way: the same */
    struct ch_list batches;   /* open ones, of whichever thread, but for the next block's */
    choir_work *free_works;   /* a stack */
    size_t nfree_works;
    _Atomic bool closed; /* shut down, or being destroyed: nothing new; written under the lock */
    _Atomic bool hooked; /* there is one; written under the lock, read by anybody */
    void (*hook)(void *arg, const choir_work_info *info);
    void *hook_arg;
    _Atomic ch_deadline next_due; /* no later than the first of those in `queue`; written under the
                                   * lock, read by who runs it */
    uint64_t nsplits;             /* collective over this group, so the same on all members */
    uint64_t nmonitored;          /* monitored barriers, the same */

    /* Issued. Written under the lock, the first also by who goes the short way with the token (direct.h); read by
     * anybody. */
    _Atomic uint64_t ncollectives, ntransfers;
    _Atomic uint64_t nbatches; /* open ones in `batches`: most calls need not look; the same */
    /* Collectives that go through the queue, not done; written under the lock. Raised before ncollectives is. */
    _Atomic uint64_t nqueued;
    _Atomic uint64_t npending; /* issued, not done or with callbacks still to run */
    _Atomic uint64_t nnotes; /* part of these: posted to the thread that calls back, not yet run */
    _Atomic int64_t timeout_ms;

    _Atomic uintptr_t batch_owner; /* the thread that has the next one open; 0: none */
    struct batch *batch;           /* its owner's alone; made when first needed, stays */

    bool failed;          /* under the lock, for backends that do not know it themselves */
    choir_error error;    /* the first failure; never changes */
    _Atomic bool aborted; /* by choir_group_abort(), here */

    struct ch_list registered;  /* registry.c's, under its lock */
    bool orphaned;              /* the same: its rank's thread has ended */
    struct ch_list attended;    /* attend.c's, under its lock, then the service thread's */
    bool in_attendance, kicked; /* under its lock: in its list, with a reference; to be looked at */
};

/* A group around a backend that is ready. Takes `context` (a reference), `global` and `backend_self` over, also on
 * failure. `name` and `description` are copied. It is not registered yet. */
choir_status ch_group_create(struct ch_context *context, int rank, int nranks, int *global,
                             const char *name, const char *description,
                             const struct ch_backend_ops *backend, void *backend_self,
                             choir_group **group_out);

void ch_group_ref(choir_group *group);
void ch_group_unref(choir_group *group);

/* For calls that need one: it is there, and this is not a forked child. `name` is the call's. */
choir_status ch_group_not_given(const choir_group *group, const char *name);

static inline choir_status ch_group_given(const choir_group *group, const char *name)
{
    return CH_LIKELY(group != NULL && !ch_is_forked()) ? CHOIR_OK : ch_group_not_given(group, name);
}

/* CHOIR_OK, or the failure as this thread's last error. */
choir_status ch_group_check_slow(choir_group *group);

static inline choir_status ch_group_check(choir_group *group)
{
    const struct ch_backend_ops *backend = group->backend;

    /* Most have not, and a record is large. */
    if (CH_LIKELY(backend != NULL && backend->error != NULL &&
                  backend->error(group->backend_self, NULL) == CHOIR_OK))
        return CHOIR_OK;
    return ch_group_check_slow(group);
}

/* Fail with `why` unless it has failed; tell the others. */
void ch_group_fail(choir_group *group, const choir_error *why);

/* --- queue.c ------------------------------------------------------------------------------------- */

/* The service thread's: run what can be run now, of collectives and sends and receives, unless they are young.
 * *next_io is lowered to when the next of what is left wants to be looked at by itself. */
enum ch_turn ch_group_turn(choir_group *group, ch_deadline *next_io);

/* Wait until `ready(arg)`, helping meanwhile. */
choir_status ch_group_wait(choir_group *group, bool (*ready)(void *arg), void *arg,
                           ch_deadline until, const char *what);

/* One operation less that is not settled. */
void ch_group_settle(choir_group *group);
void ch_group_settle_locked(choir_group *group);

#endif
