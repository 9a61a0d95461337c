/*
 * always_past_test.h - for tests: copies that go past the caches, whatever they take.
 */
#ifndef CH_ALWAYS_PAST_TEST_H
#define CH_ALWAYS_PAST_TEST_H

#include "kernel/copy_over.h"

static inline void always_past(struct ch_copy_ways *ways)
{
    for (int size = 0; size < CH_COPY_OVER_SIZES; size++)
        ways->by_size[size] = (struct ch_copy_way){
            .past = true, .left = UINT16_MAX, .own_ps = UINT32_MAX / 2, .past_ps = 1
        };
}

#endif
