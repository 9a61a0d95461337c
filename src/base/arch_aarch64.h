/* arch_aarch64.h - see arch.h. */
#ifndef CH_ARCH_AARCH64_H
#define CH_ARCH_AARCH64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ch_arch_ticks(void)
{
    uint64_t ticks;

    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
}

static inline uint64_t ch_arch_ticks_rough(void)
{
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

static inline bool ch_arch_ticks_steady(const char **why_out)
{
    *why_out = "the architecture promises a system counter of one rate";
    return true;
}

static inline void ch_arch_relax(void)
{
    __asm__ volatile("yield" ::: "memory");
}

static inline bool ch_arch_copies_strings(void)
{
    return false;
}

static inline void ch_arch_copy_string(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

static inline bool ch_arch_cpu_name(char name_out[CH_ARCH_CPU_NAME_NBYTES])
{
    (void)name_out;
    return false;
}

#endif
