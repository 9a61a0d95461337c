/*
 * group.c - making groups and ending them. What can be asked of one: group_info.c.
 */
#include "group/group.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend_host.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/batch.h"
#include "group/caller.h"
#include "group/queue.h"
#include "group/registry.h"
#include "group/threadend.h"
#include "group/work.h"

enum { OPERATION_TIMEOUT_MS = 30 * 60 * 1000 };

/* --- life --------------------------------------------------------------------------------------- */

choir_status ch_group_create(struct ch_context *context, int rank, int nranks, int *global,
                             const char *name, const char *description,
                             const struct ch_backend_ops *backend, void *backend_self,
                             choir_group **group_out)
{
    choir_group *group = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*group));
    choir_status rc;

    if (group == NULL) {
        if (backend != NULL)
            backend->destroy(backend_self);
        ch_context_unref(context);
        ch_free(global);
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a group");
    }
    group->context = context;
    group->rank = rank;
    group->nranks = nranks;
    group->global = global;
    group->backend = backend;
    group->backend_self = backend_self;
    group->direct = backend != NULL && !backend->at_once;
    ch_ref_init(&group->refs);
    ch_lock_init(&group->lock, CH_LOCK_GROUP);
    ch_list_init(&group->queue);
    ch_list_init(&group->transfers);
    ch_list_init(&group->batches);
    ch_list_init(&group->registered);
    ch_list_init(&group->attended);
    atomic_store_explicit(&group->timeout_ms, OPERATION_TIMEOUT_MS, memory_order_relaxed);
    atomic_store_explicit(&group->next_due, CH_NEVER, memory_order_relaxed);
    group->name = ch_strdup(name);
    group->description = ch_strdup(description);
    if (group->name == NULL || group->description == NULL) {
        choir_group_destroy(group);
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a group's name");
    }
    rc = ch_flight_group_open(context->flight, name, description, global, nranks, rank,
                              &group->flight);
    if (rc != CHOIR_OK) {
        choir_group_destroy(group);
        return rc;
    }
    *group_out = group;
    return CHOIR_OK;
}

void ch_group_ref(choir_group *group)
{
    ch_ref_get(&group->refs);
}

void ch_group_unref(choir_group *group)
{
    if (!ch_ref_put(&group->refs))
        return;
    while (group->free_works != NULL) {
        choir_work *work = group->free_works;

        group->free_works = work->next_free;
        ch_free(work);
    }
    ch_lock_fini(&group->lock);
    ch_free(group->global);
    ch_free(group->name);
    ch_free(group->description);
    ch_free(group);
}

/* --- failing ------------------------------------------------------------------------------------ */

choir_status ch_group_not_given(const choir_group *group, const char *name)
{
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && group == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "%s: group: is NULL", name);
    return rc;
}

/* What it failed with, if it has. */
choir_status ch_group_check_slow(choir_group *group)
{
    choir_error record;
    choir_status rc = CHOIR_OK;

    if (group->backend == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "group %s: its ranks are on several hosts, between which there is no "
                       "transport yet",
                       group->name);
    if (group->backend->error != NULL) {
        rc = group->backend->error(group->backend_self, &record);
    } else {
        ch_lock(&group->lock);
        if (group->failed) {
            record = group->error;
            rc = record.code;
        }
        ch_unlock(&group->lock);
    }
    if (rc == CHOIR_OK)
        return CHOIR_OK;
    ch_flight_failed(group->flight, &record); /* others may have known first */
    if (atomic_load_explicit(&group->aborted, memory_order_relaxed))
        record.code = CHOIR_ERR_STATE;
    return ch_error_load(&record);
}

void ch_group_fail(choir_group *group, const choir_error *why)
{
    if (group->backend->fail != NULL)
        group->backend->fail(group->backend_self, why);
    ch_lock(&group->lock);
    if (!group->failed) {
        group->failed = true;
        group->error = *why;
    }
    ch_unlock(&group->lock);
    ch_flight_failed(group->flight, why);
}

choir_status choir_group_error(const choir_group *group_, choir_error *record_out)
{
    choir_group *group = (choir_group *)(uintptr_t)group_;
    choir_error last, record;
    choir_status rc;

    rc = ch_group_given(group, "choir_group_error");
    if (rc != CHOIR_OK)
        return rc;
    ch_error_save(&last);
    rc = group->backend != NULL ? ch_group_check(group) : CHOIR_OK;
    ch_error_save(&record);
    ch_error_load(&last);
    if (rc != CHOIR_OK && record_out != NULL)
        *record_out = record;
    return rc;
}

