/*
 * wide_test.c - the template with vectors of 64 bytes, on CPUs that have only 32.
 *
 * What reduce_avx512.c is made of, apart from its hooks, can so be run on any x86 machine of
 * ours: compilers split vectors that are too wide for the target.
 */
#include <immintrin.h>

#define VECTOR_BYTES 64
#include "kernel/reduce_template.h"

#include "kernel/kernel_check.h"

INLINE void f16_to_f32(const void *p, vec *part)
{
    __m128i quarter[4];
    __m256 half[4];

    memcpy(quarter, p, sizeof(quarter));
    for (int i = 0; i < 4; i++)
        half[i] = _mm256_cvtph_ps(quarter[i]);
    memcpy(part, half, sizeof(half));
}

INLINE vec f16_from_f32(const vec *part)
{
    __m128i quarter[4];
    __m256 half[4];
    vec v;

    memcpy(half, part, sizeof(half));
    for (int i = 0; i < 4; i++)
        quarter[i] = _mm256_cvtps_ph(half[i], _MM_FROUND_TO_NEAREST_INT);
    memcpy(&v, quarter, sizeof(v));
    return v;
}

INLINE vec load_shifted_up(const void *p)
{
    return load(p, 0) << 16;
}

INLINE vec merge_halves(vec low, vec high)
{
    return (low & 0xffff) | (high & 0xffff0000U);
}

INLINE vec even_if_tie(vec high, vec low)
{
    return high & ~(vec)((vu16)((vu16)low == 0) >> 15);
}

INLINE void store_past_cache(void *p, vec v)
{
    __m256i half[2];

    memcpy(half, &v, sizeof(v));
    _mm256_stream_si256(p, half[0]);
    _mm256_stream_si256((__m256i *)p + 1, half[1]);
}

INLINE void end_stores_past_cache(void)
{
    _mm_sfence();
}

static bool usable(void)
{
    return ch_kernels_avx2.usable();
}

static const struct ch_kernels wide = {
    .name = "wide",
    .needs = "AVX2 and F16C",
    .usable = usable,
    TEMPLATE_TABLE,
};

static void need_cpu(void)
{
    if (!wide.usable())
        CHOIR_SKIP("this CPU lacks %s", wide.needs);
}

CHOIR_TEST(wide_vectors_equal_the_reference)
{
    need_cpu();
    check_reduce(&wide);
}

CHOIR_TEST(wide_vectors_convert_all_codes)
{
    need_cpu();
    check_all_codes(&wide);
}

CHOIR_TEST(wide_vectors_copy_and_fill)
{
    need_cpu();
    check_copies(&wide);
    check_fills(&wide);
}
