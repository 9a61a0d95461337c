/*
 * coll_reduce_scatter.c - choir_reduce_scatter() and its forms: everybody's block r, reduced, to rank r.
 */
#include "group/args.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/lists.h"
#include "group/overlap.h"
#include "kernel/kernel.h"

/* --- reduce-scatter ------------------------------------------------------------------------------ */

static choir_status build_reduce_scatter(struct ch_call *call, const choir_buf *ins,
                                         const choir_buf *out)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece own, *pieces;
    choir_status rc = ch_check_buf("out", out);

    if (rc == CHOIR_OK)
        rc = ch_check_reduction(call, out->type);
    if (rc == CHOIR_OK)
        rc = ch_list_pieces(call, "ins", ins, out->type, CH_GOES_IN, &pieces);
    if (rc == CHOIR_OK)
        rc = ch_list_check_own(call, "out", out, "ins", ins);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, out, CH_COMES_OUT, &own);
    if (rc != CHOIR_OK)
        return rc;
    ch_list_lengths(call, out->type, pieces);
    ch_blocks_of(&call->op.in, 0, 1, n, pieces, ch_type_bytes[out->type]);
    ch_blocks_even(&call->op.out, me, 1, 1, own.data, own.count);
    return ch_call_results(call, out, 1);
}

choir_status choir_reduce_scatter(choir_group *group, const choir_buf *ins, choir_buf out,
                                  const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_reduce_scatter", CHOIR_OP_REDUCE_SCATTER, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_REDUCE_SCATTER;
    return ch_call_issue(call, build_reduce_scatter(call, ins, &out), work_out);
}

static choir_status build_reduce_scatter_from(struct ch_call *call, const choir_buf *in,
                                              const choir_buf *out)
{
    choir_status rc = ch_part_and_whole(call, "out", out, "in", in, CH_COMES_OUT);

    if (rc == CHOIR_OK)
        rc = ch_check_reduction(call, out->type);
    return rc == CHOIR_OK ? ch_call_results(call, out, 1) : rc;
}

static bool run_from_directly(choir_group *group, const choir_buf *in, const choir_buf *out,
                              const choir_coll_opts *opts, choir_status *rc_out)
{
    uint32_t n = (uint32_t)group->nranks, me = (uint32_t)group->rank;
    size_t nbytes = out->count * ch_type_bytes[out->type];
    struct ch_op op;

    ch_op_init(&op, CHOIR_OP_REDUCE_SCATTER_FROM, CH_REDUCE_SCATTER, out->type, out->count);
    if (in->type != out->type || in->count / n != out->count || in->count % n != 0)
        return false;
    op.in_place = out->data == (char *)in->data + me * nbytes;
    if (!op.in_place && !ch_direct_apart(in->data, n * nbytes, out->data, nbytes))
        return false;
    op.reduces = true;
    op.redop = opts != NULL ? opts->op : CHOIR_SUM;
    op.factor = 1.0;
    ch_blocks_even(&op.in, 0, 1, n, in->data, out->count);
    ch_blocks_even(&op.out, me, 1, 1, out->data, out->count);
    return ch_direct_run(group, &op, "choir_reduce_scatter_from", opts, rc_out);
}

choir_status choir_reduce_scatter_from(choir_group *group, choir_buf in, choir_buf out,
                                       const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&in) && ch_direct_buf(&out) &&
        ch_direct_reduces(opts, out.type) && run_from_directly(group, &in, &out, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_reduce_scatter_from", CHOIR_OP_REDUCE_SCATTER_FROM, opts,
                      work_out != NULL, &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_REDUCE_SCATTER;
    return ch_call_issue(call, build_reduce_scatter_from(call, &in, &out), work_out);
}

static choir_status build_reduce_scatter_coalesced(struct ch_call *call, const choir_buf *ins,
                                                   const choir_buf *outs, size_t k)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece own, *pieces;
    choir_status rc = ch_check_parts(call, "outs", outs, "ins", ins, k);

    if (rc == CHOIR_OK)
        rc = ch_check_list_apart("outs", outs, k);
    if (rc == CHOIR_OK)
        rc = ch_check_reduction(call, outs[0].type);
    if (rc == CHOIR_OK)
        rc = ch_coalesced_blocks(call, ins, k, ch_slice_of_whole, CH_GOES_IN, &pieces);
    if (rc == CHOIR_OK)
        rc = ch_coalesced_own(call, outs, k, CH_COMES_OUT, &own);
    if (rc != CHOIR_OK)
        return rc;
    ch_op_length(call, outs[0].type, own.count);
    ch_hash_inner(call, outs, k);
    ch_blocks_of(&call->op.in, 0, 1, n, pieces, ch_type_bytes[outs[0].type]);
    ch_blocks_even(&call->op.out, me, 1, 1, own.data, own.count);
    return ch_call_results(call, outs, k);
}

choir_status choir_reduce_scatter_coalesced(choir_group *group, const choir_buf *ins,
                                            const choir_buf *outs, size_t k,
                                            const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_reduce_scatter_coalesced",
                                   CHOIR_OP_REDUCE_SCATTER_COALESCED, opts, work_out != NULL, &here,
                                   &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_REDUCE_SCATTER;
    return ch_call_issue(call, build_reduce_scatter_coalesced(call, ins, outs, k), work_out);
}
