/*
 * reduce_neon.c - vectors of 16 bytes: every 64-bit ARM CPU.
 */
#include <arm_neon.h>

#define VECTOR_BYTES 16
#include "kernel/reduce_template.h"

INLINE void f16_to_f32(const void *p, vec *part)
{
    float16x8_t halves = (float16x8_t)load(p, 0);

    part[0] = (vec)vcvt_f32_f16(vget_low_f16(halves));
    part[1] = (vec)vcvt_f32_f16(vget_high_f16(halves));
}

INLINE vec f16_from_f32(const vec *part)
{
    return (vec)vcombine_f16(vcvt_f16_f32((float32x4_t)part[0]),
                             vcvt_f16_f32((float32x4_t)part[1]));
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
    return high & (vec)vqaddq_u16((uint16x8_t)low, vdupq_n_u16(65534));
}

/* The architecture has only a hint for such stores (stnp), which its CPUs mostly ignore. */
INLINE void store_past_cache(void *p, vec v)
{
    store(p, 0, v);
}

INLINE void end_stores_past_cache(void)
{
}

static bool usable(void)
{
    return true;
}

const struct ch_kernels ch_kernels_neon = {
    .name = "neon",
    .needs = "a 64-bit ARM CPU",
    .usable = usable,
    TEMPLATE_TABLE,
};
