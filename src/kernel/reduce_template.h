/*
 * reduce_template.h - copy and reduce on vectors, for any instruction set.
 *
 * Included by one file for each instruction set (reduce_avx2.c, ...), compiled with its flags, which
 * defines VECTOR_BYTES first, supplies the few hooks that need intrinsics, and names the table. All
 * else is C on the compiler's vector extensions: the operators work on all lanes, a comparison gives
 * lanes of all ones or all zeros, a scalar operand goes to every lane.
 *
 * How to read it: reduce_blocks() is the loop, walk() the way through a buffer. What takes `type` and
 * `op` is always inlined with constants, so that its switches melt away; PAIR() makes functions of
 * each pair.
 *
 * The narrow floats need no shuffles. A vector of 32-bit lanes holds two (or four) of them in each
 * lane; shifting and masking moves those at even places into one f32 vector and those at odd places
 * into another, and or-ing puts the results back where they came from. Hence "parts": what one vector
 * of elements becomes while it is computed with.
 */
#ifndef VECTOR_BYTES
#error "define VECTOR_BYTES, the width of a vector of this instruction set"
#endif

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "kernel/kernel.h"

#define INLINE static CH_ALWAYS_INLINE
#define VECTOR __attribute__((vector_size(VECTOR_BYTES)))

/* How many vectors are under way at once: enough to hide the latency of memory and arithmetic, few
 * enough to stay in registers. Shared out among the parts. */
#define UNROLL    4
#define MAX_PARTS 4

/* Below this size, aligning the destination costs more than it gains. */
#define ALIGN_BYTES 1024

/* From this size on, and so far ahead, the destination is asked for before it is written. The including
 * file may define PREFETCH_BYTES where that pays. */
#define PREFETCH_FROM (256 * 1024)
#ifndef PREFETCH_BYTES
#define PREFETCH_BYTES 0
#endif

typedef uint8_t vu8 VECTOR;
typedef int8_t vi8 VECTOR;
typedef uint16_t vu16 VECTOR;
typedef int16_t vi16 VECTOR;
typedef uint32_t vu32 VECTOR;
typedef int32_t vi32 VECTOR;
typedef uint64_t vu64 VECTOR;
typedef int64_t vi64 VECTOR;
typedef float vf32 VECTOR;
typedef double vf64 VECTOR;

/* A vector of anything, and the same where it may lie in memory: at any address, of any type. */
typedef vu32 vec;
typedef vu32 vec_anywhere __attribute__((aligned(1), may_alias));

/* The hooks: what the including file defines with intrinsics. */

/* A vector of f16 into two of f32, in any order, and back in the same order, to nearest even. f16 has
 * too few exponent bits for plain shifts, and every CPU has instructions for it. */
INLINE void f16_to_f32(const void *p, vec *part);
INLINE vec f16_from_f32(const vec *part);

/* The vector at `p`, the lower halves of its lanes moved up and zeros behind them. */
INLINE vec load_shifted_up(const void *p);

/* The lower halves of the lanes of one, the upper halves of the lanes of the other. */
INLINE vec merge_halves(vec low, vec high);

/* 16-bit lanes: `high`, with bit 0 cleared where `low` is zero. */
INLINE vec even_if_tie(vec high, vec low);

/* Store to an aligned place without keeping it in cache; order such stores before what comes next. */
INLINE void store_past_cache(void *p, vec v);
INLINE void end_stores_past_cache(void);

/* --- memory ------------------------------------------------------------------------------------- */

INLINE vec load(const void *buffer, size_t offset)
{
    return *(const vec_anywhere *)((const char *)buffer + offset);
}

INLINE void store(void *buffer, size_t offset, vec v)
{
    *(vec_anywhere *)((char *)buffer + offset) = v;
}

INLINE uint64_t load_word(const char *p, size_t size)
{
    uint64_t word = 0;

    memcpy(&word, p, size);
    return word;
}

/*
 * Less than a vector is loaded as two pieces that may overlap: the first and the last 2^k bytes, side
 * by side. Elements do not look at their neighbours, so one that is there twice is merely computed
 * twice. No byte outside the buffer is touched, and no loop over single elements is needed.
 */
