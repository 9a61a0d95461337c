/*
 * algo_test.c - every algorithm builds for every shape, costs what its head says, and is proven for small
 * numbers of ranks. The long proof over many ranks is in tests/.
 */
#include "algo/algo.h"

#include <math.h>
#include <string.h>

#include "algo/cost.h"
#include "algo/play.h"
#include "base/mem.h"
#include "choir_test.h"
#include "sched/blocks.h"
#include "sched/check.h"

enum { NRANKS_MAX = 33 };

/* The schedules of all ranks of one operation. */
struct team {
    struct ch_sched *scheds[NRANKS_MAX];
    uint32_t nranks;
};

enum placement { OUT_OF_PLACE, IN_PLACE, MIXED, NPLACEMENTS };

static bool in_place(enum placement placement, uint32_t rank)
{
    return placement == IN_PLACE || (placement == MIXED && rank % 2 == 1);
}

static struct team build(const struct ch_algo *algo, uint32_t nranks, uint32_t root,
                         enum placement placement)
{
    struct team team = { .nranks = nranks };

    for (uint32_t r = 0; r < nranks; r++) {
        struct ch_shape shape = { .coll = algo->coll,
                                  .rank = r,
                                  .nranks = nranks,
                                  .root = root,
                                  .in_place = in_place(placement, r) };

        CHOIR_CHECK_OK(ch_algo_build(algo, &shape, &team.scheds[r]));
    }
    return team;
}

static void destroy(struct team *team)
{
    for (uint32_t r = 0; r < team->nranks; r++)
        ch_sched_destroy(team->scheds[r]);
}

static uint32_t nroots(const struct ch_algo *algo, uint32_t nranks)
{
    /* The root of a barrier is who leaves first, in algorithms that have one. */
    return ch_coll_rooted(algo->coll) || algo->coll == CH_BARRIER ? nranks : 1;
}

CHOIR_TEST(names_are_unique_and_found)
{
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        const struct ch_algo *a = ch_algos[i];

        CHOIR_ROW("%s %s", ch_coll_name(a->coll), a->name);
        CHOIR_CHECK(ch_algo_find(a->coll, a->name) == a);
        CHOIR_CHECK(a->help != NULL && a->emit != NULL);
        CHOIR_CHECK(!a->in_line || a->uses_memory);
    }
    CHOIR_CHECK(ch_algo_find(CH_ALLREDUCE, "staged") == NULL);
    CHOIR_CHECK(ch_algo_find(CH_BARRIER, "") == NULL);
}

CHOIR_TEST(what_makes_no_sense_is_refused)
{
    const struct ch_algo *ring = ch_algo_find(CH_ALLREDUCE, "ring");
    const struct ch_algo *doubling = ch_algo_find(CH_ALLGATHER, "recursive-doubling");
    struct ch_sched *sched = NULL;
    static const struct {
        struct ch_shape shape;
        const char *why;
    } rows[] = {
        { { .coll = CH_REDUCE, .nranks = 2 }, "is an algorithm of allreduce" },
        { { .coll = CH_ALLREDUCE, .nranks = 0 }, "0 ranks" },
        { { .coll = CH_ALLREDUCE, .nranks = 70000 }, "70000 ranks" },
        { { .coll = CH_ALLREDUCE, .nranks = 4, .rank = 4 }, "rank 4" },
        { { .coll = CH_ALLREDUCE, .nranks = 4, .root = 5 }, "root 5" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_STATUS(ch_algo_build(ring, &rows[i].shape, &sched), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), rows[i].why);
        CHOIR_CHECK(sched == NULL);
    }
    CHOIR_CHECK_STATUS(
        ch_algo_build(doubling, &(struct ch_shape){ .coll = CH_ALLGATHER, .nranks = 6 }, &sched),
        CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "cannot do 6 ranks");
}

/* --- what the steps are, against what the algorithm says of itself ----------------------------------- */

