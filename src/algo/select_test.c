/*
 * select_test.c - the table of choices, row by row with reasons, and CHOIR_ALGO.
 */
#include "algo/select.h"

#include <string.h>

#include "choir_test.h"

enum { LINE = 64 };

/* What is chosen and which words the reason has. */
static const struct {
    const char *why;
    struct ch_situation s;
    const char *algo, *reason;
} choices[] = {
    { "fits the line",
      { CH_ALLREDUCE, 8, 64, LINE, 8, true, false, false, false },
      "inline",
      "cache lines" },
    { "one byte too much",
      { CH_ALLREDUCE, 8, 65, LINE, 8, true, false, false, false },
      "one-shot",
      "second wait" },
    { "no line at all", { CH_ALLREDUCE, 8, 4, 0, 8, true, false, false, false }, "one-shot", "" },
    { "last small one",
      { CH_ALLREDUCE, 8, 8192, LINE, 8, true, false, false, false },
      "one-shot",
      "8192 bytes, 8 ranks" },
    { "first large one",
      { CH_ALLREDUCE, 8, 8193, LINE, 8, true, false, false, false },
      "two-shot",
      "its own share" },
    { "small, but many read it",
      { CH_ALLREDUCE, 64, 8192, LINE, 64, true, false, false, false },
      "two-shot",
      "" },
    { "ranks outnumber processors",
      { CH_ALLREDUCE, 8, 32768, LINE, 2, true, false, false, false },
      "one-shot",
      "outnumber" },
    { "processors are not known",
      { CH_ALLREDUCE, 8, 32768, LINE, 0, true, false, false, false },
      "two-shot",
      "" },
    { "more bytes than fit a number of 64 bits times ranks",
      { CH_ALLREDUCE, 8, UINT64_MAX, LINE, 8, true, false, false, false },
      "two-shot",
      "" },
    { "one rank",
      { CH_ALLREDUCE, 1, 1 << 20, LINE, 8, true, false, false, false },
      "two-shot",
      "" },
    { "short messages",
      { CH_ALLREDUCE, 8, 4096, LINE, 8, false, false, false, false },
      "recursive-doubling",
      "waits" },
    { "longer ones",
      { CH_ALLREDUCE, 8, 65536, LINE, 8, false, false, false, false },
      "halving-doubling",
      "" },
    { "long ones", { CH_ALLREDUCE, 8, 8 << 20, LINE, 8, false, false, false, false }, "ring", "" },
    { "broadcast, tiny", { CH_BROADCAST, 8, 8, LINE, 8, true, false, false, false }, "inline", "" },
    { "broadcast", { CH_BROADCAST, 8, 80, LINE, 8, true, false, false, false }, "staged", "" },
    { "broadcast, short messages",
      { CH_BROADCAST, 8, 80, LINE, 8, false, false, false, false },
      "binomial",
      "" },
    { "broadcast, long messages",
      { CH_BROADCAST, 8, 1 << 20, LINE, 8, false, false, false, false },
      "scatter-ring",
      "" },
    { "reduce, tiny", { CH_REDUCE, 8, 8, LINE, 8, true, false, false, false }, "inline", "" },
    { "reduce, small", { CH_REDUCE, 8, 4096, LINE, 8, true, false, false, false }, "one-shot", "" },
    { "reduce, large",
      { CH_REDUCE, 8, 40960, LINE, 8, true, false, false, false },
      "two-shot",
      "" },
    { "reduce-scatter: all blocks but one must fit the line",
      { CH_REDUCE_SCATTER, 4, 84, LINE, 8, true, false, false, false },
      "inline",
      "" },
    { "reduce-scatter: they do not",
      { CH_REDUCE_SCATTER, 4, 88, LINE, 8, true, false, false, false },
      "one-shot",
      "" },
    { "reduce-scatter, uneven: no line",
      { CH_REDUCE_SCATTER, 4, 40, LINE, 8, true, true, false, false },
      "one-shot",
      "" },
    { "reduce-scatter, long messages",
      { CH_REDUCE_SCATTER, 4, 1 << 20, LINE, 8, false, false, false, false },
      "ring",
      "" },
    { "the same, in the ranks' order",
      { CH_REDUCE_SCATTER, 4, 1 << 20, LINE, 8, false, false, true, false },
      "pairwise",
      "order" },
    { "all-gather: one block must fit the line",
      { CH_ALLGATHER, 4, 256, LINE, 8, true, false, false, false },
      "inline",
      "" },
    { "all-gather: it does not",
      { CH_ALLGATHER, 4, 257, LINE, 8, true, false, false, false },
      "staged",
      "" },
    { "all-gather, short messages",
      { CH_ALLGATHER, 6, 257, LINE, 8, false, true, false, false },
      "bruck",
      "" },
    { "gather, uneven messages",
      { CH_GATHER, 6, 257, LINE, 8, false, true, false, false },
      "linear",
      "" },
    { "gather, even messages",
      { CH_GATHER, 6, 257, LINE, 8, false, false, false, false },
      "binomial",
      "" },
    { "scatter", { CH_SCATTER, 6, 2570, LINE, 8, true, true, false, false }, "staged", "" },
    { "all-to-all, uneven",
      { CH_ALLTOALL, 6, 60, LINE, 8, true, true, false, false },
      "staged",
      "" },
    { "all-to-all, even and tiny",
      { CH_ALLTOALL, 6, 60, LINE, 8, true, false, false, false },
      "inline",
      "" },
    { "all-to-all, uneven messages",
      { CH_ALLTOALL, 6, 60, LINE, 8, false, true, false, false },
      "pairwise",
      "" },
    { "barrier", { CH_BARRIER, 6, 0, LINE, 2, true, false, false, false }, "flags", "" },
    { "barrier before a broadcast",
      { CH_BARRIER, 6, 0, LINE, 6, true, false, false, true },
      "central",
      "leaves first" },
    { "the same, and ranks outnumber processors",
      { CH_BARRIER, 6, 0, LINE, 2, true, false, false, true },
      "central",
      "leaves first" },
    { "barrier over messages",
      { CH_BARRIER, 6, 0, LINE, 2, false, false, false, false },
      "dissemination",
      "" },
};