void choir_group_abort(choir_group *group)
{
    choir_error last, why;

    if (group == NULL || group->backend == NULL || ch_is_forked())
        return;
    ch_error_save(&last);
    ch_fail_rank(CHOIR_ERR_INTERRUPTED, group->rank, "abort",
                 "group %s was aborted by rank %d (choir_group_abort)", group->name, group->rank);
    ch_error_save(&why);
    atomic_store_explicit(&group->aborted, true, memory_order_relaxed);
    ch_group_fail(group, &why);
    ch_error_load(&last);
    /* Whoever runs or waits looks again; and the service thread at what nobody waits for. */
    ch_bell_after_store(&group->context->waiter->bell);
    ch_attend_kick(&group->context->attendant, group);
}

/* --- ending ------------------------------------------------------------------------------------- */

static bool nothing_pending(void *arg)
{
    const choir_group *group = arg;

    /* Acquire, pairs with ch_group_settle(): what hooks did is seen. Who counts himself in has the lock with which
     * `closed` is stored, or that which pass_short() goes through. Who has the token runs something. */
    return atomic_load_explicit(&group->npending, memory_order_acquire) == 0 &&
           ch_token_is_free(&group->token);
}

choir_status choir_group_wait_pending(choir_group *group, int64_t timeout_ms)
{
    ch_deadline until = timeout_ms > 0 ? ch_deadline_ms(timeout_ms) : CH_NEVER;
    choir_status rc = ch_group_given(group, "choir_group_wait_pending");

    if (rc != CHOIR_OK)
        return rc;
    if (ch_caller_is_here(group->context))
        return ch_fail(CHOIR_ERR_STATE,
                       "choir_group_wait_pending: a callback cannot wait for callbacks");
    rc = ch_group_wait(group, nothing_pending, group, until, "all operations of the group");
    if (rc == CHOIR_ERR_TIMEOUT)
        rc = ch_fail(CHOIR_ERR_TIMEOUT,
                     "choir_group_wait_pending: %llu operations are not done after %lld ms",
                     (unsigned long long)atomic_load(&group->npending), (long long)timeout_ms);
    return rc;
}

/* No call begins any more, and whoever has begun one is counted as pending, or through. Not so a message of the short way
 * whose thread has looked at `closed` and not yet taken p2p's lock: it has no number yet, and nobody can tell it from one
 * that comes too late, which is its caller's to see to. */
static void close_to_calls(choir_group *group)
{
    ch_lock(&group->lock);
    atomic_store_explicit(&group->closed, true, memory_order_seq_cst);
    ch_unlock(&group->lock);
    if (group->backend != NULL && group->backend->pass_short != NULL)
        group->backend->pass_short(group->backend_self);
}

choir_status choir_group_shutdown(choir_group *group, int64_t timeout_ms)
{
    choir_status rc = ch_group_given(group, "choir_group_shutdown");

    if (rc == CHOIR_OK)
        rc = choir_group_wait_pending(group, timeout_ms);
    if (rc != CHOIR_OK)
        return rc;
    close_to_calls(group);
    return CHOIR_OK;
}

/* Sends and receives that nobody answers would last as long as their deadlines. */
static void drop_transfers(choir_group *group)
{
    for (;;) {
        choir_work *work = NULL;
        choir_error why;

        ch_lock(&group->lock);
        CH_LIST_EACH (link, &group->transfers) {
            struct ch_call *call = CH_CONTAINER(link, struct ch_call, link);

            if (work == NULL && !atomic_load_explicit(&call->aborted, memory_order_relaxed))
                work = choir_work_ref(call->work);
        }
        ch_unlock(&group->lock);
        if (work == NULL)
            return;
        if (work->call.op.type == CHOIR_OP_SEND)
            ch_log_warn("group %s: destroyed before its %s %llu to rank %d was done", group->name,
                        work->call.name, (unsigned long long)work->call.op.seq, work->call.op.peer);
        ch_error_save(&why);
        ch_queue_give_up(&work->call, &why);
        choir_work_unref(work);
    }
}

/* For a callback, which cannot wait for those behind it: whatever is pending is their business alone. */
static bool nothing_but_notes(void *arg)
{
    const choir_group *group = arg;
    /* Acquire: as in nothing_pending(). */
    uint64_t pending = atomic_load_explicit(&group->npending, memory_order_acquire);

    /* Acquire, pairs with the release in ch_caller_post(): who posted is through with the group's context. */
    return pending == atomic_load_explicit(&group->nnotes, memory_order_acquire);
}

static bool token_is_ours(void *arg)
{
    choir_group *group = arg;

    return ch_token_try(&group->token);
}

static void wait_for_end(choir_group *group)
{
    struct ch_wait wait = { .waiter = group->context->waiter,
                            .ready = token_is_ours,
                            .arg = group,
                            .until = CH_NEVER,
                            .what = "whoever runs the group's operations" };
    bool in_callback = ch_caller_is_here(group->context);

    drop_transfers(group);
    while (ch_group_wait(group, in_callback ? nothing_but_notes : nothing_pending, group, CH_NEVER,
                         "operations of a group that is being destroyed") != CHOIR_OK)
        ;
    while (ch_wait(&wait) != CHOIR_OK) /* for good: nobody runs anything here any more */
        ;
}