struct traits {
    bool memory, line, combines, sends_input;
};

static bool sends_input(const struct ch_sched *s, const struct ch_step *step)
{
    uint32_t nsent = step->kind == CH_SEND ? step->nranges : step->nsrcs;

    for (uint32_t i = 0; i < nsent && (step->kind == CH_SEND || step->kind == CH_SENDRECV); i++) {
        if (s->ranges[step->first_range + i].region == CH_IN)
            return true;
    }
    return false;
}

static struct traits traits_of(const struct ch_sched *s)
{
    struct traits t = { 0 };

    for (uint32_t i = 0; i < s->nranges; i++) {
        t.line |= s->ranges[i].region == CH_LINE;
        t.memory |= s->ranges[i].region == CH_LINE || s->ranges[i].region == CH_STAGE;
    }
    for (uint32_t i = 0; i < s->nsteps; i++) {
        t.combines |= s->steps[i].kind == CH_COMBINE;
        t.sends_input |= sends_input(s, &s->steps[i]);
        t.memory |= s->steps[i].kind == CH_POST || s->steps[i].kind == CH_AWAIT;
    }
    return t;
}

/* Messages from `from` to `to` that the sender sends, less those that the receiver receives. */
static int unmatched(const struct team *team, uint32_t from, uint32_t to)
{
    const struct ch_sched *a = team->scheds[from], *b = team->scheds[to];
    int count = 0;

    for (uint32_t i = 0; i < a->nsteps; i++)
        count += (a->steps[i].kind == CH_SEND || a->steps[i].kind == CH_SENDRECV) &&
                 a->steps[i].peer == to;
    for (uint32_t i = 0; i < b->nsteps; i++)
        count -= (b->steps[i].kind == CH_RECV && b->steps[i].peer == from) ||
                 (b->steps[i].kind == CH_SENDRECV && b->steps[i].flag == from);
    return count;
}

static void check_traits(const struct ch_algo *algo, const struct team *team)
{
    struct traits all = { 0 };

    for (uint32_t r = 0; r < team->nranks; r++) {
        const struct ch_sched *s = team->scheds[r];
        struct traits t = traits_of(s);

        all.memory |= t.memory;
        all.line |= t.line;
        all.combines |= t.combines;
        all.sends_input |= t.sends_input;
        CHOIR_CHECK_EQ(s->nflags, team->scheds[0]->nflags);
        CHOIR_CHECK_EQ(s->stage_slots, team->scheds[0]->stage_slots);
        CHOIR_CHECK_EQ(s->line_slots, team->scheds[0]->line_slots);
        for (uint32_t p = 0; p < team->nranks; p++)
            CHOIR_CHECK_EQ(unmatched(team, r, p), 0);
    }
    if (team->nranks > 1) {
        CHOIR_CHECK_EQ(all.memory, algo->uses_memory);
        CHOIR_CHECK_EQ(all.line, algo->in_line);
        CHOIR_CHECK_EQ(all.combines, algo->partial);
        /* What is reduced travels as an accumulator, into which its own rank scaled it. */
        CHOIR_CHECK(!(all.sends_input && ch_coll_reduces(algo->coll)));
    }
}

CHOIR_TEST_TIMED(every_shape_builds, 120)
{
    uint32_t stride = choir_test_slowness() > 1 ? 5 : 1;

    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        for (uint32_t n = 1; n <= NRANKS_MAX; n += n < 9 ? 1 : stride) {
            if (!ch_algo_fits(ch_algos[i], n))
                continue;
            for (uint32_t root = 0; root < nroots(ch_algos[i], n); root += root < 3 ? 1 : stride) {
                for (enum placement p = OUT_OF_PLACE; p < NPLACEMENTS; p++) {
                    struct team team;

                    CHOIR_ROW("%s %s: %u ranks, root %u, placement %d",
                              ch_coll_name(ch_algos[i]->coll), ch_algos[i]->name, n, root, p);
                    team = build(ch_algos[i], n, root, p);
                    check_traits(ch_algos[i], &team);
                    destroy(&team);
                }
            }
        }
    }
}

