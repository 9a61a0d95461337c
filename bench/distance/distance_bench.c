/*
 * distance_bench.c - how far two processors are from each other now: ns that a cache line takes there and back.
 *
 *   build/bin/bench/distance
 *
 * The first two that this process may use. Processors that have a cache in common are near: some 70 to 120 ns. Others are
 * far: 300 and more. Those of a virtual machine may be moved from one to the other while it runs, and
 * everything that ranks tell each other then takes several times as long: bench/compare notes the distance with each of its rows.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include <choir/choir.h>

#include "base/arch.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "stats.h"

enum { BLOCKS = 9, TRIPS = 1000 };

static struct {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t there;
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t back;
} line;

/* Acquire and release, though nothing else is handed over: as ranks do it. */
static void await(_Atomic uint64_t *flag, uint64_t value)
{
    while (atomic_load_explicit(flag, memory_order_acquire) < value)
        ch_arch_relax();
}

static void *answer(void *arg)
{
    pin(1);
    for (uint64_t i = 1; i <= (uint64_t)BLOCKS * TRIPS; i++) {
        await(&line.there, i);
        atomic_store_explicit(&line.back, i, memory_order_release);
    }
    return arg;
}

int main(void)
{
    double ns[BLOCKS];
    pthread_t thread;
    uint64_t i = 0;

    note_processors();
    if (choir_processors() < 2) {
        fprintf(stderr, "distance: this process may use one processor, expected two\n");
        return 1;
    }
    if (pthread_create(&thread, NULL, answer, NULL) != 0)
        return 1;
    pin(0);
    for (int block = 0; block < BLOCKS; block++) {
        uint64_t began = ch_now();

        for (int trip = 0; trip < TRIPS; trip++) {
            atomic_store_explicit(&line.there, ++i, memory_order_release);
            await(&line.back, i);
        }
        ns[block] = (double)(ch_now() - began) / TRIPS;
    }
    pthread_join(thread, NULL);
    printf("%.0f\n", spread_of(ns, BLOCKS).p50);
    return 0;
}
