/*
 * batch.c - choir_batch_begin(), choir_batch_end(), choir_batch_drop(): see batch.h.
 *
 * A batch is a work without an operation of its own. Its parts are works that nobody has a handle of; each of them
 * counts it down when it is done, and so does the issuing itself, so that it cannot end before it has begun.
 *
 * As long as all parts are plain (plain_p2p.h) they are kept as what was asked for: a batch of them that is waited for at
 * its end has no works at all. With the first that is not, they become works.
 *
 * Each group has room for one batch, which whoever opens the first takes without a lock; more of them, of other
 * threads at the same time, are on the heap.
 */
#include "group/batch.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "group/group.h"
#include "group/plain_p2p.h"
#include "group/queue.h"

struct batch {
    struct ch_list link; /* group->batches */
    uintptr_t thread;
    bool is_groups; /* group->batch, which only its owner may look at; others are on the heap */
    bool has_works; /* or will have: no more plain ones */
    size_t nplain;
    choir_work **works;
    size_t count, room;
    choir_status failed; /* to remember a part: the batch then cannot be issued */
    choir_error error;   /* if it has */
    struct ch_plain plain[CH_PLAIN_MAX];
};

/* --- whose it is -------------------------------------------------------------------------------- */

static _Atomic uintptr_t last_thread;
static _Thread_local uintptr_t this_threads;

/* A number that no other thread has or had; never 0. What the system calls a thread is a new one's as soon as that has
 * ended, and a batch that it left open would be too. */
static uintptr_t this_thread(void)
{
    /* Relaxed: the number is all there is. */
    if (CH_UNLIKELY(this_threads == 0))
        this_threads = atomic_fetch_add_explicit(&last_thread, 1, memory_order_relaxed) + 1;
    return this_threads;
}

static struct batch *find_locked(choir_group *group)
{
    ch_lock_assert_held(&group->lock);
    CH_LIST_EACH (link, &group->batches) {
        struct batch *batch = CH_CONTAINER(link, struct batch, link);

        if (batch->thread == this_thread())
            return batch;
    }
    return NULL;
}

static CH_NOINLINE struct batch *find_listed(choir_group *group)
{
    struct batch *batch;

    ch_lock(&group->lock);
    batch = find_locked(group);
    ch_unlock(&group->lock);
    return batch;
}

static inline struct batch *find(choir_group *group)
{
    /* Relaxed: this thread's own batch is what it looks for, and that it wrote itself. */
    if (CH_LIKELY(atomic_load_explicit(&group->batch_owner, memory_order_relaxed) == this_thread()))
        return group->batch;
    /* Relaxed: the same. */
    if (CH_LIKELY(atomic_load_explicit(&group->nbatches, memory_order_relaxed) == 0))
        return NULL;
    return find_listed(group);
}

static void empty(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        ch_call_release(&batch->works[i]->call);
    batch->count = batch->nplain = 0;
    batch->has_works = false;
    batch->failed = CHOIR_OK;
}

static void destroy(struct batch *batch)
{
    if (batch == NULL)
        return;
    empty(batch);
    ch_free(batch->works);
    ch_free(batch);
}

/* The group's own, if nobody has it; NULL otherwise, or if there is no memory for it. */
static struct batch *open_own(choir_group *group)
{
    uintptr_t none = 0;
    struct batch *own;

    /* Acquire, pairs with the release in close_batch(): it is as the last owner left it. */
    if (!atomic_compare_exchange_strong_explicit(&group->batch_owner, &none, this_thread(),
                                                 memory_order_acquire, memory_order_relaxed))
        return NULL;
    if (group->batch == NULL)
        group->batch = ch_zalloc(sizeof(*group->batch));
    own = group->batch;
    if (own != NULL)
        own->is_groups = true;
    else
        atomic_store_explicit(&group->batch_owner, 0, memory_order_release);
    return own; /* not group->batch, which may be another thread's by now */
}

/* With the lock, so that it needs no exchange. */
static void count_listed(choir_group *group, int64_t change)
{
    uint64_t count = atomic_load_explicit(&group->nbatches, memory_order_relaxed);

    ch_lock_assert_held(&group->lock);
    atomic_store_explicit(&group->nbatches, count + (uint64_t)change, memory_order_relaxed);
}

