/*
 * work.c - handles of operations: asking, waiting, callbacks, references. How they run: queue.c.
 */
#include "group/work.h"

#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "group/batch.h"
#include "group/caller.h"
#include "group/group.h"
#include "group/queue.h"

enum { POOL_MAX = 64 }; /* works that a group keeps for the next */

/* --- references --------------------------------------------------------------------------------- */

static choir_work *from_pool(choir_group *group)
{
    choir_work *work;

    ch_lock(&group->lock);
    work = group->free_works;
    if (work != NULL) {
        group->free_works = work->next_free;
        group->nfree_works--;
    }
    ch_unlock(&group->lock);
    return work;
}

choir_work *ch_work_create(choir_group *group)
{
    choir_work *work = from_pool(group);

    if (work == NULL)
        work = ch_zalloc_aligned(64, sizeof(*work));
    if (work == NULL) {
        ch_fail(CHOIR_ERR_NOMEM, "no memory for the handle of an operation");
        return NULL;
    }
    ch_ref_init(&work->refs);
    ch_ref_get(&work->refs);
    ch_list_init(&work->callbacks);
    work->batch = NULL;
    atomic_store_explicit(&work->parts, 0, memory_order_relaxed);
    work->call.results = NULL;
    work->call.group = group;
    ch_group_ref(group);
    return work;
}

static void recycle(choir_work *work)
{
    choir_group *group = work->call.group;
    bool kept;

    if (work->call.results != &work->call.result)
        ch_free(work->call.results);
    choir_work_unref(work->batch);
    ch_lock(&group->lock);
    kept = group->nfree_works < POOL_MAX &&
           !atomic_load_explicit(&group->closed, memory_order_relaxed);
    if (kept) {
        work->next_free = group->free_works;
        group->free_works = work;
        group->nfree_works++;
    }
    ch_unlock(&group->lock);
    if (!kept)
        ch_free(work);
    ch_group_unref(group);
}

choir_work *choir_work_ref(choir_work *work)
{
    if (work != NULL)
        ch_ref_get(&work->refs);
    return work;
}

void choir_work_unref(choir_work *work)
{
    if (work == NULL || ch_is_forked())
        return;
    if (ch_ref_put(&work->refs))
        recycle(work);
}

void ch_work_discard(choir_work *work)
{
    choir_work_unref(work);
    choir_work_unref(work);
}

/* --- asking ------------------------------------------------------------------------------------- */

static bool is_done(const choir_work *work)
{
    /* Acquire, pairs with the release in ch_call_finish(). */
    return atomic_load_explicit(&work->call.state, memory_order_acquire) == CH_CALL_DONE;
}

/* What a work is not done with stays whole, whatever other threads destroy: until ch_group_settle() this
 * counts as one more that is pending. False if it is done, and then its group may be an empty shell. */
static bool hold_group(const choir_work *work)
{
    choir_group *group = work->call.group;
    bool held;

    ch_lock(&group->lock);
    held = !is_done(work);
    if (held)
        atomic_fetch_add_explicit(&group->npending, 1, memory_order_relaxed);
    ch_unlock(&group->lock);
    return held;
}

/* What a work that is done ended with. */
static choir_status outcome(const choir_work *work)
{
    return work->call.status == CHOIR_OK ? CHOIR_OK : ch_error_load(&work->call.error);
}

choir_status choir_work_test(choir_work *work)
{
    choir_status rc = CHOIR_OK;

    if (work == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_work_test: work: is NULL");
    if (is_done(work))
        return outcome(work);
    rc = ch_forked();
    if (rc != CHOIR_OK)
        return rc;
    if (hold_group(work)) {
        choir_error last;

        ch_error_save(&last); /* what fails here is other works' */
        ch_queue_nudge(work);
        ch_error_load(&last);
        ch_group_settle(work->call.group);
    }
    return is_done(work) ? outcome(work) : CHOIR_IN_PROGRESS;
}

const choir_error *choir_work_error_record(const choir_work *work)
{
    return is_done(work) && work->call.status != CHOIR_OK ? &work->call.error : NULL;
}

const char *choir_work_error(const choir_work *work)
{
    const choir_error *record = choir_work_error_record(work);

    return record != NULL ? record->text : "";
}

choir_optype choir_work_op(const choir_work *work)
{
    return work->call.op.type;
}

uint64_t choir_work_sequence(const choir_work *work)
{
    return work->call.op.seq;
}

static choir_status check_done(const choir_work *work, const void *out, const char *name)
{
    if (work == NULL || out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: %s: is NULL", name,
                       work == NULL ? "work" : "where the answer goes");
    if (is_done(work))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_STATE, "%s: %s %llu is not done yet", name, work->call.name,
                   (unsigned long long)work->call.op.seq);
}

choir_status choir_work_source(const choir_work *work, int *rank_out)
{
    choir_optype op = work != NULL ? work->call.op.type : CHOIR_OP_RECV;
    choir_status rc;

    if (op != CHOIR_OP_RECV && op != CHOIR_OP_RECV_ANY)
        return ch_fail(CHOIR_ERR_STATE, "choir_work_source: %s has none, only receives have",
                       work->call.name);
    rc = check_done(work, rank_out, "choir_work_source");
    if (rc == CHOIR_OK && work->call.status != CHOIR_OK)
        rc = ch_fail(CHOIR_ERR_STATE, "choir_work_source: the receive failed");
    if (rc == CHOIR_OK)
        *rank_out = work->call.op.peer;
    return rc;
}

