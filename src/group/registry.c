/*
 * registry.c - choir_group_find(), and the list behind it.
 *
 * Who has a name and looks for its group has no handle to begin with: so this list belongs to the process. Ranks may
 * be threads of one process, with a group of the same name each: then the thread that joined as a rank is
 * told its own.
 */
#include "group/registry.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/lock.h"
#include "group/args.h"
#include "group/group.h"

enum { GONE_MAX = 1024 }; /* names of destroyed groups that are remembered */

static struct {
    struct ch_lock lock;
    struct ch_list groups;   /* under lock: choir_group.registered */
    uint64_t gone[GONE_MAX]; /* under lock: hashes of names */
    size_t ngone;            /* under lock: ever */
} the_groups = { .lock = CH_LOCK_INIT(CH_LOCK_REGISTRY),
                 .groups = CH_LIST_INIT(the_groups.groups) };

static uint64_t hash_name(const char *name)
{
    uint64_t hash = CH_HASH_START;

    while (*name != '\0')
        hash = ch_hash_add(hash, (unsigned char)*name++);
    return hash;
}

static bool has_locked(const choir_group *group, const char *name)
{
    ch_lock_assert_held(&the_groups.lock);
    CH_LIST_EACH (link, &the_groups.groups) {
        const choir_group *other = CH_CONTAINER(link, choir_group, registered);

        if (other->context == group->context && strcmp(other->name, name) == 0)
            return true;
    }
    return false;
}

bool ch_registry_has(const choir_group *group, const char *name)
{
    bool has;

    ch_lock(&the_groups.lock);
    has = has_locked(group, name);
    ch_unlock(&the_groups.lock);
    return has;
}

choir_status ch_registry_add(choir_group *group)
{
    bool taken;

    ch_lock(&the_groups.lock);
    taken = has_locked(group, group->name);
    if (!taken)
        ch_list_push_back(&the_groups.groups, &group->registered);
    ch_unlock(&the_groups.lock);
    if (taken)
        return ch_fail(CHOIR_ERR_INVALID, "the name %s is taken by another group of this rank",
                       group->name);
    return CHOIR_OK;
}

void ch_registry_remove(choir_group *group)
{
    ch_lock(&the_groups.lock);
    if (!ch_list_empty(&group->registered)) {
        ch_list_remove(&group->registered);
        the_groups.gone[the_groups.ngone++ % GONE_MAX] = hash_name(group->name);
    }
    ch_unlock(&the_groups.lock);
}

choir_group *ch_registry_take_orphan(void)
{
    choir_group *found = NULL;

    ch_lock(&the_groups.lock);
    CH_LIST_EACH (link, &the_groups.groups) {
        choir_group *group = CH_CONTAINER(link, choir_group, registered);

        if (found == NULL && !group->orphaned && group->context->is_thread &&
            pthread_equal(group->context->home, pthread_self()))
            found = group;
    }
    if (found != NULL) {
        found->orphaned = true;
        ch_group_ref(found);
        /* Who destroys it takes it out of the list first, and then waits for what is pending. */
        atomic_fetch_add_explicit(&found->npending, 1, memory_order_relaxed);
    }
    ch_unlock(&the_groups.lock);
    return found;
}

static bool was_there_locked(const char *name)
{
    uint64_t hash = hash_name(name);

    for (size_t i = 0; i < GONE_MAX && i < the_groups.ngone; i++) {
        if (the_groups.gone[i] == hash)
            return true;
    }
    return false;
}

/* All of that name; of those this thread's, if it has any. */
static int find_locked(const char *name, choir_group **group_out)
{
    int all = 0, own = 0;

    CH_LIST_EACH (link, &the_groups.groups) {
        choir_group *group = CH_CONTAINER(link, choir_group, registered);
        bool is_own;

        if (strcmp(group->name, name) != 0)
            continue;
        is_own = pthread_equal(group->context->home, pthread_self());
        all++;
        own += is_own;
        if (all == 1 || (is_own && own == 1))
            *group_out = group;
    }
    return own > 0 ? own : all;
}

choir_status choir_group_find(const char *name, choir_group **group_out)
{
    choir_group *group = NULL;
    bool was_there;
    int count;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && (name == NULL || group_out == NULL))
        rc = ch_fail(CHOIR_ERR_INVALID, "choir_group_find: %s: is NULL",
                     name == NULL ? "name" : "group_out");
    if (rc != CHOIR_OK)
        return rc;
    ch_lock(&the_groups.lock);
    count = find_locked(name, &group);
    was_there = was_there_locked(name);
    ch_unlock(&the_groups.lock);
    if (count == 0 && was_there)
        return ch_fail(CHOIR_ERR_STATE, "choir_group_find: group %s is destroyed", name);
    if (count == 0)
        return ch_fail(CHOIR_ERR_INVALID, "choir_group_find: no group is or was called %s", name);
    if (count > 1)
        return ch_fail(CHOIR_ERR_STATE,
                       "choir_group_find: %d groups of this process are called %s: ask for one "
                       "from the thread that joined as its rank",
                       count, name);
    *group_out = group;
    return CHOIR_OK;
}
