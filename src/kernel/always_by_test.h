/*
 * always_by_test.h - for tests: copies that are made one way, whatever they take; the next two thousand of each size, then what
 * was measured counts again.
 */
#ifndef CH_ALWAYS_BY_TEST_H
#define CH_ALWAYS_BY_TEST_H

#include "kernel/copy_over.h"

static inline void always_by(struct ch_copy_ways *ways, enum ch_copy_how how)
{
    for (int size = 0; size < CH_COPY_OVER_SIZES; size++) {
        struct ch_copy_way *way = &ways->by_size[size];

        *way = (struct ch_copy_way){ .how = (uint8_t)how,
                                     .left = UINT8_MAX,
                                     .tried_ps = UINT32_MAX };
        for (int i = 0; i < CH_COPY_HOWS; i++)
            way->ps[i] = i == (int)how ? 1 : UINT32_MAX / 8;
    }
}

#endif