void choir_group_destroy(choir_group *group)
{
    struct ch_context *context;
    choir_error last;

    /* In a forked child it is the parent's: threads that hold its locks are not here to let go. */
    if (group == NULL || ch_is_forked())
        return;
    ch_error_save(&last); /* of a call that failed and ends its group this way */
    ch_registry_remove(group);
    close_to_calls(group);
    wait_for_end(group);
    ch_batches_forget(group);
    if (group->backend != NULL)
        group->backend->destroy(group->backend_self);
    ch_flight_group_close(group->flight);
    choir_store_close(group->store);
    ch_lock(&group->lock); /* whoever was the last to settle is through (ch_group_settle) */
    context = group->context;
    group->context = NULL;
    ch_unlock(&group->lock);
    ch_group_unref(group);
    ch_context_unref(context);
    ch_error_load(&last);
}

/* --- the first group ------------------------------------------------------------------------------ */

/* The options with their defaults: a caller compiled against a smaller struct has the rest zero. */
static choir_status read_opts(const choir_init_opts *given, choir_init_opts *out)
{
    memset(out, 0, sizeof(*out));
    if (given != NULL) {
        if (given->size == 0)
            return ch_fail(CHOIR_ERR_INVALID, "opts->size is 0: fill options in with "
                                              "CHOIR_OPTS(init, ...)");
        memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    }
    if (out->name == NULL)
        out->name = "world";
    if (out->store != NULL && out->url != NULL)
        return ch_fail(CHOIR_ERR_INVALID, "both a store and a URL are given: expected one place");
    if (out->store != NULL && out->carry != NULL)
        return ch_fail(CHOIR_ERR_INVALID, "both a store and carry() are given: expected one place");
    if ((out->store != NULL || out->carry != NULL) && out->nranks <= 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "%s is given: nranks is %d, and which rank of how "
                       "many this is must be told as well",
                       out->store != NULL ? "a store" : "carry()", out->nranks);
    if (out->nranks < 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "nranks is %d, expected 1 or more, or 0 to ask the "
                       "environment",
                       out->nranks);
    return CHOIR_OK;
}

static choir_status make_first(const choir_init_opts *opts, choir_group **group_out)
{
    struct ch_context *context;
    struct ch_channel *channel;
    choir_group *group;
    choir_status rc = ch_context_join(opts, &context);

    if (rc != CHOIR_OK)
        return rc;
    channel = context->first_channel;
    context->first_channel = NULL;
    if (!opts->any_thread)
        ch_threadend_watch(context);
    rc = ch_group_create(context, context->rank, context->nranks, NULL, opts->name, "all ranks",
                         channel != NULL ? &ch_backend_host : NULL, channel, &group);
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_registry_add(group);
    if (rc != CHOIR_OK) {
        choir_group_destroy(group);
        return rc;
    }
    *group_out = group;
    return CHOIR_OK;
}

choir_status choir_init(choir_group **group_out, const choir_init_opts *opts)
{
    choir_init_opts all;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    if (group_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_init: group_out is NULL");
    rc = read_opts(opts, &all);
    if (rc == CHOIR_OK)
        rc = make_first(&all, group_out);
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_init: ");
    return rc;
}

/* --- fake groups -------------------------------------------------------------------------------- */

choir_status choir_group_create_fake(int rank, int nranks, const choir_group_create_fake_opts *opts,
                                     choir_group **group_out)
{
    choir_group_create_fake_opts all = { 0 };
    struct ch_context *context;
    choir_group *group;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && group_out == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "choir_group_create_fake: group_out: is NULL");
    if (rc == CHOIR_OK && opts != NULL && opts->size == 0)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "choir_group_create_fake: opts: its size is 0: fill options "
                     "in with CHOIR_OPTS(group_create_fake, ...)");
    if (rc == CHOIR_OK && (nranks < 1 || rank < 0 || rank >= nranks))
        rc = ch_fail(CHOIR_ERR_INVALID, "choir_group_create_fake: rank %d of %d makes no sense",
                     rank, nranks);
    if (rc != CHOIR_OK)
        return rc;
    if (opts != NULL)
        memcpy(&all, opts, opts->size < sizeof(all) ? opts->size : sizeof(all));
    rc = ch_context_create_alone(rank, nranks, &context);
    if (rc == CHOIR_OK)
        rc = ch_group_create(context, rank, nranks, NULL, "fake", "a group without peers",
                             &ch_backend_fake, NULL, &group);
    if (rc != CHOIR_OK)
        return rc;
    group->fake = (struct ch_fake){ rank, all.error_on_collective };
    group->backend_self = &group->fake;
    rc = ch_registry_add(group);
    if (rc != CHOIR_OK) {
        choir_group_destroy(group);
        return rc;
    }
    *group_out = group;
    return CHOIR_OK;
}
