/*
 * plain_p2p.h - the short way of sends and receives: what direct.h is for collectives.
 *
 * Plain is what has no handle and no hook, in memory in one piece, between ranks that are there. Such a call, or a
 * batch of a few of them that nobody wants the handle of, needs no works, no list and no service thread: it runs
 * on its caller's thread, in records on its stack. All else goes the long way (call.h), which has the words for errors.
 */
#ifndef CH_PLAIN_P2P_H
#define CH_PLAIN_P2P_H

#include "backend/backend.h"
#include "group/direct.h"

/* Whether it is plain. Not in a forked child, which must not get as far as the segments. */
static inline bool ch_plain_is(const choir_group *group, const choir_buf *buf, int peer, int tag,
                               const choir_coll_opts *opts, choir_work *const *work_out)
{
    return work_out == NULL && group != NULL && group->direct && !CH_UNLIKELY(ch_is_forked()) &&
           (opts == NULL || opts->size == sizeof(*opts)) &&
           !atomic_load_explicit(&group->hooked, memory_order_relaxed) && ch_direct_buf(buf) &&
           (unsigned)peer < (unsigned)group->nranks && tag >= 0;
}

static inline void ch_plain_fill(struct ch_plain *plain, choir_optype type, const choir_buf *buf,
                                 int peer, int tag, const choir_coll_opts *opts)
{
    plain->type = type;
    plain->dtype = buf->type;
    plain->data = buf->data;
    plain->count = buf->count;
    plain->peer = peer;
    plain->tag = tag;
    plain->timeout_ms = opts != NULL ? opts->timeout_ms : 0;
    plain->done = plain->late = false;
}

/* Begin all, and wait until all are done. True: they were run, and *rc_out is what came of it, the first failure if
 * there is one. False: nothing has happened. At most CH_PLAIN_MAX. */
bool ch_plain_run(choir_group *group, struct ch_plain *parts, size_t count, choir_status *rc_out);

/* The same call again, the long way or into this thread's batch. */
choir_status ch_plain_call(choir_group *group, const struct ch_plain *part);

#endif
