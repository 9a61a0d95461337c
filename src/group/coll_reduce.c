/*
 * coll_reduce.c - choir_allreduce(), choir_allreduce_coalesced(), choir_reduce(): one block, everybody's.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/memory.h"
#include "group/overlap.h"

/* Where this rank's elements are: opts->input, laid out as `buf` is, or `buf` itself. */
static choir_status input_of(struct ch_call *call, const choir_buf *buf, choir_buf *in_out)
{
    choir_status rc = CHOIR_OK;

    *in_out = *buf;
    call->op.in_place = call->opts.input == NULL || call->opts.input == buf->data;
    if (!call->op.in_place) {
        in_out->data = (void *)(uintptr_t)call->opts.input;
        rc = ch_check_apart("opts->input", in_out, "buf", buf);
    }
    return rc;
}

static choir_status build(struct ch_call *call, const choir_buf *buf, bool has_result)
{
    choir_buf in;
    struct ch_piece from, to = { NULL, 0 };
    choir_status rc = ch_check_buf("buf", buf);

    if (rc == CHOIR_OK)
        rc = ch_check_reduction(call, buf->type);
    if (rc == CHOIR_OK)
        rc = input_of(call, buf, &in);
    if (rc != CHOIR_OK)
        return rc;
    if (call->op.in_place) {
        rc = ch_block_of(call, buf, has_result ? CH_GOES_IN | CH_COMES_OUT : CH_GOES_IN, &from);
        to = from;
        call->op.in_place = has_result;
    } else {
        rc = ch_block_of(call, &in, CH_GOES_IN, &from);
        if (rc == CHOIR_OK && has_result)
            rc = ch_block_of(call, buf, CH_COMES_OUT, &to);
    }
    ch_op_length(call, buf->type, buf->count);
    ch_blocks_even(&call->op.in, 0, 1, 1, from.data, from.count);
    if (has_result)
        ch_blocks_even(&call->op.out, 0, 1, 1, to.data, to.count);
    return rc == CHOIR_OK ? ch_call_results(call, buf, 1) : rc;
}

/* The short way: `has_result` is false on those that only give. */
static bool run_directly(choir_group *group, choir_optype type, enum ch_coll coll, const char *name,
                         const choir_buf *buf, uint32_t root, bool has_result,
                         const choir_coll_opts *opts, choir_status *rc_out)
{
    const void *input = opts != NULL ? opts->input : NULL;
    size_t nbytes = buf->count * ch_type_bytes[buf->type];
    bool in_place = input == NULL || input == buf->data;
    struct ch_op op;

    ch_op_init(&op, type, coll, buf->type, buf->count);
    if (!in_place && !ch_direct_apart(input, nbytes, buf->data, nbytes))
        return false;
    op.reduces = true;
    op.redop = opts != NULL ? opts->op : CHOIR_SUM;
    op.factor = 1.0;
    op.root = root;
    op.in_place = in_place && has_result;
    ch_blocks_even(&op.in, 0, 1, 1, (void *)(uintptr_t)(in_place ? buf->data : input), buf->count);
    if (has_result)
        ch_blocks_even(&op.out, 0, 1, 1, buf->data, buf->count);
    return ch_direct_run(group, &op, name, opts, rc_out);
}

choir_status choir_allreduce(choir_group *group, choir_buf buf, const choir_coll_opts *opts,
                             choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&buf) &&
        ch_direct_reduces(opts, buf.type) &&
        run_directly(group, CHOIR_OP_ALLREDUCE, CH_ALLREDUCE, "choir_allreduce", &buf, 0, true,
                     opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_allreduce", CHOIR_OP_ALLREDUCE, opts, work_out != NULL, &here,
                      &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLREDUCE;
    return ch_call_issue(call, build(call, &buf, true), work_out);
}

choir_status choir_reduce(choir_group *group, choir_buf buf, const choir_coll_opts *opts,
                          choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&buf) &&
        ch_direct_reduces(opts, buf.type) && ch_direct_root(group, opts) &&
        run_directly(group, CHOIR_OP_REDUCE, CH_REDUCE, "choir_reduce", &buf, ch_root_of(opts),
                     ch_root_of(opts) == (uint32_t)group->rank, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_reduce", CHOIR_OP_REDUCE, opts, work_out != NULL, &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_REDUCE;
    rc = ch_check_root(call);
    if (rc == CHOIR_OK)
        rc = build(call, &buf, call->opts.root == group->rank);
    return ch_call_issue(call, rc, work_out);
}

/* --- several as one ------------------------------------------------------------------------------ */

static choir_status build_coalesced(struct ch_call *call, const choir_buf *bufs, size_t nbufs)
{
    struct ch_slice *slices;
    struct ch_piece piece;
    choir_status rc = ch_check_list("bufs", bufs, nbufs, nbufs > 0 && bufs ? bufs[0].type : 0);

    if (rc == CHOIR_OK)
        rc = ch_check_list_apart("bufs", bufs, nbufs);
    if (rc == CHOIR_OK)
        rc = ch_check_reduction(call, bufs[0].type);
    if (rc == CHOIR_OK && call->opts.input != NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "opts->input: expected NULL, this call is in place");
    if (rc != CHOIR_OK)
        return rc;
    slices = ch_call_room(call, nbufs, sizeof(*slices));
    if (slices == NULL)
        return CHOIR_ERR_NOMEM;
    for (size_t i = 0; i < nbufs; i++)
        slices[i] = (struct ch_slice){ &bufs[i], 0, bufs[i].count };
    rc = ch_block_make(call, slices, nbufs, CH_GOES_IN | CH_COMES_OUT, &piece);
    call->op.in_place = true;
    ch_op_length(call, bufs[0].type, piece.count);
    ch_blocks_even(&call->op.in, 0, 1, 1, piece.data, piece.count);
    call->op.out = call->op.in;
    return rc == CHOIR_OK ? ch_call_results(call, bufs, nbufs) : rc;
}

choir_status choir_allreduce_coalesced(choir_group *group, const choir_buf *bufs, size_t nbufs,
                                       const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_allreduce_coalesced", CHOIR_OP_ALLREDUCE_COALESCED,
                                   opts, work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLREDUCE;
    return ch_call_issue(call, build_coalesced(call, bufs, nbufs), work_out);
}
