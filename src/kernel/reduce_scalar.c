/*
 * reduce_scalar.c - the reference: the rules of choir/types.h, one element at a time.
 *
 * Written to be read and believed; every other variant is tested against it. It is also what runs
 * where no other variant does. Each family of types has a function of its own, with the same shape:
 * load the first source, combine the others in order, finish, store once for each destination.
 */
#include "kernel/kernel.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Bytes of element `i` in a buffer that need not be aligned. */
static const char *at(const void *buffer, size_t i, size_t size)
{
    return (const char *)buffer + i * size;
}

static void put(void *const *dsts, size_t ndsts, size_t i, const void *element, size_t size)
{
    for (size_t d = 0; d < ndsts; d++)
        memcpy((char *)dsts[d] + i * size, element, size);
}

/* --- integers: all of them in 64 bits, cut back to their own width ------------------------------ */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "an integer's low bytes come first");

/* The low `size` bytes of `value`, sign- or zero-extended to 64 bits. */
static uint64_t extend(uint64_t value, size_t size, bool is_signed)
{
    unsigned unused = 64 - 8 * (unsigned)size;
    uint64_t top = UINT64_C(1) << 63;

    value <<= unused;
    if (is_signed && (value & top) != 0)
        return ~(~value >> unused);
    return value >> unused;
}

static uint64_t load_int(const void *p, size_t size, bool is_signed)
{
    uint64_t value = 0;

    memcpy(&value, p, size);
    return extend(value, size, is_signed);
}

static bool less_int(uint64_t a, uint64_t b, bool is_signed)
{
    uint64_t top = UINT64_C(1) << 63;

    /* Flipping the sign bit turns the signed order into the unsigned one. */
    return is_signed ? (a ^ top) < (b ^ top) : a < b;
}

/* Modulo 2^64; what is cut off later was wrong there anyway, so narrow types wrap as they should. */
static uint64_t combine_int(choir_redop op, bool is_signed, uint64_t a, uint64_t b)
{
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_AVG:
    case CHOIR_PREMUL_SUM:
        return a + b;
    case CHOIR_PRODUCT:
        return a * b;
    case CHOIR_MIN:
        return less_int(b, a, is_signed) ? b : a;
    case CHOIR_MAX:
        return less_int(a, b, is_signed) ? b : a;
    case CHOIR_BAND:
        return a & b;
    case CHOIR_BOR:
        return a | b;
    case CHOIR_BXOR:
        return a ^ b;
    }
    return a;
}

/* Truncates towards zero. By magnitudes, since a divisor need not fit the signed type. */
static uint64_t divide_int(uint64_t sum, uint64_t divisor, bool is_signed)
{
    bool negative = is_signed && sum >> 63 != 0;

    return negative ? 0 - (0 - sum) / divisor : sum / divisor;
}

static void reduce_int(const struct ch_reduction *r, bool is_signed, void *const *dsts,
                       size_t ndsts, const void *const *srcs, size_t nsrcs, size_t count)
{
    size_t size = ch_type_bytes[r->type];

    for (size_t i = 0; i < count; i++) {
        uint64_t acc = load_int(at(srcs[0], i, size), size, is_signed);

        for (size_t s = 1; s < nsrcs; s++)
            acc = combine_int(r->op, is_signed, acc,
                              load_int(at(srcs[s], i, size), size, is_signed));
        if (r->op == CHOIR_AVG)
            acc = divide_int(extend(acc, size, is_signed), r->divisor, is_signed);
        put(dsts, ndsts, i, &acc, size);
    }
}

static void reduce_signed(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                          const void *const *srcs, size_t nsrcs, size_t count)
{
    reduce_int(r, true, dsts, ndsts, srcs, nsrcs, count);
}

static void reduce_unsigned(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                            const void *const *srcs, size_t nsrcs, size_t count)
{
    reduce_int(r, false, dsts, ndsts, srcs, nsrcs, count);
}

/* --- bool: logical ------------------------------------------------------------------------------ */

