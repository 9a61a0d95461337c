/*
 * call.h - one operation on its way through a group: from the public call to its end.
 *
 * A call that is done on return lives on its caller's stack, an asynchronous one in its work (work.h). Either
 * way it goes
 *
 *   ch_call_open()    who calls what, with which options; refuses what is plainly wrong
 *   args.h, memory.h  the family's file (coll_*.c) checks the buffers and writes call->op
 *   ch_call_issue()   queue.c: numbered, run here or queued
 *   ch_call_finish()  the only place where an operation ends
 *
 *   OPEN --[ch_call_issue]--> QUEUED --[who holds the group's token: first step; abort, expiry]--> RUNNING
 *                                                       DONE <--[ch_call_finish, by whoever it was]--+
 *
 * A call on a stack is gone as soon as it is DONE: whoever finishes it touches it no more.
 */
#ifndef CH_CALL_H
#define CH_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/coll.h>

#include "backend/backend.h"
#include "base/list.h"
#include "engine/op.h"
#include "group/token.h"

enum ch_call_state { CH_CALL_OPEN, CH_CALL_QUEUED, CH_CALL_RUNNING, CH_CALL_DONE };

enum { CH_CALL_ROOM = 1024 }; /* for pieces and the like, before the heap is asked */

struct ch_staged; /* memory.c: what is packed before and unpacked after */
struct ch_note;   /* caller.c: what a hook is told */

struct ch_call {
    choir_group *group;
    choir_work *work; /* NULL: this is on its caller's stack */
    const char *name; /* of the public call, for texts */
    choir_coll_opts opts;
    struct ch_op op;
    bool collective;
    bool inner; /* a part of something else: not counted, no hook */

    /* Of calls made of several operations, one after the other: asked when one is done. CHOIR_IN_PROGRESS if
     * it has put the next one into op, else what the call ends with. */
    choir_status (*next)(struct ch_call *call);
    void *next_arg;
    void (*cleanup)(struct ch_call *call); /* NULL, or called once at the end, well or not */

    struct ch_list link;    /* group->queue or group->transfers; under the group's lock */
    struct ch_token token;  /* sends and receives: who steps it */
    _Atomic uint32_t state; /* enum ch_call_state; QUEUED -> RUNNING under the group's lock */
    _Atomic bool aborted;   /* set by anybody, read by who steps it */
    bool begun;             /* the rest: by who runs it, published with DONE */
    choir_status status;
    uint64_t issued, began, ended; /* ch_now() */

    uint64_t flight;      /* its number in the flight record; 0: it has none */
    struct ch_note *note; /* for the group's hook; NULL: there was none when it was issued */
    choir_buf *results;   /* of works; `result` or on the heap, until the handle goes */
    size_t nresults;
    choir_buf result;

    struct ch_staged *staged; /* a list */
    struct ch_room *heap;     /* what did not fit below; freed at the end */
    size_t room_used;

    /* From here on not cleared when the call is opened. */
    choir_error error; /* if status is a failure */
    _Alignas(64) char room[CH_CALL_ROOM];
    _Alignas(64) char run[CH_BACKEND_RUN_MAX];
};

/*
 * Begin a public call: `here` is the caller's own, for one that is done on return. *call_out is where to build
 * it: `here`, or in a new work if there is a place for its handle or a batch is open.
 * Errors: no group, no memory, a fork, options without their size; nothing is left to undo.
 */
choir_status ch_call_open(choir_group *group, const char *name, choir_optype type,
                          const choir_coll_opts *opts, bool wants_work, struct ch_call *here,
                          struct ch_call **call_out);

/* The end of a public call: `rc` says whether it could be built. Takes the call over. *work_out (NULL: run to
 * the end) is written on success. */
choir_status ch_call_issue(struct ch_call *call, choir_status rc, choir_work **work_out);

/* The same for one that nobody but the library sees: runs to the end, in the queue's order. */
choir_status ch_call_run(struct ch_call *call);

/* Memory that lasts as long as the operation; 16 bytes aligned. NULL: no memory, and the error is set. */
void *ch_call_room(struct ch_call *call, size_t count, size_t size);

/* Remember which buffers hold the result, if there is a handle to ask. The list is copied. */
choir_status ch_call_results(struct ch_call *call, const choir_buf *bufs, size_t nbufs);

/* --- running: queue.c ---------------------------------------------------------------------------- */

/* Go on as far as it goes: CHOIR_IN_PROGRESS, or what it ended with. By who has the token. */
choir_status ch_call_advance(struct ch_call *call);

/* End it with `rc`, whose words are this thread's last error. */
void ch_call_finish(struct ch_call *call, choir_status rc);

/* Give back what a call has that was never issued; of one that is over, finish does. */
void ch_call_release(struct ch_call *call);

static inline bool ch_call_is_done(struct ch_call *call)
{
    /* Acquire, pairs with the release in ch_call_finish(): status, error and buffers are whole. */
    return atomic_load_explicit(&call->state, memory_order_acquire) == CH_CALL_DONE;
}

#endif
