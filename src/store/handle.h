/*
 * handle.h - a handle to a store: what the user holds, and what handles to the same data share.
 */
#ifndef CH_HANDLE_H
#define CH_HANDLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ref.h"
#include "base/wait.h"
#include "store/store.h"

/* One opened store, ended with the last handle. */
struct ch_store_shared {
    struct ch_ref ref;
    const struct ch_store_ops *ops;
    char *url;
    _Alignas(max_align_t) unsigned char self[]; /* the kind's */
};

struct choir_store {
    struct ch_bell_word word; /* the waiter's */
    struct ch_waiter waiter;  /* of its own, so that an interrupt reaches this handle alone */
    struct ch_store_shared *shared;
    _Atomic int64_t timeout_ms; /* by any thread; negative: none */
    size_t prefix_nbytes;       /* with its last "/"; 0: there is none */
    char prefix[];
};

/* How long a call on this handle may wait; 0: the handle's own time-out. */
static inline struct ch_patience ch_store_patience(choir_store *store, int64_t timeout_ms)
{
    /* Relaxed: a number, nothing is published by it. */
    if (timeout_ms == 0)
        timeout_ms = atomic_load_explicit(&store->timeout_ms, memory_order_relaxed);
    return (struct ch_patience){ .waiter = &store->waiter, .until = ch_deadline_ms(timeout_ms) };
}

#endif
