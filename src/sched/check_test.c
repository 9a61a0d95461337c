/*
 * check_test.c - the checker by itself: small schedules that are right, and for every rule some that break
 * it, each refused for that reason.
 */
#include "sched/check.h"

#include <string.h>

#include "base/mem.h"
#include "choir_test.h"
#include "sched/check_impl.h"

enum { RANKS_MAX = 4, TEXT_MAX = 4096 };

struct set {
    struct ch_sched *scheds[RANKS_MAX];
    uint32_t nranks;
};

/* One text, several schedules: each starts with its first line. Fails on no memory only. */
static choir_status parse_set(const char *text, struct set *set)
{
    char part[TEXT_MAX];
    choir_status rc;

    set->nranks = 0;
    while (text != NULL && *text != '\0') {
        const char *next = strstr(text + 1, "schedule ");
        size_t n = next != NULL ? (size_t)(next - text) : strlen(text);

        CHOIR_CHECK_LT(n, sizeof(part));
        CHOIR_CHECK_LT(set->nranks, (uint32_t)RANKS_MAX);
        memcpy(part, text, n);
        part[n] = '\0';
        rc = ch_sched_parse(part, &set->scheds[set->nranks]);
        if (rc != CHOIR_OK)
            return rc;
        set->nranks++;
        text = next;
    }
    return CHOIR_OK;
}

static void destroy_set(struct set *set)
{
    for (uint32_t r = 0; r < set->nranks; r++)
        ch_sched_destroy(set->scheds[r]);
}

/* --- pieces of text ----------------------------------------------------------------------------- */

#define AR0       "schedule allreduce t rank 0 of 2 flags 2 stage 2\n"
#define AR1       "schedule allreduce t rank 1 of 2 flags 2 stage 2\n"
#define ARP0      "schedule allreduce t rank 0 of 2 flags 2 stage 2 in-place\n"
#define ARP1      "schedule allreduce t rank 1 of 2 flags 2 stage 2 in-place\n"
#define SHOW0     "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\n"
#define SHOW1     "gate\ncopy stage[1].0 b0 0/1 <- in b0 0/1\npost 1\n"
#define SUM       "reduce out b0 0/1 <- stage[0].0 b0 0/1, stage[1].0 b0 0/1\n"
#define ONE_SHOT0 SHOW0 "await 1 1\n" SUM
#define ONE_SHOT1 SHOW1 "await 0 1\n" SUM

#define AG0  "schedule allgather t rank 0 of 2 flags 3 stage 2\n"
#define AG1  "schedule allgather t rank 1 of 2 flags 3 stage 2\n"
#define OWN0 "copy out b0 0/1 <- in b0 0/1\n"
#define OWN1 "copy out b1 0/1 <- in b1 0/1\n"
#define TAKE0                                                                                      \
    "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\nawait 1 1\n"                               \
    "copy out b1 0/1 <- stage[1].0 b1 0/1\n" OWN0
#define TAKE1                                                                                      \
    "gate\ncopy stage[1].0 b1 0/1 <- in b1 0/1\npost 1\nawait 0 1\n"                               \
    "copy out b0 0/1 <- stage[0].0 b0 0/1\n" OWN1

#define BC0 "schedule broadcast t rank 0 of 2 flags 3 stage 2\n"
#define BC1 "schedule broadcast t rank 1 of 2 flags 3 stage 2\n"

#define ACC0        "copy scratch.0 b0 0/1 <- in b0 0/1\n"
#define SWAP0       "sendrecv 1: scratch.0 b0 0/1; 1: scratch.1 b0 0/1\n"
#define SWAP1       "sendrecv 0: scratch.0 b0 0/1; 0: scratch.1 b0 0/1\n"
#define LOWER_FIRST "combine scratch.0 b0 0/1 <- scratch.0 b0 0/1, scratch.1 b0 0/1\n"
#define UPPER_FIRST "combine scratch.0 b0 0/1 <- scratch.1 b0 0/1, scratch.0 b0 0/1\n"
#define END         "finish out b0 0/1 <- scratch.0 b0 0/1\n"