choir_status choir_work_duration_ms(const choir_work *work, double *ms_out)
{
    choir_status rc = check_done(work, ms_out, "choir_work_duration_ms");

    if (rc == CHOIR_OK)
        *ms_out = (double)(work->call.ended - work->call.issued) / CH_MS;
    return rc;
}

choir_status choir_work_result(const choir_work *work, size_t index, choir_buf *buf_out)
{
    choir_status rc = check_done(work, buf_out, "choir_work_result");

    if (rc == CHOIR_OK && index >= work->call.nresults)
        rc = ch_fail(CHOIR_ERR_INVALID, "choir_work_result: index: %zu, but there are %zu buffers",
                     index, work->call.nresults);
    if (rc == CHOIR_OK)
        *buf_out = work->call.results[index];
    return rc;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* A collective is helped along by ch_group_wait(); a send or receive is stepped here; of a batch all. */
static bool step_and_look(void *arg)
{
    choir_work *work = arg;

    if (is_done(work))
        return true;
    if (work->call.op.type == CHOIR_OP_COALESCED)
        ch_queue_step_transfers(work->call.group);
    else if (!work->call.collective)
        ch_queue_step_transfer(work);
    return is_done(work);
}

choir_status choir_work_wait(choir_work *work, int64_t timeout_ms)
{
    ch_deadline until = timeout_ms > 0 ? ch_deadline_ms(timeout_ms) : CH_NEVER;
    choir_status rc;

    if (work == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_work_wait: work: is NULL");
    if (is_done(work))
        return outcome(work);
    rc = ch_forked();
    if (rc != CHOIR_OK)
        return rc;
    if (hold_group(work)) {
        rc = ch_group_wait(work->call.group, step_and_look, work, until, work->call.name);
        ch_group_settle(work->call.group);
    }
    if (rc == CHOIR_ERR_TIMEOUT)
        return ch_fail(CHOIR_ERR_TIMEOUT,
                       "Operation timed out! %s %llu is not done after %lld ms, and goes on",
                       work->call.name, (unsigned long long)work->call.op.seq,
                       (long long)timeout_ms);
    return rc == CHOIR_OK ? outcome(work) : rc;
}

/* --- callbacks ---------------------------------------------------------------------------------- */

choir_status choir_work_on_done(choir_work *work, void (*done)(void *arg, choir_work *work),
                                void *arg)
{
    choir_group *group;
    struct ch_note *note;
    bool late = false;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && (work == NULL || done == NULL))
        rc = ch_fail(CHOIR_ERR_INVALID, "choir_work_on_done: %s: is NULL",
                     work == NULL ? "work" : "done");
    if (rc != CHOIR_OK)
        return rc;
    group = work->call.group;
    if (!hold_group(work)) {
        done(arg, work);
        return CHOIR_OK;
    }
    note = ch_zalloc(sizeof(*note));
    rc = note != NULL ? ch_caller_need(group->context)
                      : ch_fail(CHOIR_ERR_NOMEM, "choir_work_on_done: no memory for a callback");
    if (rc == CHOIR_OK) {
        *note = (struct ch_note){ .done = done, .arg = arg };
        ch_lock(&group->lock);
        late = is_done(work);
        if (!late)
            ch_list_push_back(&work->callbacks, &note->link);
        ch_unlock(&group->lock);
    }
    ch_group_settle(group); /* before the callback: it may destroy the group */
    if (rc != CHOIR_OK || late)
        ch_note_destroy(note);
    if (late)
        done(arg, work);
    return rc;
}

void ch_work_tell(choir_work *work, struct ch_list *callbacks)
{
    struct ch_list *link;

    while ((link = ch_list_pop_front(callbacks)) != NULL) {
        struct ch_note *note = CH_CONTAINER(link, struct ch_note, link);

        note->work = choir_work_ref(work);
        atomic_fetch_add_explicit(&work->call.group->npending, 1, memory_order_relaxed);
        ch_caller_post(work->call.group, note);
    }
}

/* --- giving up ---------------------------------------------------------------------------------- */

void choir_work_abort(choir_work *work)
{
    choir_error last, why;

    if (work == NULL || ch_is_forked() || !hold_group(work))
        return;
    ch_error_save(&last);
    ch_fail_rank(CHOIR_ERR_INTERRUPTED, work->call.group->rank,
                 choir_optype_name(work->call.op.type),
                 "%s %llu was aborted by rank %d (choir_work_abort)", work->call.name,
                 (unsigned long long)work->call.op.seq, work->call.group->rank);
    ch_error_save(&why);
    if (work->call.op.type == CHOIR_OP_COALESCED)
        ch_batch_give_up(work, &why);
    else
        ch_queue_give_up(&work->call, &why);
    ch_error_load(&last);
    ch_group_settle(work->call.group);
}

/* --- names -------------------------------------------------------------------------------------- */

const char *choir_optype_name(choir_optype op)
{
    return ch_optype_name(op);
}
