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

/* The short way: into this thread's batch, or at once. */
static bool go_plain(choir_group *group, struct ch_plain *plain, choir_status *rc_out)
{
    bool open;

    *rc_out = CHOIR_OK;
    return ch_batch_add_plain(group, plain, &open) ||
           (!open && ch_plain_run(group, plain, 1, rc_out));
}

choir_status choir_send(choir_group *group, choir_buf buf, int to, int tag,
                        const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    struct ch_plain plain;
    choir_status rc;

    if (ch_plain_is(group, CHOIR_OP_SEND, &buf, to, tag, opts, work_out, &plain) &&
        go_plain(group, &plain, &rc))
        return rc;
    rc = ch_call_open(group, "choir_send", CHOIR_OP_SEND, opts, work_out != NULL, &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    rc = check_peer(call, "to", to);
    if (rc == CHOIR_OK)
        rc = build(call, &buf, to, tag, true);
    return ch_call_issue(call, rc, work_out);
}

choir_status choir_recv(choir_group *group, choir_buf buf, int from, int tag,
                        const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    struct ch_plain plain;
    choir_status rc;

    if (ch_plain_is(group, CHOIR_OP_RECV, &buf, from, tag, opts, work_out, &plain) &&
        go_plain(group, &plain, &rc))
        return rc;
    rc = ch_call_open(group, "choir_recv", CHOIR_OP_RECV, opts, work_out != NULL, &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    rc = check_peer(call, "from", from);
    if (rc == CHOIR_OK)
        rc = build(call, &buf, from, tag, false);
    return ch_call_issue(call, rc, work_out);
}

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
