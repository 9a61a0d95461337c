/*
 * text_test.c - schedules to text and back; texts that are none.
 */
#include "sched/sched.h"

#include <string.h>

#include "base/mem.h"
#include "choir_test.h"
#include "sched/blocks.h"

static struct ch_sched *parse(const char *text)
{
    struct ch_sched *s = NULL;

    CHOIR_CHECK_OK(ch_sched_parse(text, &s));
    return s;
}

static const char every_step[] =
    "schedule allreduce two-shot rank 1 of 3 root 0 flags 2 stage 2 line 1 scratch 2 in-place\n"
    "gate\n"
    "copy stage[1].0 b0 0/1 <- in b0 0/1\n"
    "post 1\n"
    "await 0 1\n"
    "await 2 1\n"
    "reduce stage[1].1 b0 1/4 <- stage[0].0 b0 1/4, in b0 1/4, stage[2].0 b0 1/4\n"
    "copy scratch.0 b0 0/1 <- in b0 0/1\n"
    "combine scratch.1 b0 0/1 <- scratch.0 b0 0/1, scratch.1 b0 0/1\n"
    "finish out b0 0/1 <- scratch.1 b0 0/1\n"
    "send 2: out b0 0/2, line[0].0 b0 1/2\n"
    "recv 0: out b0 0/1\n"
    "send 0:\n"
    "sendrecv 2: out b0 0/1; 0: scratch.0 b0 0/1, out b0 1/3\n"
    "sendrecv 2:; 0:\n"
    "post 2\n";

CHOIR_TEST(every_step_comes_back)
{
    struct ch_sched *s = parse(every_step);
    char *text = NULL;

    CHOIR_CHECK_EQ(s->nsteps, 15u);
    CHOIR_CHECK_EQ(s->steps[12].nsrcs, 1u);
    CHOIR_CHECK_EQ(s->steps[12].nranges, 3u);
    CHOIR_CHECK(s->in_place);
    CHOIR_CHECK_OK(ch_sched_print(s, &text));
    CHOIR_CHECK_STR(text, every_step);
    ch_free(text);
    ch_sched_destroy(s);
}

CHOIR_TEST(comments_and_blanks_are_skipped)
{
    struct ch_sched *s = parse(
        "# first\n\n  schedule barrier x rank 0 of 2 # the head\n\t\n gate # g\n"
        "#\n  gate");

    CHOIR_CHECK_EQ(s->nsteps, 2u);
    CHOIR_CHECK_STR(s->algo, "x");
    ch_sched_destroy(s);
}

CHOIR_TEST(a_step_is_cut_to_its_room)
{
    struct ch_sched *s = parse(every_step);
    char buf[12];

    CHOIR_CHECK_STR(ch_step_text(s, 1, buf, sizeof(buf)), "copy stage[");
    CHOIR_CHECK_STR(ch_step_text(s, 0, buf, sizeof(buf)), "gate");
    ch_sched_destroy(s);
}

/* --- random schedules --------------------------------------------------------------------------- */

static uint32_t below(struct choir_test_random *r, uint32_t n)
{
    return (uint32_t)(choir_test_random(r) % n);
}

struct shape {
    enum ch_coll coll;
    uint32_t rank, nranks, root;
};

/* A range a step may read (write: one it may write to); false if this try hit none. */
static bool random_range(struct choir_test_random *r, const struct shape *sh, bool write,
                         uint32_t block, struct ch_range *out)
{
    enum ch_region region = (enum ch_region)below(r, CH_NREGIONS);
    uint32_t nshares = 1 + below(r, 5), rank = sh->rank;

    if (write && region == CH_IN)
        return false;
    if (region <= CH_OUT && !ch_coll_holds(sh->coll, sh->nranks, sh->root, region, rank, block))
        return false;
    if (!write && region >= CH_STAGE)
        rank = below(r, sh->nranks);
    *out = ch_range(region, rank, region <= CH_OUT ? 0 : below(r, 3), block, below(r, nshares),
                    nshares);
    return true;
}

