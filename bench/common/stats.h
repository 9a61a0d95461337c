/*
 * stats.h - what all benchmarks do with their figures, and how they hold threads in place.
 *
 * Machines are shared and noisy: contenders run in alternating blocks of one run, and what is
 * reported is the median with the band that holds the middle 80 %.
 */
#ifndef CHOIR_BENCH_STATS_H
#define CHOIR_BENCH_STATS_H

#include <stddef.h>

struct spread {
    double p10, p50, p90;
};

/* Sorts `values`. */
struct spread spread_of(double *values, size_t count);

/* Note what this process may run on; before the first pin(), because threads inherit a pinning. */
void note_processors(void);

/* Keep the calling thread on the index-th of those processors (modulo their number). */
void pin(int index);

#endif