#define BARRIER                                                                                    \
    "schedule barrier t rank 0 of 2\nsendrecv 1:; 1:\n"                                            \
    "schedule barrier t rank 1 of 2\nsendrecv 0:; 0:\n"

#define A2A0 "schedule alltoall t rank 0 of 2 flags 1 stage 1 in-place\n"
#define A2A1 "schedule alltoall t rank 1 of 2 flags 1 stage 1 in-place\n"

static const struct {
    const char *why, *text;
    const char *refusal; /* NULL: it is right */
} rows[] = {
    { "one shot", AR0 ONE_SHOT0 AR1 ONE_SHOT1, NULL },
    { "one shot in place, own input used last",
      ARP0 SHOW0 "await 1 1\nreduce out b0 0/1 <- in b0 0/1, stage[1].0 b0 0/1\n" ARP1 SHOW1
                 "await 0 1\nreduce out b0 0/1 <- stage[0].0 b0 0/1, in b0 0/1\n",
      NULL },
    { "in place on one rank only", ARP0 ONE_SHOT0 AR1 ONE_SHOT1, NULL },
    { "accumulators exchanged", AR0 ACC0 SWAP0 LOWER_FIRST END AR1 ACC0 SWAP1 UPPER_FIRST END,
      NULL },
    { "all-gather", AG0 TAKE0 AG1 TAKE1, NULL },
    { "cut differently on both sides",
      BC0 "send 1: in b0 0/2, in b0 1/2\n" OWN0 BC1 "recv 0: out b0 0/3, out b0 1/3, out b0 2/3\n",
      NULL },
    { "barrier",
      "schedule barrier t rank 0 of 2 flags 1\npost 1\nawait 1 1\n"
      "schedule barrier t rank 1 of 2 flags 1\npost 1\nawait 0 1\n",
      NULL },
    { "barrier of messages", BARRIER, NULL },
    { "halves of exchanges that are done by others, the rest of which waits",
      "schedule barrier t rank 0 of 4 flags 1\nsendrecv 1:; 2:\npost 1\nawait 3 1\n"
      "schedule barrier t rank 1 of 4 flags 1\nsendrecv 3:; 0:\nawait 3 1\n"
      "schedule barrier t rank 2 of 4 flags 1\nsendrecv 0:; 3:\nawait 3 1\n"
      "schedule barrier t rank 3 of 4 flags 1\nawait 0 1\nsendrecv 2:; 1:\npost 1\n",
      NULL },
    { "alone", "schedule allreduce t rank 0 of 1\nreduce out b0 0/1 <- in b0 0/1\n", NULL },
    { "alone, in place", "schedule allgather t rank 0 of 1 in-place\n", NULL },
    { "all-to-all in place",
      A2A0 "gate\ncopy stage[0].0 b1 0/1 <- in b1 0/1\npost 1\nawait 1 1\n"
           "copy out b2 0/1 <- stage[1].0 b2 0/1\n" A2A1
           "gate\ncopy stage[1].0 b2 0/1 <- in b2 0/1\npost 1\nawait 0 1\n"
           "copy out b1 0/1 <- stage[0].0 b1 0/1\n",
      NULL },
#define AGAIN0                                                                                     \
    "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\nawait 1 1\n"                               \
    "copy stage[0].0 b0 0/1 <- in b0 0/1\npost 2\n" OWN0
#define AGAIN1                                                                                     \
    "await 0 1\ncopy out b0 0/2 <- stage[0].0 b0 0/2\npost 1\nawait 0 2\n"                         \
    "copy out b0 1/2 <- stage[0].0 b0 1/2\n"
    { "a slot used again, after its reader said so", BC0 AGAIN0 BC1 AGAIN1, NULL },
    { "a slot used again, after its reader said so, but before it read",
      BC0 AGAIN0 BC1 "post 1\nawait 0 1\ncopy out b0 0/2 <- stage[0].0 b0 0/2\nawait 0 2\n"
                     "copy out b0 1/2 <- stage[0].0 b0 1/2\n",
      "nothing orders the two" },

    /* what comes out */
    { "a rank forgets its output", AR0 SHOW0 AR1 ONE_SHOT1,
      "output block 0, cell 0 of 1, is nothing, promised is a finished sum" },
    { "half of the output",
      AR0 ONE_SHOT0 AR1 SHOW1
      "await 0 1\nreduce out b0 0/2 <- stage[0].0 b0 0/2, stage[1].0 b0 0/2\n",
      "output block 0, cell 1 of 2, is nothing" },
    { "in place, input left where the output should be", ARP0 SHOW0 ARP1 ONE_SHOT1,
      "is r0.b0, promised is a finished sum" },
    { "not finished",
      AR0 ACC0 SWAP0 LOWER_FIRST
      "copy out b0 0/1 <- scratch.0 b0 0/1\n" AR1 ACC0 SWAP1 UPPER_FIRST END,
      "is rounded((+r0.b0 +r1.b0)), promised is a finished sum" },
    { "other brackets on other ranks",
      AR0 ACC0 SWAP0 LOWER_FIRST END AR1 ACC0 SWAP1 LOWER_FIRST END,
      "is sum of all in rank order.b0, promised is what another rank has, finished(+r1.b0 +r0.b0)" },
    { "finished too early", AR0 ACC0 SWAP0 END AR1 ACC0 SWAP1 UPPER_FIRST END,
      "finished without the contribution of rank 1" },
    { "finished twice",
      AR0 ACC0 SWAP0 LOWER_FIRST END
      "copy scratch.0 b0 0/1 <- out b0 0/1\n" AR1 ACC0 SWAP1 UPPER_FIRST END,
      "only a contribution becomes an accumulator" },
    { "a contribution twice",
      AR0 ACC0 SWAP0 "combine scratch.0 b0 0/1 <- scratch.0 b0 0/1, "
                     "scratch.1 b0 0/1, scratch.0 b0 0/1\n" END AR1 ACC0 SWAP1 UPPER_FIRST END,
      "the contribution of rank 0 is added twice" },
    { "sources in another order than the ranks'",
      AR0 SHOW0
      "await 1 1\nreduce out b0 0/1 <- stage[1].0 b0 0/1, stage[0].0 b0 0/1\n" AR1 ONE_SHOT1,
      "source 0 is not the contribution of rank 0 to block 0 but r1.b0" },
    { "a sum taken for a contribution",
      AR0 SHOW0 "await 1 1\n" SUM
                "reduce out b0 0/1 <- out b0 0/1, stage[1].0 b0 0/1\n" AR1 ONE_SHOT1,
      "source 0 is not the contribution of rank 0 to block 0 but sum of all" },
    { "block of the wrong rank",
      AG0 "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\nawait 1 1\n"
          "copy out b1 0/1 <- stage[0].0 b1 0/1\n" OWN0 AG1 TAKE1,
      "reads what was not written" },
    { "block of nobody", AG0 TAKE0 AG1 "gate\ncopy stage[1].0 b1 0/1 <- in b1 0/1\npost 1\n" OWN1,
      "output block 0, cell 0 of 1, is nothing, promised is r0.b0" },

    /* order */
    { "read without waiting", AR0 SHOW0 SUM AR1 ONE_SHOT1,
      "reads what was not written in this round" },
    { "read without waiting, though it happens to be there", AR0 ONE_SHOT0 AR1 SHOW1 SUM,
      "reads what another rank writes: nothing orders the two" },
    { "posted before it is written",
      AR0 "gate\npost 1\ncopy stage[0].0 b0 0/1 <- in b0 0/1\nawait 1 1\n" SUM AR1 ONE_SHOT1,
      "reads what another rank writes: nothing orders the two" },
    { "overwritten before it is read, by bad luck",
      AG0 TAKE0 AG1 TAKE1 "copy stage[1].0 b1 0/1 <- in b1 0/1\n",
      "reads what another rank writes: nothing orders the two" },
    { "overwritten after it was read, by good luck",
      AG0 TAKE0 "copy stage[0].0 b0 0/1 <- in b0 0/1\n" AG1 TAKE1,
      "overwrites what another rank reads: nothing orders the two" },
    { "slot taken for another block while it is read",
      AG0 TAKE0 "copy stage[0].0 b1 0/1 <- out b1 0/1\n" AG1 TAKE1,
      "overwrites what another rank reads: nothing orders the two" },
    { "slot overwritten by another block",
      AG0 "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\nawait 1 1\n"
          "copy out b1 0/1 <- stage[1].0 b1 0/1\ncopy stage[0].0 b1 0/1 <- stage[1].0 b1 0/1\n"
          "copy out b0 0/1 <- stage[0].0 b0 0/1\n" AG1 OWN1
          "gate\ncopy stage[1].0 b1 0/1 <- in b1 0/1\n"
          "post 1\nrecv 0: out b0 0/1\n",
      "reads what was not written in this round" },
    { "no gate", AR0 "copy stage[0].0 b0 0/1 <- in b0 0/1\n" AR1, "before the round's gate" },
    { "gate too late", AR0 "copy stage[0].0 b0 0/1 <- in b0 0/1\ngate\npost 1\n" AR1,
      "before the round's gate" },
    { "a barrier that lets one go",
      "schedule barrier t rank 0 of 2 flags 1\npost 1\nawait 1 1\n"
      "schedule barrier t rank 1 of 2 flags 1\npost 1\n",
      "leaves the barrier, though rank 0 may not have come" },
    { "a barrier that awaits the wrong side of the flag",
      "schedule barrier t rank 0 of 2 flags 2\npost 1\nawait 1 1\n"
      "schedule barrier t rank 1 of 2 flags 2\npost 2\nawait 0 1\n",
      "never raises its flag to 1" },

    /* in place */
    { "input overwritten, then read",
      ARP0 SHOW0 "await 1 1\n" SUM "copy stage[0].1 b0 0/1 <- in b0 0/1\n" ARP1 ONE_SHOT1,
      "reads input that was overwritten in place" },
    { "half of it overwritten, then read",
      ARP0 "recv 1: out b0 0/2\ncopy scratch.0 b0 0/1 <- in b0 0/1\npost 1\n" ARP1
           "send 0: in b0 0/2\nawait 0 1\n",
      "reads input that was overwritten in place" },
    { "copied onto itself", ARP0 "copy out b0 0/1 <- in b0 0/1\n" ARP1,
      "copies memory onto itself" },
    { "all-to-all in place: theirs over ours",
      A2A0
      "gate\nawait 1 1\ncopy out b2 0/1 <- stage[1].0 b2 0/1\ncopy stage[0].0 b1 0/1 <- in b1 0/1\n"
      "post 1\n" A2A1 "gate\ncopy stage[1].0 b2 0/1 <- in b2 0/1\npost 1\nawait 0 1\n"
      "copy out b1 0/1 <- stage[0].0 b1 0/1\n",
      "reads input that was overwritten in place" },
    { "all-to-all in place: both at once",
      A2A0 "sendrecv 1: in b1 0/1; 1: out b2 0/1\n" A2A1 "sendrecv 0: in b2 0/1; 0: out b1 0/1\n",
      "receives into what it is sending" },

    /* messages */
    { "nobody receives", BC0 "send 1: in b0 0/1\n" OWN0 BC1, "is nothing, promised is r0.b0" },
    { "nobody sends", BC0 OWN0 BC1 "recv 0: out b0 0/1\n",
      "rank 1 round 0 step 0: waits for ever, for rank 0" },
    { "both send first",
      "schedule barrier t rank 0 of 2\nsend 1:\nrecv 1:\n"
      "schedule barrier t rank 1 of 2\nsend 0:\nrecv 0:\n",
      "rank 0 round 0 step 0: waits for ever, for rank 1" },
    { "both receive first",
      "schedule barrier t rank 0 of 2\nrecv 1:\nsend 1:\n"
      "schedule barrier t rank 1 of 2\nrecv 0:\nsend 0:\n",
      "rank 0 round 0 step 0: waits for ever, for rank 1" },
    { "both await first",
      "schedule barrier t rank 0 of 2 flags 1\nawait 1 1\npost 1\n"
      "schedule barrier t rank 1 of 2 flags 1\nawait 0 1\npost 1\n",
      "rank 0 round 0 step 0: waits for ever, for rank 1" },
    { "too long", BC0 "send 1: in b0 0/1\n" BC1 "recv 0: out b0 0/2\n", "longer than expected" },
    { "too short", BC0 "send 1: in b0 0/2\n" BC1 "recv 0: out b0 0/1\n", "shorter than expected" },
    { "another piece", BC0 "send 1: in b0 0/2\n" BC1 "recv 0: out b0 1/2\n",
      "may differ in length" },
    { "another block", AG0 "send 1: in b0 0/1\n" AG1 "recv 0: out b1 0/1\n",
      "expects a piece of block 1 where one of block 0 comes" },
    { "accumulators for elements", AR0 ACC0 "send 1: scratch.0 b0 0/1\n" AR1 "recv 0: out b0 0/1\n",
      "one side has accumulators, the other has elements" },
    { "messages cross rounds",
      BC0 "send 1: in b0 0/1\nsend 1: in b0 0/1\n" OWN0 BC1 "recv 0: out b0 0/1\n",
      "a message of one round is received in another" },
    { "sent before it is there", AR0 "send 1: scratch.0 b0 0/1\n" AR1 "recv 0: scratch.0 b0 0/1\n",
      "reads what was not written in this round" },
    { "received into shared memory without a gate",
      BC0 "send 1: in b0 0/1\n" BC1 "recv 0: stage[1].0 b0 0/1\n", "before the round's gate" },

    /* what ranks must agree on */
    { "another root",
      "schedule broadcast t rank 0 of 2 root 0\nschedule broadcast t rank 1 of 2 root 1\n",
      "rank 1 does broadcast t with root 1, rank 0 does broadcast t with root 0" },
    { "another algorithm", AR0 "schedule allreduce u rank 1 of 2 flags 2 stage 2\n",
      "rank 1 does allreduce u" },
    { "more slots", AR0 "schedule allreduce t rank 1 of 2 flags 2 stage 3\n", "3 slots of stage" },
    { "more flags", AR0 "schedule allreduce t rank 1 of 2 flags 3 stage 2\n",
      "rank 1 has 3 flags" },
    { "one rank twice", AR0 AR0, "rank 0 of 2 where rank 1 of 2 is expected" },
    { "cut too finely",
      BC0 "copy stage[0].0 b0 0/65521 <- in b0 0/65521\n"
          "copy stage[0].0 b0 0/65519 <- in b0 0/65519\n" BC1,
      "more than 1048576 cells" },
};

