/*
 * kernel_check.h - hold one variant of the kernels against the reference; for the tests beside it.
 *
 * Every buffer lies between two canaries, at any alignment. Sources are filled with what breaks
 * things: NaN, infinities, zeros of both signs, subnormal numbers, extremes, random bits. Results
 * must be equal bit for bit, except that any NaN equals any other.
 */
#ifndef CH_KERNEL_CHECK_H
#define CH_KERNEL_CHECK_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "choir_test.h"
#include "kernel/kernel.h"

enum {
    CHECK_MAX_SRCS = 9,
    CHECK_MAX_DSTS = 3,
    CHECK_MAX_BYTES = 8192,
    CHECK_CANARY = 64,
    CHECK_MAX_SHIFT = 64, /* misalignment */
    CHECK_SPACE = CHECK_MAX_BYTES + 2 * CHECK_CANARY + CHECK_MAX_SHIFT
};

/* One buffer, its canaries, and where in `space` it begins. */
struct check_buffer {
    unsigned char space[CHECK_SPACE];
    size_t start, nbytes;
};

static inline unsigned char *check_start(struct check_buffer *b, size_t shift, size_t nbytes)
{
    b->start = CHECK_CANARY + shift;
    b->nbytes = nbytes;
    memset(b->space + shift, 0xa5, nbytes + 2 * CHECK_CANARY);
    return b->space + b->start;
}

static inline void check_canaries(const struct check_buffer *b, const char *what)
{
    const unsigned char *front = b->space + b->start - CHECK_CANARY;
    const unsigned char *behind = b->space + b->start + b->nbytes;

    for (int i = 0; i < CHECK_CANARY; i++) {
        if (front[i] != 0xa5)
            CHOIR_FAIL("%s of %zu bytes: %d bytes before it are overwritten", what, b->nbytes,
                       CHECK_CANARY - i);
        if (behind[i] != 0xa5)
            CHOIR_FAIL("%s of %zu bytes: %d bytes behind it are overwritten", what, b->nbytes, i);
    }
}

/* --- values ------------------------------------------------------------------------------------- */

static inline float check_random_f32(struct choir_test_random *rnd)
{
    static const float specials[] = {
        0.0F, -0.0F,     1.0F,      -1.0F,           INFINITY,         -INFINITY,
        NAN,  0x1p-149F, 0x1p-126F, 0x1.fffffep127F, -0x1.fffffep127F, 0x1.8p-130F
    };
    uint64_t x = choir_test_random(rnd);
    uint32_t bits = (uint32_t)(x >> 32);
    float f;

    switch (x % 8) {
    case 0:
        return specials[(x >> 8) % CH_ARRAY_LEN(specials)];
    case 1:
        memcpy(&f, &bits, sizeof(f));
        return f;
    default:
        return (float)(int32_t)bits / 65536.0F;
    }
}

static inline double check_random_f64(struct choir_test_random *rnd)
{
    static const double specials[] = { 0.0,
                                       -0.0,
                                       1.0,
                                       INFINITY,
                                       -INFINITY,
                                       NAN,
                                       0x1p-1074,
                                       0x1p-1022,
                                       0x1.fffffffffffffp1023,
                                       -0x1.fffffffffffffp1023 };
    uint64_t x = choir_test_random(rnd), bits = choir_test_random(rnd);
    double d;

    switch (x % 8) {
    case 0:
        return specials[(x >> 8) % CH_ARRAY_LEN(specials)];
    case 1:
        memcpy(&d, &bits, sizeof(d));
        return d;
    default:
        return (double)(int64_t)bits / 65536.0;
    }
}

/* Most 16-bit floats are near one, so that sums round; the others, and all 8-bit ones, are any. */
static inline uint16_t check_random_16(struct choir_test_random *rnd, choir_type type)
{
    uint64_t x = choir_test_random(rnd);
    uint16_t bits = (uint16_t)(x >> 32);

    if (type == CHOIR_BF16 && x % 4 != 0)
        return (bits & 0x83ff) | 0x3c00;
    return bits;
}

