/*
 * ref.h - a reference count.
 */
#ifndef CH_REF_H
#define CH_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"

struct ch_ref {
    _Atomic uint32_t count;
};

static inline void ch_ref_init(struct ch_ref *ref)
{
    /* Relaxed: nobody else knows the object yet. */
    atomic_store_explicit(&ref->count, 1, memory_order_relaxed);
}

static inline void ch_ref_get(struct ch_ref *ref)
{
    /* Relaxed: who takes a reference already has one, nothing is published by it. */
    uint32_t before = atomic_fetch_add_explicit(&ref->count, 1, memory_order_relaxed);

    ch_assert(before != 0 && before != UINT32_MAX);
    (void)before;
}

/* True if that was the last one: the caller now ends the object.
 * Acquire and release: every holder's last writes happen before the end. */
static inline bool ch_ref_put(struct ch_ref *ref)
{
    uint32_t before = atomic_fetch_sub_explicit(&ref->count, 1, memory_order_acq_rel);

    ch_assert(before != 0);
    return before == 1;
}

#endif
