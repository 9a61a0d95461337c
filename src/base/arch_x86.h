/* arch_x86.h - see arch.h. */
#ifndef CH_ARCH_X86_H
#define CH_ARCH_X86_H

#include <cpuid.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ch_arch_ticks(void)
{
    unsigned aux;

    return __builtin_ia32_rdtscp(&aux);
}

static inline uint64_t ch_arch_ticks_rough(void)
{
    return __builtin_ia32_rdtsc();
}

static inline bool ch_arch_ticks_steady(const char **why_out)
{
    unsigned a, b, c, d;

    *why_out = "the CPU does not promise a time stamp counter of one rate";
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || (d & (1u << 8)) == 0)
        return false;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || (d & (1u << 27)) == 0)
        return false; /* no rdtscp */
    *why_out = "the CPU's time stamp counter has one rate";
    return true;
}

static inline void ch_arch_relax(void)
{
    __builtin_ia32_pause();
}

/* Sanitizers do not see what an instruction by itself reads and writes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CH_ARCH_SANITIZED 1
#elif defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CH_ARCH_SANITIZED 1
#endif
#endif
#ifndef CH_ARCH_SANITIZED
#define CH_ARCH_SANITIZED 0
#endif

/* ERMS: without it `rep movsb` moves a byte at a time. */
static inline bool ch_arch_copies_strings(void)
{
    unsigned a, b, c, d;

    return !CH_ARCH_SANITIZED && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9)) != 0;
}

/* Its stores may be seen in any order, but all of them before any store behind it. */
static inline void ch_arch_copy_string(void *dst, const void *src, size_t nbytes)
{
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(nbytes)::"memory");
}

static inline bool ch_arch_cpu_name(char name_out[CH_ARCH_CPU_NAME_NBYTES])
{
    unsigned words[12];

    for (unsigned i = 0; i < 3; i++) {
        unsigned *at = &words[4 * i];

        if (!__get_cpuid(0x80000002 + i, &at[0], &at[1], &at[2], &at[3]))
            return false;
    }
    memcpy(name_out, words, sizeof(words));
    name_out[sizeof(words)] = '\0';
    return true;
}

#endif