static bool combine_bool(choir_redop op, bool a, bool b)
{
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_MAX:
    case CHOIR_BOR:
        return a || b;
    case CHOIR_PRODUCT:
    case CHOIR_MIN:
    case CHOIR_BAND:
        return a && b;
    case CHOIR_BXOR:
        return a != b;
    case CHOIR_AVG:
    case CHOIR_PREMUL_SUM:
        break; /* refused */
    }
    return a;
}

static void reduce_bool(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                        const void *const *srcs, size_t nsrcs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool acc = *at(srcs[0], i, 1) != 0;
        uint8_t result;

        for (size_t s = 1; s < nsrcs; s++)
            acc = combine_bool(r->op, acc, *at(srcs[s], i, 1) != 0);
        result = acc;
        put(dsts, ndsts, i, &result, 1);
    }
}

/* --- floats of 8 and 16 bits: how they are laid out, and the way to f32 and back ------------------ */

struct layout {
    int exponent_bits, mantissa_bits; /* below the sign bit */
    bool has_infinity; /* IEEE: the highest exponent is for infinity and NaN. Without: only the
                          highest code of all is NaN, the others are ordinary numbers. */
};

static const struct layout layout_f16 = { 5, 10, true };
static const struct layout layout_bf16 = { 8, 7, true };
static const struct layout layout_f8e4m3 = { 4, 3, false };
static const struct layout layout_f8e5m2 = { 5, 2, true };

static int bias_of(const struct layout *l)
{
    return (1 << (l->exponent_bits - 1)) - 1;
}

/* Codes without sign, in rising order of value: ..., the largest number, [infinity,] NaN. */
static uint32_t largest_of(const struct layout *l)
{
    uint32_t top = 1U << (l->exponent_bits + l->mantissa_bits);

    return l->has_infinity ? top - (1U << l->mantissa_bits) - 1 : top - 2;
}

static float decode(const struct layout *l, uint32_t code)
{
    uint32_t sign = code >> (l->exponent_bits + l->mantissa_bits);
    uint32_t magnitude = code & ((1U << (l->exponent_bits + l->mantissa_bits)) - 1);
    int exponent = (int)(magnitude >> l->mantissa_bits);
    uint32_t mantissa = magnitude & ((1U << l->mantissa_bits) - 1);
    float value;

    if (l->has_infinity && magnitude == largest_of(l) + 1)
        value = INFINITY;
    else if (magnitude > largest_of(l))
        value = NAN;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, 1 - bias_of(l) - l->mantissa_bits);
    else
        value = ldexpf((float)(mantissa + (1U << l->mantissa_bits)),
                       exponent - bias_of(l) - l->mantissa_bits);
    return sign != 0 ? -value : value;
}

/* value / 2^shift, to the nearest whole number, a tie to the even one. */
static uint32_t shift_to_nearest_even(uint32_t value, int shift)
{
    uint32_t whole, rest, half;

    if (shift >= 32)
        return 0; /* never a tie: `value` has 24 bits */
    whole = value >> shift;
    rest = value & ((1U << shift) - 1);
    half = 1U << (shift - 1);
    return whole + (rest > half || (rest == half && (whole & 1) != 0));
}

static uint32_t encode(const struct layout *l, float value)
{
    uint32_t bits, sign, significand, code;
    int exponent, shift = 23 - l->mantissa_bits;

    memcpy(&bits, &value, sizeof(bits));
    sign = (bits >> 31) << (l->exponent_bits + l->mantissa_bits);
    if (isnan(value))
        return sign | ((1U << (l->exponent_bits + l->mantissa_bits)) - 1);

    /* |value| = significand * 2^(exponent - 150), where `exponent` is f32's, biased by 127. */
    exponent = (int)(bits >> 23 & 0xff);
    significand = bits & 0x7fffff;
    if (exponent != 0)
        significand |= 1U << 23;
    else
        exponent = 1;

    exponent += bias_of(l) - 127; /* now as the target biases it */
    if (exponent < 1) {           /* below its normal numbers: fewer bits are left to keep */
        shift += 1 - exponent;
        exponent = 1;
    }
    /* The leading bit of a normal significand adds the one to the exponent that is subtracted here;
     * a significand that rounds up to the next power of two carries into it, which is right too. */
    code = ((uint32_t)(exponent - 1) << l->mantissa_bits) +
           shift_to_nearest_even(significand, shift);
    if (code > largest_of(l))
        code = largest_of(l) + 1; /* infinity, or NaN where there is none */
    return sign | code;
}

