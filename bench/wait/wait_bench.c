/*
 * wait_bench.c - what a post, a wake-up and a round trip cost on this machine.
 *
 * usage: wait [--json]
 *
 * Contenders run in alternating blocks of one run. A "post" is compared with a plain release store
 * to the same place: alone (the line stays in this core's cache) and watched (another thread, on
 * another processor, spins on the flag, so that the line travels). Nobody sleeps in these rows. The
 * wake-up is from just before the post to the sleeper's return from its wait.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <choir/choir.h>

#include "base/arch.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/wait.h"
#include "stats.h"

enum { BLOCKS = 101, POSTS = 20000, WAKES = 401, TRIPS = 2000 };

static struct {
    struct ch_bell_word word[2];
    struct {
        _Alignas(CH_CACHE_UNIT) _Atomic uint64_t flag;
    } side[2];
    _Alignas(CH_CACHE_UNIT) _Atomic bool stop;
} shared;

static struct ch_waiter waiter[2];
static bool json;

static void print_row(const char *what, struct spread s)
{
    if (json)
        printf("{\"what\": \"%s\", \"p50_ns\": %.2f, \"p10_ns\": %.2f, \"p90_ns\": %.2f}\n", what,
               s.p50, s.p10, s.p90);
    else
        printf("%-58s %9.1f %9.1f %9.1f\n", what, s.p50, s.p10, s.p90);
}

/* --- posts that find nobody asleep -------------------------------------------------------------- */

enum contender { PLAIN_STORE, POST, POST_WITH_FENCE, NCONTENDERS };

static double block_ns(enum contender who, uint64_t *value)
{
    struct ch_bell bell = waiter[0].bell;
    uint64_t began = ch_now();

    bell.fence = who == POST_WITH_FENCE;
    for (int i = 0; i < POSTS; i++) {
        if (who == PLAIN_STORE)
            atomic_store_explicit(&shared.side[0].flag, ++*value, memory_order_release);
        else
            ch_post(&bell, &shared.side[0].flag, ++*value);
    }
    return (double)(ch_now() - began) / POSTS;
}

static void *watch(void *arg)
{
    pin(1);
    while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
        (void)atomic_load_explicit(&shared.side[0].flag, memory_order_acquire);
        ch_arch_relax();
    }
    return arg;
}

static void measure_posts(const char *where)
{
    static const char *const names[] = { "plain release store", "post, nobody asleep",
                                         "post with a fence, nobody asleep" };
    static double ns[NCONTENDERS][BLOCKS], more[NCONTENDERS][BLOCKS];
    uint64_t value = 0;
    char what[96];

    for (int b = -5; b < BLOCKS; b++) {
        for (int who = 0; who < NCONTENDERS; who++) {
            double took = block_ns((enum contender)who, &value);

            if (b >= 0) {
                ns[who][b] = took;
                more[who][b] = took - ns[PLAIN_STORE][b];
            }
        }
    }
    for (int who = 0; who < NCONTENDERS; who++) {
        snprintf(what, sizeof(what), "%s, %s", names[who], where);
        print_row(what, spread_of(ns[who], BLOCKS));
    }
    for (int who = 1; who < NCONTENDERS; who++) {
        snprintf(what, sizeof(what), "  %s more than a plain store, %s",
                 who == POST ? "post:" : "fenced post:", where);
        print_row(what, spread_of(more[who], BLOCKS));
    }
}

/* --- wake-ups and round trips ------------------------------------------------------------------- */

static _Atomic uint64_t woken_at;

static void *sleep_and_answer(void *arg)
{
    struct ch_wait wait = { .waiter = &waiter[0], .until = CH_NEVER, .what = "a post" };
    uint64_t rounds = *(const uint64_t *)arg;

    pin(1);
    for (uint64_t n = 1; n <= rounds; n++) {
        if (ch_wait_flag(&wait, &shared.side[0].flag, n) != CHOIR_OK)
            break;
        atomic_store_explicit(&woken_at, ch_now(), memory_order_relaxed);
        ch_post(&waiter[1].bell, &shared.side[1].flag, n);
    }
    return NULL;
}

