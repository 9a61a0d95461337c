/*
 * timer.c - a pairing heap of timers (Fredman, Sedgewick, Sleator, Tarjan: "The pairing heap", 1986).
 * See timer.h.
 */
#include "io/timer.h"

#include "base/assert.h"

static bool comes_first(const struct ch_timer *a, const struct ch_timer *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

/* Two heaps into one; either may be NULL. The later root becomes the first child of the earlier. */
static struct ch_timer *meld(struct ch_timer *a, struct ch_timer *b)
{
    struct ch_timer *first, *second;

    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    first = comes_first(a, b) ? a : b;
    second = first == a ? b : a;

    second->prev = first;
    second->next = first->child;
    if (second->next != NULL)
        second->next->prev = second;
    first->child = second;
    first->next = first->prev = NULL;
    return first;
}

/* A list of siblings into one heap: pairs from left to right, then the pairs from right to left.
 * The pairs are stacked on `next` on the way. */
static struct ch_timer *meld_siblings(struct ch_timer *list)
{
    struct ch_timer *pairs = NULL, *root = NULL;

    while (list != NULL) {
        struct ch_timer *a = list, *b = list->next, *pair;

        list = b != NULL ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b != NULL)
            b->next = b->prev = NULL;
        pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs != NULL) {
        struct ch_timer *pair = pairs;

        pairs = pair->next;
        pair->next = NULL;
        root = meld(root, pair);
    }
    return root;
}

void ch_timer_start(struct ch_timers *timers, struct ch_timer *timer, ch_deadline at)
{
    ch_timer_stop(timer);
    timer->in = timers;
    timer->number = timers->started++;
    timer->at = at <= timers->firing ? timers->firing + 1 : at;
    timer->child = timer->next = timer->prev = NULL;
    timers->root = meld(timers->root, timer);
}

void ch_timer_stop(struct ch_timer *timer)
{
    struct ch_timers *timers = timer->in;
    struct ch_timer *orphans;

    if (timers == NULL)
        return;
    orphans = meld_siblings(timer->child);
    if (timer == timers->root) {
        timers->root = orphans;
    } else {
        if (timer->prev->child == timer)
            timer->prev->child = timer->next;
        else
            timer->prev->next = timer->next;
        if (timer->next != NULL)
            timer->next->prev = timer->prev;
        timers->root = meld(timers->root, orphans);
    }
    timer->in = NULL;
    timer->child = timer->next = timer->prev = NULL;
}

ch_deadline ch_timers_next(const struct ch_timers *timers)
{
    return timers->root != NULL ? timers->root->at : CH_NEVER;
}

int ch_timers_fire(struct ch_timers *timers, uint64_t now)
{
    int fired = 0;

    ch_assert(timers->firing == 0);
    timers->firing = now;
    while (timers->root != NULL && timers->root->at <= now) {
        struct ch_timer *timer = timers->root;

        ch_timer_stop(timer);
        timer->fire(timer);
        fired++;
    }
    timers->firing = 0;
    return fired;
}
