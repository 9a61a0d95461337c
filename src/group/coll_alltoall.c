/*
 * coll_alltoall.c - choir_alltoall(), choir_alltoall_base(): a block for each pair of ranks.
 *
 * A rank knows the lengths of what it sends and receives and no others: so whether an all-to-all is even is told by
 * the form of the call, which all ranks share, not by the numbers. In place, with equal parts, what comes from a rank lands
 * where that lay which went to it, a window at a time. Any other input that lies where output comes is copied first.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/memory.h"
#include "group/overlap.h"
#include "kernel/kernel.h"

static void set_blocks(struct ch_call *call, choir_type type, const struct ch_piece *from,
                       const struct ch_piece *to)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;

    call->op.dtype = type;
    call->op.uneven = true;
    call->op.counts = CH_HASH_START;
    for (uint32_t i = 0; i < n; i++) {
        if (from[i].count > call->op.longest)
            call->op.longest = from[i].count;
        if (to[i].count > call->op.longest)
            call->op.longest = to[i].count;
    }
    ch_blocks_of(&call->op.in, me * n, 1, n, from, ch_type_bytes[type]);
    ch_blocks_of(&call->op.out, me, n, n, to, ch_type_bytes[type]);
}

/* --- lists -------------------------------------------------------------------------------------- */

static choir_status check_lists(struct ch_call *call, const choir_buf *ins, const choir_buf *outs)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    choir_status rc = ch_check_list("ins", ins, n, ins != NULL ? ins[0].type : 0);

    if (rc == CHOIR_OK)
        rc = ch_check_list("outs", outs, n, ins[0].type);
    if (rc == CHOIR_OK)
        rc = ch_check_list_apart("outs", outs, n);
    if (rc == CHOIR_OK && ins[me].count != outs[me].count)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "outs: invalid tensor size at index %u (expected (%zu), what this rank sends "
                     "itself, got (%zu))",
                     me, ins[me].count, outs[me].count);
    return rc;
}

static choir_status build_lists(struct ch_call *call, const choir_buf *ins, const choir_buf *outs)
{
    uint32_t n = (uint32_t)call->group->nranks;
    struct ch_piece *from, *to;
    bool copy = false;
    choir_status rc = check_lists(call, ins, outs);

    if (rc == CHOIR_OK)
        rc = ch_lists_touch(ins, n, outs, n, &copy);
    if (rc != CHOIR_OK)
        return rc;
    from = ch_call_room(call, 2 * (size_t)n, sizeof(*from));
    if (from == NULL)
        return CHOIR_ERR_NOMEM;
    to = from + n;
    for (uint32_t i = 0; i < n && rc == CHOIR_OK; i++) {
        rc = copy ? ch_block_copy(call, &ins[i], &from[i])
                  : ch_block_of(call, &ins[i], CH_GOES_IN, &from[i]);
        if (rc == CHOIR_OK)
            rc = ch_block_of(call, &outs[i], CH_COMES_OUT, &to[i]);
    }
    if (rc != CHOIR_OK)
        return rc;
    set_blocks(call, ins[0].type, from, to);
    return ch_call_results(call, outs, n);
}

choir_status choir_alltoall(choir_group *group, const choir_buf *ins, const choir_buf *outs,
                            const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_alltoall", CHOIR_OP_ALLTOALL, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLTOALL;
    return ch_call_issue(call, build_lists(call, ins, outs), work_out);
}

/* --- parts of one buffer ------------------------------------------------------------------------- */

/* The parts of a buffer whose elements start at `base`; `splits` NULL: equal ones. */
static choir_status split(struct ch_call *call, const char *name, const choir_buf *buf, void *base,
                          const size_t *splits, struct ch_piece *pieces_out)
{
    size_t n = (size_t)call->group->nranks, size = ch_type_bytes[buf->type], at = 0;

    if (splits == NULL && buf->count % n != 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "%s: its %zu elements: tensor does not divide equally across group size %zu",
                       name, buf->count, n);
    for (size_t i = 0; i < n; i++) {
        size_t count = splits != NULL ? splits[i] : buf->count / n;

        if (count > buf->count - at)
            return ch_fail(CHOIR_ERR_INVALID,
                           "%s_splits: Split sizes doesn't match total dim 0 size: up to index %zu "
                           "they are more than the %zu elements of %s",
                           name, i, buf->count, name);
        pieces_out[i] = (struct ch_piece){ base != NULL ? (char *)base + at * size : NULL, count };
        at += count;
    }
    if (at != buf->count)
        return ch_fail(CHOIR_ERR_INVALID,
                       "%s_splits: Split sizes doesn't match total dim 0 size: they are %zu "
                       "elements together, %s has %zu",
                       name, at, name, buf->count);
    return CHOIR_OK;
}