static void add_ranges(struct choir_test_random *r, const struct shape *sh, struct ch_builder *b,
                       bool write)
{
    uint64_t nblocks = ch_coll_nblocks(sh->coll, sh->nranks);
    struct ch_range range;

    for (uint32_t i = below(r, 4); i > 0 && nblocks > 0; i--) {
        if (random_range(r, sh, write, below(r, (uint32_t)nblocks), &range))
            ch_build_range(b, range);
    }
}

static void add_copy(struct choir_test_random *r, const struct shape *sh, struct ch_builder *b)
{
    uint64_t nblocks = ch_coll_nblocks(sh->coll, sh->nranks);
    struct ch_range dst, src;
    uint32_t block;

    if (nblocks == 0)
        return;
    block = below(r, (uint32_t)nblocks);
    if (!random_range(r, sh, true, block, &dst) || !random_range(r, sh, false, block, &src))
        return;
    if (dst.region == CH_SCRATCH && src.region == CH_SCRATCH)
        return;
    src.share = dst.share;
    src.nshares = dst.nshares;
    ch_build_copy(b, dst, src);
}

static void add_reducing(struct choir_test_random *r, const struct shape *sh, struct ch_builder *b)
{
    uint32_t block = below(r, (uint32_t)ch_coll_nblocks(sh->coll, sh->nranks));

    if (below(r, 2) == 0) {
        ch_build_combine(b, ch_scratch(sh->rank, below(r, 3), block, 0, 2));
        for (uint32_t i = 1 + below(r, 3); i > 0; i--)
            ch_build_range(b, ch_scratch(sh->rank, below(r, 3), block, 0, 2));
        return;
    }
    ch_build_reduce(b, ch_stage(sh->rank, 0, block, 1, 3));
    for (uint32_t i = 0; i < sh->nranks; i++)
        ch_build_range(b, ch_stage(i, 1, block, 1, 3));
}

static void add_message(struct choir_test_random *r, const struct shape *sh, struct ch_builder *b)
{
    uint32_t to = (sh->rank + 1) % sh->nranks;

    if (to == sh->rank)
        return;
    switch (below(r, 3)) {
    case 0:
        ch_build_send(b, to);
        add_ranges(r, sh, b, false);
        break;
    case 1:
        ch_build_recv(b, to);
        add_ranges(r, sh, b, true);
        break;
    default:
        ch_build_sendrecv(b, to, to);
        add_ranges(r, sh, b, false);
        ch_build_sendrecv_to(b);
        add_ranges(r, sh, b, true);
    }
}

static struct ch_sched *random_sched(struct choir_test_random *r)
{
    struct shape sh = { .coll = (enum ch_coll)below(r, CH_NCOLLS), .nranks = 1 + below(r, 6) };
    struct ch_builder *b = NULL;
    struct ch_sched *s = NULL;
    uint32_t flag = 0;

    sh.rank = below(r, sh.nranks);
    sh.root = below(r, sh.nranks);
    CHOIR_CHECK_OK(
        ch_builder_begin(sh.coll, "ran-dom.1", sh.rank, sh.nranks, sh.root, below(r, 2) == 1, &b));
    for (uint32_t i = below(r, 30); i > 0; i--) {
        switch (below(r, 5)) {
        case 0:
            ch_build_post(b, flag += 1 + below(r, 3));
            break;
        case 1:
            ch_build_await_all(b, 1 + below(r, 9));
            break;
        case 2:
            add_copy(r, &sh, b);
            break;
        case 3:
            if (ch_coll_reduces(sh.coll))
                add_reducing(r, &sh, b);
            break;
        default:
            add_message(r, &sh, b);
        }
    }
    CHOIR_CHECK_OK(ch_builder_end(b, 100, 3, 3, &s));
    return s;
}

