/*
 * scalar_test.c - the reference against truths that were not computed by it.
 *
 * The conversions are checked for every code there is: that codes in rising order are equally spaced
 * numbers within a power of two, and that a number goes to the nearest code, a tie to the even one.
 */
#define ch_kernels_scalar the_reference
#include "kernel/reduce_scalar.c"
#undef ch_kernels_scalar

#include "choir_test.h"

#include "base/compiler.h"

static const struct {
    const char *name;
    const struct layout *layout;
    uint32_t code;
    double value;
} known[] = {
    { "f16", &layout_f16, 0x0000, 0.0 },
    { "f16", &layout_f16, 0x0001, 0x1p-24 },
    { "f16", &layout_f16, 0x03ff, 0x1.ff8p-15 },
    { "f16", &layout_f16, 0x0400, 0x1p-14 },
    { "f16", &layout_f16, 0x3555, 0.333251953125 },
    { "f16", &layout_f16, 0x3c00, 1.0 },
    { "f16", &layout_f16, 0xc000, -2.0 },
    { "f16", &layout_f16, 0x7bff, 65504.0 },
    { "f16", &layout_f16, 0xfc00, -INFINITY },
    { "bf16", &layout_bf16, 0x0001, 0x1p-133 },
    { "bf16", &layout_bf16, 0x0080, 0x1p-126 },
    { "bf16", &layout_bf16, 0x3f80, 1.0 },
    { "bf16", &layout_bf16, 0x4049, 3.140625 },
    { "bf16", &layout_bf16, 0x7f7f, 0x1.fep127 },
    { "bf16", &layout_bf16, 0x7f80, INFINITY },
    { "f8e4m3", &layout_f8e4m3, 0x01, 0x1p-9 },
    { "f8e4m3", &layout_f8e4m3, 0x08, 0x1p-6 },
    { "f8e4m3", &layout_f8e4m3, 0x38, 1.0 },
    { "f8e4m3", &layout_f8e4m3, 0x7e, 448.0 },
    { "f8e4m3", &layout_f8e4m3, 0xfe, -448.0 },
    { "f8e5m2", &layout_f8e5m2, 0x01, 0x1p-16 },
    { "f8e5m2", &layout_f8e5m2, 0x04, 0x1p-14 },
    { "f8e5m2", &layout_f8e5m2, 0x3c, 1.0 },
    { "f8e5m2", &layout_f8e5m2, 0x7b, 57344.0 },
    { "f8e5m2", &layout_f8e5m2, 0x7c, INFINITY },
};

CHOIR_TEST(codes_mean_what_their_standards_say)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(known); i++) {
        CHOIR_ROW("%s 0x%x", known[i].name, (unsigned)known[i].code);
        CHOIR_CHECK_EQ(decode(known[i].layout, known[i].code), known[i].value);
        CHOIR_CHECK_EQ(encode(known[i].layout, (float)known[i].value), known[i].code);
    }
}

static const struct {
    const char *name;
    const struct layout *layout;
    uint32_t largest, top;   /* codes: the largest number, the sign bit */
    double smallest, normal; /* the smallest number, and the smallest with all its bits */
} formats[] = {
    { "f16", &layout_f16, 0x7bff, 0x8000, 0x1p-24, 0x1p-14 },
    { "bf16", &layout_bf16, 0x7f7f, 0x8000, 0x1p-133, 0x1p-126 },
    { "f8e4m3", &layout_f8e4m3, 0x7e, 0x80, 0x1p-9, 0x1p-6 },
    { "f8e5m2", &layout_f8e5m2, 0x7b, 0x80, 0x1p-16, 0x1p-14 },
};

/* Together with the table above this leaves no code undefined. */
CHOIR_TEST(codes_are_evenly_spaced)
{
    for (size_t f = 0; f < CH_ARRAY_LEN(formats); f++) {
        double step = formats[f].smallest, power = 2 * formats[f].normal;

        for (uint32_t code = 0; code < formats[f].largest; code++) {
            double here = decode(formats[f].layout, code);

            CHOIR_ROW("%s 0x%x", formats[f].name, (unsigned)code);
            if (here == power) {
                power *= 2;
                step *= 2;
            }
            CHOIR_CHECK_EQ(decode(formats[f].layout, code + 1), here + step);
            CHOIR_CHECK_EQ(decode(formats[f].layout, code | formats[f].top), -here);
            CHOIR_CHECK_EQ(signbit(decode(formats[f].layout, code | formats[f].top)) != 0, true);
        }
    }
}