static inline void check_fill_random(void *p, choir_type type, size_t nbytes,
                                     struct choir_test_random *rnd)
{
    unsigned char *at = p;

    for (size_t i = 0; i < nbytes;) {
        uint64_t x = choir_test_random(rnd);
        float f = check_random_f32(rnd);
        double d = check_random_f64(rnd);
        uint16_t h = check_random_16(rnd, type);
        const void *from = &x;
        size_t size = choir_type_size(type);

        if (type == CHOIR_F32 || type == CHOIR_COMPLEX64) {
            from = &f;
            size = sizeof(f);
        } else if (type == CHOIR_F64 || type == CHOIR_COMPLEX128) {
            from = &d;
            size = sizeof(d);
        } else if (type == CHOIR_F16 || type == CHOIR_BF16) {
            from = &h;
        } else if (type == CHOIR_BOOL) {
            x = x % 4 < 2 ? x % 2 : x >> 56;
        } else if (x % 8 == 0) { /* integers: the extremes */
            x = x & 256 ? UINT64_C(0x8000800080008080) : x & 512 ? UINT64_MAX : 0;
        }
        memcpy(at + i, from, size);
        i += size;
    }
}

/* Is element `i` a NaN? Complex counts as pairs. Told from the bits, not by arithmetic. */
static inline bool check_is_nan(choir_type type, const unsigned char *p)
{
    uint64_t bits = 0;

    memcpy(&bits, p, choir_type_size(type) < 8 ? choir_type_size(type) : 8);
    switch (type) {
    case CHOIR_F16:
        return (bits & 0x7fff) > 0x7c00;
    case CHOIR_BF16:
        return (bits & 0x7fff) > 0x7f80;
    case CHOIR_F8E4M3:
        return (bits & 0x7f) == 0x7f;
    case CHOIR_F8E5M2:
        return (bits & 0x7f) > 0x7c;
    case CHOIR_F32:
        return (bits & 0x7fffffff) > 0x7f800000;
    case CHOIR_F64:
        return (bits & INT64_MAX) > UINT64_C(0x7ff0000000000000);
    default:
        return false;
    }
}

static inline void check_same(choir_type type, const unsigned char *got, const unsigned char *want,
                              size_t nbytes)
{
    choir_type real = type == CHOIR_COMPLEX64    ? CHOIR_F32
                      : type == CHOIR_COMPLEX128 ? CHOIR_F64
                                                 : type;
    size_t size = choir_type_size(real);

    for (size_t i = 0; i < nbytes; i += size) {
        uint64_t g = 0, w = 0;

        if (memcmp(got + i, want + i, size) == 0 ||
            (check_is_nan(real, got + i) && check_is_nan(real, want + i)))
            continue;
        memcpy(&g, got + i, size);
        memcpy(&w, want + i, size);
        CHOIR_FAIL("element %zu of %zu is 0x%llx, the reference says 0x%llx", i / size,
                   nbytes / size, (unsigned long long)g, (unsigned long long)w);
    }
}

/* --- one call, both ways ------------------------------------------------------------------------ */

struct check_case {
    choir_type type;
    choir_redop op;
    size_t nsrcs, ndsts, count;
    int in_place; /* which source is also the first destination; -1 for none */
};

static inline void check_call(const struct ch_kernels *k, const struct check_case *c,
                              struct choir_test_random *rnd)
{
    static struct check_buffer src[CHECK_MAX_SRCS], dst[CHECK_MAX_DSTS];
    static unsigned char before[CHECK_MAX_SRCS][CHECK_MAX_BYTES], want[CHECK_MAX_BYTES];
    static const double some_factors[] = { 1.0, 0.5,  -0.0,  1.0 / 3.0, 1e-40,
                                           3.0, -2.5, 1e300, INFINITY };
    static const size_t some_divisors[] = { 1, 2, 3, 7, 200, 40000, 1 << 20, SIZE_MAX };
    const size_t nbytes = c->count * choir_type_size(c->type);
    const void *srcs[CHECK_MAX_SRCS], *olds[CHECK_MAX_SRCS];
    double factors[CHECK_MAX_SRCS];
    void *dsts[CHECK_MAX_DSTS], *want_at = want;
    struct ch_reduction r = { c->type, c->op, c->nsrcs, factors };