/* --- costs -------------------------------------------------------------------------------------------- */

/* Of the number of ranks; in units of the operation's bytes where it is bytes. */
typedef double (*formula)(double n);

static double none(double n)
{
    (void)n;
    return 0;
}
static double one(double n)
{
    (void)n;
    return 1;
}
static double two(double n)
{
    (void)n;
    return 2;
}
static double four(double n)
{
    (void)n;
    return 4;
}
static double others(double n)
{
    return n - 1;
}
static double twice_others(double n)
{
    return 2 * (n - 1);
}
static double floor_log(double n)
{
    return floor(log2(n));
}
static double ceil_log(double n)
{
    return ceil(log2(n));
}
static double of_block(double n)
{
    return 1 / n;
}
static double all_but_own(double n)
{
    return (n - 1) / n;
}
static double twice_all_but_own(double n)
{
    return 2 * (n - 1) / n;
}
static double n_plus_1(double n)
{
    return n + 1;
}
static double n_plus_3(double n)
{
    return n + 3;
}
static double five_less(double n)
{
    return 5 - 1 / n;
}
static double three_less(double n)
{
    return 3 - 1 / n;
}
static double four_less_two(double n)
{
    return 4 - 2 / n;
}
static double root_collects(double n)
{
    return 5 - 3 / n;
}
static double two_and_two_blocks(double n)
{
    return 2 + 2 / n;
}
static double two_if_many(double n)
{
    return n > 2 ? 2 : 1;
}
static double folded(double n)
{
    return exp2(floor(log2(n))) != n;
}
static double doubling_messages(double n)
{
    return floor_log(n) + folded(n);
}
static double doubling_depth(double n)
{
    return floor_log(n) + 2 * folded(n);
}
static double halving_messages(double n)
{
    return 2 * floor_log(n) + folded(n);
}
static double halving_depth(double n)
{
    return 2 * floor_log(n) + 2 * folded(n);
}
static double halving_sent(double n)
{
    double p = exp2(floor(log2(n)));

    return 2 * (p - 1) / p + folded(n);
}
static double bruck_sent(double n)
{
    double sent = 0;

    for (unsigned o = 1; o < n; o++)
        sent += __builtin_popcount(o);
    return sent / n;
}

