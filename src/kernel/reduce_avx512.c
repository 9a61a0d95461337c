/*
 * reduce_avx512.c - vectors of 64 bytes: x86 servers since 2017.
 *
 * The instructions for bf16 of later CPUs are of no use: they take subnormal numbers for zero.
 */
#include <immintrin.h>

#define VECTOR_BYTES 64
#include "kernel/reduce_template.h"

INLINE void f16_to_f32(const void *p, vec *part)
{
    const __m256i *halves = p;

    part[0] = (vec)_mm512_cvtph_ps(_mm256_loadu_si256(halves));
    part[1] = (vec)_mm512_cvtph_ps(_mm256_loadu_si256(halves + 1));
}

INLINE vec f16_from_f32(const vec *part)
{
    __m256i low = _mm512_cvtps_ph((__m512)part[0], _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph((__m512)part[1], _MM_FROUND_TO_NEAREST_INT);

    return (vec)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE vec load_shifted_up(const void *p)
{
    return load(p, 0) << 16;
}

INLINE vec merge_halves(vec low, vec high)
{
    return (low & 0xffff) | (high & 0xffff0000U);
}

/* 65534 added with saturation: 65535, every bit, unless there was a zero. */
INLINE vec even_if_tie(vec high, vec low)
{
    return high & (vec)_mm512_adds_epu16((__m512i)low, _mm512_set1_epi16(-2));
}

INLINE void store_past_cache(void *p, vec v)
{
    _mm512_stream_si512(p, (__m512i)v);
}

INLINE void end_stores_past_cache(void)
{
    _mm_sfence();
}

static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

const struct ch_kernels ch_kernels_avx512 = {
    .goes_past_caches = true,
    .name = "avx512",
    .needs = "AVX-512 F, BW, VL and DQ",
    .usable = usable,
    TEMPLATE_TABLE,
};