CHOIR_TEST(the_table_chooses)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(choices); i++) {
        struct ch_choice choice;

        CHOIR_ROW("%s", choices[i].why);
        CHOIR_CHECK_OK(ch_select(&choices[i].s, NULL, &choice));
        CHOIR_CHECK_STR(choice.algo->name, choices[i].algo);
        CHOIR_CHECK_HAS(choice.reason, choices[i].reason);
        CHOIR_CHECK_HAS(choice.reason, choices[i].algo);
    }
}

/* For every situation there is an algorithm, and what is chosen can do it. */
CHOIR_TEST(nothing_is_left_without)
{
    static const uint64_t sizes[] = { 0, 1, 64, 4096, 1 << 16, 1 << 20, 1ull << 32 };

    for (int coll = 0; coll < CH_NCOLLS; coll++) {
        for (uint32_t n = 1; n <= 129; n += n < 9 ? 1 : 24) {
            for (size_t i = 0; i < CH_ARRAY_LEN(sizes) * 4; i++) {
                struct ch_situation s = { .coll = (enum ch_coll)coll,
                                          .nranks = n,
                                          .nbytes = sizes[i / 4],
                                          .line_bytes = LINE,
                                          .processors = 4,
                                          .shared = i % 2 == 0,
                                          .uneven = i / 2 % 2 == 1 };
                struct ch_choice choice;

                CHOIR_ROW("%s of %u ranks, %llu bytes, %s memory, %s",
                          ch_coll_name((enum ch_coll)coll), n, (unsigned long long)s.nbytes,
                          s.shared ? "shared" : "no shared", s.uneven ? "uneven" : "even");
                CHOIR_CHECK_OK(ch_select(&s, NULL, &choice));
                CHOIR_CHECK(ch_algo_objection(choice.algo, &s) == NULL);
                CHOIR_CHECK_LT(strlen(choice.reason), CH_REASON_MAX - 1);
            }
        }
    }
}

CHOIR_TEST(what_nobody_can_do_is_told)
{
    struct ch_situation s = { .coll = CH_ALLREDUCE, .nranks = 4, .nbytes = 4096, .ordered = true };
    struct ch_choice choice;

    CHOIR_CHECK_STATUS(ch_select(&s, NULL, &choice), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "in the ranks' order");
    s.nranks = 0;
    CHOIR_CHECK_STATUS(ch_select(&s, NULL, &choice), CHOIR_ERR_INVALID);
}

/* --- CHOIR_ALGO --------------------------------------------------------------------------------------- */

