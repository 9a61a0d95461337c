/*
 * overlap_bench.c - how much of two asynchronous all-reduces is hidden behind computing.
 *
 *   choir run -n 2 --bind none build/bin/bench/overlap [MS]        20 ms of computing
 *
 * Rank 0 begins two all-reduces of 16 MiB, computes for MS milliseconds without a call to the library, and waits for
 * them; the other ranks begin theirs and wait at once. So one processor computes and the others are free to move
 * bytes, also on a machine of two. In turns with that: the same without computing, and computing alone. Hidden is what
 * the three times say: (computing + all-reduces - both) / all-reduces, with a band of the middle 80 % of rounds.
 */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "perf_manner.h"
#include "stats.h"

enum { ROUNDS = 41, NBYTES = 16 << 20, NOPS = 2 };

static void check(choir_status rc, const char *what)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "overlap: %s: %s\n", what, choir_last_error());
    exit(1);
}

/* So many steps that keep a processor busy with nothing but itself. */
static double compute(long steps)
{
    volatile double x = 1;

    for (long i = 0; i < steps; i++)
        x = x * 0.999999 + 1e-6;
    return x;
}

static long steps_of_ms(double ms)
{
    long steps = 1000;

    for (;; steps *= 2) {
        double began = perf_now_us();

        compute(steps);
        if (perf_now_us() - began > 5000)
            return (long)((double)steps * ms * 1000 / (perf_now_us() - began));
    }
}

/* Microseconds of one round on this rank. */
static double play(choir_group *group, float *data[NOPS], bool reduces, long steps)
{
    choir_work *works[NOPS];
    double began;

    for (int i = 0; i < NOPS; i++)
        memset(data[i], 0, NBYTES);
    check(choir_barrier(group, NULL, NULL), "barrier");
    began = perf_now_us();
    for (int i = 0; i < NOPS && reduces; i++)
        check(choir_allreduce(group, CHOIR_BUF(data[i], NBYTES / sizeof(float), CHOIR_F32), NULL,
                              &works[i]),
              "allreduce");
    if (choir_group_rank(group) == 0)
        compute(steps);
    for (int i = 0; i < NOPS && reduces; i++) {
        check(choir_work_wait(works[i], 0), "wait");
        choir_work_unref(works[i]);
    }
    return perf_now_us() - began;
}

int main(int argc, char **argv)
{
    double ms = argc > 1 ? atof(argv[1]) : 20, alone[ROUNDS], computing[ROUNDS], both[ROUNDS],
           hidden[ROUNDS];
    float *data[NOPS];
    choir_group *group;
    struct spread spread;
    long steps;

    if (ms <= 0) {
        fprintf(stderr, "usage: choir run -n 2 --bind none overlap [MS]\n");
        return 2;
    }
    check(choir_init(&group, NULL), "init");
    for (int i = 0; i < NOPS; i++) {
        data[i] = perf_memory(NBYTES);
        if (data[i] == NULL)
            return 1;
    }
    steps = steps_of_ms(ms);
    play(group, data, true, steps);
    for (int k = 0; k < ROUNDS; k++) {
        alone[k] = play(group, data, true, 0);
        computing[k] = play(group, data, false, steps);
        both[k] = play(group, data, true, steps);
        hidden[k] = 100 * (computing[k] + alone[k] - both[k]) / alone[k];
    }
    spread = spread_of(hidden, ROUNDS);
    if (choir_group_rank(group) == 0)
        printf("two all-reduces of 16 MiB %.1f ms, computing %.1f ms, both %.1f ms: %.0f %% hidden "
               "[%.0f-%.0f]\n",
               spread_of(alone, ROUNDS).p50 / 1e3, spread_of(computing, ROUNDS).p50 / 1e3,
               spread_of(both, ROUNDS).p50 / 1e3, spread.p50, spread.p10, spread.p90);
    for (int i = 0; i < NOPS; i++)
        free(data[i]);
    choir_group_destroy(group);
    return 0;
}