CH_NOINLINE static vec load_short(const void *buffer, size_t nbytes)
{
    const char *p = buffer, *end = p + nbytes;
    vu64 v = { 0 };

#if VECTOR_BYTES > 32
    if (nbytes >= 32) {
        for (int i = 0; i < 4; i++) {
            v[i] = load_word(p + 8 * i, 8);
            v[4 + i] = load_word(end - 32 + 8 * i, 8);
        }
        return (vec)v;
    }
#endif
#if VECTOR_BYTES > 16
    if (nbytes >= 16) {
        for (int i = 0; i < 2; i++) {
            v[i] = load_word(p + 8 * i, 8);
            v[2 + i] = load_word(end - 16 + 8 * i, 8);
        }
        return (vec)v;
    }
#endif
    if (nbytes >= 8) {
        v[0] = load_word(p, 8);
        v[1] = load_word(end - 8, 8);
    } else if (nbytes >= 4) {
        v[0] = load_word(p, 4) | load_word(end - 4, 4) << 32;
    } else if (nbytes >= 2) {
        v[0] = load_word(p, 2) | load_word(end - 2, 2) << 16;
    } else if (nbytes == 1) {
        v[0] = load_word(p, 1);
    }
    return (vec)v;
}

/* The way back of load_short(). */
CH_NOINLINE static void store_short(void *buffer, size_t nbytes, vec from)
{
    char *p = buffer, *end = p + nbytes;
    vu64 v = (vu64)from;
    uint64_t word = v[0];

#if VECTOR_BYTES > 32
    if (nbytes >= 32) {
        memcpy(p, &from, 32);
        memcpy(end - 32, (const char *)&from + 32, 32);
        return;
    }
#endif
#if VECTOR_BYTES > 16
    if (nbytes >= 16) {
        memcpy(p, &from, 16);
        memcpy(end - 16, (const char *)&from + 16, 16);
        return;
    }
#endif
    if (nbytes >= 8) {
        memcpy(p, &word, 8);
        word = v[1];
        memcpy(end - 8, &word, 8);
    } else if (nbytes >= 4) {
        memcpy(p, &word, 4);
        word >>= 32;
        memcpy(end - 4, &word, 4);
    } else if (nbytes >= 2) {
        memcpy(p, &word, 2);
        word >>= 16;
        memcpy(end - 2, &word, 2);
    } else if (nbytes == 1) {
        memcpy(p, &word, 1);
    }
}

/* How far from `p` to the next place that is aligned to a vector. */
INLINE size_t to_alignment(const void *p)
{
    return (0 - (uintptr_t)p) % VECTOR_BYTES;
}

/* --- copy and fill ------------------------------------------------------------------------------ */

/*
 * Whole vectors to an aligned destination; the first and last, which are not, overlap their
 * neighbours. glibc's memcpy would turn to `rep movsb` at 2 KiB, which on some CPUs (Zen 3) is three
 * times slower when another core has just written the source.
 */
