/* plain_loops.c - compiled with -O3 -march=native; told that nothing overlaps, which is their best case. */
#include "plain_loops.h"

#include <stdint.h>

void plain_sum_f32(float *restrict dst, const float *restrict a, const float *restrict b,
                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = a[i] + b[i];
}

void plain_copy(void *restrict dst, const void *restrict src, size_t nbytes)
{
    uint64_t *restrict to = dst;
    const uint64_t *restrict from = src;

    for (size_t i = 0; i < nbytes / sizeof(*to); i++)
        to[i] = from[i];
}
