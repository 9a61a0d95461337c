/* inbox_test.c - many pushers, one taker: nothing lost, each pusher's order kept. */
#include "choir_test.h"

#include <pthread.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/inbox.h"

enum { PUSHERS = 4, ITEMS = 20000 };

struct item {
    struct ch_inbox_item item;
    int pusher, number; /* plain: published by the push */
};

static struct ch_inbox box;
static struct item items[PUSHERS][ITEMS];
static _Atomic int nempty;

static void *push_all(void *arg)
{
    int pusher = (int)(intptr_t)arg;

    for (int i = 0; i < ITEMS; i++) {
        items[pusher][i].pusher = pusher;
        items[pusher][i].number = i;
        if (ch_inbox_push(&box, &items[pusher][i].item))
            atomic_fetch_add(&nempty, 1);
    }
    return NULL;
}

CHOIR_TEST(nothing_is_lost_and_each_order_is_kept)
{
    pthread_t threads[PUSHERS];
    int next[PUSHERS] = { 0 };
    int taken = 0, batches = 0;

    for (int i = 0; i < PUSHERS; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, push_all, (void *)(intptr_t)i), 0);
    while (taken < PUSHERS * ITEMS) {
        struct ch_inbox_item *at = ch_inbox_take(&box);

        batches += at != NULL;
        for (; at != NULL; at = at->next, taken++) {
            struct item *it = CH_CONTAINER(at, struct item, item);

            CHOIR_CHECK_EQ(it->number, next[it->pusher]);
            next[it->pusher]++;
        }
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    /* One "was empty" for each batch: as many rings as needed and no more. */
    CHOIR_CHECK_EQ(atomic_load(&nempty), batches);
}
