/*
 * reduce_avx2.c - vectors of 32 bytes: x86 CPUs since 2013.
 */
#include <cpuid.h>
#include <immintrin.h>

#define VECTOR_BYTES   32
#define PREFETCH_BYTES 2048 /* Zen 3: 2 to 10 % from 1 MiB on; 1 and 4 KiB gain less, 8 KiB loses */
#include "kernel/reduce_template.h"

INLINE void f16_to_f32(const void *p, vec *part)
{
    const __m128i *halves = p;

    part[0] = (vec)_mm256_cvtph_ps(_mm_loadu_si128(halves));
    part[1] = (vec)_mm256_cvtph_ps(_mm_loadu_si128(halves + 1));
}

INLINE vec f16_from_f32(const vec *part)
{
    __m128i low = _mm256_cvtps_ph((__m256)part[0], _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph((__m256)part[1], _MM_FROUND_TO_NEAREST_INT);

    return (vec)_mm256_set_m128i(high, low);
}

/* By multiplication, which can take its operand from memory; a shift cannot, and the number of
 * instructions is what limits bf16: 7 % on Zen 3. The compiler must not see the factor, or it shifts. */
INLINE vec load_shifted_up(const void *p)
{
    __m256i factor = _mm256_set1_epi32(1 << 16);

    CH_OPAQUE(factor, "x");
    return (vec)_mm256_mullo_epi32(_mm256_loadu_si256(p), factor);
}

INLINE vec merge_halves(vec low, vec high)
{
    return (vec)_mm256_blend_epi16((__m256i)low, (__m256i)high, 0xaa);
}

/* 65534 added with saturation: 65535, every bit, unless there was a zero. */
INLINE vec even_if_tie(vec high, vec low)
{
    return high & (vec)_mm256_adds_epu16((__m256i)low, _mm256_set1_epi16(-2));
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
    .goes_past_caches = true,
    .name = "avx2",
    .needs = "AVX2 and F16C",
    .usable = usable,
    TEMPLATE_TABLE,
};
