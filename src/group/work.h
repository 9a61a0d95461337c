/*
 * work.h - an operation with a handle: the call itself, references, callbacks, and the parts of a batch.
 *
 * References: one is the user's, one the operation's own until it is done. Works are pooled by their group,
 * which stays (as an empty shell, after its end) until the last of them is back.
 */
#ifndef CH_WORK_H
#define CH_WORK_H

#include <choir/work.h>

#include "base/ref.h"
#include "group/call.h"

struct choir_work {
    struct ch_ref refs;
    struct ch_list callbacks; /* struct ch_note; under the group's lock until it is done */
    struct choir_work *batch; /* the one this is a part of, referenced; NULL: none */
    _Atomic uint32_t
        parts; /* of a batch: how many are not done yet, and one while it is being issued */
    struct choir_work *next_free;
    struct ch_call call;
};

/* A new one with both references, its call cleared but for the group; NULL: no memory, and the error is set. */
choir_work *ch_work_create(choir_group *group);

/* Tell whoever asked to be told: takes the callbacks, which are no more in the work. By who finishes it. */
void ch_work_tell(choir_work *work, struct ch_list *callbacks);

/* One part of a batch is done, as its call says; or, with NULL, all of it has been issued. */
void ch_work_part_done(choir_work *batch, const struct ch_call *part);

/* Make the next operation of the same call not a work: forget both references. */
void ch_work_discard(choir_work *work);

#endif
