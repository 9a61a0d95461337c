/*
 * compiler.h - every compiler extension the tree uses, each under a name that says what for.
 */
#ifndef CH_COMPILER_H
#define CH_COMPILER_H

#include <stddef.h>

#define CH_LIKELY(x)         __builtin_expect(!!(x), 1)
#define CH_UNLIKELY(x)       __builtin_expect(!!(x), 0)
#define CH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CH_ALWAYS_INLINE     inline __attribute__((always_inline))
#define CH_NOINLINE          __attribute__((noinline))
#define CH_WARN_UNUSED       __attribute__((warn_unused_result))
#define CH_CONSTRUCTOR       __attribute__((constructor))

#define CH_ARRAY_LEN(a)          (sizeof(a) / sizeof((a)[0]))
#define CH_CONTAINER(p, type, m) ((type *)(void *)((char *)(p)-offsetof(type, m)))

/* Make the compiler forget what it knows of a vector's value, where it would make something slower of
 * it. `where` is the register class: "x" for SSE and AVX. */
#define CH_OPAQUE(v, where) __asm__("" : "+" where(v))

/* A store before it and a load after it do not change places. Orders normally stand on the accesses,
 * which ThreadSanitizer understands and this it does not; but store-then-load has no such order, and
 * nothing is published by it (base/bell.h). */
#define CH_FULL_FENCE() __sync_synchronize()

/* Two writers never share a unit of this size. The adjacent-line prefetcher fetches lines in pairs,
 * so a single 64-byte line is not enough. */
#define CH_CACHE_UNIT 128
#define CH_CACHE_LINE 64 /* what moves as one */

/* Clang's thread-safety analysis, which gcc does not know. In C it cannot name a lock that is a member
 * of the same struct: what a lock guards is said in a comment at the field. */
#if defined(__clang__)
#define CH_TSA(x) __attribute__((x))
#else
#define CH_TSA(x)
#endif
#define CH_CAPABILITY  CH_TSA(capability("lock"))
#define CH_REQUIRES(l) CH_TSA(requires_capability(l))
#define CH_ACQUIRES(l) CH_TSA(acquire_capability(l))
#define CH_RELEASES(l) CH_TSA(release_capability(l))
#define CH_NO_TSA      CH_TSA(no_thread_safety_analysis)

#endif
