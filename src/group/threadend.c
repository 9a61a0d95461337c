/*
 * threadend.c - see threadend.h.
 */
#include "group/threadend.h"

#include <pthread.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "group/group.h"
#include "group/registry.h"

/* What makes a thread tell us that it ends: a value of this key, whatever it is. */
static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool made; /* written once, before pthread_once() returns anywhere */
} the_key = { .once = PTHREAD_ONCE_INIT };

static void fail(choir_group *group)
{
    choir_error why;

    if (group->backend == NULL || ch_group_check(group) != CHOIR_OK)
        return;
    ch_fail_rank(
        CHOIR_ERR_DEAD, group->rank, "",
        "group %s: rank %d has died: the thread that joined as this rank has ended without "
        "leaving the group",
        group->name, group->rank);
    ch_error_save(&why);
    ch_group_fail(group, &why);
    ch_attend_kick(&group->context->attendant, group); /* what it left behind fails as well */
}

static void thread_ends(void *value)
{
    choir_group *group;

    (void)value;
    if (ch_is_forked())
        return;
    while ((group = ch_registry_take_orphan()) != NULL) {
        fail(group);
        ch_group_settle(group);
        ch_group_unref(group);
    }
}

static void make_key(void)
{
    the_key.made = pthread_key_create(&the_key.key, thread_ends) == 0;
}

static bool has_ranks_in_process(const struct ch_context *context)
{
    const struct ch_hostlink *link = &context->engine->link;

    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].rank != context->rank && ch_seg_is_ours(link->neighbours[i].seg))
            return true;
    }
    return false;
}

void ch_threadend_watch(struct ch_context *context)
{
    if (!has_ranks_in_process(context))
        return;
    context->is_thread = true;
    pthread_once(&the_key.once, make_key);
    if (!the_key.made || pthread_setspecific(the_key.key, &the_key) != 0)
        ch_log_warn("rank %d: should its thread end with a group open, nobody is told: no key of "
                    "thread-specific data is left",
                    context->rank);
}