CHOIR_TEST(right_and_wrong_schedules)
{
    static char trace[CH_CHECK_TRACE_MAX];

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        struct set set;
        choir_status rc;

        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_OK(parse_set(rows[i].text, &set));
        rc = ch_check(set.scheds, set.nranks, 3, trace);
        if (rows[i].refusal == NULL) {
            CHOIR_CHECK_OK(rc);
            CHOIR_CHECK_STR(trace, "");
        } else {
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
            CHOIR_CHECK_HAS(choir_last_error(), rows[i].refusal);
        }
        destroy_set(&set);
    }
}

/* --- rounds ------------------------------------------------------------------------------------- */

/* A rank that does nothing but read holds nobody back: only the gate keeps the owner from writing under its
 * eyes. One that waited for an earlier round would be too weak, in one execution or the other. */
CHOIR_TEST(the_gate_keeps_owners_from_late_readers)
{
    static const struct {
        const char *text, *refusal;
    } readers[] = {
        { BC0 "gate\ncopy stage[0].0 b0 0/1 <- in b0 0/1\npost 1\n" OWN0 BC1
              "await 0 1\ncopy out b0 0/1 <- stage[0].0 b0 0/1\n",
          "reads what may be overwritten by a later round: nothing orders the two" },
        { "schedule broadcast t rank 0 of 3 root 2 flags 1 stage 1\n"
          "await 2 1\ncopy out b0 0/1 <- stage[2].0 b0 0/1\n"
          "schedule broadcast t rank 1 of 3 root 2 flags 1 stage 1\n"
          "send 2:\nawait 2 1\ncopy out b0 0/1 <- stage[2].0 b0 0/1\n"
          "schedule broadcast t rank 2 of 3 root 2 flags 1 stage 1\n"
          "recv 1:\ngate\ncopy stage[2].0 b0 0/1 <- in b0 0/1\npost 1\n" OWN0,
          "overwrites what was read in an earlier round: nothing orders the two" },
    };
    static char trace[CH_CHECK_TRACE_MAX];

    for (size_t i = 0; i < CH_ARRAY_LEN(readers); i++) {
        struct set set;
        struct ch_sched *const *rounds[] = { set.scheds, set.scheds, set.scheds, set.scheds,
                                             set.scheds };

        CHOIR_ROW("%s", readers[i].text);
        CHOIR_CHECK_OK(parse_set(readers[i].text, &set));
        CHOIR_CHECK_OK(ch_check(set.scheds, set.nranks, 5, trace));
        CHOIR_CHECK_OK(ch_check_gates(rounds, 5, set.nranks, 1, NULL, trace));
        CHOIR_CHECK_STATUS(ch_check_gates(rounds, 5, set.nranks, 3, NULL, trace),
                           CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), readers[i].refusal);
        destroy_set(&set);
    }
}