static void check_same(const struct ch_sched *a, const struct ch_sched *b)
{
    CHOIR_CHECK_EQ(a->coll, b->coll);
    CHOIR_CHECK_STR(a->algo, b->algo);
    CHOIR_CHECK_EQ(a->rank, b->rank);
    CHOIR_CHECK_EQ(a->nranks, b->nranks);
    CHOIR_CHECK_EQ(a->root, b->root);
    CHOIR_CHECK_EQ(a->in_place, b->in_place);
    CHOIR_CHECK_EQ(a->nflags, b->nflags);
    CHOIR_CHECK_EQ(a->stage_slots, b->stage_slots);
    CHOIR_CHECK_EQ(a->line_slots, b->line_slots);
    CHOIR_CHECK_EQ(a->scratch_slots, b->scratch_slots);
    CHOIR_CHECK_EQ(a->nsteps, b->nsteps);
    CHOIR_CHECK_EQ(a->nranges, b->nranges);
    for (uint32_t i = 0; i < a->nsteps; i++) {
        CHOIR_CHECK_EQ(a->steps[i].kind, b->steps[i].kind);
        CHOIR_CHECK_EQ(a->steps[i].peer, b->steps[i].peer);
        CHOIR_CHECK_EQ(a->steps[i].flag, b->steps[i].flag);
        CHOIR_CHECK_EQ(a->steps[i].first_range, b->steps[i].first_range);
        CHOIR_CHECK_EQ(a->steps[i].nranges, b->steps[i].nranges);
        CHOIR_CHECK_EQ(a->steps[i].nsrcs, b->steps[i].nsrcs);
    }
    for (uint32_t i = 0; i < a->nranges; i++) {
        CHOIR_CHECK_EQ(a->ranges[i].region, b->ranges[i].region);
        CHOIR_CHECK_EQ(a->ranges[i].slot, b->ranges[i].slot);
        CHOIR_CHECK_EQ(a->ranges[i].rank, b->ranges[i].rank);
        CHOIR_CHECK_EQ(a->ranges[i].block, b->ranges[i].block);
        CHOIR_CHECK_EQ(a->ranges[i].share, b->ranges[i].share);
        CHOIR_CHECK_EQ(a->ranges[i].nshares, b->ranges[i].nshares);
    }
}

CHOIR_TEST(random_schedules_come_back)
{
    struct choir_test_random r = { 20260101 };

    for (int i = 0; i < 3000; i++) {
        struct ch_sched *s, *back = NULL;
        char *text = NULL;

        CHOIR_ROW("schedule %d", i);
        s = random_sched(&r);
        CHOIR_CHECK_OK(ch_sched_print(s, &text));
        CHOIR_CHECK_OK(ch_sched_parse(text, &back));
        check_same(s, back);
        ch_sched_destroy(s);
        ch_sched_destroy(back);
        ch_free(text);
    }
}

/* --- texts that are no schedules ---------------------------------------------------------------- */

#define HEAD "schedule allreduce x rank 0 of 2 flags 2 stage 1\n"

