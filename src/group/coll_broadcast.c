/*
 * coll_broadcast.c - choir_broadcast(): one block, the root's.
 */
#include "group/args.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/memory.h"

static choir_status build(struct ch_call *call, const choir_buf *buf)
{
    bool is_root = call->opts.root == call->group->rank;
    struct ch_piece piece;
    choir_status rc = ch_check_root(call);

    if (rc == CHOIR_OK)
        rc = ch_check_buf("buf", buf);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, buf, is_root ? CH_GOES_IN : CH_COMES_OUT, &piece);
    if (rc != CHOIR_OK)
        return rc;
    ch_op_length(call, buf->type, buf->count);
    ch_blocks_even(&call->op.out, 0, 1, 1, piece.data, piece.count);
    if (is_root)
        call->op.in = call->op.out;
    call->op.in_place = is_root;
    return ch_call_results(call, buf, 1);
}

static bool run_directly(choir_group *group, const choir_buf *buf, const choir_coll_opts *opts,
                         choir_status *rc_out)
{
    struct ch_op op;

    ch_op_init(&op, CHOIR_OP_BROADCAST, CH_BROADCAST, buf->type, buf->count);
    op.root = ch_root_of(opts);
    op.in_place = op.root == (uint32_t)group->rank;
    ch_blocks_even(&op.out, 0, 1, 1, buf->data, buf->count);
    if (op.in_place)
        ch_blocks_even(&op.in, 0, 1, 1, buf->data, buf->count);
    return ch_direct_run(group, &op, "choir_broadcast", opts, rc_out);
}

choir_status choir_broadcast(choir_group *group, choir_buf buf, const choir_coll_opts *opts,
                             choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&buf) &&
        ch_direct_root(group, opts) && run_directly(group, &buf, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_broadcast", CHOIR_OP_BROADCAST, opts, work_out != NULL, &here,
                      &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_BROADCAST;
    return ch_call_issue(call, build(call, &buf), work_out);
}