/* Operations of all kinds on one channel: what one leaves in the stage is another's to overwrite. */
CHOIR_TEST(different_operations_one_after_the_other)
{
    static const char *const texts[] = {
        AR0 ONE_SHOT0 AR1 ONE_SHOT1,
        AG0 TAKE0 AG1 TAKE1,
        BC0 "gate\ncopy stage[0].1 b0 0/1 <- in b0 0/1\npost 1\n" OWN0 BC1
            "await 0 1\ncopy out b0 0/1 <- stage[0].1 b0 0/1\n",
        BARRIER,
    };
    static char trace[CH_CHECK_TRACE_MAX];
    struct ch_sched *const *rounds[32];
    struct choir_test_random random = { 5 };
    struct ch_check_facts facts;
    struct set sets[4];

    for (size_t i = 0; i < CH_ARRAY_LEN(texts); i++)
        CHOIR_CHECK_OK(parse_set(texts[i], &sets[i]));
    for (int n = 0; n < 50; n++) {
        for (size_t i = 0; i < CH_ARRAY_LEN(rounds); i++)
            rounds[i] = sets[choir_test_random(&random) % 4].scheds;
        CHOIR_CHECK_OK(ch_check_sequence(rounds, CH_ARRAY_LEN(rounds), 2, &facts, trace));
        CHOIR_CHECK(facts.rank_order);
        CHOIR_CHECK(!facts.partial);
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(texts); i++)
        destroy_set(&sets[i]);
}