/* Equal parts of one and the same memory. */
static bool is_in_place(const choir_buf *in, const size_t *in_splits, const choir_buf *out,
                        const size_t *out_splits)
{
    return in->data == out->data && in->ndim == 0 && out->ndim == 0 && in_splits == NULL &&
           out_splits == NULL;
}

static choir_status build_base(struct ch_call *call, const choir_buf *in, const size_t *in_splits,
                               const choir_buf *out, const size_t *out_splits)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;
    struct ch_piece from, to, *pieces;
    choir_status rc = ch_check_buf("in", in);

    if (rc == CHOIR_OK)
        rc = ch_check_buf("out", out);
    if (rc == CHOIR_OK)
        rc = ch_check_same_type("out", out, in->type);
    if (rc == CHOIR_OK && in_splits == NULL && out_splits == NULL && in->count != out->count)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "out: invalid tensor size (expected %zu as in, got %zu) without splits",
                     in->count, out->count);
    call->op.in_place = is_in_place(in, in_splits, out, out_splits);
    if (rc == CHOIR_OK)
        rc = ch_overlap(in, out) && !call->op.in_place ? ch_block_copy(call, in, &from)
                                                       : ch_block_of(call, in, CH_GOES_IN, &from);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, out, CH_COMES_OUT, &to);
    if (rc != CHOIR_OK)
        return rc;
    pieces = ch_call_room(call, 2 * (size_t)n, sizeof(*pieces));
    if (pieces == NULL)
        return CHOIR_ERR_NOMEM;
    rc = split(call, "in", in, from.data, in_splits, pieces);
    if (rc == CHOIR_OK)
        rc = split(call, "out", out, to.data, out_splits, pieces + n);
    if (rc == CHOIR_OK && pieces[me].count != pieces[n + me].count)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "out_splits: %zu elements from this rank itself, which sends %zu",
                     pieces[n + me].count, pieces[me].count);
    if (rc != CHOIR_OK)
        return rc;
    set_blocks(call, in->type, pieces, pieces + n);
    if (in_splits == NULL && out_splits == NULL) {
        ch_op_length(call, in->type, in->count / n);
        call->op.uneven = false;
    }
    return ch_call_results(call, out, 1);
}

static bool run_base_directly(choir_group *group, const choir_buf *in, const choir_buf *out,
                              const choir_coll_opts *opts, choir_status *rc_out)
{
    uint32_t n = (uint32_t)group->nranks, me = (uint32_t)group->rank;
    size_t count = in->count / n, nbytes = in->count * ch_type_bytes[in->type];
    struct ch_op op;

    ch_op_init(&op, CHOIR_OP_ALLTOALL_BASE, CH_ALLTOALL, in->type, count);
    if (in->type != out->type || in->count != out->count || in->count % n != 0)
        return false;
    op.in_place = in->data == out->data;
    if (!op.in_place && !ch_direct_apart(in->data, nbytes, out->data, nbytes))
        return false;
    ch_blocks_even(&op.in, me * n, 1, n, in->data, count);
    ch_blocks_even(&op.out, me, n, n, out->data, count);
    return ch_direct_run(group, &op, "choir_alltoall_base", opts, rc_out);
}

choir_status choir_alltoall_base(choir_group *group, choir_buf in, const size_t *in_splits,
                                 choir_buf out, const size_t *out_splits,
                                 const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && in_splits == NULL && out_splits == NULL &&
        ch_direct_buf(&in) && ch_direct_buf(&out) && run_base_directly(group, &in, &out, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_alltoall_base", CHOIR_OP_ALLTOALL_BASE, opts, work_out != NULL,
                      &here, &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLTOALL;
    return ch_call_issue(call, build_base(call, &in, in_splits, &out, out_splits), work_out);
}