/* --- floats --------------------------------------------------------------------------------------- */

static float load_f32(choir_type type, const char *p)
{
    uint16_t u16;
    float f;

    if (type == CHOIR_F8E4M3)
        return decode(&layout_f8e4m3, *(const uint8_t *)p);
    if (type == CHOIR_F8E5M2)
        return decode(&layout_f8e5m2, *(const uint8_t *)p);
    if (type == CHOIR_F16 || type == CHOIR_BF16) {
        memcpy(&u16, p, sizeof(u16));
        return decode(type == CHOIR_F16 ? &layout_f16 : &layout_bf16, u16);
    }
    memcpy(&f, p, sizeof(f));
    return f;
}

static void store_f32(choir_type type, void *const *dsts, size_t ndsts, size_t i, float value)
{
    uint16_t u16;
    uint8_t u8;

    if (type == CHOIR_F8E4M3 || type == CHOIR_F8E5M2) {
        u8 = (uint8_t)encode(type == CHOIR_F8E4M3 ? &layout_f8e4m3 : &layout_f8e5m2, value);
        put(dsts, ndsts, i, &u8, sizeof(u8));
    } else if (type == CHOIR_F16 || type == CHOIR_BF16) {
        u16 = (uint16_t)encode(type == CHOIR_F16 ? &layout_f16 : &layout_bf16, value);
        put(dsts, ndsts, i, &u16, sizeof(u16));
    } else {
        put(dsts, ndsts, i, &value, sizeof(value));
    }
}

/* minimum and maximum of IEEE 754-2019: a NaN wins, and -0 is below +0. */
static double minimum(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static double maximum(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static float combine_f32(choir_redop op, float a, float b)
{
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_AVG:
    case CHOIR_PREMUL_SUM:
        return a + b;
    case CHOIR_PRODUCT:
        return a * b;
    case CHOIR_MIN:
        return (float)minimum(a, b);
    case CHOIR_MAX:
        return (float)maximum(a, b);
    case CHOIR_BAND:
    case CHOIR_BOR:
    case CHOIR_BXOR:
        break; /* refused */
    }
    return a;
}

void ch_widen(choir_type type, float *dst, const void *src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = load_f32(type, at(src, i, ch_type_bytes[type]));
}

void ch_narrow(choir_type type, void *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(type, &dst, 1, i, src[i]);
}

/* f32 and everything narrower, which is rounded once, when stored; complex64 as pairs of f32. */
static void reduce_f32(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                       const void *const *srcs, size_t nsrcs, size_t count)
{
    bool complex = r->type == CHOIR_COMPLEX64;
    size_t size = complex ? sizeof(float) : ch_type_bytes[r->type];

    for (size_t i = 0; i < (complex ? 2 * count : count); i++) {
        float acc = 0;

        for (size_t s = 0; s < nsrcs; s++) {
            float x = load_f32(r->type, at(srcs[s], i, size));

            if (r->op == CHOIR_PREMUL_SUM)
                x *= (float)r->factors[s];
            acc = s == 0 ? x : combine_f32(r->op, acc, x);
        }
        if (r->op == CHOIR_AVG)
            acc /= (float)r->divisor;
        store_f32(r->type, dsts, ndsts, i, acc);
    }
}

static double combine_f64(choir_redop op, double a, double b)
{
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_AVG:
    case CHOIR_PREMUL_SUM:
        return a + b;
    case CHOIR_PRODUCT:
        return a * b;
    case CHOIR_MIN:
        return minimum(a, b);
    case CHOIR_MAX:
        return maximum(a, b);
    case CHOIR_BAND:
    case CHOIR_BOR:
    case CHOIR_BXOR:
        break; /* refused */
    }
    return a;
}

