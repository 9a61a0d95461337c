/*
 * inbox.h - many threads put in, one takes everything out. Lock-free, no allocation.
 *
 * How other threads hand tasks to an event loop: push, and ring if push says the box was empty
 * (otherwise somebody has rung already and the owner has yet to look).
 */
#ifndef CH_INBOX_H
#define CH_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct ch_inbox_item {
    struct ch_inbox_item *next;
};

struct ch_inbox {
    _Atomic(struct ch_inbox_item *) newest; /* a stack; written by every pusher and the taker */
};

/* True if the box was empty before. The item is lent until the owner takes it.
 * Release, pairs with the acquire in ch_inbox_take(): what the pusher wrote before is seen. */
static inline bool ch_inbox_push(struct ch_inbox *box, struct ch_inbox_item *item)
{
    /* Relaxed: only a guess at the head, the exchange below checks it. */
    struct ch_inbox_item *head = atomic_load_explicit(&box->newest, memory_order_relaxed);

    do
        item->next = head;
    while (!atomic_compare_exchange_weak_explicit(&box->newest, &head, item, memory_order_release,
                                                  memory_order_relaxed));
    return head == NULL;
}

/* Everything in it, oldest first, linked by `next`; NULL if it is empty. Taking all at once leaves
 * no room for the ABA problem of popping one. */
static inline struct ch_inbox_item *ch_inbox_take(struct ch_inbox *box)
{
    /* Acquire, pairs with the release in ch_inbox_push(). */
    struct ch_inbox_item *item = atomic_exchange_explicit(&box->newest, NULL, memory_order_acquire);
    struct ch_inbox_item *oldest = NULL;

    while (item != NULL) {
        struct ch_inbox_item *next = item->next;

        item->next = oldest;
        oldest = item;
        item = next;
    }
    return oldest;
}

#endif
