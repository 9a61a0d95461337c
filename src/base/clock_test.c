/* clock_test.c - the counter's time against the kernel's, and between threads. */
#include "choir_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <choir/info.h>

#include "base/clock.h"
#include "base/sys.h"

/* |ch_now() - CLOCK_MONOTONIC| where the three reads were close together; 0 if they were not (then
 * this thread was put aside in between, which says nothing about the clock). */
static uint64_t distance_ns(void)
{
    uint64_t before = ch_sys_clock_ns();
    uint64_t now = ch_now_to_monotonic(ch_now());
    uint64_t after = ch_sys_clock_ns();

    if (after - before > 5 * CH_US)
        return 0;
    return now < before ? before - now : now > after ? now - after : 0;
}

CHOIR_TEST(agrees_with_the_kernel_over_a_second)
{
    uint64_t end = ch_sys_clock_ns() + 1500 * (uint64_t)CH_MS;
    uint64_t worst = 0;

    while (ch_sys_clock_ns() < end) {
        uint64_t d = distance_ns();

        if (d > worst)
            worst = d;
    }
    printf("%s (%s): worst distance %llu ns\n", choir_clock_name(), choir_clock_reason(),
           (unsigned long long)worst);
    /* Two rates that differ by 20 millionths part by 20 us in a second. */
    CHOIR_CHECK_LT(worst, 20 * (uint64_t)CH_US);
}

CHOIR_TEST(the_kernel_clock_can_be_forced)
{
    setenv("CHOIR_CLOCK", "vdso", 1);
    CHOIR_CHECK_STR(choir_clock_name(), "vdso");
    CHOIR_CHECK_HAS(choir_clock_reason(), "CHOIR_CLOCK");
    CHOIR_CHECK_EQ(distance_ns(), 0);
}

enum { NTHREADS = 4 };

static struct {
    _Atomic uint64_t latest; /* the largest time any thread has seen */
    _Atomic uint64_t backwards;
    uint64_t end;
} race;

/* Read the others' latest, then the clock: what was read later must not be earlier. */
static void *read_in_turn(void *arg)
{
    for (;;) {
        uint64_t seen = atomic_load(&race.latest);
        uint64_t now = ch_now();

        if (now < seen)
            atomic_fetch_add(&race.backwards, 1);
        while (now > seen && !atomic_compare_exchange_weak(&race.latest, &seen, now))
            ;
        if (now > race.end)
            return arg;
    }
}

/* From before the first line begins, through two steerings. */
CHOIR_TEST(never_goes_back_between_threads)
{
    pthread_t threads[NTHREADS];

    race.end = ch_sys_clock_ns() + 2300 * (uint64_t)CH_MS;
    for (int i = 0; i < NTHREADS; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, read_in_turn, NULL), 0);
    for (int i = 0; i < NTHREADS; i++)
        pthread_join(threads[i], NULL);
    CHOIR_CHECK_EQ(atomic_load(&race.backwards), 0);
}

/* --- a kernel clock of our own: what if the two part? ------------------------------------------- */

static int64_t shift_ns;

static uint64_t shifted_clock(void)
{
    return ch_sys_real.clock_ns() + (uint64_t)shift_ns;
}

static void spin_for_ms(unsigned ms)
{
    uint64_t end = ch_sys_real.clock_ns() + ms * (uint64_t)CH_MS;
    uint64_t last = 0;

    while (ch_sys_real.clock_ns() < end) {
        uint64_t now = ch_now();

        CHOIR_CHECK_LE(last, now);
        last = now;
    }
}

static void skip_without_counter(void)
{
    if (strcmp(choir_clock_name(), "tsc") != 0)
        CHOIR_SKIP("the CPU's counter is not in use here: %s", choir_clock_reason());
}

CHOIR_TEST(a_counter_that_ran_away_is_dropped_and_time_goes_on)
{
    struct ch_sys_ops ops = ch_sys_real;

    skip_without_counter();
    ops.clock_ns = shifted_clock;
    ch_sys_replace(&ops);
    spin_for_ms(50);
    shift_ns = -500 * (int64_t)CH_MS; /* as after a suspend that the counter did not notice */
    spin_for_ms(1200);
    CHOIR_CHECK_STR(choir_clock_name(), "vdso");
    CHOIR_CHECK_HAS(choir_clock_reason(), "parted");
    CHOIR_CHECK_EQ(ch_now_to_monotonic(ch_now()) / CH_S, shifted_clock() / CH_S);
    ch_sys_replace(NULL);
}

CHOIR_TEST(a_small_difference_is_steered_away)
{
    struct ch_sys_ops ops = ch_sys_real;
    uint64_t distance = UINT64_MAX;

    skip_without_counter();
    ops.clock_ns = shifted_clock;
    ch_sys_replace(&ops);
    spin_for_ms(50);
    shift_ns = -200 * (int64_t)CH_US;
    /* Some three seconds, if nobody holds this thread up where it compares the clocks. */
    for (int i = 0; i < 200 && distance >= 20 * (uint64_t)CH_US; i++) {
        spin_for_ms(100);
        distance = distance_ns();
    }
    CHOIR_CHECK_STR(choir_clock_name(), "tsc");
    CHOIR_CHECK_LT(distance, 20 * (uint64_t)CH_US);
    ch_sys_replace(NULL);
}

CHOIR_TEST(deadlines)
{
    CHOIR_CHECK_EQ(ch_deadline_ms(-1), CH_NEVER);
    CHOIR_CHECK_EQ(ch_deadline_ms(INT64_MAX), CH_NEVER);
    CHOIR_CHECK_EQ(ch_deadline_left_ns(CH_NEVER), -1);
    CHOIR_CHECK(!ch_deadline_passed(CH_NEVER));
    CHOIR_CHECK(ch_deadline_passed(ch_deadline_ms(0)));
    CHOIR_CHECK_EQ(ch_deadline_left_ns(1), 0);
    CHOIR_CHECK_LE(ch_deadline_left_ns(ch_deadline_ms(1000)), (int64_t)CH_S);
    CHOIR_CHECK_LT((int64_t)CH_S / 2, ch_deadline_left_ns(ch_deadline_ms(1000)));
}
