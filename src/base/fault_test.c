/* fault_test.c - the k-th call fails, and only that one. */
#include "choir_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "base/sys.h"

CHOIR_TEST(unarmed_nothing_fails)
{
    CHOIR_CHECK(!ch_fault_hit(CH_FAULT_open, EIO));
    CHOIR_CHECK(!ch_fault_disarm());
    CHOIR_CHECK_STR(ch_fault_last(), "nothing");
}

CHOIR_TEST(the_kth_use_of_a_point_fails_once)
{
    ch_fault_arm(CH_FAULT_open, 3, 0);
    for (int i = 1; i <= 6; i++) {
        CHOIR_ROW("use %d", i);
        CHOIR_CHECK(!ch_fault_hit(CH_FAULT_read, EIO)); /* another point is not counted */
        errno = 0;
        CHOIR_CHECK_EQ(ch_fault_hit(CH_FAULT_open, EMFILE), i == 3);
        CHOIR_CHECK_EQ(errno, i == 3 ? EMFILE : 0);
    }
    CHOIR_CHECK_STR(ch_fault_last(), "open");
    CHOIR_CHECK(ch_fault_disarm());
    CHOIR_CHECK(!ch_fault_hit(CH_FAULT_open, EMFILE));
}

CHOIR_TEST(any_counts_all_points)
{
    ch_fault_arm(CH_FAULT_ANY, 2, ENOSPC);
    CHOIR_CHECK(!ch_fault_hit(CH_FAULT_open, EIO));
    CHOIR_CHECK(ch_fault_hit(CH_FAULT_alloc, ENOMEM));
    CHOIR_CHECK_EQ(errno, ENOSPC);
    CHOIR_CHECK_STR(ch_fault_last(), "alloc");
    CHOIR_CHECK(ch_fault_disarm());
}

CHOIR_TEST(a_plan_that_was_not_reached_says_so)
{
    ch_fault_arm(CH_FAULT_ANY, 2, 0);
    CHOIR_CHECK(!ch_fault_hit(CH_FAULT_open, EIO));
    CHOIR_CHECK(!ch_fault_disarm());
    CHOIR_CHECK_STR(ch_fault_last(), "nothing");
}

CHOIR_TEST(every_point_has_a_name)
{
    for (int p = 0; p <= CH_NFAULTS; p++)
        CHOIR_CHECK(ch_fault_name((enum ch_fault_point)p)[0] != '\0');
    CHOIR_CHECK_STR(ch_fault_name(CH_FAULT_alloc), "alloc");
    CHOIR_CHECK_STR(ch_fault_name(CH_FAULT_ANY), "any");
    CHOIR_CHECK_STR(ch_fault_name(CH_FAULT_epoll_wait), "epoll_wait");
}

enum { THREADS = 4, USES = 1000 };
static _Atomic int hits;

static void *use_point(void *arg)
{
    for (int i = 0; i < USES; i++)
        hits += ch_fault_hit(CH_FAULT_read, EIO);
    return arg;
}

CHOIR_TEST(uses_are_counted_over_all_threads)
{
    pthread_t threads[THREADS];

    ch_fault_arm(CH_FAULT_read, THREADS * USES / 2, 0);
    for (int i = 0; i < THREADS; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, use_point, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHOIR_CHECK_EQ(hits, 1);
    CHOIR_CHECK(ch_fault_disarm());
}

/* The wrapper of sys.def: the call is not made, the value and errno of its line come back. */
CHOIR_TEST(a_failing_system_call_has_no_effect)
{
    ch_fault_arm(CH_FAULT_eventfd, 1, 0);
    errno = 0;
    CHOIR_CHECK_EQ(ch_sys_eventfd(0), -1);
    CHOIR_CHECK_EQ(errno, EMFILE);
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
    CHOIR_CHECK(ch_fault_disarm());

    ch_fault_arm(CH_FAULT_map_shared, 1, EACCES);
    CHOIR_CHECK(ch_sys_map_shared(-1, 4096) == NULL);
    CHOIR_CHECK_EQ(errno, EACCES);
    CHOIR_CHECK(ch_fault_disarm());
}