static const struct {
    const char *text, *error;
} bad[] = {
    { "", "line 1, column 1: expected \"schedule\", seen the end of the line" },
    { "# nothing\n\n", "line 3, column 1: expected \"schedule\"" },
    { "scheduleallreduce", "line 1, column 1: expected \"schedule\", seen \"scheduleallreduce\"" },
    { "schedule sum x rank 0 of 2", "line 1, column 10: expected an operation, seen \"sum\"" },
    { "schedule allreduce", "line 1, column 19: expected an algorithm, seen the end" },
    { "schedule allreduce x rank zero of 2", "column 27: expected a rank, seen \"zero\"" },
    { "schedule allreduce x rank 2 of 2", "line 1, column 1: rank 2 of 2" },
    { "schedule allreduce x rank 0 of 0", "line 1, column 1: 0 ranks" },
    { "schedule allreduce x rank 0 of 99999999999", "column 32: expected a number below 2^32" },
    { "schedule allreduce x rank 0 of 2 root 2", "root 2 of 2" },
    { "schedule allreduce x rank 0 of 2 rooot 1", "column 34: expected root, flags, stage" },
    { "schedule allreduce x rank 0 of 2 stage 70000", "70000 slots of stage" },
    { "schedule allreduce x rank 0 of 2 scratch 3", "scratch 3 is promised, its steps use 0" },
    { HEAD "jump", "line 2, column 1: expected a step, seen \"jump\"" },
    { HEAD "\n # c\n  gate now", "line 4, column 8: expected the end of the line, seen \"now\"" },
    { HEAD "post", "line 2, column 5: expected a flag" },
    { HEAD "post 0", "line 2, column 1: flag 0, there are 1 to 2" },
    { HEAD "post 3", "flag 3, there are 1 to 2" },
    { HEAD "post 2\ngate\npost 2", "line 4, column 1: flag 2 after flag 2, they rise" },
    { HEAD "await 0 1", "rank 0 with itself" },
    { HEAD "await 2 1", "rank 2, there are 2" },
    { HEAD "copy", "column 5: expected a region" },
    { HEAD "copy up b0 0/1 <- in b0 0/1", "column 6: expected in, out, scratch, stage or line" },
    { HEAD "copy out b0 0/1", "column 16: expected \"<-\"" },
    { HEAD "copy out b0 0/1 <- in b0 0/1, in b0 0/1", "column 29: expected the end of the line" },
    { HEAD "copy out b0 0/1 <- stage.0 b0 0/1", "column 25: expected \"[\"" },
    { HEAD "copy out b0 0/1 <- stage[0].1 b0 0/1", "slot 1 of stage, which has 1" },
    { HEAD "copy out b0 0/1 <- stage[2].0 b0 0/1", "memory of rank 2, there are 2" },
    { HEAD "copy out b0 0/1 <- line[0].0 b0 0/1", "slot 0 of line, which has 0" },
    { HEAD "copy out b1 0/1 <- in b1 0/1", "block 1 of allreduce, which has 1" },
    { HEAD "copy out b0 1/1 <- in b0 1/1", "share 1 of 1" },
    { HEAD "copy out b0 0/0 <- in b0 0/0", "share 0 of 0" },
    { HEAD "copy out b0 0/2 <- in b0 0/1", "may differ in length" },
    { HEAD "copy in b0 0/1 <- out b0 0/1", "writes to the input" },
    { HEAD "copy stage[1].0 b0 0/1 <- in b0 0/1", "rank 0 writes to rank 1's memory" },
    { HEAD "copy scratch.0 b0 0/1 <- scratch.1 b0 0/1", "between accumulators" },
    { HEAD "copy scratch.65535 b0 0/1 <- in b0 0/1", "slots of scratch" },
    { HEAD "reduce out b0 0/1 <- in b0 0/1", "2 ranges, it takes a target and 2 sources" },
    { HEAD "reduce scratch.0 b0 0/1 <- in b0 0/1, in b0 0/1", "target is in scratch" },
    { HEAD "combine out b0 0/1 <- scratch.0 b0 0/1", "target is not in scratch" },
    { HEAD "combine scratch.0 b0 0/1 <-", "a target and 1 or more sources" },
    { HEAD "combine scratch.0 b0 0/1 <- in b0 0/1", "source is not in scratch" },
    { HEAD "finish out b0 0/1 <- in b0 0/1", "source is not in scratch" },
    { HEAD "send 1", "column 7: expected \":\"" },
    { HEAD "send 0: in b0 0/1", "rank 0 with itself" },
    { HEAD "recv 1: in b0 0/1", "writes to the input" },
    { HEAD "recv 1: out b0 0/1,", "column 20: expected a region" },
    { HEAD "sendrecv 1: out b0 0/1", "expected \";\"" },
    { HEAD "sendrecv 1: out b0 0/1; 0: out b0 0/1", "rank 0 with itself" },
    { HEAD "sendrecv 1: out b0; 1: out b0 0/1", "column 19: expected a share" },
    { "schedule allgather x rank 0 of 2\ncopy out b1 0/1 <- in b1 0/1",
      "block 1 is not in the input" },
    { "schedule gather x rank 1 of 2 stage 1\ncopy out b1 0/1 <- stage[0].0 b1 0/1",
      "block 1 is not in the output of rank 1" },
    { "schedule broadcast x rank 0 of 1\nreduce out b0 0/1 <- in b0 0/1", "does not reduce" },
};

