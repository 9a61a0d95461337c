/*
 * random_collective.c - random cases of collectives against the naive reference (naive.h).
 *
 *   random_collective --seed S [--cases K]         ranks are threads: case S, then S + 17, ...
 *   choir run -n N random_collective --join --seed S [--cases K]      ranks are processes; N = 1 + S % 17
 *   random_collective --seed S --show              only say what the case is
 *
 * A case that fails says which seed repeats it. One that does not end is ended, and says so too.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perform.h"

struct row {
    uint64_t seed;
    int ncases;
};

static void out_of_time(int signal)
{
    (void)signal;
    dprintf(2, "FAILED: seed %llu does not end\n", (unsigned long long)perform_current);
    _exit(1);
}

static choir_status be_rank(choir_group *group, void *arg)
{
    const struct row *row = arg;

    /* A failed case leaves operations under way; other ranks would wait for this one. */
    if (!perform_row(group, row->seed, row->ncases))
        _exit(1);
    return CHOIR_OK;
}

static int join_and_run(const struct row *row)
{
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "FAILED: choir_init: %s\n", choir_last_error());
        return 1;
    }
    if (choir_group_size(group) != seed_nranks(row->seed)) {
        fprintf(stderr, "random_collective: seed %llu is for %d ranks, not %d\n",
                (unsigned long long)row->seed, seed_nranks(row->seed), choir_group_size(group));
        return 2;
    }
    be_rank(group, (void *)row);
    choir_group_destroy(group);
    return 0;
}

static void show(uint64_t seed)
{
    static struct scenario s;
    char text[2000];

    scenario_make(seed, &s);
    fputs(scenario_text(&s, text, sizeof(text)), stdout);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "seed", required_argument, NULL, 's' },
        { "cases", required_argument, NULL, 'c' },
        { "join", no_argument, NULL, 'j' },
        { "show", no_argument, NULL, 'w' },
        { NULL, 0, NULL, 0 },
    };
    struct row row = { 1, 1 };
    int option;
    bool join = false, only_show = false;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            row.seed = strtoull(optarg, NULL, 0);
            break;
        case 'c':
            row.ncases = atoi(optarg);
            break;
        case 'j':
            join = true;
            break;
        case 'w':
            only_show = true;
            break;
        default:
            return 2;
        }
    }
    if (only_show) {
        for (int i = 0; i < row.ncases; i++)
            show(row.seed + (uint64_t)i * RANKS_MAX);
        return 0;
    }
    signal(SIGALRM, out_of_time);
    if (join)
        return join_and_run(&row);
    if (choir_run_threads(seed_nranks(row.seed), be_rank, &row) != CHOIR_OK) {
        fprintf(stderr, "FAILED: %s\n", choir_last_error());
        return 1;
    }
    return 0;
}
