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

    /* What the group failed with, here or on another member: CHOIR_OK, or the code, with the record in *out.
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
