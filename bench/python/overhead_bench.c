/*
 * overhead_bench.c - what an all-reduce of 8 bytes costs from C, for bench/python/overhead to compare with.
 *
 *   choir run -n N build/bin/bench/overhead    prints, on rank 0, the ns of one call, best of some blocks
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <choir/choir.h>

enum { BLOCKS = 30, CALLS = 2000 };

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static double one_block(choir_group *group)
{
    float values[2] = { 0, 0 };
    double began = now_ns();

    for (int i = 0; i < CALLS; i++) {
        if (choir_allreduce(group, CHOIR_BUF(values, 2, CHOIR_F32), NULL, NULL) != CHOIR_OK) {
            fprintf(stderr, "overhead: %s\n", choir_last_error());
            exit(1);
        }
    }
    return (now_ns() - began) / CALLS;
}

int main(void)
{
    choir_group *group;
    double best = 1e18;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "overhead: %s\n", choir_last_error());
        return 1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        double ns = one_block(group);

        best = ns < best ? ns : best;
    }
    if (choir_group_rank(group) == 0)
        printf("%.1f\n", best);
    choir_group_destroy(group);
    return 0;
}