/* f64, and complex128 as pairs of f64. */
static void reduce_f64(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                       const void *const *srcs, size_t nsrcs, size_t count)
{
    for (size_t i = 0; i < (r->type == CHOIR_COMPLEX128 ? 2 * count : count); i++) {
        double acc = 0;

        for (size_t s = 0; s < nsrcs; s++) {
            double x;

            memcpy(&x, at(srcs[s], i, sizeof(x)), sizeof(x));
            if (r->op == CHOIR_PREMUL_SUM)
                x *= r->factors[s];
            acc = s == 0 ? x : combine_f64(r->op, acc, x);
        }
        if (r->op == CHOIR_AVG)
            acc /= (double)r->divisor;
        put(dsts, ndsts, i, &acc, sizeof(acc));
    }
}

/* --- the table ---------------------------------------------------------------------------------- */

static void copy(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

static void fill(void *dst, const void *element, size_t size, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy((char *)dst + i * size, element, size);
}

static bool usable(void)
{
    return true;
}

#define ANY(fn)  [CHOIR_SUM] = (fn), [CHOIR_PRODUCT] = (fn), [CHOIR_MIN] = (fn), [CHOIR_MAX] = (fn)
#define BITS(fn) [CHOIR_BAND] = (fn), [CHOIR_BOR] = (fn), [CHOIR_BXOR] = (fn)
#define UINT_ROW                                                                                   \
    {                                                                                              \
        ANY(reduce_unsigned), BITS(reduce_unsigned), [CHOIR_AVG] = reduce_unsigned                 \
    }
#define INT_ROW                                                                                    \
    {                                                                                              \
        ANY(reduce_signed), BITS(reduce_signed), [CHOIR_AVG] = reduce_signed                       \
    }
#define BOOL_ROW                                                                                   \
    {                                                                                              \
        ANY(reduce_bool), BITS(reduce_bool)                                                        \
    }
#define SCALED(fn) [CHOIR_AVG] = (fn), [CHOIR_PREMUL_SUM] = (fn)
#define F32_ROW                                                                                    \
    {                                                                                              \
        ANY(reduce_f32), SCALED(reduce_f32)                                                        \
    }
#define F64_ROW                                                                                    \
    {                                                                                              \
        ANY(reduce_f64), SCALED(reduce_f64)                                                        \
    }
#define C64_ROW                                                                                    \
    {                                                                                              \
        [CHOIR_SUM] = reduce_f32, SCALED(reduce_f32)                                               \
    }
#define C128_ROW                                                                                   \
    {                                                                                              \
        [CHOIR_SUM] = reduce_f64, SCALED(reduce_f64)                                               \
    }

const struct ch_kernels ch_kernels_scalar = {
    .name = "scalar",
    .needs = "nothing",
    .usable = usable,
    .reduce = {
        [CHOIR_U8] = UINT_ROW,       [CHOIR_I8] = INT_ROW,
        [CHOIR_U16] = UINT_ROW,      [CHOIR_I16] = INT_ROW,
        [CHOIR_U32] = UINT_ROW,      [CHOIR_I32] = INT_ROW,
        [CHOIR_U64] = UINT_ROW,      [CHOIR_I64] = INT_ROW,
        [CHOIR_F16] = F32_ROW,       [CHOIR_BF16] = F32_ROW,
        [CHOIR_F8E4M3] = F32_ROW,    [CHOIR_F8E5M2] = F32_ROW,
        [CHOIR_F32] = F32_ROW,       [CHOIR_F64] = F64_ROW,
        [CHOIR_COMPLEX64] = C64_ROW, [CHOIR_COMPLEX128] = C128_ROW,
        [CHOIR_BOOL] = BOOL_ROW,
    },
    .copy = copy,
    .copy_nt = copy,
    .fill = fill,
};
