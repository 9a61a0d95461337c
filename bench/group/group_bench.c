/*
 * group_bench.c - how long it takes to make a group of processes that already run, and to split one.
 *
 *   build/bin/bench/group [RANKS...]        2 8 64, and a split of 8
 *
 * Making: a round forks the ranks, which wait; a server is started, as a launcher would; then all are let go at
 * once and call choir_init(). Splitting: the ranks of a group split all of it, again and again, a barrier
 * before each. A round took as long as its slowest rank. Ranks are bound to a processor each if there are enough.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <choir/choir.h>
#include <choir/coll.h>

#include "stats.h"

enum { RANKS_MAX = 512, ROUNDS = 11, SPLITS = 101 };

/* What a rank is told when it may start. */
struct start_signal {
    char url[128];
    choir_token token;
};

/* What it tells: when it was in, negative if it failed; and how long each split took. */
struct outcome {
    double joined;
    double splits[SPLITS];
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    fprintf(stderr, "group: %s: %s\n", what, choir_last_error());
    exit(1);
}

static void time_splits(choir_group *group, double times[SPLITS])
{
    int ranks[RANKS_MAX], nranks = choir_group_size(group);
    choir_group *child;
    double began;

    for (int r = 0; r < nranks; r++)
        ranks[r] = r;
    for (int i = 0; i < SPLITS; i++) {
        if (choir_barrier(group, NULL, NULL) != CHOIR_OK)
            die("barrier");
        began = now();
        if (choir_group_split(group, ranks, (size_t)nranks, NULL, &child) != CHOIR_OK)
            die("split");
        times[i] = now() - began;
        choir_group_destroy(child);
    }
}

/* As `choir run` does where there are processors enough; or the kernel may start both of two ranks on one. */
static void bind_to_own(int rank, int nranks)
{
    cpu_set_t mine;

    CPU_ZERO(&mine);
    CPU_SET(rank, &mine);
    if (nranks <= sysconf(_SC_NPROCESSORS_ONLN))
        (void)sched_setaffinity(0, sizeof(mine), &mine); /* where it cannot be, it is not */
}

static void be_rank(int rank, int nranks, bool split, int start_fd, int outcome_fd)
{
    struct start_signal start;
    struct outcome outcome = { .joined = -1 };
    choir_store *store = NULL;
    choir_group *group = NULL;

    bind_to_own(rank, nranks);
    if (read(start_fd, &start, sizeof(start)) != (ssize_t)sizeof(start))
        _exit(1);
    if (choir_store_open(start.url, CHOIR_OPTS(store_open, .token = &start.token), &store) !=
            CHOIR_OK ||
        choir_init(&group, CHOIR_OPTS(init, .store = store, .rank = rank, .nranks = nranks,
                                      .timeout_ms = 20000)) != CHOIR_OK)
        die("join");
    outcome.joined = now();
    if (split)
        time_splits(group, outcome.splits);
    choir_group_destroy(group);
    choir_store_close(store);
    /* Short enough for a pipe to take it in one piece. */
    _Static_assert(sizeof(outcome) <= 4096, "PIPE_BUF");
    if (write(outcome_fd, &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome))
        _exit(1);
    _exit(0);
}

/* Seconds from letting go to the last rank's being in; of each split, its slowest rank's. */
static double run_round(int nranks, bool split, double splits[SPLITS])
{
    int start_fds[2], outcome_fds[2];
    struct start_signal start = { .url = "" };
    struct outcome outcome;
    choir_store_server *server;
    double began, last = 0;

    if (pipe(start_fds) != 0 || pipe(outcome_fds) != 0)
        exit(1);
    for (int r = 0; r < nranks; r++) {
        if (fork() == 0)
            be_rank(r, nranks, split, start_fds[0], outcome_fds[1]);
    }
    close(outcome_fds[1]); /* a rank that dies is the end of the file */
    if (choir_token_make(&start.token) != CHOIR_OK ||
        choir_store_server_create(CHOIR_OPTS(store_server_create, .token = &start.token),
                                  &server) != CHOIR_OK)
        die("server");
    snprintf(start.url, sizeof(start.url), "tcp://%s", choir_store_server_address(server));
    began = now();
    for (int r = 0; r < nranks; r++) {
        if (write(start_fds[1], &start, sizeof(start)) != (ssize_t)sizeof(start))
            exit(1);
    }
    for (int r = 0; r < nranks; r++) {
        if (read(outcome_fds[0], &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome))
            exit(1);
        last = outcome.joined > last ? outcome.joined : last;
        for (int i = 0; i < SPLITS && split; i++)
            splits[i] = outcome.splits[i] > splits[i] ? outcome.splits[i] : splits[i];
    }
    while (wait(NULL) > 0)
        ;
    choir_store_server_destroy(server);
    close(start_fds[0]);
    close(start_fds[1]);
    close(outcome_fds[0]);
    return last - began;
}

static void make_groups(int nranks)
{
    double times[ROUNDS];
    struct spread spread;

    for (int i = 0; i < ROUNDS; i++)
        times[i] = run_round(nranks, false, NULL) * 1e3;
    spread = spread_of(times, ROUNDS);
    printf("make %3d ranks: %7.2f ms [%.2f-%.2f], slowest of %d rounds %.2f\n", nranks, spread.p50,
           spread.p10, spread.p90, ROUNDS, times[ROUNDS - 1]);
    fflush(stdout);
}

static void split_group(int nranks)
{
    double times[SPLITS] = { 0 };
    struct spread spread;

    run_round(nranks, true, times);
    for (int i = 0; i < SPLITS; i++)
        times[i] *= 1e3;
    spread = spread_of(times, SPLITS);
    printf("split %2d ranks: %7.3f ms [%.3f-%.3f], slowest of %d %.3f\n", nranks, spread.p50,
           spread.p10, spread.p90, SPLITS, times[SPLITS - 1]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int usual[] = { 2, 8, 64 };

    for (int i = 1; i < argc; i++) {
        int nranks = atoi(argv[i]);

        if (nranks < 1 || nranks > RANKS_MAX) {
            fprintf(stderr, "usage: group [RANKS 1-%d ...]\n", RANKS_MAX);
            return 2;
        }
        make_groups(nranks);
        split_group(nranks);
    }
    if (argc > 1)
        return 0;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        make_groups(usual[i]);
    split_group(2);
    split_group(8);
    return 0;
}