CHOIR_TEST(numbers_go_to_the_nearest_code_and_ties_to_even)
{
    for (size_t f = 0; f < CH_ARRAY_LEN(formats); f++) {
        const struct layout *l = formats[f].layout;

        for (uint32_t code = 0; code < formats[f].largest; code++) {
            float low = decode(l, code), high = decode(l, code + 1);
            float middle = (float)(((double)low + high) / 2);

            CHOIR_ROW("%s 0x%x", formats[f].name, (unsigned)code);
            CHOIR_CHECK_EQ(encode(l, low), code);
            CHOIR_CHECK_EQ(encode(l, -low), code | formats[f].top);
            CHOIR_CHECK_EQ(encode(l, nextafterf(middle, 0)), code);
            CHOIR_CHECK_EQ(encode(l, middle), code % 2 == 0 ? code : code + 1);
            CHOIR_CHECK_EQ(encode(l, nextafterf(middle, INFINITY)), code + 1);
            CHOIR_CHECK_EQ(encode(l, -middle), (code % 2 == 0 ? code : code + 1) | formats[f].top);
        }
    }
}

static const struct {
    const struct layout *layout;
    float value;
    uint32_t code;
    const char *why;
} edges[] = {
    { &layout_f16, 65519.996F, 0x7bff, "f16: nearer to the largest number" },
    { &layout_f16, 65520.0F, 0x7c00, "f16: a tie with what would be next" },
    { &layout_f16, -1e30F, 0xfc00, "f16: far too large" },
    { &layout_f16, 0x1p-25F, 0, "f16: half the smallest number ties to zero" },
    { &layout_f16, 0x1.000002p-25F, 1, "f16: more than half" },
    { &layout_bf16, 0x1.fffffep127F, 0x7f80, "bf16: f32's largest number rounds up" },
    { &layout_bf16, 0x1p-149F, 0, "bf16: f32's smallest number" },
    { &layout_f8e4m3, 464.0F, 0x7e, "f8e4m3: a tie goes to 448, which is even" },
    { &layout_f8e4m3, 464.00003F, 0x7f, "f8e4m3: above it there is only NaN" },
    { &layout_f8e4m3, -480.0F, 0xff, "f8e4m3: 480 would be NaN's code" },
    { &layout_f8e4m3, INFINITY, 0x7f, "f8e4m3: no infinity" },
    { &layout_f8e4m3, -NAN, 0xff, "f8e4m3: NaN" },
    { &layout_f8e4m3, 0x1p-10F, 0, "f8e4m3: half the smallest number" },
    { &layout_f8e5m2, 61440.0F, 0x7c, "f8e5m2: a tie goes to infinity" },
    { &layout_f8e5m2, 61439.996F, 0x7b, "f8e5m2: just below" },
    { &layout_f8e5m2, 1.3749999F, 0x3d, "f8e5m2: rounded once; by way of f16 it would be 0x3e" },
};

CHOIR_TEST(the_edges_of_the_narrow_floats)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(edges); i++) {
        CHOIR_ROW("%s", edges[i].why);
        CHOIR_CHECK_EQ(encode(edges[i].layout, edges[i].value), edges[i].code);
    }
    CHOIR_CHECK(isnan(decode(&layout_f16, 0x7c01)));
    CHOIR_CHECK(isnan(decode(&layout_bf16, 0xff81)));
    CHOIR_CHECK(isnan(decode(&layout_f8e4m3, 0xff)));
    CHOIR_CHECK(isnan(decode(&layout_f8e5m2, 0x7d)));
}

/* --- whole numbers ------------------------------------------------------------------------------ */