static void copy(void *dst, const void *src, size_t nbytes)
{
    vec first, last;
    size_t at;

    if (nbytes < VECTOR_BYTES) {
        store_short(dst, nbytes, load_short(src, nbytes));
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
    store(dst, 0, load(src, 0));
    for (at = to_alignment(dst); at + VECTOR_BYTES <= nbytes; at += VECTOR_BYTES)
        store_past_cache((char *)dst + at, load(src, at));
    end_stores_past_cache();
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

/* --- 8-bit floats ------------------------------------------------------------------------------- */

/* Per lane: a where the mask is ones, b where it is zeros. */
INLINE vec blend(vec mask, vec a, vec b)
{
    return (a & mask) | (b & ~mask);
}

#define F32_INFINITY 0x7f800000U
#define F32_QUIET    0x7fc00000U
#define F64_QUIET    UINT64_C(0x7ff8000000000000)
#define F32_ONE_BITS (127U << 23)

/* f32's bits of 2^n */
#define POWER(n) (F32_ONE_BITS + ((uint32_t)(n) << 23))

struct f8 {
    int mantissa, bias;
    uint32_t largest, overflow; /* codes without sign: the largest number, what lies above it */
    uint32_t special;           /* from here on: infinity and NaN */
};

static const struct f8 e4m3 = { 3, 7, 0x7e, 0x7f, 0x7f };
static const struct f8 e5m2 = { 2, 15, 0x7b, 0x7c, 0x7c };

/*
 * The code is the low byte of each lane; the others are not looked at. A number below the normal
 * ones is given the exponent of the lowest normal one and then loses the leading bit that this
 * implies, by subtraction: exact, and without f32's own subnormals, which are slow on some CPUs and
 * zero to a thread that flushes them.
 */
INLINE vec f8_to_f32(struct f8 f, vec code)
{
    vec magnitude = code & 0x7f;
    vec sign = (code << 24) & 0x80000000U;
    vec tiny = (vec)((vi32)magnitude < (1 << f.mantissa));
    vec special = (vec)((vi32)magnitude >= (int)f.special);
    vec bits = (magnitude << (23 - f.mantissa)) + ((127U - f.bias) << 23) + (tiny & (1U << 23));

    bits = (vec)((vf32)bits - (vf32)(tiny & POWER(1 - f.bias)));
    return bits | (special & F32_INFINITY) | sign;
}

/* The result is the low byte of each lane, the rest is zero. To nearest even, straight from f32. */
INLINE vec f8_from_f32(struct f8 f, vec x)
{
    int shift = 23 - f.mantissa;
    vec magnitude = x & 0x7fffffff;
    vec odd = (magnitude >> shift) & 1;
    vec normal = ((magnitude + ((1U << (shift - 1)) - 1) + odd) >> shift) -
                 ((127U - f.bias) << f.mantissa);
    /* Added to this power of two, a tiny number is rounded where its last bit should be. */
    uint32_t power = POWER(24 - f.bias - f.mantissa);
    vec tiny = (vec)((vf32)magnitude + (vf32)(power + (vec){ 0 })) - power;
    vec is_tiny = (vec)((vi32)magnitude < (int)POWER(1 - f.bias));
    vec is_nan = (vec)((vi32)magnitude > (int)F32_INFINITY);
    vec code = blend(is_tiny, tiny, normal);

    code = blend((vec)((vi32)code > (int)f.largest), f.overflow + (vec){ 0 }, code);
    return code | (is_nan & 0x7f) | (x >> 31 << 7);
}

/* --- elements to parts and back ----------------------------------------------------------------- */

INLINE int parts_of(choir_type type)
{
    if (type == CHOIR_F8E4M3 || type == CHOIR_F8E5M2)
        return 4;
    return type == CHOIR_F16 || type == CHOIR_BF16 ? 2 : 1;
}

/* The vector at `p`. f16 is converted straight from memory: twice as fast on Zen 3 as from a
 * register, whose upper half must first be moved down. */
INLINE void decode(choir_type type, const void *p, vec *part)
{
    vec v = load(p, 0);

    switch (type) {
    case CHOIR_F16:
        f16_to_f32(p, part);
        break;
    case CHOIR_BF16:
        part[0] = load_shifted_up(p);
        part[1] = v & 0xffff0000U;
        break;
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
        for (int k = 0; k < 4; k++)
            part[k] = f8_to_f32(type == CHOIR_F8E4M3 ? e4m3 : e5m2, v >> (8 * k));
        break;
    case CHOIR_BOOL:
        part[0] = (vec)((vu8)v != 0);
        break;
    case CHOIR_U8:
    case CHOIR_I8:
    case CHOIR_U16:
    case CHOIR_I16:
    case CHOIR_U32:
    case CHOIR_I32:
    case CHOIR_U64:
    case CHOIR_I64:
    case CHOIR_F32:
    case CHOIR_F64:
    case CHOIR_COMPLEX64:
    case CHOIR_COMPLEX128:
        part[0] = v;
        break;
    }
}

/*
 * The upper halves of all lanes, to nearest even: half of the last place is added, and where nothing
 * was left below it, it was a tie, whose result is made even. A NaN needs no care: it came from a bf16
 * (or from the FPU, or scale()), so its lower half is zero and nothing is carried out of its payload.
 */
INLINE vec bf16_from_f32(vec even, vec odd)
{
    even += 0x8000;
    odd += 0x8000;
    return even_if_tie(merge_halves(even >> 16, odd), merge_halves(even, odd << 16));
}

INLINE vec encode(choir_type type, const vec *part)
{
    vec v;

    switch (type) {
    case CHOIR_F16:
        return f16_from_f32(part);
    case CHOIR_BF16:
        return bf16_from_f32(part[0], part[1]);
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
        v = (vec){ 0 };
        for (int k = 0; k < 4; k++)
            v |= f8_from_f32(type == CHOIR_F8E4M3 ? e4m3 : e5m2, part[k]) << (8 * k);
        return v;
    case CHOIR_BOOL:
        return part[0] & 0x01010101;
    case CHOIR_U8:
    case CHOIR_I8:
    case CHOIR_U16:
    case CHOIR_I16:
    case CHOIR_U32:
    case CHOIR_I32:
    case CHOIR_U64:
    case CHOIR_I64:
    case CHOIR_F32:
    case CHOIR_F64:
    case CHOIR_COMPLEX64:
    case CHOIR_COMPLEX128:
        break;
    }
    return part[0];
}

/* --- arithmetic on one part --------------------------------------------------------------------- */

/* What a part's lanes are. */
enum lanes { U8, I8, U16, I16, U32, I32, U64, I64, F32, F64 };

INLINE enum lanes lanes_of(choir_type type)
{
    switch (type) {
    case CHOIR_U8:
    case CHOIR_BOOL:
        return U8;
    case CHOIR_I8:
        return I8;
    case CHOIR_U16:
        return U16;
    case CHOIR_I16:
        return I16;
    case CHOIR_U32:
        return U32;
    case CHOIR_I32:
        return I32;
    case CHOIR_U64:
        return U64;
    case CHOIR_I64:
        return I64;
    case CHOIR_F16:
    case CHOIR_BF16:
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
    case CHOIR_F32:
    case CHOIR_COMPLEX64:
        return F32;
    case CHOIR_F64:
    case CHOIR_COMPLEX128:
        return F64;
    }
    return U8;
}

/* Signed sums and products are done unsigned: the same bits, and they may wrap. */
#define ON_LANES(expression)                                                                       \
    switch (lanes) {                                                                               \
    case U8:                                                                                       \
    case I8:                                                                                       \
        return expression(vu8);                                                                    \
    case U16:                                                                                      \
    case I16:                                                                                      \
        return expression(vu16);                                                                   \
    case U32:                                                                                      \
    case I32:                                                                                      \
        return expression(vu32);                                                                   \
    case U64:                                                                                      \
    case I64:                                                                                      \
        return expression(vu64);                                                                   \
    case F32:                                                                                      \
        return expression(vf32);                                                                   \
    case F64:                                                                                      \
        return expression(vf64);                                                                   \
    }

INLINE vec add(enum lanes lanes, vec a, vec b)
{
#define SUM(v) (vec)((v)a + (v)b)
    ON_LANES(SUM)
#undef SUM
    return a;
}

INLINE vec multiply(enum lanes lanes, vec a, vec b)
{
#define PRODUCT(v) (vec)((v)a * (v)b)
    ON_LANES(PRODUCT)
#undef PRODUCT
    return a;
}

/* Ones where a < b; zeros where either is NaN. */
INLINE vec less(enum lanes lanes, vec a, vec b)
{
    switch (lanes) {
    case U8:
        return (vec)((vu8)a < (vu8)b);
    case I8:
        return (vec)((vi8)a < (vi8)b);
    case U16:
        return (vec)((vu16)a < (vu16)b);
    case I16:
        return (vec)((vi16)a < (vi16)b);
    case U32:
        return (vec)((vu32)a < (vu32)b);
    case I32:
        return (vec)((vi32)a < (vi32)b);
    case U64:
        return (vec)((vu64)a < (vu64)b);
    case I64:
        return (vec)((vi64)a < (vi64)b);
    case F32:
        return (vec)((vf32)a < (vf32)b);
    case F64:
        return (vec)((vf64)a < (vf64)b);
    }
    return a;
}

/* A quiet NaN where a or b is one, zeros elsewhere. */
INLINE vec nan_of(enum lanes lanes, vec a, vec b)
{
    if (lanes == F32)
        return (vec)(((vf32)a != (vf32)a) | ((vf32)b != (vf32)b)) & F32_QUIET;
    return (vec)((vu64)(((vf64)a != (vf64)a) | ((vf64)b != (vf64)b)) & F64_QUIET);
}

/*
 * For floats both orders of asking are or-ed: they differ only where neither is less, that is, in
 * zeros, where or-ing finds a -0, and where there is a NaN, whose exponent of all ones stays.
 */
INLINE vec minimum(enum lanes lanes, vec a, vec b)
{
    if (lanes == F32 || lanes == F64)
        return blend(less(lanes, a, b), a, b) | blend(less(lanes, b, a), b, a);
    return blend(less(lanes, a, b), a, b);
}

/* As above, with `and`, which finds a +0; but it would make something else of two NaNs. */
INLINE vec maximum(enum lanes lanes, vec a, vec b)
{
    if (lanes == F32 || lanes == F64)
        return (blend(less(lanes, b, a), a, b) & blend(less(lanes, a, b), b, a)) |
               nan_of(lanes, a, b);
    return blend(less(lanes, a, b), b, a);
}

INLINE vec combine(choir_redop op, enum lanes lanes, vec a, vec b)
{
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_AVG:
    case CHOIR_PREMUL_SUM:
        return add(lanes, a, b);
    case CHOIR_PRODUCT:
        return multiply(lanes, a, b);
    case CHOIR_MIN:
        return minimum(lanes, a, b);
    case CHOIR_MAX:
        return maximum(lanes, a, b);
    case CHOIR_BAND:
        return a & b;
    case CHOIR_BOR:
        return a | b;
    case CHOIR_BXOR:
        return a ^ b;
    }
    return a;
}

INLINE vec scale(enum lanes lanes, vec a, double factor)
{
    /* A NaN factor loses its payload, for bf16_from_f32()'s sake. */
    if (factor != factor)
        return a | (lanes == F32 ? (vec){ 0 } + F32_QUIET : (vec)((vu64){ 0 } + F64_QUIET));
    return lanes == F32 ? (vec)((vf32)a * (float)factor) : (vec)((vf64)a * factor);
}

/* One lane after the other, truncating. The quotient of two numbers of at most 16 (32) bits can be
 * told from the next whole number in f32 (f64), and divides faster there. */
#define DIVIDE_LANES(element, real)                                                                \
    do {                                                                                           \
        element lane[VECTOR_BYTES / sizeof(element)];                                              \
        memcpy(lane, &a, sizeof(lane));                                                            \
        for (size_t i = 0; i < CH_ARRAY_LEN(lane); i++)                                            \
            lane[i] = (element)((real)lane[i] / (real)divisor);                                    \
        memcpy(&a, lane, sizeof(lane));                                                            \
    } while (0)

/* By magnitudes: the divisor need not fit a signed type. */
INLINE vec divide_i64(vec a, uint64_t divisor)
{
    vu64 v = (vu64)a;

    for (size_t i = 0; i < VECTOR_BYTES / 8; i++)
        v[i] = v[i] >> 63 != 0 ? 0 - (0 - v[i]) / divisor : v[i] / divisor;
    return (vec)v;
}

INLINE vec divide(enum lanes lanes, vec a, size_t divisor)
{
    switch (lanes) {
    case U8:
        DIVIDE_LANES(uint8_t, float);
        break;
    case I8:
        DIVIDE_LANES(int8_t, float);
        break;
    case U16:
        DIVIDE_LANES(uint16_t, float);
        break;
    case I16:
        DIVIDE_LANES(int16_t, float);
        break;
    case U32:
        DIVIDE_LANES(uint32_t, double);
        break;
    case I32:
        DIVIDE_LANES(int32_t, double);
        break;
    case U64:
        DIVIDE_LANES(uint64_t, uint64_t);
        break;
    case I64:
        return divide_i64(a, divisor);
    case F32:
        return (vec)((vf32)a / (float)divisor);
    case F64:
        return (vec)((vf64)a / (double)divisor);
    }
    return a;
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

/* A fast lane for it. */
#define FAST(TYPE, OP)                                                                             \
    static void fast_##TYPE##_##OP(const struct ch_reduction *r, void *const *dsts, size_t ndsts,  \
                                   const void *const *srcs, size_t nsrcs, size_t count)            \
    {                                                                                              \
        size_t nbytes = count * SIZE_##TYPE;                                                       \
                                                                                                   \
        if (CH_UNLIKELY(nsrcs != 2) || CH_UNLIKELY(ndsts != 1) ||                                  \
            CH_UNLIKELY(nbytes < VECTOR_BYTES))                                                    \
            reduce_any(r, dsts, ndsts, srcs, nsrcs, count);                                        \
        else                                                                                       \
            reduce_two(CHOIR_##TYPE, CHOIR_##OP, r, dsts[0], srcs[0], srcs[1], nbytes,             \
                       SIZE_##TYPE);                                                               \
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
