/*
 * reduce_template.h - copy and reduce on vectors, for any instruction set.
 *
 * Included by one file for each instruction set (reduce_avx2.c, ...), compiled with its flags, which
 * defines VECTOR_BYTES first, supplies the few hooks that need intrinsics, and names the table. All
 * else is C on the compiler's vector extensions: the operators work on all lanes, a comparison gives
 * lanes of all ones or all zeros, a scalar operand goes to every lane.
 *
 * How to read it: vector_template.h has what is done with one vector; here reduce_blocks() is the loop
 * and walk() the way through a buffer. What takes `type` and `op` is always inlined with constants, so
 * that its switches melt away; PAIR() makes functions of each pair.
 *
 * The narrow floats need no shuffles. A vector of 32-bit lanes holds two (or four) of them in each
 * lane; shifting and masking moves those at even places into one f32 vector and those at odd places
 * into another, and or-ing puts the results back where they came from. Hence "parts": what one vector
 * of elements becomes while it is computed with.
 */
#include "kernel/vector_template.h"

/* How many vectors are under way at once: enough to hide the latency of memory and arithmetic, few
 * enough to stay in registers. Shared out among the parts. */
#define UNROLL 4

/* Below this size, aligning the destination costs more than it gains. */
#define ALIGN_BYTES 1024

/* From this size on, and so far ahead, the destination is asked for before it is written. The including
 * file may define PREFETCH_BYTES where that pays. */
#define PREFETCH_FROM (256 * 1024)
#ifndef PREFETCH_BYTES
#define PREFETCH_BYTES 0
#endif

/* --- copy and fill ------------------------------------------------------------------------------ */

/* Less than a vector, of which the commonest lengths go without a call. */
INLINE void copy_short(void *dst, const void *src, size_t nbytes)
{
    if (nbytes < 4)
        store_short(dst, nbytes, load_short(src, nbytes));
    else if (nbytes < 8)
        store_pieces(dst, nbytes, 4, load_pieces(src, nbytes, 4));
    else if (nbytes < 16)
        store_pieces(dst, nbytes, 8, load_pieces(src, nbytes, 8));
#if VECTOR_BYTES > 16
    else if (nbytes < 32)
        store_pieces(dst, nbytes, 16, load_pieces(src, nbytes, 16));
#endif
    else
        store_short(dst, nbytes, load_short(src, nbytes));
}

/*
 * Whole vectors to an aligned destination; the first and last, which are not, overlap their
 * neighbours. glibc's memcpy would turn to `rep movsb` at 2 KiB, which on Zen 3 is 5 to 13
 * times slower where the destination lies a few bytes further into its page than the source, as a
 * block of malloc's does (16 bytes) to which a page-aligned slot is copied.
 */
static void copy(void *dst, const void *src, size_t nbytes)
{
    vec first, last;
    size_t at;

    if (nbytes < VECTOR_BYTES) {
        copy_short(dst, src, nbytes);
        return;
    }
    first = load(src, 0);
    last = load(src, nbytes - VECTOR_BYTES);
    at = to_alignment(dst);
    for (; at + UNROLL * VECTOR_BYTES <= nbytes; at += UNROLL * VECTOR_BYTES) {
        vec v[UNROLL];

        for (int u = 0; u < UNROLL; u++)
            v[u] = load(src, at + u * VECTOR_BYTES);
        for (int u = 0; u < UNROLL; u++)
            store(dst, at + u * VECTOR_BYTES, v[u]);
    }
    for (; at + VECTOR_BYTES <= nbytes; at += VECTOR_BYTES)
        store(dst, at, load(src, at));
    store(dst, 0, first);
    store(dst, nbytes - VECTOR_BYTES, last);
}

static void copy_nt(void *dst, const void *src, size_t nbytes)
{
    size_t at;

    if (nbytes < VECTOR_BYTES) {
        store_short(dst, nbytes, load_short(src, nbytes));
        return;
    }
    /* Both ends with ordinary stores, but only where need be: a line that another processor has is waited for. */
    at = to_alignment(dst);
    if (at != 0)
        store(dst, 0, load(src, 0));
    for (; at + VECTOR_BYTES <= nbytes; at += VECTOR_BYTES)
        store_past_cache((char *)dst + at, load(src, at));
    end_stores_past_cache();
    if (at != nbytes)
        store(dst, nbytes - VECTOR_BYTES, load(src, nbytes - VECTOR_BYTES));
}

