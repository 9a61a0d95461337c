/*
 * algo_check_test.c - every algorithm is proved, for every number of ranks from 1 to 33 and around the
 * powers of two up to 129: in place, not, and mixed; all roots where ranks are few.
 */
#include <string.h>

#include "algo/algo.h"
#include "base/mem.h"
#include "choir_test.h"
#include "sched/blocks.h"
#include "sched/check.h"

enum { RANKS_MAX = 129, ROUNDS = 3, ALL_ROOTS_UP_TO = 9 };

/* Which ranks work in place. */
enum placement { APART, IN_PLACE, MIXED, NPLACEMENTS };

static bool in_place(enum placement p, uint32_t rank)
{
    return p == IN_PLACE || (p == MIXED && rank % 2 == 1);
}

static void build_all(const struct ch_algo *algo, uint32_t n, uint32_t root, enum placement p,
                      struct ch_sched **scheds)
{
    for (uint32_t r = 0; r < n; r++) {
        struct ch_shape shape = { algo->coll, r, n, root, in_place(p, r) };

        CHOIR_CHECK_OK(ch_algo_build(algo, &shape, &scheds[r]));
    }
}

static void destroy_all(uint32_t n, struct ch_sched **scheds)
{
    for (uint32_t r = 0; r < n; r++)
        ch_sched_destroy(scheds[r]);
}

/* Whether the rank knows how long a block is when lengths differ: it holds it. */
static bool knows_length(const struct ch_sched *s, uint32_t block)
{
    return ch_coll_holds(s->coll, s->nranks, s->root, CH_IN, s->rank, block) ||
           ch_coll_holds(s->coll, s->nranks, s->root, CH_OUT, s->rank, block);
}

/* What an algorithm says of its steps. */
static void check_steps(const struct ch_algo *algo, const struct ch_sched *s)
{
    bool flags = false, line = false, foreign = false;

    for (uint32_t i = 0; i < s->nsteps; i++)
        flags = flags || s->steps[i].kind == CH_POST || s->steps[i].kind == CH_AWAIT;
    for (uint32_t i = 0; i < s->nranges; i++) {
        flags = flags || s->ranges[i].region == CH_STAGE || s->ranges[i].region == CH_LINE;
        line = line || s->ranges[i].region == CH_LINE;
        foreign = foreign || !knows_length(s, s->ranges[i].block);
    }
    CHOIR_CHECK(!flags || algo->uses_memory);
    CHOIR_CHECK(!line || algo->in_line);
    CHOIR_CHECK(!foreign || algo->even_only);
}

/* What an algorithm says of itself, against what was seen. */
static void check_word(const struct ch_algo *algo, const struct ch_check_facts *facts, uint32_t n,
                       struct ch_sched **scheds)
{
    for (uint32_t r = 0; r < n; r++)
        check_steps(algo, scheds[r]);
    CHOIR_CHECK(!facts->partial || algo->partial);
    CHOIR_CHECK(facts->rank_order || algo->any_order);
}

static void check_one(const struct ch_algo *algo, uint32_t n, uint32_t root, enum placement p)
{
    static char trace[CH_CHECK_TRACE_MAX];
    struct ch_sched *scheds[RANKS_MAX];
    struct ch_sched *const *rounds[ROUNDS] = { scheds, scheds, scheds };
    struct ch_check_facts facts;

    CHOIR_ROW("%s %s ranks %u root %u placement %d", ch_coll_name(algo->coll), algo->name, n, root,
              (int)p);
    build_all(algo, n, root, p, scheds);
    if (ch_check_sequence(rounds, ROUNDS, n, &facts, trace) != CHOIR_OK)
        CHOIR_FAIL("%s\n%s", choir_last_error(), trace);
    check_word(algo, &facts, n, scheds);
    destroy_all(n, scheds);
}

/* All roots of few ranks; of many the first, the last, and some between. */
static bool root_is_tried(uint32_t n, uint32_t root)
{
    return n <= ALL_ROOTS_UP_TO || root == 0 || root == 1 || root == n / 2 || root == n - 1;
}

