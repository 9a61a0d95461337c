/*
 * coll_allgather.c - choir_allgather() and its forms: a block for each rank, to everybody.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/lists.h"
#include "group/overlap.h"
#include "kernel/kernel.h"

/* --- one --------------------------------------------------------------------------------- */

static choir_status build_allgather(struct ch_call *call, const choir_buf *in,
                                    const choir_buf *outs)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece own, *pieces;
    choir_status rc = ch_check_buf("in", in);

    if (rc == CHOIR_OK)
        rc = ch_list_pieces(call, "outs", outs, in->type, CH_COMES_OUT, &pieces);
    if (rc == CHOIR_OK)
        rc = ch_list_check_own(call, "in", in, "outs", outs);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, in, CH_GOES_IN, &own);
    if (rc != CHOIR_OK)
        return rc;
    ch_list_lengths(call, in->type, pieces);
    ch_blocks_even(&call->op.in, me, 1, 1, own.data, own.count);
    ch_blocks_of(&call->op.out, 0, 1, n, pieces, ch_type_bytes[in->type]);
    return ch_call_results(call, outs, n);
}

choir_status choir_allgather(choir_group *group, choir_buf in, const choir_buf *outs,
                             const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_allgather", CHOIR_OP_ALLGATHER, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    return ch_call_issue(call, build_allgather(call, &in, outs), work_out);
}

static choir_status build_allgather_into(struct ch_call *call, const choir_buf *in,
                                         const choir_buf *out)
{
    choir_status rc = ch_part_and_whole(call, "in", in, "out", out, CH_GOES_IN);

    return rc == CHOIR_OK ? ch_call_results(call, out, 1) : rc;
}

static bool run_into_directly(choir_group *group, const choir_buf *in, const choir_buf *out,
                              const choir_coll_opts *opts, choir_status *rc_out)
{
    uint32_t n = (uint32_t)group->nranks, me = (uint32_t)group->rank;
    size_t nbytes = in->count * ch_type_bytes[in->type];
    struct ch_op op;

    ch_op_init(&op, CHOIR_OP_ALLGATHER_INTO, CH_ALLGATHER, in->type, in->count);
    if (in->type != out->type || out->count / n != in->count || out->count % n != 0)
        return false;
    op.in_place = in->data == (char *)out->data + me * nbytes;
    if (!op.in_place && !ch_direct_apart(in->data, nbytes, out->data, n * nbytes))
        return false;
    ch_blocks_even(&op.in, me, 1, 1, in->data, in->count);
    ch_blocks_even(&op.out, 0, 1, n, out->data, in->count);
    return ch_direct_run(group, &op, "choir_allgather_into", opts, rc_out);
}

choir_status choir_allgather_into(choir_group *group, choir_buf in, choir_buf out,
                                  const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&in) && ch_direct_buf(&out) &&
        run_into_directly(group, &in, &out, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_allgather_into", CHOIR_OP_ALLGATHER_INTO, opts,
                      work_out != NULL, &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    return ch_call_issue(call, build_allgather_into(call, &in, &out), work_out);
}

/* --- k all-gathers as one: a rank's block is its k inputs behind each other --------------------------- */

static choir_status check_allgather_lists(struct ch_call *call, const choir_buf *ins,
                                          const choir_buf *outs, size_t k)
{
    size_t n = (size_t)call->group->nranks, me = (size_t)call->group->rank, all;
    choir_status rc = ch_check_list("ins", ins, k, k > 0 && ins != NULL ? ins[0].type : 0);

    if (rc == CHOIR_OK && __builtin_mul_overflow(n, k, &all))
        rc = ch_fail(CHOIR_ERR_INVALID, "k: %zu is too many", k);
    if (rc == CHOIR_OK)
        rc = ch_check_list("outs", outs, all, ins[0].type);
    if (rc == CHOIR_OK)
        rc = ch_check_list_apart("outs", outs, all);
    if (rc == CHOIR_OK)
        rc = ch_check_lists_apart("ins", ins, k, "outs", outs, all);
    for (size_t j = 0; j < k && rc == CHOIR_OK; j++) {
        if (outs[me * k + j].count != ins[j].count)
            rc = ch_fail(CHOIR_ERR_INVALID,
                         "outs: invalid size of output tensor at index %zu (expected %zu, got %zu)",
                         me * k + j, ins[j].count, outs[me * k + j].count);
    }
    return rc;
}

static choir_status build_allgather_coalesced(struct ch_call *call, const choir_buf *ins,
                                              const choir_buf *outs, size_t k)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece own, *pieces;
    choir_status rc = check_allgather_lists(call, ins, outs, k);

    if (rc == CHOIR_OK)
        rc = ch_coalesced_own(call, ins, k, CH_GOES_IN, &own);
    if (rc == CHOIR_OK)
        rc = ch_coalesced_blocks(call, outs, k, ch_slice_of_list, CH_COMES_OUT, &pieces);
    if (rc != CHOIR_OK)
        return rc;
    ch_list_lengths(call, ins[0].type, pieces);
    ch_hash_inner(call, outs, n * k);
    ch_blocks_even(&call->op.in, me, 1, 1, own.data, own.count);
    ch_blocks_of(&call->op.out, 0, 1, n, pieces, ch_type_bytes[ins[0].type]);
    return ch_call_results(call, outs, n * k);
}

choir_status choir_allgather_coalesced(choir_group *group, const choir_buf *ins,
                                       const choir_buf *outs, size_t k, const choir_coll_opts *opts,
                                       choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_allgather_coalesced", CHOIR_OP_ALLGATHER_COALESCED,
                                   opts, work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    return ch_call_issue(call, build_allgather_coalesced(call, ins, outs, k), work_out);
}

static choir_status build_into_coalesced(struct ch_call *call, const choir_buf *ins,
                                         const choir_buf *outs, size_t k)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece own, *pieces;
    choir_status rc = ch_check_parts(call, "ins", ins, "outs", outs, k);

    if (rc == CHOIR_OK)
        rc = ch_check_list_apart("outs", outs, k);
    if (rc == CHOIR_OK)
        rc = ch_coalesced_own(call, ins, k, CH_GOES_IN, &own);
    if (rc == CHOIR_OK)
        rc = ch_coalesced_blocks(call, outs, k, ch_slice_of_whole, CH_COMES_OUT, &pieces);
    if (rc != CHOIR_OK)
        return rc;
    ch_op_length(call, ins[0].type, own.count);
    ch_hash_inner(call, ins, k);
    ch_blocks_even(&call->op.in, me, 1, 1, own.data, own.count);
    ch_blocks_of(&call->op.out, 0, 1, n, pieces, ch_type_bytes[ins[0].type]);
    return ch_call_results(call, outs, k);
}

choir_status choir_allgather_into_coalesced(choir_group *group, const choir_buf *ins,
                                            const choir_buf *outs, size_t k,
                                            const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_allgather_into_coalesced",
                                   CHOIR_OP_ALLGATHER_COALESCED, opts, work_out != NULL, &here,
                                   &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    rc = build_into_coalesced(call, ins, outs, k);
    /* The same type of operation in c10d, but not the same call. */
    call->op.counts = ch_hash_add(call->op.counts, k);
    return ch_call_issue(call, rc, work_out);
}
