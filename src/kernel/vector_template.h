/*
 * vector_template.h - one vector: in and out of memory, elements to parts and back, arithmetic.
 *
 * The first half of reduce_template.h, which says how it all fits together. What takes a `type`, an
 * `op` or `lanes` is inlined with constants, so that its switches melt away.
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
 *
 * `piece` is a constant: the largest power of two that is not above nbytes.
 */
INLINE vec load_pieces(const void *buffer, size_t nbytes, int piece)
{
    const char *p = buffer, *last = p + nbytes - piece;
    vu64 v = { 0 };

    if (piece < 8) {
        v[0] = load_word(p, piece) | load_word(last, piece) << 8 * piece;
    } else {
        for (int i = 0; i < piece / 8; i++) {
            v[i] = load_word(p + 8 * i, 8);
            v[piece / 8 + i] = load_word(last + 8 * i, 8);
        }
    }
    return (vec)v;
}

/* The way back. */
INLINE void store_pieces(void *buffer, size_t nbytes, int piece, vec from)
{
    char *p = buffer, *last = p + nbytes - piece;
    vu64 v = (vu64)from;
    uint64_t word = v[0], second;

    if (piece > 8) {
        memcpy(p, &from, piece);
        memcpy(last, (const char *)&from + piece, piece);
        return;
    }
    second = piece == 8 ? v[1] : word >> 8 * piece;
    memcpy(p, &word, piece);
    memcpy(last, &second, piece);
}

/* One of them by the length, which is less than a vector's. */
CH_NOINLINE static vec load_short(const void *buffer, size_t nbytes)
{
#if VECTOR_BYTES > 32
    if (nbytes >= 32)
        return load_pieces(buffer, nbytes, 32);
#endif
#if VECTOR_BYTES > 16
    if (nbytes >= 16)
        return load_pieces(buffer, nbytes, 16);
#endif
    if (nbytes >= 8)
        return load_pieces(buffer, nbytes, 8);
    if (nbytes >= 4)
        return load_pieces(buffer, nbytes, 4);
    if (nbytes >= 2)
        return load_pieces(buffer, nbytes, 2);
    return nbytes == 1 ? load_pieces(buffer, 1, 1) : (vec){ 0 };
}

CH_NOINLINE static void store_short(void *buffer, size_t nbytes, vec from)
{
#if VECTOR_BYTES > 32
    if (nbytes >= 32) {
        store_pieces(buffer, nbytes, 32, from);
        return;
    }
#endif
#if VECTOR_BYTES > 16
    if (nbytes >= 16) {
        store_pieces(buffer, nbytes, 16, from);
        return;
    }
#endif
    if (nbytes >= 8)
        store_pieces(buffer, nbytes, 8, from);
    else if (nbytes >= 4)
        store_pieces(buffer, nbytes, 4, from);
    else if (nbytes >= 2)
        store_pieces(buffer, nbytes, 2, from);
    else if (nbytes == 1)
        store_pieces(buffer, 1, 1, from);
}

/* How far from `p` to the next place that is aligned to a vector. */
INLINE size_t to_alignment(const void *p)
{
    return (0 - (uintptr_t)p) % VECTOR_BYTES;
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

#define MAX_PARTS 4

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