    CHOIR_ROW("%s %s %s, sources %zu, destinations %zu, count %zu, in place %d", k->name,
              choir_type_name(c->type), choir_redop_name(c->op), c->nsrcs, c->ndsts, c->count,
              c->in_place);
    if (choir_test_random(rnd) % 2 == 0)
        r.divisor = some_divisors[choir_test_random(rnd) % CH_ARRAY_LEN(some_divisors)];
    for (size_t s = 0; s < c->nsrcs; s++) {
        size_t shift = choir_test_random(rnd) % CHECK_MAX_SHIFT;
        unsigned char *p = check_start(&src[s], shift, nbytes);

        check_fill_random(p, c->type, nbytes, rnd);
        memcpy(before[s], p, nbytes);
        srcs[s] = p;
        olds[s] = before[s];
        factors[s] = some_factors[choir_test_random(rnd) % CH_ARRAY_LEN(some_factors)];
        if (choir_test_random(rnd) % 64 == 0)
            memcpy(&factors[s], &(uint64_t){ UINT64_C(0x7fffffffffffffff) }, 8); /* NaN, all ones */
    }
    for (size_t d = 0; d < c->ndsts; d++)
        dsts[d] = check_start(&dst[d], choir_test_random(rnd) % CHECK_MAX_SHIFT, nbytes);
    if (c->in_place >= 0)
        dsts[0] = src[c->in_place].space + src[c->in_place].start;

    ch_kernels_scalar.reduce[c->type][c->op](&r, &want_at, 1, olds, c->nsrcs, c->count);
    k->reduce[c->type][c->op](&r, dsts, c->ndsts, srcs, c->nsrcs, c->count);

    for (size_t d = 0; d < c->ndsts; d++) {
        check_same(c->type, dsts[d], want, nbytes);
        check_canaries(&dst[d], "destination");
    }
    for (size_t s = 0; s < c->nsrcs; s++) {
        check_canaries(&src[s], "source");
        if ((int)s != c->in_place)
            CHOIR_CHECK(memcmp(srcs[s], before[s], nbytes) == 0);
    }
}

/* Every pair of type and reduction, 1 to 9 sources, counts around the widths of vectors and loops. */
static inline void check_reduce(const struct ch_kernels *k)
{
    static const size_t counts[] = { 0,  1,  2,  3,  4,  5,  7,  8,   9,   13,  15,  16,  17, 23,
                                     31, 32, 33, 47, 63, 64, 65, 100, 127, 129, 255, 257, 511 };
    struct choir_test_random rnd = { 20240607 };
    unsigned slowness = choir_test_slowness();

    for (int type = 0; type < CHOIR_NTYPES; type++) {
        for (int op = 0; op < CHOIR_NREDOPS; op++) {
            CHOIR_ROW("%s %s %s", k->name, choir_type_name((choir_type)type),
                      choir_redop_name((choir_redop)op));
            CHOIR_CHECK_EQ(k->reduce[type][op] != NULL,
                           choir_redop_check((choir_redop)op, (choir_type)type) == CHOIR_OK);
            if (k->reduce[type][op] == NULL)
                continue;
            for (size_t nsrcs = 1; nsrcs <= CHECK_MAX_SRCS; nsrcs++) {
                for (size_t i = choir_test_random(&rnd) % slowness; i < CH_ARRAY_LEN(counts);
                     i += slowness) {
                    uint64_t x = choir_test_random(&rnd);
                    struct check_case c = {
                        (choir_type)type,       (choir_redop)op, nsrcs,
                        1 + x % CHECK_MAX_DSTS, counts[i],       (int)((x >> 8) % (2 * nsrcs))
                    };

                    if (nsrcs == 2 && (x >> 16) % 2 == 0)
                        c.ndsts = 1; /* the fast lane */
                    if (c.in_place >= (int)nsrcs)
                        c.in_place = -1;
                    check_call(k, &c, &rnd);
                }
            }
        }
    }
}

