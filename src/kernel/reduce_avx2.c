/*
 * reduce_avx2.c - vectors of 32 bytes: x86 CPUs since 2013.
 */
#include <cpuid.h>
#include <immintrin.h>

#define VECTOR_BYTES 32
#include "kernel/reduce_template.h"

INLINE void f16_to_f32(vec v, vec *part)
{
    part[0] = (vec)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)v));
    part[1] = (vec)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)v, 1));
}

INLINE vec f16_from_f32(const vec *part)
{
    __m128i low = _mm256_cvtps_ph((__m256)part[0], _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph((__m256)part[1], _MM_FROUND_TO_NEAREST_INT);

    return (vec)_mm256_set_m128i(high, low);
}

INLINE void store_past_cache(void *p, vec v)
{
    _mm256_stream_si256(p, (__m256i)v);
}

INLINE void end_stores_past_cache(void)
{
    _mm_sfence();
}

static bool usable(void)
{
    unsigned a, b, c, d;

    /* The builtin knows whether the operating system saves the registers, but not of F16C. */
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

const struct ch_kernels ch_kernels_avx2 = {
    .name = "avx2",
    .needs = "AVX2 and F16C",
    .usable = usable,
    TEMPLATE_TABLE,
};
