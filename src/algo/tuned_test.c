/*
 * tuned_test.c - limits follow from figures: dear waits speak for one shot, dear bytes for two.
 */
#include "algo/tuned.h"

#include "choir_test.h"

static uint64_t limit(enum ch_coll coll, uint32_t nranks, double wait_us, double gbs)
{
    choir_machine m;

    choir_machine_init(&m);
    m.wait_us = wait_us;
    m.npoints = 1;
    m.points[0] = (choir_machine_point){ 4096, gbs, gbs };
    return ch_tuned_one_shot(&m, coll, nranks);
}

CHOIR_TEST(limits_follow_from_figures)
{
    /* One shot moves (N + 3)n, two (5 - 1/N)n: with 4 ranks 2.25n more, which must cost less than a wait, part of which is
     * hidden behind copies. Times four in either is times four in the limit. */
    uint64_t base = limit(CH_ALLREDUCE, 4, 10, 1);

    CHOIR_CHECK(base >= 1024 && base <= 4096);
    CHOIR_CHECK_EQ(limit(CH_ALLREDUCE, 4, 40, 1), 4 * base);
    CHOIR_CHECK_EQ(limit(CH_ALLREDUCE, 4, 10, 4), 4 * base);
    CHOIR_CHECK_EQ(limit(CH_ALLREDUCE, 4, 0, 1), 1u);
    CHOIR_CHECK_LT(limit(CH_ALLREDUCE, 16, 10, 1), limit(CH_ALLREDUCE, 2, 10, 1));
    CHOIR_CHECK_LT(1u, limit(CH_REDUCE, 4, 10, 1));
    CHOIR_CHECK_EQ(limit(CH_ALLGATHER, 4, 10, 1), 0u); /* there is nothing to choose */
    CHOIR_CHECK_EQ(limit(CH_ALLREDUCE, 65, 10, 1), 0u);
}
