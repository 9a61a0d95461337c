/*
 * list.h - a doubly linked list whose links live in the things it links.
 *
 * Nothing is allocated; a thing is in at most one list per link. A link that is in no list points to
 * itself, so removing it twice is harmless.
 */
#ifndef CH_LIST_H
#define CH_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct ch_list {
    struct ch_list *next, *prev;
};

#define CH_LIST_INIT(name)                                                                         \
    {                                                                                              \
        &(name), &(name)                                                                           \
    }

static inline void ch_list_init(struct ch_list *list)
{
    list->next = list->prev = list;
}

static inline bool ch_list_empty(const struct ch_list *list)
{
    return list->next == list;
}

/* `link` goes right in front of `before`: at the end, if `before` is the list's head. */
static inline void ch_list_insert(struct ch_list *before, struct ch_list *link)
{
    link->prev = before->prev;
    link->next = before;
    before->prev->next = link;
    before->prev = link;
}

static inline void ch_list_push_back(struct ch_list *list, struct ch_list *link)
{
    ch_list_insert(list, link);
}

static inline void ch_list_push_front(struct ch_list *list, struct ch_list *link)
{
    ch_list_insert(list->next, link);
}

static inline void ch_list_remove(struct ch_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ch_list_init(link);
}

/* The first link, taken out; NULL if there is none. */
static inline struct ch_list *ch_list_pop_front(struct ch_list *list)
{
    struct ch_list *link = list->next;

    if (link == list)
        return NULL;
    ch_list_remove(link);
    return link;
}

/* Walk; the current link may be removed on the way, its successor may not. */
#define CH_LIST_EACH(link, list)                                                                   \
    for (struct ch_list *link = (list)->next, *link##_next = link->next; link != (list);           \
         link = link##_next, link##_next = link->next)

#endif
