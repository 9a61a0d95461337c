/*
 * perf_manner.h - how time is taken: `choir perf` and the programs in bench/peers do it alike.
 *
 * A round starts with a barrier of the library that is measured; every rank takes the time from leaving it to the end
 * of its call; the round's time is the slowest rank's. "fresh" writes every input before every round: inputs that are
 * never rewritten are clean in everybody's cache, which real ones are not. C and C++.
 */
#ifndef PERF_MANNER_H
#define PERF_MANNER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double perf_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static inline int perf_default_rounds(size_t nbytes)
{
    return nbytes <= 4096 ? 2000 : nbytes <= 1 << 18 ? 400 : nbytes <= 1 << 21 ? 60 : 20;
}

static inline int perf_warm_rounds(int rounds)
{
    return rounds < 2000 ? rounds / 10 + 2 : 202;
}

struct perf_times {
    double mean, min, p50, p99;
};

static inline int perf_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts `us`. */
static inline struct perf_times perf_times_of(double *us, int rounds)
{
    struct perf_times t = { 0, 0, 0, 0 };

    if (rounds < 1)
        return t;
    qsort(us, (size_t)rounds, sizeof(*us), perf_by_value);
    for (int i = 0; i < rounds; i++)
        t.mean += us[i] / rounds;
    t.min = us[0];
    t.p50 = us[rounds / 2];
    t.p99 = us[(size_t)rounds * 99 / 100];
    return t;
}

/* Ordinary memory, touched, on a page's boundary; free() it. NULL if there is none. */
static inline void *perf_memory(size_t nbytes)
{
    size_t rounded = (nbytes + 4096 + 4095) / 4096 * 4096;
    void *memory = nbytes <= SIZE_MAX - 4096 - 4095 ? aligned_alloc(4096, rounded) : NULL;

    if (memory != NULL)
        memset(memory, 0, rounded);
    return memory;
}

/* Keep the calling thread on the index-th of the processors it may use, modulo their number; false if it cannot be. */
static inline bool perf_bind(int index)
{
    cpu_set_t allowed, one;
    int found = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return false;
    index %= CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || found++ != index)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return sched_setaffinity(0, sizeof(one), &one) == 0;
    }
    return false;
}

#endif
