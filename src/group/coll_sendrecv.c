/*
 * coll_sendrecv.c - choir_sendrecv(): a send and a receive that start together.
 *
 * What it does is a batch (batch.c) of choir_recv() and choir_send(), and that is what it becomes if it has a handle, or
 * is part of a batch, or is anything but plain (plain_p2p.h). Most are plain: they are run as they are asked for, without a batch.
 */
#include "base/error.h"
#include "base/forked.h"
#include "group/args.h"
#include "group/batch.h"
#include "group/group.h"
#include "group/overlap.h"
#include "group/plain_p2p.h"

struct exchange {
    choir_group *group;
    const choir_buf *sent, *got;
    int to, from, tag;
    const choir_coll_opts *opts;
};

/* --- plain ---------------------------------------------------------------------------------------- */

static inline bool touch(const choir_buf *a, const choir_buf *b)
{
    return !ch_direct_apart(a->data, a->count * ch_type_bytes[a->type], b->data,
                            b->count * ch_type_bytes[b->type]);
}

/* Not beside collectives that are queued, as in batch.c. Relaxed: of this thread's own. */
static inline bool is_plain(const struct exchange *e, choir_work *const *work_out)
{
    return ch_plain_is(e->group, e->sent, e->to, e->tag, e->opts, work_out) &&
           ch_direct_buf(e->got) && (unsigned)e->from < (unsigned)e->group->nranks &&
           !touch(e->sent, e->got) &&
           atomic_load_explicit(&e->group->nqueued, memory_order_relaxed) == 0 &&
           !ch_batch_is_open(e->group);
}

static inline bool run_plain(const struct exchange *e, choir_status *rc_out)
{
    struct ch_plain parts[2];

    ch_plain_fill(&parts[0], CHOIR_OP_RECV, e->got, e->from, e->tag, e->opts);
    ch_plain_fill(&parts[1], CHOIR_OP_SEND, e->sent, e->to, e->tag, e->opts);
    return ch_plain_run(e->group, parts, CH_ARRAY_LEN(parts), rc_out);
}

/* --- as a batch ----------------------------------------------------------------------------------- */

static choir_status check_rank(const choir_group *group, const char *name, int rank)
{
    if (rank >= 0 && rank < group->nranks)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID, "%s: invalid rank %d (expected 0 to %d)", name, rank,
                   group->nranks - 1);
}

/* Both of them, before one is anywhere. What is left for the two calls to refuse has nothing to do with their arguments. */
static choir_status check(const struct exchange *e)
{
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && e->group == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "group: is NULL");
    if (rc == CHOIR_OK && e->opts != NULL && e->opts->size == 0)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "opts: its size is 0: fill options in with CHOIR_OPTS(sendrecv, ...)");
    if (rc == CHOIR_OK)
        rc = check_rank(e->group, "to", e->to);
    if (rc == CHOIR_OK)
        rc = check_rank(e->group, "from", e->from);
    if (rc == CHOIR_OK && e->tag < 0)
        rc = ch_fail(CHOIR_ERR_INVALID, "tag: %d: Tag must be nonnegative", e->tag);
    if (rc == CHOIR_OK)
        rc = ch_check_buf("send_buf", e->sent);
    if (rc == CHOIR_OK)
        rc = ch_check_buf("recv_buf", e->got);
    if (rc == CHOIR_OK && ch_overlap(e->sent, e->got))
        rc = ch_fail(CHOIR_ERR_INVALID, "recv_buf: overlaps with send_buf");
    return rc;
}

static choir_status add_both(const struct exchange *e)
{
    choir_status rc = choir_recv(e->group, *e->got, e->from, e->tag, e->opts, NULL);

    if (rc == CHOIR_OK)
        rc = choir_send(e->group, *e->sent, e->to, e->tag, e->opts, NULL);
    return rc;
}

/* To this thread's batch: both or none. */
static choir_status join_batch(const struct exchange *e)
{
    size_t before = ch_batch_size(e->group);
    choir_status rc = add_both(e);

    if (rc != CHOIR_OK)
        ch_batch_cut(e->group, before);
    return rc;
}

static choir_status make_batch(const struct exchange *e)
{
    choir_status rc = choir_batch_begin(e->group);

    if (rc != CHOIR_OK)
        return rc;
    rc = add_both(e);
    if (rc != CHOIR_OK)
        (void)choir_batch_drop(e->group);
    return rc;
}

static CH_NOINLINE choir_status go_long(const struct exchange *e, choir_work **work_out)
{
    choir_status rc = check(e);
    bool joins = rc == CHOIR_OK && ch_batch_is_open(e->group);

    if (rc == CHOIR_OK)
        rc = joins ? join_batch(e) : make_batch(e);
    if (rc != CHOIR_OK) {
        ch_error_prefix("choir_sendrecv: ");
        return rc;
    }
    if (!joins)
        return choir_batch_end(e->group, work_out);
    if (work_out != NULL)
        *work_out = NULL;
    return CHOIR_OK;
}

choir_status choir_sendrecv(choir_group *group, choir_buf send_buf, int to, choir_buf recv_buf,
                            int from, int tag, const choir_coll_opts *opts, choir_work **work_out)
{
    struct exchange e = { group, &send_buf, &recv_buf, to, from, tag, opts };
    choir_status rc;

    if (CH_LIKELY(is_plain(&e, work_out)) && CH_LIKELY(run_plain(&e, &rc)))
        return rc;
    return go_long(&e, work_out);
}