/* Every code of the narrow floats, alone and with others: conversion both ways, all roundings. */
static inline void check_all_codes(const struct ch_kernels *k)
{
    static const choir_type narrow[] = { CHOIR_F8E4M3, CHOIR_F8E5M2, CHOIR_F16, CHOIR_BF16 };
    static uint16_t a[65536], b[65536], got[65536], want[65536];
    struct choir_test_random rnd = { 5 };

    for (size_t t = 0; t < CH_ARRAY_LEN(narrow); t++) {
        size_t count = 65536 / choir_test_slowness();

        for (size_t i = 0; i < 65536; i++) {
            a[i] = (uint16_t)i;
            b[i] = (uint16_t)choir_test_random(&rnd);
        }
        if (choir_type_size(narrow[t]) == 1) { /* the pairs (x, y), all of them */
            for (size_t i = 0; i < 65536; i++) {
                ((uint8_t *)a)[i] = (uint8_t)i;
                ((uint8_t *)b)[i] = (uint8_t)(i >> 8);
            }
        }
        for (int op = 0; op < CHOIR_NREDOPS; op++) {
            const void *srcs[] = { a, b };
            const double factors[] = { 1.0, -0x1.8p-3 };
            struct ch_reduction r = { narrow[t], (choir_redop)op, 3, factors };
            void *got_at = got, *want_at = want;

            if (k->reduce[narrow[t]][op] == NULL)
                continue;
            for (size_t nsrcs = 1; nsrcs <= 2; nsrcs++) {
                CHOIR_ROW("%s %s %s, all codes, sources %zu", k->name, choir_type_name(narrow[t]),
                          choir_redop_name((choir_redop)op), nsrcs);
                ch_kernels_scalar.reduce[narrow[t]][op](&r, &want_at, 1, srcs, nsrcs, count);
                k->reduce[narrow[t]][op](&r, &got_at, 1, srcs, nsrcs, count);
                check_same(narrow[t], (unsigned char *)got, (unsigned char *)want,
                           count * choir_type_size(narrow[t]));
            }
        }
    }
}

/* --- copy and fill -------------------------------------------------------------------------------- */

static inline void check_copies(const struct ch_kernels *k)
{
    static struct check_buffer src, dst;
    struct choir_test_random rnd = { 77 };

    for (size_t nbytes = 0; nbytes <= CHECK_MAX_BYTES;
         nbytes += nbytes < 600 ? choir_test_slowness() : 511) {
        for (int past_cache = 0; past_cache < 2; past_cache++) {
            unsigned char *s = check_start(&src, choir_test_random(&rnd) % CHECK_MAX_SHIFT, nbytes);
            unsigned char *d = check_start(&dst, choir_test_random(&rnd) % CHECK_MAX_SHIFT, nbytes);

            CHOIR_ROW("%s copy%s of %zu bytes", k->name, past_cache ? " past the cache" : "",
                      nbytes);
            check_fill_random(s, CHOIR_U8, nbytes, &rnd);
            (past_cache ? k->copy_nt : k->copy)(d, s, nbytes);
            CHOIR_CHECK(memcmp(d, s, nbytes) == 0);
            check_canaries(&src, "source");
            check_canaries(&dst, "destination");
        }
    }
}

static inline void check_fills(const struct ch_kernels *k)
{
    static struct check_buffer dst;
    static const unsigned char element[] = "0123456789abcdef";
    struct choir_test_random rnd = { 78 };

    for (size_t size = 1; size <= 16; size *= 2) {
        for (size_t count = 0; count <= 300; count += choir_test_slowness()) {
            unsigned char *d = check_start(&dst, choir_test_random(&rnd) % CHECK_MAX_SHIFT,
                                           size * count);

            CHOIR_ROW("%s fill of %zu elements of %zu bytes", k->name, count, size);
            k->fill(d, element, size, count);
            for (size_t i = 0; i < size * count; i++)
                CHOIR_CHECK_EQ(d[i], element[i % size]);
            check_canaries(&dst, "destination");
        }
    }
}

#endif