static const struct {
    choir_type type;
    choir_redop op;
    size_t divisor;
    int64_t a, b, want;
    const char *why;
} whole[] = {
    { CHOIR_U8, CHOIR_SUM, 0, 200, 100, 44, "wraps" },
    { CHOIR_I8, CHOIR_SUM, 0, 127, 1, -128, "wraps to the lowest" },
    { CHOIR_I32, CHOIR_SUM, 0, INT32_MAX, INT32_MAX, -2, "wraps" },
    { CHOIR_I64, CHOIR_SUM, 0, INT64_MIN, -1, INT64_MAX, "wraps" },
    { CHOIR_I16, CHOIR_PRODUCT, 0, 300, 300, 24464, "90000 - 65536" },
    { CHOIR_U64, CHOIR_PRODUCT, 0, -1, 2, -2, "wraps" },
    { CHOIR_I8, CHOIR_MIN, 0, -128, 127, -128, "signed order" },
    { CHOIR_U8, CHOIR_MIN, 0, 128, 127, 127, "unsigned order" },
    { CHOIR_U64, CHOIR_MAX, 0, -1, 1, -1, "the largest of all" },
    { CHOIR_I64, CHOIR_MAX, 0, -1, 1, 1, "signed order" },
    { CHOIR_I32, CHOIR_AVG, 2, -3, 0, -1, "truncated towards zero, not down" },
    { CHOIR_U8, CHOIR_AVG, 2, 200, 100, 22, "the wrapped sum is divided" },
    { CHOIR_I8, CHOIR_AVG, 2, 127, 1, -64, "the wrapped sum is negative" },
    { CHOIR_I8, CHOIR_AVG, 200, -128, 0, 0, "the divisor does not fit the type" },
    { CHOIR_I64, CHOIR_AVG, SIZE_MAX, INT64_MIN, 0, 0, "nor a signed one at all" },
    { CHOIR_I64, CHOIR_AVG, 1, INT64_MIN, 0, INT64_MIN, "the lowest has no opposite" },
    { CHOIR_U16, CHOIR_BAND, 0, 0x0ff0, 0x00ff, 0x00f0, "bits" },
    { CHOIR_I32, CHOIR_BOR, 0, 0x0ff0, 0x00ff, 0x0fff, "bits" },
    { CHOIR_U64, CHOIR_BXOR, 0, -1, 1, -2, "bits" },
    { CHOIR_BOOL, CHOIR_SUM, 0, 1, 1, 1, "or; never 2" },
    { CHOIR_BOOL, CHOIR_SUM, 0, 0, 0, 0, "or" },
    { CHOIR_BOOL, CHOIR_MAX, 0, 0x80, 0, 1, "any byte but zero is true" },
    { CHOIR_BOOL, CHOIR_PRODUCT, 0, 2, 1, 1, "and, of what is true, not of bits" },
    { CHOIR_BOOL, CHOIR_BAND, 0, 2, 1, 1, "the same" },
    { CHOIR_BOOL, CHOIR_MIN, 0, 2, 0, 0, "and" },
    { CHOIR_BOOL, CHOIR_BXOR, 0, 2, 1, 0, "both are true" },
    { CHOIR_BOOL, CHOIR_BXOR, 0, 2, 0, 1, "one is true" },
};

CHOIR_TEST(whole_numbers_and_bool)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(whole); i++) {
        struct ch_reduction r = { whole[i].type, whole[i].op, whole[i].divisor, NULL };
        const void *srcs[] = { &whole[i].a, &whole[i].b };
        int64_t got = whole[i].want; /* little-endian: the element is in front, the rest is equal */
        void *dst = &got;

        CHOIR_ROW("%s %s: %s", choir_type_name(r.type), choir_redop_name(r.op), whole[i].why);
        memset(&got, 0x55, choir_type_size(r.type));
        the_reference.reduce[r.type][r.op](&r, &dst, 1, srcs, 2, 1);
        CHOIR_CHECK_EQ(got, whole[i].want);
    }
}

/* --- floats --------------------------------------------------------------------------------------- */

#define SAME_F32(a, b) (isnan(b) ? isnan(a) : (a) == (b) && !signbit(a) == !signbit(b))

