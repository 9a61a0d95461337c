/*
 * clock.h - time on the hot path, and absolute deadlines.
 *
 * ch_now() counts nanoseconds of CLOCK_MONOTONIC, but reads the CPU's own counter where that is
 * steady: 28 ns become 13. It never goes back, also not between threads, and is steered towards the
 * kernel's clock about once a second. Deadlines are points on this clock, passed down the stack as
 * they are; nobody hands on a shrinking timeout.
 */
#ifndef CH_CLOCK_H
#define CH_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t ch_deadline;

#define CH_NEVER UINT64_MAX

#define CH_US 1000u
#define CH_MS 1000000u
#define CH_S  1000000000u

uint64_t ch_now(void);

/* The same without waiting for what comes before it: as much earlier as loads that are under way still take. For records
 * of how long something took, where that does not matter and the waiting would: not to be compared between threads. */
uint64_t ch_now_rough(void);

/* The same moment on CLOCK_MONOTONIC: equal but for the steering still under way. For records that
 * leave the process. */
uint64_t ch_now_to_monotonic(uint64_t now);

/* The deadline that many milliseconds from now; CH_NEVER if negative. */
ch_deadline ch_deadline_ms(int64_t timeout_ms);

/* The same from a moment that ch_now() told before. */
static inline ch_deadline ch_deadline_after(uint64_t now, int64_t timeout_ms)
{
    uint64_t ns;

    if (timeout_ms < 0 || __builtin_mul_overflow((uint64_t)timeout_ms, (uint64_t)CH_MS, &ns) ||
        ns > CH_NEVER - now)
        return CH_NEVER;
    return now + ns;
}

bool ch_deadline_passed(ch_deadline until);

/* Nanoseconds left: 0 if passed, -1 for CH_NEVER; what the ch_sys_ calls take as a timeout. */
int64_t ch_deadline_left_ns(ch_deadline until);

#endif