CHOIR_TEST(facts_tell_the_order)
{
    static const struct {
        const char *text;
        bool rank_order, partial;
    } sums[] = {
        { AR0 ONE_SHOT0 AR1 ONE_SHOT1, true, false },
        { AR0 ACC0 SWAP0 LOWER_FIRST END AR1 ACC0 SWAP1 UPPER_FIRST END, true, true },
        { AR0 ACC0 SWAP0 UPPER_FIRST END AR1 ACC0 SWAP1 LOWER_FIRST END, false, true },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(sums); i++) {
        struct ch_check_facts facts;
        struct set set;
        struct ch_sched *const *rounds[1] = { set.scheds };

        CHOIR_ROW("row %zu", i);
        CHOIR_CHECK_OK(parse_set(sums[i].text, &set));
        CHOIR_CHECK_OK(ch_check_sequence(rounds, 1, 2, &facts, NULL));
        CHOIR_CHECK_EQ(facts.rank_order, sums[i].rank_order);
        CHOIR_CHECK_EQ(facts.partial, sums[i].partial);
        destroy_set(&set);
    }
}

/* --- what a refusal shows ----------------------------------------------------------------------- */

CHOIR_TEST(a_race_shows_both_steps)
{
    static char trace[CH_CHECK_TRACE_MAX];
    struct set set;

    CHOIR_CHECK_OK(parse_set(AR0 ONE_SHOT0 AR1 SHOW1 SUM, &set));
    CHOIR_CHECK_STATUS(ch_check(set.scheds, 2, 1, trace), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STR(trace, "allreduce t, 2 ranks, rank 1: reads what another rank writes: nothing "
                           "orders the two\n"
                           "  rank 0 round 0 step 1: copy stage[0].0 b0 0/1 <- in b0 0/1\n"
                           "  rank 1 round 0 step 3: reduce out b0 0/1 <- stage[0].0 b0 0/1, "
                           "stage[1].0 b0 0/1\n");
    destroy_set(&set);
}

CHOIR_TEST(a_deadlock_shows_the_circle)
{
    static char trace[CH_CHECK_TRACE_MAX];
    struct set set;

    CHOIR_CHECK_OK(parse_set("schedule barrier t rank 0 of 3\nsend 1:\nrecv 2:\n"
                             "schedule barrier t rank 1 of 3\nsend 2:\nrecv 0:\n"
                             "schedule barrier t rank 2 of 3\nsend 0:\nrecv 1:\n",
                             &set));
    CHOIR_CHECK_STATUS(ch_check(set.scheds, 3, 1, trace), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STR(trace, "barrier t, 3 ranks, rank 0: waits for ever, for rank 1\n"
                           "  rank 0 round 0 step 0: send 1:\n"
                           "  rank 1 round 0 step 0: send 2:, waits for rank 2\n"
                           "  rank 2 round 0 step 0: send 0:, waits for rank 0\n");
    destroy_set(&set);
}

/* What the builder would not have let through is refused as well: schedules may come from elsewhere. */
CHOIR_TEST(nonsense_is_refused)
{
    struct set set;

    CHOIR_CHECK_OK(parse_set(AR0 ONE_SHOT0 AR1 ONE_SHOT1, &set));
    set.scheds[1]->ranges[0].rank = 0;
    CHOIR_CHECK_STATUS(ch_check(set.scheds, 2, 1, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 1 writes to rank 0's memory");
    CHOIR_CHECK_STATUS(ch_check(set.scheds, 2, 0, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "nothing to check");
    destroy_set(&set);
}

static choir_status scenario(void *arg)
{
    struct set set;
    choir_status rc = parse_set(arg, &set);

    if (rc == CHOIR_OK)
        rc = ch_check(set.scheds, set.nranks, 3, NULL);
    destroy_set(&set);
    return rc;
}

CHOIR_TEST(faults)
{
    static char shared[] = AR0 ONE_SHOT0 AR1 ONE_SHOT1;
    static char messages[] = AR0 ACC0 SWAP0 LOWER_FIRST END AR1 ACC0 SWAP1 UPPER_FIRST END;

    choir_test_all_faults(scenario, shared);
    choir_test_all_faults(scenario, messages);
}
