/*
 * coll_gather.c - choir_gather(), choir_scatter(): a block for each rank, all of them at the root.
 *
 * Only the root knows all lengths: another rank cannot tell that all blocks are alike, so the operation counts as
 * uneven. What the engine makes of that is in engine/rooted.h.
 */
#include "base/error.h"
#include "group/args.h"
#include "group/direct.h"
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
    call->op.differ = is_root && ch_differ(pieces, n);
    call->op.counts = CH_HASH_START;
    ch_blocks_even(ones, me, 1, 1, own.data, own.count);
    if (is_root)
        ch_blocks_of(lists, 0, 1, n, pieces, ch_type_bytes[one->type]);
    if (!gathers)
        return ch_call_results(call, one, 1);
    return is_root ? ch_call_results(call, list, n) : CHOIR_OK;
}

/* --- the short way ---------------------------------------------------------------------------------- */

/* Lists that are longer, or whose buffers are not as most are, go the long way. */
enum { PLAIN_LIST_MAX = 64 };

static uintptr_t end_of(const choir_buf *buf)
{
    return (uintptr_t)buf->data + buf->count * ch_type_bytes[buf->type];
}

/* Parts of one array, each as long as `one`, which is plain: most lists are. */
static bool list_is_array(const choir_buf *list, uint32_t n, const choir_buf *one)
{
    uintptr_t at = (uintptr_t)list[0].data;
    size_t nbytes = one->count * ch_type_bytes[one->type];

    for (uint32_t i = 0; i < n; i++, at += nbytes) {
        if ((uintptr_t)list[i].data != at || list[i].count != one->count ||
            list[i].type != one->type || list[i].ndim != 0)
            return false;
    }
    return list[0].data != NULL;
}

/* Each behind the one before, so that none touches another. */
static bool list_is_plain(const choir_buf *list, uint32_t n, choir_type type)
{
    uintptr_t end = 0;

    if (n > PLAIN_LIST_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!ch_direct_buf(&list[i]) || list[i].type != type || (uintptr_t)list[i].data < end)
            return false;
        end = end_of(&list[i]);
    }
    return true;
}

/* It is as long as its entry, and is that, or is apart from all of them. */
static bool own_fits(const choir_buf *own, const choir_buf *list, uint32_t me, uint32_t n)
{
    return own->count == list[me].count &&
           (own->data == list[me].data || end_of(own) <= (uintptr_t)list[0].data ||
            (uintptr_t)own->data >= end_of(&list[n - 1]));
}

static void take_list(struct ch_op *op, struct ch_blocks *blocks, const choir_buf *list, uint32_t n,
                      struct ch_piece *pieces)
{
    for (uint32_t i = 0; i < n; i++) {
        pieces[i] = (struct ch_piece){ list[i].data, list[i].count };
        op->differ |= list[i].count != list[0].count;
        op->longest = list[i].count > op->longest ? list[i].count : op->longest;
    }
    *blocks = (struct ch_blocks){ .step = 1, .nblocks = n, .pieces = pieces };
}

/* A gather has `one` of each rank as IN and the root's list as OUT, a scatter the other way round. */
static bool run_directly(choir_group *group, bool gathers, const choir_buf *one,
                         const choir_buf *list, const choir_coll_opts *opts, choir_status *rc_out)
{
    uint32_t n = (uint32_t)group->nranks, me = (uint32_t)group->rank, root = ch_root_of(opts);
    struct ch_piece pieces[PLAIN_LIST_MAX];
    bool is_array = false;
    struct ch_op op;

    if ((list != NULL) != (me == root))
        return false;
    if (me == root) {
        is_array = list_is_array(list, n, one);
        if ((!is_array && !list_is_plain(list, n, one->type)) || !own_fits(one, list, me, n))
            return false;
    }
    ch_op_init(&op, gathers ? CHOIR_OP_GATHER : CHOIR_OP_SCATTER, gathers ? CH_GATHER : CH_SCATTER,
               one->type, one->count);
    op.root = root;
    op.uneven = true;
    op.counts = CH_HASH_START;
    ch_blocks_even(gathers ? &op.in : &op.out, me, 1, 1, one->data, one->count);
    if (me == root) {
        op.in_place = one->data == list[me].data;
        if (CH_LIKELY(is_array))
            ch_blocks_even(gathers ? &op.out : &op.in, 0, 1, n, list[0].data, one->count);
        else
            take_list(&op, gathers ? &op.out : &op.in, list, n, pieces);
    }
    return ch_direct_run(group, &op, gathers ? "choir_gather" : "choir_scatter", opts, rc_out);
}

/* --- the calls --------------------------------------------------------------------------------------- */

choir_status choir_gather(choir_group *group, choir_buf in, const choir_buf *outs,
                          const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&in) && ch_direct_root(group, opts) &&
        run_directly(group, true, &in, outs, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_gather", CHOIR_OP_GATHER, opts, work_out != NULL, &here, &call);
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
    choir_status rc;

    if (ch_direct_may(group, opts, work_out) && ch_direct_buf(&out) &&
        ch_direct_root(group, opts) && run_directly(group, false, &out, ins, opts, &rc))
        return rc;
    rc = ch_call_open(group, "choir_scatter", CHOIR_OP_SCATTER, opts, work_out != NULL, &here,
                      &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_SCATTER;
    rc = ch_check_root(call);
    if (rc == CHOIR_OK)
        rc = build_rooted(call, "out", &out, "ins", ins, false);
    return ch_call_issue(call, rc, work_out);
}
