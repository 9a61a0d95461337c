/*
 * group_info.c - what can be asked of a group, and set.
 */
#include <choir/info.h>

#include "base/error.h"
#include "base/forked.h"
#include "group/caller.h"
#include "group/group.h"

int choir_group_rank(const choir_group *group)
{
    return group->rank;
}

int choir_group_size(const choir_group *group)
{
    return group->nranks;
}

static int global_rank(const choir_group *group, int rank)
{
    return group->global != NULL ? group->global[rank] : rank;
}

int choir_group_global_rank(const choir_group *group, int rank)
{
    return rank >= 0 && rank < group->nranks ? global_rank(group, rank) : CHOIR_NO_RANK;
}

/* --- peers -------------------------------------------------------------------------------------- */

static choir_status check_peer_rank(const choir_group *group, int rank, const void *out)
{
    if (group == NULL || out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: is NULL",
                       group == NULL ? "group" : "where the answer goes");
    if (rank < 0 || rank >= group->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank is %d, expected 0 to %d", rank, group->nranks - 1);
    if (group->context->records == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "group %s is fake: it has no peers", group->name);
    return CHOIR_OK;
}

static bool shares_memory(const struct ch_context *context, int global)
{
    return context->hosts == NULL ? global == context->rank
                                  : context->hosts[global] == context->hosts[context->rank];
}

choir_status choir_group_peer(const choir_group *group, int rank, choir_peer *out)
{
    const struct ch_context *context;
    const struct ch_record *record;
    choir_status rc = check_peer_rank(group, rank, out);
    int global;

    if (rc != CHOIR_OK)
        return rc;
    context = group->context;
    global = global_rank(group, rank);
    record = &context->records[global];
    *out = (choir_peer){ .rank = rank,
                         .host_index = context->hosts[global],
                         .shares_memory = shares_memory(context, global),
                         .pid = (int64_t)record->pid,
                         .host = record->host,
                         .boot_id = record->boot_id,
                         .address = record->address,
                         .version = record->version,
                         .build = record->build,
                         .cpu = record->cpu };
    return CHOIR_OK;
}

/* How many ranks below `end` share memory with us. */
static int count_local(const choir_group *group, int end)
{
    int count = 0;

    for (int r = 0; r < end; r++)
        count += shares_memory(group->context, global_rank(group, r));
    return count;
}

int choir_group_local_size(const choir_group *group)
{
    return count_local(group, group->nranks);
}

int choir_group_local_rank(const choir_group *group)
{
    return count_local(group, group->rank);
}

int choir_group_processors(const choir_group *group)
{
    const struct ch_rank *engine = group->context->engine;

    return engine != NULL ? (int)engine->processors : choir_processors();
}

choir_status choir_group_alive(const choir_group *group, int rank, bool *alive_out)
{
    const struct ch_neighbour *neighbour;
    choir_status rc = ch_forked(); /* there our descriptors are closed, or others */
    int global;

    if (rc == CHOIR_OK)
        rc = check_peer_rank(group, rank, alive_out);
    if (rc != CHOIR_OK)
        return rc;
    global = global_rank(group, rank);
    neighbour = ch_hostlink_find(&group->context->engine->link, global);
    if (neighbour == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "rank %d is on another host (%s): its life is not watched from here yet",
                       rank, group->context->records[global].host);
    return ch_neighbour_alive(neighbour, alive_out);
}

/* --- names and numbers ---------------------------------------------------------------------------- */

const char *choir_group_origin(const choir_group *group)
{
    return group->context->origin;
}

choir_store *choir_group_store(const choir_group *group_)
{
    choir_group *group = (choir_group *)(uintptr_t)group_;
    choir_store *made = NULL, *store;

    if (ch_is_forked())
        return NULL;
    if (group->global == NULL || group->context->place.store == NULL)
        return group->context->place.store;
    /* Made outside the lock; who comes second throws its own away. */
    if (choir_store_prefix(group->context->place.store, choir_str(group->name), &made) != CHOIR_OK)
        return NULL;
    ch_lock(&group->lock);
    if (group->store == NULL) {
        group->store = made;
        made = NULL;
    }
    store = group->store;
    ch_unlock(&group->lock);
    choir_store_close(made);
    return store;
}

const char *choir_group_name(const choir_group *group)
{
    return group->name;
}

const char *choir_group_description(const choir_group *group)
{
    return group->description;
}

uint64_t choir_group_collective_sequence(const choir_group *group)
{
    /* Acquire, pairs with the release in enter_locked() (queue.c): who calls next comes behind. */
    return atomic_load_explicit(&group->ncollectives, memory_order_acquire);
}

uint64_t choir_group_p2p_sequence(const choir_group *group)
{
    return atomic_load_explicit(&group->ntransfers, memory_order_relaxed);
}

choir_status choir_group_set_timeout(choir_group *group, int64_t timeout_ms)
{
    choir_status rc = ch_group_given(group, "choir_group_set_timeout");

    if (rc != CHOIR_OK)
        return rc;
    if (timeout_ms == 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "choir_group_set_timeout: timeout_ms: is 0, expected a time, or a negative "
                       "number for none");
    atomic_store_explicit(&group->timeout_ms, timeout_ms, memory_order_relaxed);
    return CHOIR_OK;
}

int64_t choir_group_timeout(const choir_group *group)
{
    return atomic_load_explicit(&group->timeout_ms, memory_order_relaxed);
}

/* --- the hook ----------------------------------------------------------------------------------- */

choir_status choir_group_on_done(choir_group *group,
                                 void (*done)(void *arg, const struct choir_work_info *info),
                                 void *arg)
{
    choir_status rc = ch_group_given(group, "choir_group_on_done");
    bool taken;

    if (rc == CHOIR_OK && done != NULL)
        rc = ch_caller_need(group->context);
    if (rc != CHOIR_OK)
        return rc;
    ch_lock(&group->lock);
    taken = done != NULL && group->hook != NULL;
    if (!taken) {
        group->hook = done;
        group->hook_arg = arg;
        atomic_store_explicit(&group->hooked, done != NULL, memory_order_relaxed);
    }
    ch_unlock(&group->lock);
    if (taken)
        return ch_fail(CHOIR_ERR_STATE, "choir_group_on_done: group %s has a hook already",
                       group->name);
    return CHOIR_OK;
}