/* The most that any rank has; depth is that of all together. NULL: not promised. */
static const struct {
    enum ch_coll coll;
    const char *algo;
    formula messages, sent, depth, moved;
} costs[] = {
    { CH_ALLREDUCE, "inline", none, none, one, n_plus_3 },
    { CH_ALLREDUCE, "one-shot", none, none, one, n_plus_3 },
    { CH_ALLREDUCE, "two-shot", none, none, two, five_less },
    { CH_ALLREDUCE, "ring", twice_others, twice_all_but_own, twice_others, five_less },
    { CH_ALLREDUCE, "recursive-doubling", doubling_messages, doubling_messages, doubling_depth,
      NULL },
    { CH_ALLREDUCE, "halving-doubling", halving_messages, halving_sent, halving_depth, NULL },
    { CH_BROADCAST, "inline", none, none, one, four },
    { CH_BROADCAST, "staged", none, none, one, four },
    { CH_BROADCAST, "two-shot", none, none, two_if_many, four },
    { CH_BROADCAST, "binomial", ceil_log, ceil_log, floor_log, two },
    { CH_BROADCAST, "scatter-ring", NULL, NULL, NULL, two },
    { CH_REDUCE, "inline", none, none, one, n_plus_1 },
    { CH_REDUCE, "one-shot", none, none, one, n_plus_1 },
    { CH_REDUCE, "two-shot", none, none, two, root_collects },
    { CH_REDUCE, "binomial", one, one, floor_log, NULL },
    { CH_REDUCE_SCATTER, "inline", none, none, one, three_less },
    { CH_REDUCE_SCATTER, "one-shot", none, none, one, three_less },
    { CH_REDUCE_SCATTER, "ring", others, all_but_own, others, NULL },
    { CH_REDUCE_SCATTER, "pairwise", others, all_but_own, others, NULL },
    { CH_ALLGATHER, "inline", none, none, one, two_and_two_blocks },
    { CH_ALLGATHER, "staged", none, none, one, two_and_two_blocks },
    { CH_ALLGATHER, "ring", others, all_but_own, others, NULL },
    { CH_ALLGATHER, "bruck", ceil_log, all_but_own, ceil_log, NULL },
    { CH_ALLGATHER, "recursive-doubling", floor_log, all_but_own, floor_log, NULL },
    { CH_GATHER, "inline", none, none, one, two },
    { CH_GATHER, "staged", none, none, one, two },
    { CH_GATHER, "linear", one, of_block, one, NULL },
    { CH_GATHER, "binomial", one, NULL, floor_log, NULL },
    { CH_SCATTER, "inline", none, none, one, two },
    { CH_SCATTER, "staged", none, none, one, two },
    { CH_SCATTER, "linear", others, all_but_own, one, NULL },
    { CH_SCATTER, "binomial", ceil_log, all_but_own, floor_log, NULL },
    { CH_ALLTOALL, "inline", none, none, one, four_less_two },
    { CH_ALLTOALL, "staged", none, none, one, four_less_two },
    { CH_ALLTOALL, "pairwise", others, all_but_own, NULL, NULL },
    { CH_ALLTOALL, "bruck", ceil_log, bruck_sent, ceil_log, NULL },
    { CH_BARRIER, "flags", none, none, one, none },
    { CH_BARRIER, "central", none, none, two, none },
    { CH_BARRIER, "dissemination", ceil_log, none, ceil_log, none },
};

enum { NBYTES = 1 << 20 };

static void check_cost(size_t row, uint32_t n, const struct team *team)
{
    uint64_t nblocks = ch_coll_nblocks(costs[row].coll, n);
    double blocks = costs[row].coll == CH_ALLTOALL || nblocks > 1 ? n : 1;
    const struct ch_lengths lengths = { .block_nbytes = NBYTES, .widening = 1 };
    double messages = 0, sent = 0, moved = 0;
    struct ch_play *play;

    for (uint32_t r = 0; r < n; r++) {
        struct ch_cost cost = ch_cost_of(team->scheds[r], &lengths);

        messages = fmax(messages, cost.messages);
        sent = fmax(sent, cost.sent / NBYTES / blocks);
        moved = fmax(moved, cost.moved / NBYTES / blocks);
    }
    CHOIR_CHECK_OK(ch_play(team->scheds, n, &play));
    if (costs[row].messages != NULL)
        CHOIR_CHECK_EQ(messages, costs[row].messages(n));
    if (costs[row].depth != NULL)
        CHOIR_CHECK_LE(play->depth, costs[row].depth(n));
    if (costs[row].depth != NULL &&
        folded(n) == 0) /* else some ways need not all be gone in a row */
        CHOIR_CHECK_EQ(play->depth, costs[row].depth(n));
    if (costs[row].sent != NULL)
        CHOIR_CHECK_LE(fabs(sent - costs[row].sent(n)), 1e-6);
    if (costs[row].moved != NULL)
        CHOIR_CHECK_LE(fabs(moved - costs[row].moved(n)), 1e-6);
    ch_play_destroy(play);
}

