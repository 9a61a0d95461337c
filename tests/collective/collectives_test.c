/*
 * collectives_test.c - random cases of collectives with ranks as threads, so that ThreadSanitizer and
 * valgrind see both sides of every protocol. The same cases with processes: random_collective_test.py. CHOIR_TEST_SEED
 * begins elsewhere.
 */
#include <stdlib.h>

#include "choir_test.h"
#include "perform.h"

struct row {
    uint64_t seed;
    int ncases;
};

static choir_status be_rank(choir_group *group, void *arg)
{
    const struct row *row = arg;

    if (!perform_row(group, row->seed, row->ncases))
        CHOIR_FAIL("see above");
    return CHOIR_OK;
}

static void cases_of(int nranks)
{
    int slowness = (int)choir_test_slowness();
    /* Watched step by step, a few of each number of ranks have all the code in them. */
    int ncases = (choir_test_long() ? 800 : slowness > 1 ? 80 : 120) / slowness;
    const char *seed = getenv("CHOIR_TEST_SEED"); /* begin elsewhere */
    struct row row = { RANKS_MAX * (1000000 + (seed != NULL ? strtoull(seed, NULL, 0) : 0)) +
                           (uint64_t)nranks - 1,
                       ncases > 5 ? ncases : 5 };

    CHOIR_CHECK_OK(choir_run_threads(nranks, be_rank, &row));
}

#define CASES_OF(n)                                                                                \
    CHOIR_TEST_TIMED(random_cases_of_##n##_ranks, 600)                                             \
    {                                                                                              \
        cases_of(n);                                                                               \
    }

CASES_OF(1)
CASES_OF(2)
CASES_OF(3)
CASES_OF(4)
CASES_OF(5)
CASES_OF(6)
CASES_OF(7)
CASES_OF(8)
CASES_OF(9)
CASES_OF(10)
CASES_OF(11)
CASES_OF(12)
CASES_OF(13)
CASES_OF(14)
CASES_OF(15)
CASES_OF(16)
CASES_OF(17)