/* A vector is a whole number of elements, and so is the distance from the start to the last one. */
static void fill(void *dst, const void *element, size_t size, size_t count)
{
    size_t nbytes = size * count;
    char repeated[VECTOR_BYTES];
    vec v;

    for (size_t i = 0; i < VECTOR_BYTES; i += size)
        memcpy(repeated + i, element, size);
    v = load(repeated, 0);
    if (nbytes < VECTOR_BYTES) {
        store_short(dst, nbytes, v);
        return;
    }
    for (size_t at = 0; at + VECTOR_BYTES <= nbytes; at += VECTOR_BYTES)
        store(dst, at, v);
    store(dst, nbytes - VECTOR_BYTES, v);
}

/* --- from parts to vectors ------------------------------------------------------------------------ */

/* Add source `s`, of which there is a vector at `p`, to the parts. */
INLINE void take(choir_type type, choir_redop op, const struct ch_reduction *r, size_t s,
                 const void *p, vec *acc)
{
    enum lanes lanes = lanes_of(type);
    vec x[MAX_PARTS];

    decode(type, p, x);
    for (int k = 0; k < parts_of(type); k++) {
        if (op == CHOIR_PREMUL_SUM)
            x[k] = scale(lanes, x[k], r->factors[s]);
        acc[k] = s == 0 ? x[k] : combine(op, lanes, acc[k], x[k]);
    }
}

INLINE vec finish(choir_type type, choir_redop op, const struct ch_reduction *r, vec *acc)
{
    for (int k = 0; k < parts_of(type) && op == CHOIR_AVG; k++)
        acc[k] = divide(lanes_of(type), acc[k], r->divisor);
    return encode(type, acc);
}

/* One vector from `at` on, or, of buffers that have not even that, all their `nbytes`. */
INLINE vec reduce_vector(choir_type type, choir_redop op, const struct ch_reduction *r,
                         const void *const *srcs, size_t nsrcs, size_t at, size_t nbytes)
{
    vec acc[MAX_PARTS], filled;
    size_t s = 0;

    do {
        const void *p = (const char *)srcs[s] + at;

        if (nbytes < VECTOR_BYTES) {
            filled = load_short(p, nbytes);
            p = &filled;
        }
        take(type, op, r, s, p, acc);
    } while (++s < nsrcs);
    return finish(type, op, r, acc);
}

/* Long arithmetic gains nothing from several vectors at once; it would only be more code. */
INLINE int unroll_of(choir_type type, choir_redop op)
{
    bool is_float = lanes_of(type) == F32 || lanes_of(type) == F64;

    return op == CHOIR_AVG && !is_float ? 1 : UNROLL / parts_of(type);
}

/* Several vectors at once, as often as they fit; returns how far that went. */
INLINE size_t reduce_blocks(choir_type type, choir_redop op, const struct ch_reduction *r,
                            void *const *dsts, size_t ndsts, const void *const *srcs, size_t nsrcs,
                            size_t at, size_t nbytes)
{
    const int n = unroll_of(type, op);

    for (; n > 1 && at + n * VECTOR_BYTES <= nbytes; at += n * VECTOR_BYTES) {
        vec acc[UNROLL][MAX_PARTS];

        for (int u = 0; u < n; u++)
            take(type, op, r, 0, (const char *)srcs[0] + at + u * VECTOR_BYTES, acc[u]);
        for (size_t s = 1; s < nsrcs; s++)
            for (int u = 0; u < n; u++)
                take(type, op, r, s, (const char *)srcs[s] + at + u * VECTOR_BYTES, acc[u]);
        for (int u = 0; u < n; u++)
            acc[u][0] = finish(type, op, r, acc[u]);
        for (size_t d = 0; d < ndsts; d++)
            for (int u = 0; u < n; u++)
                store(dsts[d], at + u * VECTOR_BYTES, acc[u][0]);
    }
    return at;
}

/* --- one pair of type and reduction after the other ------------------------------------------------- */

/* reduce_vector() and reduce_blocks() for one pair. */
struct pair {
    size_t element_size;
    vec (*vector)(const struct ch_reduction *r, const void *const *srcs, size_t nsrcs, size_t at,
                  size_t nbytes);
    size_t (*blocks)(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                     const void *const *srcs, size_t nsrcs, size_t at, size_t nbytes);
};

enum {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) SIZE_##NAME = (nbytes),
#include <choir/types.def>
#undef CHOIR_TYPE
};