static CH_NOINLINE bool open_another(choir_group *group)
{
    struct batch *batch = ch_zalloc(sizeof(*batch));

    if (batch == NULL)
        return false;
    batch->thread = this_thread();
    ch_lock(&group->lock);
    ch_list_push_back(&group->batches, &batch->link);
    count_listed(group, 1);
    ch_unlock(&group->lock);
    return true;
}

/* It is over, well or not. */
static void close_batch(choir_group *group, struct batch *batch)
{
    if (CH_LIKELY(batch->is_groups)) {
        empty(batch);
        atomic_store_explicit(&group->batch_owner, 0, memory_order_release);
        return;
    }
    ch_lock(&group->lock);
    ch_list_remove(&batch->link);
    count_listed(group, -1);
    ch_unlock(&group->lock);
    destroy(batch);
}

bool ch_batch_is_open(choir_group *group)
{
    return find(group) != NULL;
}

choir_status ch_batch_refuse(choir_group *group)
{
    if (!ch_batch_is_open(group))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_STATE,
                   "this thread has a batch open on group %s, which this cannot be a part of",
                   group->name);
}

static choir_status none_open(const choir_group *group, const char *name)
{
    return ch_fail(CHOIR_ERR_STATE, "%s: this thread has no batch open on group %s", name,
                   group->name);
}

/* --- collecting --------------------------------------------------------------------------------- */

choir_status choir_batch_begin(choir_group *group)
{
    choir_status rc = ch_group_given(group, "choir_batch_begin");

    if (rc == CHOIR_OK && find(group) != NULL)
        rc = ch_fail(CHOIR_ERR_STATE, "choir_batch_begin: this thread has a batch open on group %s",
                     group->name);
    if (rc != CHOIR_OK)
        return rc;
    if (open_own(group) == NULL && !open_another(group))
        return ch_fail(CHOIR_ERR_NOMEM, "choir_batch_begin: no memory for a batch");
    return CHOIR_OK;
}

struct ch_plain *ch_batch_place(choir_group *group)
{
    struct batch *batch = find(group);

    if (batch == NULL || batch->has_works || batch->nplain == CH_PLAIN_MAX ||
        ch_group_check(group) != CHOIR_OK)
        return NULL;
    return &batch->plain[batch->nplain++];
}

static void note_failure(struct batch *batch, choir_status rc)
{
    if (batch->failed != CHOIR_OK)
        return;
    batch->failed = rc;
    ch_error_save(&batch->error);
}

/* Make works of the plain ones, in order. */
static void unfold(choir_group *group, struct batch *batch)
{
    size_t count = batch->nplain;

    batch->has_works = true;
    batch->nplain = 0;
    for (size_t i = 0; i < count; i++) {
        choir_status rc = ch_plain_call(group, &batch->plain[i]);

        if (rc != CHOIR_OK)
            note_failure(batch, rc);
    }
}

bool ch_batch_takes_works(choir_group *group)
{
    struct batch *batch = find(group);

    if (batch != NULL)
        unfold(group, batch);
    return batch != NULL;
}

bool ch_batch_add(choir_work *work)
{
    struct batch *batch = find(work->call.group);

    if (batch == NULL)
        return false;
    if (batch->count == batch->room) {
        choir_work **more = ch_regrow(batch->works, batch->room + 16, sizeof(*more));

        if (more == NULL) {
            note_failure(batch, ch_fail(CHOIR_ERR_NOMEM,
                                        "no memory to remember all operations of the batch"));
            ch_call_release(&work->call);
            return true;
        }
        batch->works = more;
        batch->room += 16;
    }
    batch->works[batch->count++] = work;
    return true;
}

size_t ch_batch_size(choir_group *group)
{
    const struct batch *batch = find(group);

    return batch != NULL ? batch->nplain + batch->count : 0;
}

/* Plain ones become works all at once, in order: there are never both. */
void ch_batch_cut(choir_group *group, size_t size)
{
    struct batch *batch = find(group);

    if (batch->nplain > size)
        batch->nplain = size;
    while (batch->count > size)
        ch_call_release(&batch->works[--batch->count]->call);
}

