/*
 * forked.c - the fork handlers. See forked.h for what they promise.
 */
#include "base/forked.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/fdmarks.h"
#include "base/sys.h"

static struct {
    pthread_mutex_t installing;
    pthread_mutex_t holding; /* held while there must be no fork, and by fork itself */
    _Atomic bool installed;
    _Atomic bool forked; /* set once, by the child's handler, never reset */
} the_fork = { .installing = PTHREAD_MUTEX_INITIALIZER, .holding = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
    pthread_mutex_lock(&the_fork.holding);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&the_fork.holding);
}

/* Runs in the child between fork() and its return there, with only this thread alive: no locks, no
 * allocation. */
static void in_child(void)
{
    pthread_mutex_unlock(&the_fork.holding);
    if (ch_fdmark_count() == 0)
        return; /* nothing was open: the child is as good as any process */
    atomic_store(&the_fork.forked, true);
    ch_fdmark_close_all();
}

bool ch_fork_hold(void)
{
    return ch_forked_watch() && pthread_mutex_lock(&the_fork.holding) == 0;
}

bool ch_fork_try_hold(void)
{
    return ch_forked_watch() && pthread_mutex_trylock(&the_fork.holding) == 0;
}

void ch_fork_release(void)
{
    pthread_mutex_unlock(&the_fork.holding);
}

bool ch_forked_watch(void)
{
    bool ok = true;

    if (atomic_load(&the_fork.installed))
        return true;
    pthread_mutex_lock(&the_fork.installing);
    if (!atomic_load(&the_fork.installed)) {
        ok = ch_sys_atfork(before_fork, in_parent, in_child) == 0;
        atomic_store(&the_fork.installed, ok);
    }
    pthread_mutex_unlock(&the_fork.installing);
    return ok;
}

bool ch_is_forked(void)
{
    /* Relaxed: set before the child's first thread can run anything else. */
    return atomic_load_explicit(&the_fork.forked, memory_order_relaxed);
}

choir_status ch_forked(void)
{
    if (!ch_is_forked())
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_FORKED,
                   "this process was forked from one that was using Choir: its connections and "
                   "shared memory belong to the parent; start ranks with exec or spawn");
}