#define PAIR(TYPE, OP)                                                                             \
    static vec vector_##TYPE##_##OP(const struct ch_reduction *r, const void *const *srcs,         \
                                    size_t nsrcs, size_t at, size_t nbytes)                        \
    {                                                                                              \
        return reduce_vector(CHOIR_##TYPE, CHOIR_##OP, r, srcs, nsrcs, at, nbytes);                \
    }                                                                                              \
    static size_t blocks_##TYPE##_##OP(const struct ch_reduction *r, void *const *dsts,            \
                                       size_t ndsts, const void *const *srcs, size_t nsrcs,        \
                                       size_t at, size_t nbytes)                                   \
    {                                                                                              \
        return reduce_blocks(CHOIR_##TYPE, CHOIR_##OP, r, dsts, ndsts, srcs, nsrcs, at, nbytes);   \
    }                                                                                              \
    static const struct pair TYPE##_##OP = { SIZE_##TYPE, vector_##TYPE##_##OP,                    \
                                             blocks_##TYPE##_##OP };

/* Sums and products do not know a sign; bitwise operations, for which see U8, not even a width. */
#define ORDER_PAIRS(TYPE) PAIR(TYPE, AVG) PAIR(TYPE, MIN) PAIR(TYPE, MAX)
#define SUM_PAIRS(TYPE)   PAIR(TYPE, SUM) PAIR(TYPE, PRODUCT)
#define BIT_PAIRS(TYPE)   PAIR(TYPE, BAND) PAIR(TYPE, BOR) PAIR(TYPE, BXOR)
#define INT_PAIRS(U, I)   SUM_PAIRS(U) ORDER_PAIRS(U) ORDER_PAIRS(I)
#define FLOAT_PAIRS(TYPE) SUM_PAIRS(TYPE) ORDER_PAIRS(TYPE) PAIR(TYPE, PREMUL_SUM)

INT_PAIRS(U8, I8)
INT_PAIRS(U16, I16)
INT_PAIRS(U32, I32)
INT_PAIRS(U64, I64)
BIT_PAIRS(U8)
BIT_PAIRS(BOOL)
FLOAT_PAIRS(F16)
FLOAT_PAIRS(BF16)
FLOAT_PAIRS(F8E4M3)
FLOAT_PAIRS(F8E5M2)
FLOAT_PAIRS(F32)
FLOAT_PAIRS(F64)

#define INT_ROW(U, TYPE)                                                                           \
    {                                                                                              \
        [CHOIR_SUM] = &U##_SUM, [CHOIR_PRODUCT] = &U##_PRODUCT, [CHOIR_AVG] = &TYPE##_AVG,         \
        [CHOIR_MIN] = &TYPE##_MIN, [CHOIR_MAX] = &TYPE##_MAX, [CHOIR_BAND] = &U8_BAND,             \
        [CHOIR_BOR] = &U8_BOR, [CHOIR_BXOR] = &U8_BXOR                                             \
    }
#define FLOAT_ROW(TYPE)                                                                            \
    {                                                                                              \
        [CHOIR_SUM] = &TYPE##_SUM, [CHOIR_PRODUCT] = &TYPE##_PRODUCT, [CHOIR_AVG] = &TYPE##_AVG,   \
        [CHOIR_MIN] = &TYPE##_MIN, [CHOIR_MAX] = &TYPE##_MAX,                                      \
        [CHOIR_PREMUL_SUM] = &TYPE##_PREMUL_SUM                                                    \
    }
#define COMPLEX_ROW(REAL)                                                                          \
    {                                                                                              \
        [CHOIR_SUM] = &REAL##_SUM, [CHOIR_AVG] = &REAL##_AVG,                                      \
        [CHOIR_PREMUL_SUM] = &REAL##_PREMUL_SUM                                                    \
    }

static const struct pair *const pairs[CHOIR_NTYPES][CHOIR_NREDOPS] = {
    [CHOIR_U8] = INT_ROW(U8, U8),
    [CHOIR_I8] = INT_ROW(U8, I8),
    [CHOIR_U16] = INT_ROW(U16, U16),
    [CHOIR_I16] = INT_ROW(U16, I16),
    [CHOIR_U32] = INT_ROW(U32, U32),
    [CHOIR_I32] = INT_ROW(U32, I32),
    [CHOIR_U64] = INT_ROW(U64, U64),
    [CHOIR_I64] = INT_ROW(U64, I64),
    [CHOIR_F16] = FLOAT_ROW(F16),
    [CHOIR_BF16] = FLOAT_ROW(BF16),
    [CHOIR_F8E4M3] = FLOAT_ROW(F8E4M3),
    [CHOIR_F8E5M2] = FLOAT_ROW(F8E5M2),
    [CHOIR_F32] = FLOAT_ROW(F32),
    [CHOIR_F64] = FLOAT_ROW(F64),
    [CHOIR_COMPLEX64] = COMPLEX_ROW(F32),
    [CHOIR_COMPLEX128] = COMPLEX_ROW(F64),
    [CHOIR_BOOL] = { [CHOIR_SUM] = &BOOL_BOR,
                     [CHOIR_MAX] = &BOOL_BOR,
                     [CHOIR_BOR] = &BOOL_BOR,
                     [CHOIR_PRODUCT] = &BOOL_BAND,
                     [CHOIR_MIN] = &BOOL_BAND,
                     [CHOIR_BAND] = &BOOL_BAND,
                     [CHOIR_BXOR] = &BOOL_BXOR },
};

/* --- the way through a buffer ----------------------------------------------------------------------- */

INLINE void store_all(void *const *dsts, size_t ndsts, size_t at, vec v)
{
    for (size_t d = 0; d < ndsts; d++)
        store(dsts[d], at, v);
}

/*
 * At least a vector. What does not fill a vector at the front (where the destination is not aligned)
 * and at the end is covered by a vector that overlaps its neighbour. Those two are computed before
 * anything is stored and stored after everything else, since a destination may be a source.
 */
INLINE void walk(const struct pair *pair, const struct ch_reduction *r, void *const *dsts,
                 size_t ndsts, const void *const *srcs, size_t nsrcs, size_t nbytes)
{
    size_t skip = nbytes >= ALIGN_BYTES ? to_alignment(dsts[0]) : 0;
    vec first = { 0 }, last = { 0 };
    size_t at;
    bool rest;

    if (skip % pair->element_size != 0)
        skip = 0; /* not even the elements are aligned */
    rest = (nbytes - skip) % VECTOR_BYTES != 0;
    if (skip != 0)
        first = pair->vector(r, srcs, nsrcs, 0, nbytes);
    if (rest)
        last = pair->vector(r, srcs, nsrcs, nbytes - VECTOR_BYTES, nbytes);

    at = pair->blocks(r, dsts, ndsts, srcs, nsrcs, skip, nbytes);
    for (; at + VECTOR_BYTES <= nbytes; at += VECTOR_BYTES)
        store_all(dsts, ndsts, at, pair->vector(r, srcs, nsrcs, at, nbytes));

    if (skip != 0)
        store_all(dsts, ndsts, 0, first);
    if (rest)
        store_all(dsts, ndsts, nbytes - VECTOR_BYTES, last);
}

/* Any pair, any number of sources and bytes. */
CH_NOINLINE static void reduce_any(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                                   const void *const *srcs, size_t nsrcs, size_t count)
{
    const struct pair *pair = pairs[r->type][r->op];
    size_t nbytes = count * ch_type_bytes[r->type];

    if (nbytes < VECTOR_BYTES) {
        vec v = pair->vector(r, srcs, nsrcs, 0, nbytes);

        for (size_t d = 0; d < ndsts; d++)
            store_short(dsts[d], nbytes, v);
        return;
    }
    walk(pair, r, dsts, ndsts, srcs, nsrcs, nbytes);
}

/* Two sources into one destination: `n` vectors from `at` on, n a constant. */
INLINE void two_at(choir_type type, choir_redop op, const struct ch_reduction *r, const char *src0,
                   const char *src1, size_t at, int n, vec *result)
{
    for (int u = 0; u < n; u++) {
        vec acc[MAX_PARTS];

        take(type, op, r, 0, src0 + at + u * VECTOR_BYTES, acc);
        take(type, op, r, 1, src1 + at + u * VECTOR_BYTES, acc);
        result[u] = finish(type, op, r, acc);
    }
}

INLINE void store_at(void *dst, size_t at, int n, const vec *v)
{
    for (int u = 0; u < n; u++)
        store(dst, at + u * VECTOR_BYTES, v[u]);
}

/* Each vector is stored before the next is loaded: in first-level cache a tenth faster on Zen 3 than
 * all loads first. */
INLINE void two_step(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                     const char *src0, const char *src1, size_t at, int n)
{
    for (int u = 0; u < n; u++, at += VECTOR_BYTES) {
        vec v;

        two_at(type, op, r, src0, src1, at, 1, &v);
        store(dst, at, v);
    }
}

/* `n` vectors at the start and `n` at the end, which may overlap: those at the end are computed before
 * any is stored, since the destination may be a source. */
INLINE void two_ends(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                     const char *src0, const char *src1, size_t nbytes, int n)
{
    size_t end = nbytes - n * VECTOR_BYTES;
    vec last[UNROLL];

    two_at(type, op, r, src0, src1, end, n, last);
    two_step(type, op, r, dst, src0, src1, 0, n);
    store_at(dst, end, n, last);
}

/* More than a block of `n` vectors: what walk() does, but the last one is a whole block. */
INLINE void two_blocks(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                       const char *src0, const char *src1, size_t nbytes, int n, size_t skip)
{
    const size_t block = n * VECTOR_BYTES;
    vec first = { 0 }, last[UNROLL];
    size_t at = skip;

    if (skip != 0)
        two_at(type, op, r, src0, src1, 0, 1, &first);
    two_at(type, op, r, src0, src1, nbytes - block, n, last);
    if (PREFETCH_BYTES > 0 && nbytes >= PREFETCH_FROM) {
        for (; at + block + PREFETCH_BYTES < nbytes; at += block) {
            for (size_t line = 0; line < block; line += 64)
                __builtin_prefetch((char *)dst + at + PREFETCH_BYTES + line, 1);
            two_step(type, op, r, dst, src0, src1, at, n);
        }
    }
    for (; at + block < nbytes; at += block)
        two_step(type, op, r, dst, src0, src1, at, n);
    if (skip != 0)
        store(dst, 0, first);
    store_at(dst, nbytes - block, n, last);
}

/* The commonest call, with as few branches as can be. */
INLINE void reduce_two(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                       const void *src0, const void *src1, size_t nbytes, size_t element_size)
{
    const int n = UNROLL / parts_of(type);
    const struct ch_reduction copied = *r; /* which no store can change */
    size_t skip = 0;

    if (nbytes <= 2 * VECTOR_BYTES) {
        two_ends(type, op, &copied, dst, src0, src1, nbytes, 1);
    } else if (nbytes <= (size_t)n * VECTOR_BYTES) {
        two_ends(type, op, &copied, dst, src0, src1, nbytes, n / 2);
    } else if (nbytes <= (size_t)2 * n * VECTOR_BYTES) {
        two_ends(type, op, &copied, dst, src0, src1, nbytes, n);
    } else {
        if (nbytes >= ALIGN_BYTES && to_alignment(dst) % element_size == 0)
            skip = to_alignment(dst);
        two_blocks(type, op, &copied, dst, src0, src1, nbytes, n, skip);
    }
}

/* Less than a vector, of which `piece` (load_pieces()) is the half or more. */
INLINE void reduce_pieces(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                          const void *const *srcs, size_t nsrcs, size_t nbytes, int piece)
{
    vec acc[MAX_PARTS], x = load_pieces(srcs[0], nbytes, piece);

    take(type, op, r, 0, &x, acc);
    for (size_t s = 1; s < nsrcs; s++) {
        x = load_pieces(srcs[s], nbytes, piece);
        take(type, op, r, s, &x, acc);
    }
    store_pieces(dst, nbytes, piece, finish(type, op, r, acc));
}

/* Into one destination, without a call; false for lengths that are left to reduce_any(). */
INLINE bool reduce_short(choir_type type, choir_redop op, const struct ch_reduction *r, void *dst,
                         const void *const *srcs, size_t nsrcs, size_t nbytes)
{
    if (nbytes < 4)
        return false;
    if (nbytes < 8)
        reduce_pieces(type, op, r, dst, srcs, nsrcs, nbytes, 4);
    else if (nbytes < 16)
        reduce_pieces(type, op, r, dst, srcs, nsrcs, nbytes, 8);
#if VECTOR_BYTES > 16
    else if (nbytes < 32)
        reduce_pieces(type, op, r, dst, srcs, nsrcs, nbytes, 16);
#endif
#if VECTOR_BYTES > 32
    else if (nbytes < 64)
        reduce_pieces(type, op, r, dst, srcs, nsrcs, nbytes, 32);
#endif
    else
        return false;
    return true;
}

/* Fast lanes for these two. */
#define FAST(TYPE, OP)                                                                             \
    static void fast_##TYPE##_##OP(const struct ch_reduction *r, void *const *dsts, size_t ndsts,  \
                                   const void *const *srcs, size_t nsrcs, size_t count)            \
    {                                                                                              \
        size_t nbytes = count * SIZE_##TYPE;                                                       \
                                                                                                   \
        if (CH_UNLIKELY(ndsts != 1))                                                               \
            reduce_any(r, dsts, ndsts, srcs, nsrcs, count);                                        \
        else if (nsrcs == 2 && nbytes >= VECTOR_BYTES)                                             \
            reduce_two(CHOIR_##TYPE, CHOIR_##OP, r, dsts[0], srcs[0], srcs[1], nbytes,             \
                       SIZE_##TYPE);                                                               \
        else if (!reduce_short(CHOIR_##TYPE, CHOIR_##OP, r, dsts[0], srcs, nsrcs, nbytes))         \
            reduce_any(r, dsts, ndsts, srcs, nsrcs, count);                                        \
    }

FAST(U8, SUM)
FAST(U16, SUM)
FAST(U32, SUM)
FAST(U64, SUM)
FAST(F16, SUM)
FAST(F16, AVG)
FAST(BF16, SUM)
FAST(BF16, AVG)
FAST(F32, SUM)
FAST(F32, AVG)
FAST(F64, SUM)
FAST(F64, AVG)
FAST(COMPLEX64, SUM)
FAST(COMPLEX128, SUM)

/* --- the table of the variant, for the including file's struct ch_kernels ----------------------------- */

#define BITS [CHOIR_BAND] = reduce_any, [CHOIR_BOR] = reduce_any, [CHOIR_BXOR] = reduce_any
#define REAL [CHOIR_PRODUCT] = reduce_any, [CHOIR_MIN] = reduce_any, [CHOIR_MAX] = reduce_any
#define INT_FNS(U)                                                                                 \
    {                                                                                              \
        REAL, BITS, [CHOIR_SUM] = fast_##U##_SUM, [CHOIR_AVG] = reduce_any                         \
    }
#define FLOAT_FNS(TYPE)                                                                            \
    {                                                                                              \
        REAL, [CHOIR_SUM] = fast_##TYPE##_SUM, [CHOIR_AVG] = fast_##TYPE##_AVG,                    \
              [CHOIR_PREMUL_SUM] = reduce_any                                                      \
    }
#define F8_FNS                                                                                     \
    {                                                                                              \
        REAL, [CHOIR_SUM] = reduce_any, [CHOIR_AVG] = reduce_any, [CHOIR_PREMUL_SUM] = reduce_any  \
    }
#define COMPLEX_FNS(TYPE)                                                                          \
    {                                                                                              \
        [CHOIR_SUM] = fast_##TYPE##_SUM, [CHOIR_AVG] = reduce_any, [CHOIR_PREMUL_SUM] = reduce_any \
    }
#define BOOL_FNS                                                                                   \
    {                                                                                              \
        REAL, BITS, [CHOIR_SUM] = reduce_any                                                       \
    }

#define TEMPLATE_TABLE                                                                             \
    .reduce = { [CHOIR_U8] = INT_FNS(U8),                                                          \
                [CHOIR_I8] = INT_FNS(U8),                                                          \
                [CHOIR_U16] = INT_FNS(U16),                                                        \
                [CHOIR_I16] = INT_FNS(U16),                                                        \
                [CHOIR_U32] = INT_FNS(U32),                                                        \
                [CHOIR_I32] = INT_FNS(U32),                                                        \
                [CHOIR_U64] = INT_FNS(U64),                                                        \
                [CHOIR_I64] = INT_FNS(U64),                                                        \
                [CHOIR_F16] = FLOAT_FNS(F16),                                                      \
                [CHOIR_BF16] = FLOAT_FNS(BF16),                                                    \
                [CHOIR_F8E4M3] = F8_FNS,                                                           \
                [CHOIR_F8E5M2] = F8_FNS,                                                           \
                [CHOIR_F32] = FLOAT_FNS(F32),                                                      \
                [CHOIR_F64] = FLOAT_FNS(F64),                                                      \
                [CHOIR_COMPLEX64] = COMPLEX_FNS(COMPLEX64),                                        \
                [CHOIR_COMPLEX128] = COMPLEX_FNS(COMPLEX128),                                      \
                [CHOIR_BOOL] = BOOL_FNS },                                                         \
    .copy = copy, .copy_nt = copy_nt, .fill = fill