choir_status choir_batch_drop(choir_group *group)
{
    choir_status rc = ch_group_given(group, "choir_batch_drop");
    struct batch *batch;

    if (rc != CHOIR_OK)
        return rc;
    batch = find(group);
    if (batch == NULL)
        return none_open(group, "choir_batch_drop");
    close_batch(group, batch);
    return CHOIR_OK;
}

/* --- issuing ------------------------------------------------------------------------------------ */

static choir_work *make_parent(choir_group *group, const struct batch *batch)
{
    choir_work *parent = ch_work_create(group);
    struct ch_call *call;

    if (parent == NULL)
        return NULL;
    call = &parent->call;
    memset(call, 0, offsetof(struct ch_call, error));
    call->group = group;
    call->work = parent;
    call->name = "choir_batch_end";
    call->op.type = CHOIR_OP_COALESCED;
    call->issued = ch_now();
    ch_list_init(&call->link);
    atomic_store_explicit(&call->state, CH_CALL_RUNNING, memory_order_relaxed);
    atomic_store_explicit(&parent->parts, (uint32_t)batch->count + 1, memory_order_relaxed);
    return parent;
}

/* All results, in the order of the calls. */
static choir_status collect_results(choir_work *parent, const struct batch *batch)
{
    size_t total = 0, at = 0;
    choir_buf *all;

    for (size_t i = 0; i < batch->count; i++)
        total += batch->works[i]->call.nresults;
    all = total > 0 ? ch_alloc_array(total, sizeof(*all)) : NULL;
    if (total > 0 && all == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to remember %zu buffers", total);
    for (size_t i = 0; i < batch->count; i++) {
        for (size_t j = 0; j < batch->works[i]->call.nresults; j++)
            all[at++] = batch->works[i]->call.results[j];
    }
    parent->call.results = all;
    parent->call.nresults = total;
    return CHOIR_OK;
}

/* Number all, then start all: none waits before every one has begun. */
static choir_status issue(struct batch *batch, choir_work *parent)
{
    size_t entered = 0;
    choir_status rc = CHOIR_OK;

    while (entered < batch->count && rc == CHOIR_OK) {
        batch->works[entered]->batch = choir_work_ref(parent);
        rc = ch_queue_enter(batch->works[entered]);
        entered += rc == CHOIR_OK;
    }
    if (rc != CHOIR_OK && entered == 0)
        return rc;
    if (entered > 0)
        parent->call.op.seq = batch->works[0]->call.op.seq;
    /* A group that is closed half-way: what was not entered is as if it had failed. */
    for (size_t i = entered; i < batch->count; i++) {
        batch->works[i]->batch = batch->works[i]->batch != NULL ? batch->works[i]->batch
                                                                : choir_work_ref(parent);
        batch->works[i]->call.status = rc;
        ch_error_save(&batch->works[i]->call.error);
        ch_work_part_done(parent, &batch->works[i]->call);
        ch_call_release(&batch->works[i]->call);
    }
    for (size_t i = 0; i < entered; i++) {
        if (!batch->works[i]->call.collective)
            ch_queue_start(batch->works[i]);
    }
    for (size_t i = 0; i < entered; i++) {
        if (batch->works[i]->call.collective)
            ch_queue_start(batch->works[i]);
        choir_work_unref(batch->works[i]); /* nobody has its handle */
    }
    batch->count = 0;
    return CHOIR_OK;
}

void ch_work_part_done(choir_work *batch, const struct ch_call *part)
{
    choir_group *group = batch->call.group;
    struct ch_list callbacks;

    if (part != NULL && part->status != CHOIR_OK) {
        ch_lock(&group->lock);
        if (batch->call.status == CHOIR_OK) {
            batch->call.status = part->status;
            batch->call.error = part->error;
        }
        ch_unlock(&group->lock);
    }
    /* Acquire and release: the last sees what all others wrote. */
    if (atomic_fetch_sub_explicit(&batch->parts, 1, memory_order_acq_rel) != 1)
        return;
    batch->call.ended = ch_now();
    ch_list_init(&callbacks);
    ch_lock(&group->lock);
    while (!ch_list_empty(&batch->callbacks))
        ch_list_push_back(&callbacks, ch_list_pop_front(&batch->callbacks));
    atomic_store_explicit(&batch->call.state, CH_CALL_DONE, memory_order_release);
    ch_unlock(&group->lock);
    ch_bell_after_store(&group->context->waiter->bell);
    ch_work_tell(batch, &callbacks);
    choir_work_unref(batch);
}

static choir_status end(choir_group *group, struct batch *batch, choir_work **parent_out)
{
    choir_work *parent;
    choir_status rc;

    if (batch->failed != CHOIR_OK)
        return ch_error_load(&batch->error);
    parent = make_parent(group, batch);
    if (parent == NULL)
        return CHOIR_ERR_NOMEM;
    rc = collect_results(parent, batch);
    if (rc == CHOIR_OK)
        rc = ch_group_check(group);
    if (rc == CHOIR_OK)
        rc = issue(batch, parent);
    if (rc != CHOIR_OK) {
        for (size_t i = 0; i < batch->count; i++) {
            choir_work_unref(batch->works[i]->batch);
            batch->works[i]->batch = NULL;
        }
        ch_work_discard(parent);
        return rc;
    }
    *parent_out = parent;
    return CHOIR_OK;
}

static choir_status wait_for(choir_work *parent)
{
    choir_status rc;

    choir_work_ref(parent);
    ch_work_part_done(parent, NULL);
    rc = choir_work_wait(parent, 0);
    choir_work_unref(parent);
    choir_work_unref(parent);
    return rc;
}

/* Not beside collectives that are queued: who waits for a work runs them meanwhile. Relaxed: of this thread's own. */
static bool run_plain(choir_group *group, struct batch *batch, choir_status *rc_out)
{
    return batch->nplain > 0 && atomic_load_explicit(&group->nqueued, memory_order_relaxed) == 0 &&
           ch_plain_run(group, batch->plain, batch->nplain, rc_out);
}

/* As works. */
static CH_NOINLINE choir_status end_of_works(choir_group *group, struct batch *batch,
                                             choir_work **work_out)
{
    choir_work *parent = NULL;
    choir_status rc;

    unfold(group, batch);
    rc = end(group, batch, &parent);
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_batch_end: ");
    close_batch(group, batch);
    if (rc != CHOIR_OK)
        return rc;
    if (work_out == NULL)
        return wait_for(parent);
    *work_out = parent;
    ch_work_part_done(parent, NULL);
    return CHOIR_OK;
}

choir_status choir_batch_end(choir_group *group, choir_work **work_out)
{
    struct batch *batch;
    choir_status rc = ch_group_given(group, "choir_batch_end");

    if (CH_UNLIKELY(rc != CHOIR_OK))
        return rc;
    batch = find(group);
    if (CH_UNLIKELY(batch == NULL))
        return none_open(group, "choir_batch_end");
    if (work_out != NULL || !run_plain(group, batch, &rc))
        return end_of_works(group, batch, work_out);
    close_batch(group, batch);
    return rc;
}

void ch_batches_forget(choir_group *group)
{
    struct ch_list *link;

    while ((link = ch_list_pop_front(&group->batches)) != NULL)
        destroy(CH_CONTAINER(link, struct batch, link));
    destroy(group->batch);
    group->batch = NULL;
}

/* Parts are not listed anywhere but in the queue and among the transfers: those of this batch are given up. */
static choir_work *next_part(choir_work *parent)
{
    choir_group *group = parent->call.group;
    struct ch_list *const lists[] = { &group->queue, &group->transfers };
    choir_work *part = NULL;

    ch_lock(&group->lock);
    for (size_t i = 0; i < CH_ARRAY_LEN(lists) && part == NULL; i++) {
        CH_LIST_EACH (link, lists[i]) {
            struct ch_call *call = CH_CONTAINER(link, struct ch_call, link);

            if (part == NULL && call->work != NULL && call->work->batch == parent &&
                !atomic_load_explicit(&call->aborted, memory_order_relaxed))
                part = choir_work_ref(call->work);
        }
    }
    ch_unlock(&group->lock);
    return part;
}

void ch_batch_give_up(choir_work *parent, const choir_error *why)
{
    choir_work *part;

    while ((part = next_part(parent)) != NULL) {
        ch_queue_give_up(&part->call, why);
        choir_work_unref(part);
    }
}
