/*
 * perf_values.h - what inputs hold, and whether an output is what it must be.
 *
 * An element depends on its rank, its position and the round. Along a buffer the values repeat after a prime number
 * of elements, so that no two blocks of a buffer are alike, and whole buffers are written and compared at the
 * speed of memory: a tile holds two periods, of which every shift is a part. Values are small whole numbers:
 * their sums are exact in any order. C and C++.
 */
#ifndef PERF_VALUES_H
#define PERF_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PERF_PERIOD = 1021, PERF_TILE = 2 * PERF_PERIOD };

/* 1 to 7, without order: of two ranks' values, or of two positions', every pair is somewhere. */
static inline int perf_value(size_t pos)
{
    uint32_t x = (uint32_t)(pos % PERF_PERIOD) + 1;

    x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
    x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
    return (int)((x ^ x >> 16) % 7) + 1;
}

/* Rank and round shift the values along the buffer, independently of each other. Warm-up rounds are negative. */
static inline size_t perf_shift(int rank, int round)
{
    return ((size_t)rank * 131 + (size_t)(round + PERF_PERIOD) * 17) % PERF_PERIOD;
}

/* Plain stores, as a program that computes its inputs makes them: memcpy() may take instructions that go round the cache. */
static inline void perf_copy(unsigned char *to, const unsigned char *from, size_t nbytes)
{
    size_t i = 0;

    for (; i + 64 <= nbytes; i += 64)
        memcpy(to + i, from + i, 64);
    for (; i < nbytes; i++)
        to[i] = from[i];
}

/* Write `count` elements of `size` bytes, of which the first is at `pos` of the tile's pattern. */
static inline void perf_fill(void *to, size_t count, size_t pos, size_t size, const void *tile)
{
    const unsigned char *from = (const unsigned char *)tile + pos % PERF_PERIOD * size;

    for (size_t i = 0; i < count; i += PERF_PERIOD) {
        size_t n = count - i < PERF_PERIOD ? count - i : (size_t)PERF_PERIOD;

        perf_copy((unsigned char *)to + i * size, from, n * size);
    }
}

static inline uint64_t perf_count_wrong(const unsigned char *a, const unsigned char *b,
                                        size_t count, size_t size)
{
    uint64_t wrong = 0;

    if (memcmp(a, b, count * size) == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        wrong += memcmp(a + i * size, b + i * size, size) != 0;
    return wrong;
}

/* How many of `count` elements differ from the pattern. */
static inline uint64_t perf_differ(const void *what, size_t count, size_t pos, size_t size,
                                   const void *tile)
{
    const unsigned char *want = (const unsigned char *)tile + pos % PERF_PERIOD * size;
    uint64_t wrong = 0;

    for (size_t i = 0; i < count; i += PERF_PERIOD) {
        size_t n = count - i < PERF_PERIOD ? count - i : (size_t)PERF_PERIOD;

        wrong += perf_count_wrong((const unsigned char *)what + i * size, want, n, size);
    }
    return wrong;
}

/* The tile of f32, and that of their sum over all ranks. */
static inline void perf_tile_f32(float tile[PERF_TILE])
{
    for (size_t i = 0; i < PERF_TILE; i++)
        tile[i] = (float)perf_value(i);
}

/* Of round 0 and as rank 0 counts: another round shifts it by perf_shift(0, round). */
static inline void perf_tile_f32_sum(float tile[PERF_TILE], int nranks)
{
    for (size_t i = 0; i < PERF_TILE; i++) {
        long sum = 0;

        for (int rank = 0; rank < nranks; rank++)
            sum += perf_value(i + perf_shift(rank, 0));
        tile[i] = (float)sum;
    }
}

#endif
