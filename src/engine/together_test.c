/* together_test.c - masks, quotas and CHOIR_PROCESSORS of several ranks, and what they make together. */
#include "engine/together.h"

#include "choir_test.h"

#include "base/compiler.h"
#include "engine/hostlink.h"

enum { RANKS = 4 };

static const struct {
    const char *why;
    uint64_t masks[RANKS]; /* up to the first empty one; those of processors 0 to 63 */
    uint32_t quotas[RANKS], told[RANKS], expected;
} rows[] = {
    { "not bound", { 0xff, 0xff, 0xff }, { 0 }, { 0 }, 8 },
    { "not bound, more ranks than processors", { 3, 3, 3 }, { 0 }, { 0 }, 2 },
    { "bound to one each", { 1, 2, 4 }, { 0 }, { 0 }, 3 },
    { "two of them to the same", { 1, 2, 2 }, { 0 }, { 0 }, 2 },
    { "all of them to the same", { 4, 4, 4 }, { 0 }, { 0 }, 1 },
    { "bound to two each", { 0x3, 0xc, 0x30 }, { 0 }, { 0 }, 6 },
    { "two on each of two", { 0x3, 0x3, 0xc, 0xc }, { 0 }, { 0 }, 4 },
    { "three on two, one on two others", { 0x3, 0x3, 0x3, 0xc }, { 0 }, { 0 }, 3 },
    { "one bound, the others not", { 1, 0xff, 0xff }, { 0 }, { 0 }, 8 },
    { "one bound, too few for the others", { 1, 3, 3 }, { 0 }, { 0 }, 2 },
    { "two bound to the same, the others not", { 1, 1, 0xff, 0xff }, { 0 }, { 0 }, 3 },
    { "masks overlap", { 0x3, 0x6, 0xc }, { 0 }, { 0 }, 4 },
    { "a quota for all", { 1, 2, 4 }, { 2, 2, 2 }, { 0 }, 2 },
    { "a quota for one", { 1, 2, 4 }, { 0, 2, 0 }, { 0 }, 2 },
    { "a quota that is no limit", { 1, 2, 4 }, { 8, 8, 8 }, { 0 }, 3 },
    { "all are told", { 1, 1, 1 }, { 1, 1, 1 }, { 9, 7, 8 }, 7 },
    { "some are told less", { 0xff, 0xff, 0xff }, { 0 }, { 0, 2, 5 }, 2 },
    { "some are told more", { 1, 2, 2 }, { 0 }, { 0, 7, 7 }, 2 },
    { "alone", { 4 }, { 0 }, { 0 }, 1 },
};

static uint32_t count(const uint64_t *masks, const uint32_t *quotas, const uint32_t *told,
                      size_t nranks, size_t word)
{
    static struct ch_rank_page pages[RANKS];
    struct ch_neighbour neighbours[RANKS];
    struct ch_hostlink link = { .neighbours = neighbours, .count = nranks };

    for (size_t i = 0; i < nranks; i++) {
        pages[i] = (struct ch_rank_page){ .processors = told[i], .quota = quotas[i] };
        pages[i].mask.words[word] = masks[i];
        neighbours[i] = (struct ch_neighbour){ .page = &pages[i] };
    }
    return ch_processors_together(&link);
}

CHOIR_TEST(what_ranks_have_together)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        size_t nranks = 0;

        CHOIR_ROW("%s", rows[i].why);
        while (nranks < RANKS && rows[i].masks[nranks] != 0)
            nranks++;
        CHOIR_CHECK_EQ(count(rows[i].masks, rows[i].quotas, rows[i].told, nranks, 0),
                       rows[i].expected);
        CHOIR_CHECK_EQ(
            count(rows[i].masks, rows[i].quotas, rows[i].told, nranks, CH_PROCESSORS_MOST / 64 - 1),
            rows[i].expected);
    }
}

/* Then ranks rather yield too often than keep each other from running. */
CHOIR_TEST(masks_that_are_not_known_are_no_processors)
{
    static const uint64_t none[RANKS], some[RANKS] = { 0, 1, 2 };
    static const uint32_t zeros[RANKS];

    CHOIR_CHECK_EQ(count(none, zeros, zeros, RANKS, 0), 1u);
    CHOIR_CHECK_EQ(count(some, zeros, zeros, 3, 0), 2u);
}