static void check_ranks(const struct ch_algo *algo, uint32_t n)
{
    uint32_t nroots = ch_coll_rooted(algo->coll) || algo->coll == CH_BARRIER ? n : 1;

    if (!ch_algo_fits(algo, n))
        return;
    for (uint32_t root = 0; root < nroots; root++) {
        for (int p = 0; root_is_tried(n, root) && p < NPLACEMENTS; p++)
            check_one(algo, n, root, (enum placement)p);
    }
}

static void check_coll(enum ch_coll coll)
{
    static const uint32_t large[] = { 63, 64, 65, 127, 128, 129 };

    for (size_t a = 0; ch_algos[a] != NULL; a++) {
        if (ch_algos[a]->coll != coll)
            continue;
        for (uint32_t n = 1; n <= (choir_test_valgrind() ? 9 : 33); n++)
            check_ranks(ch_algos[a], n);
        /* The sanitizers look at the checker; few ranks show them all of it. */
        for (size_t i = 0; choir_test_slowness() == 1 && i < CH_ARRAY_LEN(large); i++)
            check_ranks(ch_algos[a], large[i]);
    }
}

CHOIR_TEST_TIMED(allreduce, 120)
{
    check_coll(CH_ALLREDUCE);
}

CHOIR_TEST_TIMED(broadcast, 120)
{
    check_coll(CH_BROADCAST);
}

CHOIR_TEST_TIMED(reduce, 120)
{
    check_coll(CH_REDUCE);
}

CHOIR_TEST_TIMED(allgather, 120)
{
    check_coll(CH_ALLGATHER);
}

CHOIR_TEST_TIMED(reduce_scatter, 120)
{
    check_coll(CH_REDUCE_SCATTER);
}

CHOIR_TEST_TIMED(gather, 120)
{
    check_coll(CH_GATHER);
}

CHOIR_TEST_TIMED(scatter, 120)
{
    check_coll(CH_SCATTER);
}

CHOIR_TEST_TIMED(alltoall, 120)
{
    check_coll(CH_ALLTOALL);
}

CHOIR_TEST_TIMED(barrier, 120)
{
    check_coll(CH_BARRIER);
}

/* --- different operations one after the other --------------------------------------------------- */

enum { MIX_ROUNDS = 12, MIX_RANKS_MAX = 17 };

/* A random algorithm, root and placement for every round, as on a group's channel. */
static void check_mix(struct choir_test_random *random, uint32_t n)
{
    static char trace[CH_CHECK_TRACE_MAX];
    static struct ch_sched *scheds[MIX_ROUNDS][MIX_RANKS_MAX];
    struct ch_sched *const *rounds[MIX_ROUNDS];
    size_t nalgos = 0;

    while (ch_algos[nalgos] != NULL)
        nalgos++;
    for (int i = 0; i < MIX_ROUNDS; i++) {
        const struct ch_algo *algo;
        uint32_t root;

        do
            algo = ch_algos[choir_test_random(random) % nalgos];
        while (!ch_algo_fits(algo, n));
        root = ch_coll_rooted(algo->coll) || algo->coll == CH_BARRIER
                   ? (uint32_t)(choir_test_random(random) % n)
                   : 0;
        build_all(algo, n, root, (enum placement)(choir_test_random(random) % NPLACEMENTS),
                  scheds[i]);
        rounds[i] = scheds[i];
    }
    if (ch_check_sequence(rounds, MIX_ROUNDS, n, NULL, trace) != CHOIR_OK)
        CHOIR_FAIL("%s\n%s", choir_last_error(), trace);
    for (int i = 0; i < MIX_ROUNDS; i++)
        destroy_all(n, scheds[i]);
}

CHOIR_TEST_TIMED(any_operations_one_after_the_other, 120)
{
    static const uint32_t sizes[] = { 2, 3, 4, 5, 7, 8, 16, 17 };
    struct choir_test_random random = { 4711 };
    int tries = choir_test_long() ? 400 : 40;

    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        for (int k = 0; k < tries; k++) {
            CHOIR_ROW("ranks %u, sequence %d", sizes[i], k);
            check_mix(&random, sizes[i]);
        }
    }
}