CHOIR_TEST(bad_texts_are_refused)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++) {
        struct ch_sched *s = NULL;

        CHOIR_ROW("%s", bad[i].text);
        CHOIR_CHECK_STATUS(ch_sched_parse(bad[i].text, &s), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), bad[i].error);
        CHOIR_CHECK(s == NULL);
    }
}

/* Characters changed, cut, repeated: a schedule, or an error. */
CHOIR_TEST(damaged_texts_do_no_harm)
{
    struct choir_test_random r = { 7 };

    for (int i = 0; i < 20000; i++) {
        char text[sizeof(every_step)];
        struct ch_sched *s = NULL;

        memcpy(text, every_step, sizeof(text));
        for (uint32_t n = 1 + below(&r, 3); n > 0; n--)
            text[below(&r, sizeof(text) - 1)] = "0129 \nb./,:;<-[]#xgs\x80"[below(&r, 21)];
        if (below(&r, 4) == 0)
            text[below(&r, sizeof(text) - 1)] = '\0';
        if (ch_sched_parse(text, &s) == CHOIR_OK)
            ch_sched_destroy(s);
    }
}

/* --- the builder by itself ---------------------------------------------------------------------- */

CHOIR_TEST(the_builder_tells_its_first_failure_at_the_end)
{
    struct ch_builder *b = NULL;
    struct ch_sched *s = NULL;

    CHOIR_CHECK_OK(ch_builder_begin(CH_ALLREDUCE, "x", 0, 2, 0, false, &b));
    ch_build_gate(b);
    ch_build_range(b, ch_in(0, 0, 0, 1));
    ch_build_sendrecv_to(b);
    CHOIR_CHECK_STATUS(ch_builder_end(b, 1, 1, 0, &s), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(),
                    "schedule allreduce x rank 0 of 2: step 1: a range, without");

    CHOIR_CHECK_OK(ch_builder_begin(CH_ALLREDUCE, "x y", 0, 2, 0, false, &b));
    CHOIR_CHECK_STATUS(ch_builder_end(b, 1, 1, 0, &s), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "name is of letters");

    CHOIR_CHECK_OK(ch_builder_begin(CH_ALLREDUCE, "x", 0, 2, 0, false, &b));
    ch_build_copy(b, ch_stage(0, 65536, 0, 0, 1), ch_in(0, 0, 0, 1));
    CHOIR_CHECK_STATUS(ch_builder_end(b, 1, 65535, 0, &s), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "slot 65535 of stage, which has 65535");
    CHOIR_CHECK(s == NULL);
}

static choir_status scenario(void *arg)
{
    struct ch_sched *s = NULL;
    char *text = NULL;
    choir_status rc = ch_sched_parse(every_step, &s);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = ch_sched_print(s, &text);
    ch_free(text);
    ch_sched_destroy(s);
    return rc;
}

CHOIR_TEST(faults)
{
    choir_test_all_faults(scenario, NULL);
}

CHOIR_TEST(operations_have_names)
{
    for (int i = 0; i < CH_NCOLLS; i++) {
        enum ch_coll coll = CH_NCOLLS;

        CHOIR_CHECK(ch_coll_find(ch_coll_name((enum ch_coll)i), &coll));
        CHOIR_CHECK_EQ((int)coll, i);
    }
    CHOIR_CHECK_STR(ch_coll_name(CH_NCOLLS), "unknown");
}