static const struct {
    choir_redop op;
    float a, b, want;
    const char *why;
} reals[] = {
    { CHOIR_MIN, 1.0F, NAN, NAN, "NaN is handed on" },
    { CHOIR_MIN, NAN, 1.0F, NAN, "from either side" },
    { CHOIR_MAX, 1.0F, NAN, NAN, "NaN is handed on" },
    { CHOIR_MAX, -NAN, INFINITY, NAN, "whatever its sign" },
    { CHOIR_MIN, 0.0F, -0.0F, -0.0F, "-0 is below +0" },
    { CHOIR_MIN, -0.0F, 0.0F, -0.0F, "in either order" },
    { CHOIR_MAX, 0.0F, -0.0F, 0.0F, "+0 is above -0" },
    { CHOIR_MAX, -0.0F, 0.0F, 0.0F, "in either order" },
    { CHOIR_MAX, -0.0F, -0.0F, -0.0F, "there is no +0" },
    { CHOIR_SUM, -0.0F, -0.0F, -0.0F, "not started from +0" },
    { CHOIR_SUM, INFINITY, -INFINITY, NAN, "no answer" },
    { CHOIR_SUM, 16777216.0F, 1.0F, 16777216.0F, "a tie to even" },
    { CHOIR_AVG, 1.0F, 0.0F, 1.0F / 3.0F, "divided by 3, not multiplied by a third" },
    { CHOIR_AVG, 5.0F, 0.0F, 5.0F / 3.0F, "the same; the product would differ" },
    { CHOIR_PRODUCT, INFINITY, 0.0F, NAN, "no answer" },
    { CHOIR_PREMUL_SUM, 3.0F, 4.0F, 2.5F, "each source has its own factor" },
};

CHOIR_TEST(floats_follow_ieee_754)
{
    static const double factors[] = { 0.5, 0.25 };

    for (size_t i = 0; i < CH_ARRAY_LEN(reals); i++) {
        struct ch_reduction r = { CHOIR_F32, reals[i].op, 3, factors };
        double a = reals[i].a, b = reals[i].b, got64;
        const void *srcs[] = { &reals[i].a, &reals[i].b }, *srcs64[] = { &a, &b };
        void *dst64 = &got64;
        float got;
        void *dst = &got;

        CHOIR_ROW("%s of %g and %g: %s", choir_redop_name(r.op), a, b, reals[i].why);
        the_reference.reduce[r.type][r.op](&r, &dst, 1, srcs, 2, 1);
        CHOIR_CHECK(SAME_F32(got, reals[i].want));
        r.type = CHOIR_F64;
        the_reference.reduce[r.type][r.op](&r, &dst64, 1, srcs64, 2, 1);
        if (r.op == CHOIR_MIN || r.op == CHOIR_MAX)
            CHOIR_CHECK(SAME_F32(got64, reals[i].want));
    }
}

/* 1 + 2^-8 + 2^-8 is 1 + 2^-7 if added in f32, and 1 if every step is rounded to bf16. */
CHOIR_TEST(narrow_sums_are_rounded_once)
{
    static const uint16_t one = 0x3f80, small = 0x3b80, sum = 0x3f81;
    struct ch_reduction r = { CHOIR_BF16, CHOIR_SUM, 0, NULL };
    const void *srcs[] = { &one, &small, &small };
    uint16_t got;
    void *dst = &got;

    the_reference.reduce[r.type][r.op](&r, &dst, 1, srcs, 3, 1);
    CHOIR_CHECK_EQ(got, sum);
}

CHOIR_TEST(complex_numbers_are_pairs)
{
    static const float a[] = { 1, 2, 3, 4 }, b[] = { 10, 20, 30, 40 };
    struct ch_reduction r = { CHOIR_COMPLEX64, CHOIR_AVG, 2, NULL };
    const void *srcs[] = { a, b };
    float got[4];
    void *dst = got;

    the_reference.reduce[r.type][r.op](&r, &dst, 1, srcs, 2, 2);
    CHOIR_CHECK_EQ(got[0], 5.5);
    CHOIR_CHECK_EQ(got[3], 22.0);
}
