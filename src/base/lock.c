/*
 * lock.c - mutexes, and in debug builds the check of their order.
 */
#include "base/lock.h"

#include <stdbool.h>
#include <stddef.h>

/* Everything about order is compiled away with ch_assert() in release builds. */
#if CH_DEBUG
enum { MAX_HELD = 8 };

/* The locks this thread holds, in the order it took them. */
static _Thread_local struct {
    const struct ch_lock *locks[MAX_HELD];
    int count;
} held;

static bool is_held(const struct ch_lock *lock)
{
    for (int i = 0; i < held.count; i++) {
        if (held.locks[i] == lock)
            return true;
    }
    return false;
}

static void note_taking(const struct ch_lock *lock)
{
    ch_assert(held.count < MAX_HELD);
    ch_assert(held.count == 0 || held.locks[held.count - 1]->rank < lock->rank);
    held.locks[held.count++] = lock;
}

static void note_giving_back(const struct ch_lock *lock)
{
    int at = held.count - 1;

    ch_assert(is_held(lock));
    while (held.locks[at] != lock)
        at--;
    for (; at + 1 < held.count; at++)
        held.locks[at] = held.locks[at + 1];
    held.count--;
}

static void note_assertion(const struct ch_lock *lock)
{
    ch_assert(is_held(lock));
}

#define NOTE(what, lock) note_##what(lock)
#else
#define NOTE(what, lock) ((void)0)
#endif

void ch_lock_init(struct ch_lock *lock, enum ch_lock_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

void ch_lock_fini(struct ch_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

void ch_lock(struct ch_lock *lock) CH_NO_TSA
{
    NOTE(taking, lock);
    pthread_mutex_lock(&lock->mutex);
}

void ch_unlock(struct ch_lock *lock) CH_NO_TSA
{
    NOTE(giving_back, lock);
    pthread_mutex_unlock(&lock->mutex);
}

void ch_lock_assert_held(const struct ch_lock *lock)
{
    NOTE(assertion, lock);
    (void)lock;
}
