/*
 * link_call.h - one caller that waits on a link; on its stack. Between link.c and link_open.c only.
 */
#ifndef CH_LINK_CALL_H
#define CH_LINK_CALL_H

#include "store/link.h"

enum { CH_LINK_IN_ROOM = 64 * 1024 };

struct ch_link_call {
    struct ch_list link; /* in link->calls until it is done; under the link's lock */
    struct ch_link *owner;
    const struct ch_ask *ask;
    const struct ch_bell *bell; /* of the thread that waits; rung under the lock */
    uint32_t id;
    uint64_t number;
    choir_status rc; /* written before `done` */
    choir_error error;
    _Atomic uint64_t done;
    _Atomic uint64_t stirred; /* look again: you are the reader, or something is unsent */
};

static inline void ch_link_call_init(struct ch_link_call *call, struct ch_link *link,
                                     const struct ch_ask *ask, const struct ch_bell *bell)
{
    ch_list_init(&call->link);
    call->owner = link;
    call->ask = ask;
    call->bell = bell;
    call->rc = CHOIR_OK;
    atomic_init(&call->done, 0);
    atomic_init(&call->stirred, 0);
}

#endif
