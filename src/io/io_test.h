/*
 * io_test.h - what the tests of io have in common: a waiter to wait on, and a look at threads.
 */
#ifndef CH_IO_TEST_H
#define CH_IO_TEST_H

#include "choir_test.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/sys.h"
#include "io/patience.h"

/* Waits that do not spin make the same system calls in every run: faults can be counted off. */
CH_CONSTRUCTOR static void sleep_at_once(void)
{
    setenv("CHOIR_SPIN_US", "0", 1);
    setenv("CHOIR_YIELD_US", "0", 1);
}

struct rig {
    struct ch_bell_word word;
    struct ch_waiter waiter;
};

static inline choir_status rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    return ch_waiter_init(&rig->waiter, &rig->word);
}

static inline void rig_fini(struct rig *rig)
{
    ch_waiter_fini(&rig->waiter);
}

/* Patience for what should happen at once, however slow the machine or the tool. */
static inline struct ch_patience patience_ms(struct rig *rig, int64_t ms)
{
    return (struct ch_patience){ .waiter = &rig->waiter, .until = ch_deadline_ms(ms) };
}

static inline struct ch_patience ample(struct rig *rig)
{
    return patience_ms(rig, 10000 * (int64_t)choir_test_slowness());
}

/* Wait until `holds(arg)`, which somebody else makes true. */
static inline void wait_until(bool (*holds)(void *arg), void *arg, const char *what)
{
    ch_deadline until = ch_deadline_ms(10000 * (int64_t)choir_test_slowness());

    while (!holds(arg)) {
        if (ch_deadline_passed(until))
            CHOIR_FAIL("never happened: %s", what);
        sched_yield();
    }
}

/* An error must have come within its deadline of `ms`, give or take a slow machine. */
static inline void check_took_about(uint64_t began, int64_t ms)
{
    int64_t took = (int64_t)((ch_now() - began) / CH_MS);

    CHOIR_CHECK_LE(ms - 1, took);
    CHOIR_CHECK_LE(took, ms + 2000 * (int64_t)choir_test_slowness());
}

/* Run `scenario` with the k-th call of one point failing with `err`, for every k: it must cope. */
static inline void check_copes_with(enum ch_fault_point point, int err,
                                    choir_status (*scenario)(void *arg), void *arg)
{
    bool fired = true;

    for (uint64_t k = 1; fired; k++) {
        choir_status rc;

        CHOIR_ROW("call %llu of %s fails with errno %d", (unsigned long long)k,
                  ch_fault_name(point), err);
        ch_fault_arm(point, k, err);
        rc = scenario(arg);
        fired = ch_fault_disarm();
        CHOIR_CHECK_OK(rc);
    }
}

#endif
