/*
 * coll_p2p.c - choir_send(), choir_recv(), choir_recv_any(): between two ranks.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/batch.h"
#include "group/group.h"
#include "group/memory.h"
#include "group/plain_p2p.h"

static choir_status check_peer(const struct ch_call *call, const char *name, int peer)
{
    if (peer >= 0 && peer < call->group->nranks)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID, "%s: invalid rank %d (expected 0 to %d)", name, peer,
                   call->group->nranks - 1);
}

static choir_status build(struct ch_call *call, const choir_buf *buf, int peer, int tag, bool sends)
{
    struct ch_piece piece;
    choir_status rc = CHOIR_OK;

    if (tag < 0)
        rc = ch_fail(CHOIR_ERR_INVALID, "tag: %d: Tag must be nonnegative", tag);
    if (rc == CHOIR_OK)
        rc = ch_check_buf("buf", buf);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, buf, sends ? CH_GOES_IN : CH_COMES_OUT, &piece);
    if (rc != CHOIR_OK)
        return rc;
    call->collective = false;
    call->op.peer = peer;
    call->op.tag = tag;
    ch_op_length(call, buf->type, buf->count);
    ch_blocks_even(sends ? &call->op.in : &call->op.out, 0, 1, 1, piece.data, piece.count);
    return ch_call_results(call, buf, 1);
}

/* --- choir_send(), choir_recv() ------------------------------------------------------------------- */

static bool run_alone(choir_group *group, choir_optype type, const choir_buf *buf, int peer,
                      int tag, const choir_coll_opts *opts, choir_status *rc_out)
{
    struct ch_plain plain;

    if (ch_batch_is_open(group))
        return false;
    ch_plain_fill(&plain, type, buf, peer, tag, opts);
    return ch_plain_run(group, &plain, 1, rc_out);
}

/* A call takes room: apart, so that those who need none do not make it. */
static CH_NOINLINE choir_status go_long(choir_group *group, choir_optype type, const choir_buf *buf,
                                        int peer, int tag, const choir_coll_opts *opts,
                                        choir_work **work_out)
{
    bool sends = type == CHOIR_OP_SEND;
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, sends ? "choir_send" : "choir_recv", type, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    rc = check_peer(call, sends ? "to" : "from", peer);
    if (rc == CHOIR_OK)
        rc = build(call, buf, peer, tag, sends);
    return ch_call_issue(call, rc, work_out);
}

/* By itself: the short way, if it is one for it. */
static CH_NOINLINE choir_status go_alone(choir_group *group, choir_optype type,
                                         const choir_buf *buf, int peer, int tag,
                                         const choir_coll_opts *opts)
{
    choir_status rc;

    if (run_alone(group, type, buf, peer, tag, opts, &rc))
        return rc;
    return go_long(group, type, buf, peer, tag, opts, NULL);
}

static CH_ALWAYS_INLINE choir_status go(choir_group *group, choir_optype type, const choir_buf *buf,
                                        int peer, int tag, const choir_coll_opts *opts,
                                        choir_work **work_out)
{
    struct ch_plain *place;

    if (CH_UNLIKELY(!ch_plain_is(group, buf, peer, tag, opts, work_out)))
        return go_long(group, type, buf, peer, tag, opts, work_out);
    place = ch_batch_place(group);
    if (place == NULL)
        return go_alone(group, type, buf, peer, tag, opts);
    ch_plain_fill(place, type, buf, peer, tag, opts);
    return CHOIR_OK;
}

choir_status choir_send(choir_group *group, choir_buf buf, int to, int tag,
                        const choir_coll_opts *opts, choir_work **work_out)
{
    return go(group, CHOIR_OP_SEND, &buf, to, tag, opts, work_out);
}

choir_status choir_recv(choir_group *group, choir_buf buf, int from, int tag,
                        const choir_coll_opts *opts, choir_work **work_out)
{
    return go(group, CHOIR_OP_RECV, &buf, from, tag, opts, work_out);
}

/* --- choir_recv_any() ------------------------------------------------------------------------------ */

/* The source is known: op.peer, and where the caller wants it. */
static choir_status tell_source(struct ch_call *call)
{
    *(int *)call->next_arg = call->op.peer;
    return CHOIR_OK;
}

choir_status choir_recv_any(choir_group *group, choir_buf buf, int tag, int *from_out,
                            const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_recv_any", CHOIR_OP_RECV_ANY, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    rc = build(call, &buf, -1, tag, false);
    if (from_out != NULL) {
        call->next = tell_source;
        call->next_arg = from_out;
    }
    return ch_call_issue(call, rc, work_out);
}