CHOIR_TEST(overrules_are_obeyed_where_they_can_be)
{
    struct ch_situation s = {
        .coll = CH_ALLREDUCE, .nranks = 4, .nbytes = 64 * 1024, .line_bytes = LINE, .shared = true
    };
    struct ch_overrules o;
    struct ch_choice choice;

    CHOIR_CHECK_OK(ch_overrules_parse("allreduce:ring:64K-max,broadcast:binomial,"
                                      "allreduce:one-shot:0-64K,allgather:inline",
                                      &o));
    CHOIR_CHECK_EQ(o.count, 4);
    CHOIR_CHECK_OK(ch_select(&s, &o, &choice));
    CHOIR_CHECK_STR(choice.algo->name, "ring");
    CHOIR_CHECK_HAS(choice.reason, "CHOIR_ALGO asks for it");
    s.nbytes--;
    CHOIR_CHECK_OK(ch_select(&s, &o, &choice));
    CHOIR_CHECK_STR(choice.algo->name, "one-shot");
    s.coll = CH_BROADCAST;
    CHOIR_CHECK_OK(ch_select(&s, &o, &choice));
    CHOIR_CHECK_STR(choice.algo->name, "binomial");

    s.coll = CH_ALLGATHER;
    CHOIR_CHECK_OK(ch_select(&s, &o, &choice));
    CHOIR_CHECK_STR(choice.algo->name, "staged");
    CHOIR_CHECK_HAS(choice.reason, "not inline, which CHOIR_ALGO asks for: the payload does not");

    s.coll = CH_REDUCE;
    CHOIR_CHECK_OK(ch_select(&s, &o, &choice));
    CHOIR_CHECK_STR(choice.algo->name, "two-shot");
}

static const struct {
    const char *text;
    const char *complaint; /* NULL: well */
} texts[] = {
    { "", NULL },
    { "allreduce:ring", NULL },
    { "allreduce:ring,", NULL },
    { "allreduce:ring:0-0", NULL },
    { "allreduce:ring:1M-1G,barrier:flags", NULL },
    { "allreduce", "operation:algorithm" },
    { "allreduce:ring,,barrier:flags", "operation:algorithm" },
    { "allredcue:ring", "no operation \"allredcue\"; there are allreduce, broadcast" },
    { "allreduce:rign", "no algorithm \"rign\"; it has inline, one-shot, two-shot, ring" },
    { "barrier:ring", "barrier has no algorithm \"ring\"; it has flags, central, dissemination" },
    { "allreduce:ring:64K", "MIN-MAX" },
    { "allreduce:ring:64K-", "MIN-MAX" },
    { "allreduce:ring:-64K", "MIN-MAX" },
    { "allreduce:ring:64K-32K", "MIN-MAX" },
    { "allreduce:ring:64K-max:3", "MIN-MAX" },
    { "allreduce:ring: 64K-max", NULL },
    { "allreduce:", "no algorithm \"\"" },
    { ":", "no operation \"\"" },
};

CHOIR_TEST(complaints_say_what_there_is)
{
    char lengthy[300], many[40 * 16] = "";
    struct ch_overrules o;

    for (size_t i = 0; i < CH_ARRAY_LEN(texts); i++) {
        CHOIR_ROW("\"%s\"", texts[i].text);
        if (texts[i].complaint == NULL) {
            CHOIR_CHECK_OK(ch_overrules_parse(texts[i].text, &o));
            continue;
        }
        CHOIR_CHECK_STATUS(ch_overrules_parse(texts[i].text, &o), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), texts[i].complaint);
        CHOIR_CHECK_HAS(choir_last_error(), "CHOIR_ALGO");
    }
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    CHOIR_CHECK_STATUS(ch_overrules_parse(lengthy, &o), CHOIR_ERR_INVALID);
    for (size_t i = 0; i < 33; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "allreduce:ring,");
    CHOIR_CHECK_STATUS(ch_overrules_parse(many, &o), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "more than 32");
}

static const struct {
    const char *why;
    uint64_t nbytes;
    uint32_t nranks;
    uint64_t one_shot_max;
    const char *algo, *reason;
} measured[] = {
    { "further than the table goes", 64 << 10, 4, 64 << 10, "one-shot", "as measured here" },
    { "and no further than that", (64 << 10) + 1, 4, 64 << 10, "two-shot", "" },
    { "less far than the table goes", 4096, 4, 2048, "two-shot", "" },
    { "never", 512, 4, 1, "two-shot", "" },
    { "not measured", 4096, 4, 0, "one-shot", "" },
    { "ranks outnumber processors, which was not measured", 32 << 10, 16, 1, "one-shot",
      "outnumber" },
};

CHOIR_TEST(measured_figures_decide)
{
    struct ch_choice choice;

    for (size_t i = 0; i < CH_ARRAY_LEN(measured); i++) {
        struct ch_situation s = { .coll = CH_ALLREDUCE,
                                  .nranks = measured[i].nranks,
                                  .nbytes = measured[i].nbytes,
                                  .line_bytes = LINE,
                                  .processors = 8,
                                  .shared = true };

        CHOIR_ROW("%s", measured[i].why);
        CHOIR_CHECK_OK(ch_select_measured(&s, NULL, measured[i].one_shot_max, &choice));
        CHOIR_CHECK_STR(choice.algo->name, measured[i].algo);
        CHOIR_CHECK_HAS(choice.reason, measured[i].reason);
    }
}