/* Each round: wait until the other sleeps (if it is to), post, wait for the answer. */
static void measure_rounds(bool asleep, double *ns, uint64_t rounds)
{
    struct ch_wait wait = { .waiter = &waiter[1], .until = CH_NEVER, .what = "the answer" };
    pthread_t other;

    atomic_store(&shared.side[0].flag, 0);
    atomic_store(&shared.side[1].flag, 0);
    if (asleep)
        waiter[0].spin_ns = waiter[0].spin_min_ns = waiter[0].spin_max_ns = waiter[0].yield_ns = 0;
    else
        ch_waiter_set_crowd(&waiter[0], 1);
    pthread_create(&other, NULL, sleep_and_answer, &rounds);
    for (uint64_t n = 1; n <= rounds; n++) {
        uint64_t began;

        while (asleep && atomic_load(&shared.word[0].nasleep) == 0)
            ch_arch_relax();
        for (uint64_t until = ch_now() + 200 * CH_US; asleep && ch_now() < until;)
            ch_arch_relax(); /* it has announced its sleep; let it get there */
        began = ch_now();
        ch_post(&waiter[0].bell, &shared.side[0].flag, n);
        (void)ch_wait_flag(&wait, &shared.side[1].flag, n);
        ns[n - 1] = (double)((asleep ? atomic_load(&woken_at) : ch_now()) - began);
    }
    pthread_join(other, NULL);
}

/* With and without fences in the posts, in alternating blocks. */
static void measure_trips(void)
{
    enum { TRIP_BLOCKS = 21 };
    static double trips[TRIPS], medians[2][TRIP_BLOCKS];
    bool usual = waiter[0].bell.fence;

    for (int b = 0; b < TRIP_BLOCKS; b++) {
        for (int fence = 0; fence < 2; fence++) {
            waiter[0].bell.fence = waiter[1].bell.fence = fence != 0;
            measure_rounds(false, trips, TRIPS);
            medians[fence][b] = spread_of(trips, TRIPS).p50;
        }
    }
    waiter[0].bell.fence = waiter[1].bell.fence = usual;
    print_row("round trip between two threads awake", spread_of(medians[0], TRIP_BLOCKS));
    print_row("the same, posts with fences", spread_of(medians[1], TRIP_BLOCKS));
}

int main(int argc, char **argv)
{
    static double wakes[WAKES];
    int processors = choir_processors();
    pthread_t watcher;

    json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 2 || (argc == 2 && !json)) {
        fprintf(stderr, "usage: wait [--json]\n");
        return 2;
    }
    note_processors();
    for (int i = 0; i < 2; i++) {
        if (ch_waiter_init(&waiter[i], &shared.word[i]) != CHOIR_OK) {
            fprintf(stderr, "wait: %s\n", choir_last_error());
            return 1;
        }
    }
    pin(0);
    if (!json) {
        printf("Waiting and posting: %d processors, clock %s, sleepers order by %s\n\n", processors,
               choir_clock_name(), waiter[0].bell.fence ? "fences" : "membarrier");
        printf("%-58s %9s %9s %9s\n", "nanoseconds", "median", "10 %", "90 %");
    }
    measure_posts("alone");
    if (processors > 1) {
        pthread_create(&watcher, NULL, watch, NULL);
        measure_posts("watched");
        atomic_store(&shared.stop, true);
        pthread_join(watcher, NULL);
        measure_trips();
    }
    measure_rounds(true, wakes, WAKES);
    print_row("wake-up of a thread asleep", spread_of(wakes, WAKES));
    for (int i = 0; i < 2; i++)
        ch_waiter_fini(&waiter[i]);
    return 0;
}