CHOIR_TEST(costs_are_those_of_the_heads)
{
    size_t nalgos = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(costs); i++) {
        const struct ch_algo *algo = ch_algo_find(costs[i].coll, costs[i].algo);

        CHOIR_ROW("%s %s", ch_coll_name(costs[i].coll), costs[i].algo);
        CHOIR_CHECK(algo != NULL);
        for (uint32_t n = 2; n <= NRANKS_MAX; n++) {
            struct team team;

            if (!ch_algo_fits(algo, n))
                continue;
            CHOIR_ROW("%s %s: %u ranks", ch_coll_name(costs[i].coll), costs[i].algo, n);
            team = build(algo, n, nroots(algo, n) / 2, OUT_OF_PLACE);
            check_cost(i, n, &team);
            destroy(&team);
        }
    }
    while (ch_algos[nalgos] != NULL)
        nalgos++;
    CHOIR_ROW("every algorithm has a row");
    CHOIR_CHECK_EQ(nalgos, CH_ARRAY_LEN(costs));
}

/* What scatter-ring promises: the root sends about twice the payload, whatever the number of ranks. */
CHOIR_TEST(scatter_ring_spares_the_root)
{
    const struct ch_algo *algo = ch_algo_find(CH_BROADCAST, "scatter-ring");

    for (uint32_t n = 2; n <= NRANKS_MAX; n++) {
        struct team team = build(algo, n, 1, OUT_OF_PLACE);
        struct ch_lengths lengths = { .block_nbytes = NBYTES, .widening = 1 };

        CHOIR_ROW("%u ranks", n);
        for (uint32_t r = 0; r < n; r++) {
            struct ch_cost cost = ch_cost_of(team.scheds[r], &lengths);

            CHOIR_CHECK_LE(cost.sent, 2.0 * NBYTES);
            CHOIR_CHECK_LE(cost.messages, n - 1 + ceil_log(n));
            CHOIR_CHECK_LE(cost.waits, r == 1 ? 0u : n - 1 + 1u);
        }
        destroy(&team);
    }
}

/* --- the proof ---------------------------------------------------------------------------------------- */

enum { PROVEN_MAX = 9, ROUNDS = 3 };

static void prove(const struct ch_algo *algo, uint32_t n, uint32_t root, enum placement p)
{
    char trace[CH_CHECK_TRACE_MAX] = "";
    struct team team = build(algo, n, root, p);
    choir_status rc = ch_check(team.scheds, n, ROUNDS, trace);

    if (rc != CHOIR_OK)
        CHOIR_FAIL("%s %s: %u ranks, root %u, placement %d: %s\n%s", ch_coll_name(algo->coll),
                   algo->name, n, root, p, choir_last_error(), trace);
    destroy(&team);
}

CHOIR_TEST_TIMED(small_teams_are_proven, 120)
{
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        for (uint32_t n = 1; n <= PROVEN_MAX; n++) {
            if (!ch_algo_fits(ch_algos[i], n))
                continue;
            for (uint32_t root = 0; root < nroots(ch_algos[i], n); root++) {
                for (enum placement p = OUT_OF_PLACE; p < NPLACEMENTS; p++)
                    prove(ch_algos[i], n, root, p);
            }
        }
    }
}

/* --- no memory ---------------------------------------------------------------------------------------- */

static choir_status build_and_play(void *arg)
{
    struct ch_sched *scheds[3] = { NULL };
    struct ch_play *play = NULL;
    choir_status rc = CHOIR_OK;

    for (uint32_t r = 0; rc == CHOIR_OK && r < 3; r++)
        rc = ch_algo_build(arg, &(struct ch_shape){ .coll = CH_ALLREDUCE, .rank = r, .nranks = 3 },
                           &scheds[r]);
    if (rc == CHOIR_OK)
        rc = ch_play(scheds, 3, &play);
    ch_play_destroy(play);
    for (uint32_t r = 0; r < 3; r++)
        ch_sched_destroy(scheds[r]);
    return rc;
}

CHOIR_TEST(no_memory_is_told)
{
    choir_test_all_faults(build_and_play, (void *)ch_algo_find(CH_ALLREDUCE, "two-shot"));
    choir_test_all_faults(build_and_play, (void *)ch_algo_find(CH_ALLREDUCE, "halving-doubling"));
}
