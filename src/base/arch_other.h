/* arch_other.h - see arch.h; a processor we know nothing about. */
#ifndef CH_ARCH_OTHER_H
#define CH_ARCH_OTHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ch_arch_ticks(void)
{
    return 0;
}

static inline uint64_t ch_arch_ticks_rough(void)
{
    return 0;
}

static inline bool ch_arch_ticks_steady(const char **why_out)
{
    *why_out = "no counter is known for this processor";
    return false;
}

static inline void ch_arch_relax(void)
{
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
