/*
 * rendezvous_bench.c - how long ranks that already run take from connecting to knowing each other.
 *
 *   build/bin/bench/rendezvous [RANKS [ROUNDS]]        64 ranks, 11 rounds
 *
 * A round forks RANKS processes, which wait; a server is started, as a launcher would; then all are let
 * go at once and call choir_init(). The round took as long as its slowest rank: store connected, all
 * records known, descriptors of all exchanged, everybody done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <choir/choir.h>

#include "stats.h"

enum { RANKS_MAX = 512, ROUNDS_MAX = 1001 };

/* What a rank is told when it may start. */
struct start_signal {
    char url[128];
    choir_token token;
};

/* What it tells: when it was done, negative if it failed. */
struct outcome {
    double done;
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    fprintf(stderr, "rendezvous: %s: %s\n", what, choir_last_error());
    exit(1);
}

static void be_rank(int rank, int nranks, int start_fd, int outcome_fd)
{
    struct start_signal start;
    struct outcome outcome = { -1 };
    choir_store *store;
    choir_group *group;

    if (read(start_fd, &start, sizeof(start)) != (ssize_t)sizeof(start))
        _exit(1);
    if (choir_store_open(start.url, CHOIR_OPTS(store_open, .token = &start.token), &store) ==
            CHOIR_OK &&
        choir_init(&group, CHOIR_OPTS(init, .store = store, .rank = rank, .nranks = nranks,
                                      .timeout_ms = 20000)) == CHOIR_OK) {
        outcome.done = now();
        choir_group_destroy(group);
        choir_store_close(store);
    } else {
        fprintf(stderr, "rank %d: %s\n", rank, choir_last_error());
    }
    if (write(outcome_fd, &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome))
        _exit(1);
    _exit(0);
}

/* Seconds from letting go to the last rank's end. */
static double run_round(int nranks)
{
    int start_fds[2], outcome_fds[2];
    struct start_signal start = { .url = "" };
    choir_store_server *server;
    double began, last = 0;

    if (pipe(start_fds) != 0 || pipe(outcome_fds) != 0)
        exit(1);
    for (int r = 0; r < nranks; r++) {
        if (fork() == 0)
            be_rank(r, nranks, start_fds[0], outcome_fds[1]);
    }
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
        struct outcome outcome;

        if (read(outcome_fds[0], &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome) ||
            outcome.done < 0)
            exit(1);
        last = outcome.done > last ? outcome.done : last;
    }
    while (wait(NULL) > 0)
        ;
    choir_store_server_destroy(server);
    for (int i = 0; i < 2; i++) {
        close(start_fds[i]);
        close(outcome_fds[i]);
    }
    return last - began;
}

int main(int argc, char **argv)
{
    static double times[ROUNDS_MAX];
    int nranks = argc > 1 ? atoi(argv[1]) : 64, rounds = argc > 2 ? atoi(argv[2]) : 11;
    struct spread spread;

    if (nranks < 1 || nranks > RANKS_MAX || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: rendezvous [RANKS 1-%d [ROUNDS 1-%d]]\n", RANKS_MAX, ROUNDS_MAX);
        return 2;
    }
    for (int i = 0; i < rounds; i++)
        times[i] = run_round(nranks) * 1e3;
    spread = spread_of(times, (size_t)rounds);
    printf("%d ranks, from connect to all known: %.1f ms [%.1f-%.1f], slowest of %d rounds %.1f\n",
           nranks, spread.p50, spread.p10, spread.p90, rounds, times[rounds - 1]);
    return 0;
}
