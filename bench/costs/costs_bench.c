/*
 * costs_bench.c - what safety costs in every operation: something to look at for bench/costs/count, and the flight record's time.
 *
 *   choir run -n N build/bin/bench/costs warm [ROUNDS]    all-reduces of 8 bytes, warm, between two marks for strace
 *   build/bin/bench/costs flight                          ns to record one operation
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/choir.h>

#include "base/clock.h"
#include "stats.h"
#include "trace/flight.h"

static void die(const char *what)
{
    fprintf(stderr, "costs: %s: %s\n", what, choir_last_error());
    exit(1);
}

/* --- the warm path ------------------------------------------------------------------------------------ */

static inline void reduce(choir_group *group, int rounds)
{
    float values[2] = { 1, 2 };

    for (int i = 0; i < rounds; i++) {
        if (choir_allreduce(group, CHOIR_BUF(values, 2, CHOIR_F32), NULL, NULL) != CHOIR_OK)
            die("allreduce");
        values[0] = values[1] = 1;
    }
}

/* Callgrind collects inside this function only: it stays one, whatever the compiler likes. */
__attribute__((noinline)) void warm_path(choir_group *group, int rounds);

void warm_path(choir_group *group, int rounds)
{
    reduce(group, rounds);
}

/* A system call that does nothing but stand in a trace. */
static void mark(const char *text)
{
    (void)!write(-1, text, strlen(text));
}

static int show_warm_path(int rounds)
{
    enum { COLD = 100 };
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK)
        die("init");
    reduce(group, COLD);
    mark("warm path begins");
    warm_path(group, rounds);
    mark("warm path ends");
    /* Who is through first must not leave: its end would be in the others' trace. */
    if (choir_barrier(group, NULL, NULL) != CHOIR_OK)
        die("barrier");
    choir_group_destroy(group);
    return 0;
}

/* --- the flight record -------------------------------------------------------------------------------- */

static double record(struct ch_flight_group *group, int count)
{
    struct ch_flight_plain plain = { .op = CHOIR_OP_ALLREDUCE,
                                     .type = CHOIR_F32,
                                     .in_count = 2,
                                     .out_count = 2,
                                     .redop = CHOIR_SUM,
                                     .timeout_ms = 1000 };
    uint64_t began = ch_now();

    for (int i = 0; i < count; i++) {
        uint64_t number;

        plain.collective_seq++;
        number = ch_flight_start_plain(group, &plain, began);
        ch_flight_done(group, number, began, CHOIR_OK, -1);
    }
    return (double)(ch_now() - began) / count;
}

static int time_flight(void)
{
    enum { BLOCKS = 101, OPERATIONS = 20000 };
    struct ch_flight *flight;
    struct ch_flight_group *group;
    double ns[BLOCKS];
    struct spread spread;

    note_processors();
    pin(0);
    if (ch_flight_create(0, &flight) != CHOIR_OK ||
        ch_flight_group_open(flight, "bench", "", NULL, 2, 0, &group) != CHOIR_OK)
        die("flight record");
    for (int i = 0; i < BLOCKS; i++)
        ns[i] = record(group, OPERATIONS);
    spread = spread_of(ns, BLOCKS);
    printf("flight record: %.1f ns an operation [%.1f-%.1f], %d blocks\n", spread.p50, spread.p10,
           spread.p90, BLOCKS);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
    return 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 1000;

    if (argc > 1 && strcmp(argv[1], "warm") == 0 && rounds > 0)
        return show_warm_path(rounds);
    if (argc == 2 && strcmp(argv[1], "flight") == 0)
        return time_flight();
    fprintf(stderr, "usage: costs flight | choir run -n N costs warm [ROUNDS]\n");
    return 2;
}
