/*
 * backend.h - who carries a group's operations out.
 *
 *   host   shared memory and streams (engine/, transport/)
 *   fake   nobody: everything is done at once
 *
 * Nothing here blocks. The group calls begin() for its collectives one at a time, in order, and step() until it
 * is not CHOIR_IN_PROGRESS; sends and receives may be under way in any number, beside a collective.
 */
#ifndef CH_BACKEND_H
#define CH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>

#include "engine/op.h"

enum { CH_BACKEND_RUN_MAX = 4096, CH_BACKEND_TRANSFER_MAX = 2048 };

enum { CH_PLAIN_MAX = 8 }; /* of one batch */

struct ch_meanwhile; /* transport/p2p.h */

/* A send to a member, or a receive from one, in memory in one piece. */
struct ch_plain {
    choir_optype type; /* CHOIR_OP_SEND or CHOIR_OP_RECV */
    choir_type dtype;
    void *data;
    size_t count;
    int peer, tag;
    int64_t timeout_ms; /* as in choir_coll_opts */
    bool done;          /* run_short() has carried it out, well; not set if it has all */
    bool late;          /* it would have, if its message had come */
};

struct ch_backend_ops {
    const char *name;
    bool at_once; /* nothing ever has to wait: also asynchronous operations run in their call */

    /*
     * Enter the operation. `run` is where it keeps what it needs on the way: CH_BACKEND_RUN_MAX bytes beside
     * the op, CH_BACKEND_TRANSFER_MAX for a send or receive, aligned to 64, not set up.
     * Threads: one at a time for collectives; sends and receives from any, at once.
     */
    choir_status (*begin)(void *self, struct ch_op *op, void *run);

    /* Go on: CHOIR_OK when done, CHOIR_IN_PROGRESS if it has to wait for others, or a failure. Called again
     * whenever the rank's waiter was rung, and when op->until has passed: then, if it still has to wait, it
     * fails with CHOIR_ERR_TIMEOUT, naming who is missing. A receive that is done has its source in op->peer.
     * Threads: as begin(), never two in one operation, not always the same. */
    choir_status (*step)(void *self, struct ch_op *op, void *run);

    /* Give back what begin() took, whatever came of it; also for one that is given up half-way. */
    void (*end)(void *self, struct ch_op *op, void *run);

    /* Carry out those of up to CH_PLAIN_MAX sends and receives that are not done and need not wait, and say how many are; the others
     * have not begun, and are to be begun in their order. `meanwhile` may be NULL. A backend without this has none that need
     * not wait.
     * Threads: any. */
    size_t (*run_short)(void *self, struct ch_plain *parts, size_t count,
                        const struct ch_meanwhile *meanwhile);

    /* Whoever is in run_short() has come to its end when this returns. NULL: as that.
     * Threads: any. */
    void (*pass_short)(void *self);

    /* What the group failed with, here or on another member: CHOIR_OK, or the code, with the record in *out, which may be NULL.
     * NULL: a group of this kind never fails by itself.
     * Threads: any. */
    choir_status (*error)(void *self, choir_error *out);

    /* Make the group fail with `why`, unless it has failed already: all operations under way and to come, here
     * and on the other members, sends and receives as well; whoever waits is rung. NULL: nobody to tell.
     * Threads: any. */
    void (*fail)(void *self, const choir_error *why);

    /* Nothing is under way any more. */
    void (*destroy)(void *self);
};

extern const struct ch_backend_ops ch_backend_fake, ch_backend_host;

#endif
