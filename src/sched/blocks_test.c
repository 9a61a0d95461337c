/*
 * blocks_test.c - who holds which block, against the table in sched.h written out for three ranks.
 */
#include "sched/blocks.h"

#include <string.h>

#include "choir_test.h"

enum { N = 3, ROOT = 1 };

/* Blocks of IN and OUT of ranks 0, 1 and 2, one digit each. */
static const struct {
    enum ch_coll coll;
    uint64_t nblocks;
    const char *in[N], *out[N];
} rows[] = {
    { CH_ALLREDUCE, 1, { "0", "0", "0" }, { "0", "0", "0" } },
    { CH_REDUCE, 1, { "0", "0", "0" }, { "", "0", "" } },
    { CH_BROADCAST, 1, { "", "0", "" }, { "0", "0", "0" } },
    { CH_ALLGATHER, 3, { "0", "1", "2" }, { "012", "012", "012" } },
    { CH_GATHER, 3, { "0", "1", "2" }, { "", "012", "" } },
    { CH_SCATTER, 3, { "", "012", "" }, { "0", "1", "2" } },
    { CH_REDUCE_SCATTER, 3, { "012", "012", "012" }, { "0", "1", "2" } },
    { CH_ALLTOALL, 9, { "012", "345", "678" }, { "036", "147", "258" } },
    { CH_BARRIER, 0, { "", "", "" }, { "", "", "" } },
};

static void check_held(enum ch_coll coll, enum ch_region region, uint32_t rank, const char *want)
{
    char held[16];
    size_t n = 0;

    for (uint32_t b = 0; b < 10; b++) {
        if (ch_coll_holds(coll, N, ROOT, region, rank, b))
            held[n++] = (char)('0' + b);
    }
    held[n] = '\0';
    CHOIR_CHECK_STR(held, want);
}

CHOIR_TEST(blocks_are_held_as_the_table_says)
{
    CHOIR_CHECK_EQ(CH_ARRAY_LEN(rows), (size_t)CH_NCOLLS);
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_CHECK_EQ(ch_coll_nblocks(rows[i].coll, N), rows[i].nblocks);
        for (uint32_t r = 0; r < N; r++) {
            CHOIR_ROW("%s rank %u", ch_coll_name(rows[i].coll), r);
            check_held(rows[i].coll, CH_IN, r, rows[i].in[r]);
            check_held(rows[i].coll, CH_OUT, r, rows[i].out[r]);
        }
    }
}

/* In place, the i-th block of OUT lies over the i-th of IN where both are all of a buffer, and over the
 * rank's own where one is a part of the other. */
CHOIR_TEST(in_place_blocks_lie_over_each_other)
{
    uint64_t in = 99;

    CHOIR_CHECK(ch_coll_in_under_out(CH_ALLREDUCE, N, 0, 2, 0, &in));
    CHOIR_CHECK_EQ(in, 0u);
    CHOIR_CHECK(ch_coll_in_under_out(CH_ALLGATHER, N, 0, 2, 2, &in));
    CHOIR_CHECK_EQ(in, 2u);
    CHOIR_CHECK(!ch_coll_in_under_out(CH_ALLGATHER, N, 0, 2, 1, &in));
    CHOIR_CHECK(ch_coll_in_under_out(CH_REDUCE_SCATTER, N, 0, 1, 1, &in));
    CHOIR_CHECK_EQ(in, 1u);
    CHOIR_CHECK(ch_coll_in_under_out(CH_GATHER, N, ROOT, ROOT, ROOT, &in));
    CHOIR_CHECK(!ch_coll_in_under_out(CH_GATHER, N, ROOT, ROOT, 0, &in));
    CHOIR_CHECK(!ch_coll_in_under_out(CH_BROADCAST, N, ROOT, 0, 0, &in));
    for (uint32_t from = 0; from < N; from++) {
        CHOIR_CHECK(ch_coll_in_under_out(CH_ALLTOALL, N, 0, 1, from * N + 1, &in));
        CHOIR_CHECK_EQ(in, 1u * N + from); /* what goes to `from` lay where it arrives */
    }
}
