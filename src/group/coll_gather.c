/*
 * coll_gather.c - choir_gather(), choir_scatter(): a block for each rank, all of them at the root.
 *
 * Only the root knows all lengths: another rank cannot tell that all blocks are alike, so the operation counts as
 * uneven.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/group.h"
#include "group/lists.h"
#include "kernel/kernel.h"

/* --- gather and scatter ---------------------------------------------------------------------------- */

/* Of one rank and all, at the root: `one` is this rank's, `list` the root's, NULL elsewhere. */
static choir_status build_rooted(struct ch_call *call, const char *one_name, const choir_buf *one,
                                 const char *list_name, const choir_buf *list, bool gathers)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    bool is_root = call->opts.root == call->group->rank;
    struct ch_blocks *ones = gathers ? &call->op.in : &call->op.out;
    struct ch_blocks *lists = gathers ? &call->op.out : &call->op.in;
    struct ch_piece own, *pieces = NULL;
    choir_status rc = ch_check_buf(one_name, one);

    if (rc == CHOIR_OK && !is_root && list != NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "%s: requires empty %s on non-root", list_name,
                     gathers ? "output" : "input");
    if (rc == CHOIR_OK && is_root)
        rc = ch_list_pieces(call, list_name, list, one->type, gathers ? CH_COMES_OUT : CH_GOES_IN,
                            &pieces);
    if (rc == CHOIR_OK && is_root)
        rc = ch_list_check_own(call, one_name, one, list_name, list);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, one, gathers ? CH_GOES_IN : CH_COMES_OUT, &own);
    if (rc != CHOIR_OK)
        return rc;
    call->op.dtype = one->type;
    call->op.uneven = true;
    call->op.longest = is_root ? ch_longest(pieces, n) : own.count;
    call->op.counts = CH_HASH_START;
    ch_blocks_even(ones, me, 1, 1, own.data, own.count);
    if (is_root)
        ch_blocks_of(lists, 0, 1, n, pieces, ch_type_bytes[one->type]);
    if (!gathers)
        return ch_call_results(call, one, 1);
    return is_root ? ch_call_results(call, list, n) : CHOIR_OK;
}

choir_status choir_gather(choir_group *group, choir_buf in, const choir_buf *outs,
                          const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_gather", CHOIR_OP_GATHER, opts, work_out != NULL,
                                   &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_GATHER;
    rc = ch_check_root(call);
    if (rc == CHOIR_OK)
        rc = build_rooted(call, "in", &in, "outs", outs, true);
    return ch_call_issue(call, rc, work_out);
}

choir_status choir_scatter(choir_group *group, const choir_buf *ins, choir_buf out,
                           const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_scatter", CHOIR_OP_SCATTER, opts, work_out != NULL,
                                   &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_SCATTER;
    rc = ch_check_root(call);
    if (rc == CHOIR_OK)
        rc = build_rooted(call, "out", &out, "ins", ins, false);
    return ch_call_issue(call, rc, work_out);
}
