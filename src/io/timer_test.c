/* timer_test.c - deadlines fire in order, whatever is started, stopped and moved meanwhile. */
#include "io/timer.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "choir_test.h"

struct alarm {
    struct ch_timer timer;
    int fired;
    ch_deadline fired_at; /* the deadline it had */
};

static struct {
    struct alarm *last;
    int order_errors;
} seen;

static void ring(struct ch_timer *timer)
{
    struct alarm *alarm = CH_CONTAINER(timer, struct alarm, timer);

    alarm->fired++;
    alarm->fired_at = timer->at;
    if (seen.last != NULL && seen.last->fired_at > alarm->fired_at)
        seen.order_errors++;
    seen.last = alarm;
}

static void start(struct ch_timers *timers, struct alarm *alarm, ch_deadline at)
{
    alarm->timer.fire = ring;
    ch_timer_start(timers, &alarm->timer, at);
}

CHOIR_TEST(nothing_is_due_in_an_empty_set)
{
    struct ch_timers timers = { .root = NULL };

    CHOIR_CHECK_EQ(ch_timers_next(&timers), CH_NEVER);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, CH_NEVER), 0);
}

CHOIR_TEST(only_what_is_due_fires)
{
    struct ch_timers timers = { .root = NULL };
    struct alarm a = { .fired = 0 }, b = { .fired = 0 };

    start(&timers, &a, 20);
    start(&timers, &b, 10);
    CHOIR_CHECK_EQ(ch_timers_next(&timers), 10u);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 9), 0);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 10), 1);
    CHOIR_CHECK_EQ(b.fired, 1);
    CHOIR_CHECK(!ch_timer_is_running(&b.timer));
    ch_timer_stop(&b.timer); /* harmless */
    start(&timers, &a, 30);  /* moved */
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 29), 0);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 30), 1);
    CHOIR_CHECK_EQ(ch_timers_next(&timers), CH_NEVER);
}

/* Thousands, with a third stopped and a third moved, against plain bookkeeping. */
CHOIR_TEST(thousands_fire_once_and_in_order)
{
    enum { COUNT = 20000 };
    struct choir_test_random random = { 7 };
    struct ch_timers timers = { .root = NULL };
    struct alarm *alarms = calloc(COUNT, sizeof(*alarms));
    int running = 0, fired = 0;

    CHOIR_CHECK(alarms != NULL);
    for (int i = 0; i < COUNT; i++)
        start(&timers, &alarms[i], 1 + choir_test_random(&random) % 5000);
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 0)
            ch_timer_stop(&alarms[i].timer);
        else if (i % 3 == 1)
            start(&timers, &alarms[i], 1 + choir_test_random(&random) % 5000);
        running += ch_timer_is_running(&alarms[i].timer);
    }
    CHOIR_CHECK_EQ(running, COUNT - (COUNT + 2) / 3);
    for (uint64_t now = 0; now <= 5000; now += 100) {
        fired += ch_timers_fire(&timers, now);
        CHOIR_CHECK_LT(now, ch_timers_next(&timers));
    }
    CHOIR_CHECK_EQ(fired, running);
    CHOIR_CHECK_EQ(seen.order_errors, 0);
    for (int i = 0; i < COUNT; i++)
        CHOIR_CHECK_EQ(alarms[i].fired, i % 3 != 0);
    free(alarms);
}

static struct {
    int order[4], count;
    struct ch_timers *timers;
    struct alarm *victim;
} script;

static void note_first(struct ch_timer *timer)
{
    (void)timer;
    script.order[script.count++] = 1;
}

static void note_second(struct ch_timer *timer)
{
    (void)timer;
    script.order[script.count++] = 2;
}

CHOIR_TEST(equal_deadlines_fire_as_started)
{
    struct ch_timers timers = { .root = NULL };
    struct ch_timer filler = { .fire = note_first }, first = { .fire = note_first },
                    second = { .fire = note_second };

    ch_timer_start(&timers, &filler, 5);
    ch_timer_start(&timers, &first, 10);
    ch_timer_start(&timers, &second, 10);
    ch_timer_stop(&filler);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 10), 2);
    CHOIR_CHECK_EQ(script.order[0], 1);
    CHOIR_CHECK_EQ(script.order[1], 2);
}

static void restart_and_stop_other(struct ch_timer *timer)
{
    script.count++;
    ch_timer_stop(&script.victim->timer);
    ch_timer_start(script.timers, timer, 0); /* due already: must not fire again in this pass */
}

CHOIR_TEST(a_timer_may_restart_itself_and_stop_others)
{
    struct ch_timers timers = { .root = NULL };
    struct alarm victim = { .fired = 0 };
    struct ch_timer busy = { .fire = restart_and_stop_other };

    script.timers = &timers;
    script.victim = &victim;
    ch_timer_start(&timers, &busy, 10);
    start(&timers, &victim, 10);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 10), 1);
    CHOIR_CHECK_EQ(victim.fired, 0);
    CHOIR_CHECK_EQ(ch_timers_next(&timers), 11u);
    CHOIR_CHECK_EQ(ch_timers_fire(&timers, 11), 1);
    ch_timer_stop(&busy);
    CHOIR_CHECK_EQ(ch_timers_next(&timers), CH_NEVER);
}
