/*
 * rooted_test.c - gathers and scatters of all kinds of lengths: in the line, staged, long, and all of them at once.
 */
#include "engine/team.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/fault.h"
#include "engine/poison.h"
#include "engine/rooted.h"

enum {
    STAGE = 4096, /* of a member: two halves */
    TINY = 3,     /* elements of 4 bytes: fits the line of many */
    MIDDLE = 100, /* is staged */
    LONG = 3001,  /* does not fit a slot */
    GUARD = 4,
    TURNS = 5, /* more than there are halves */
};

/* How long each rank's block is. */
struct pattern {
    const char *name;
    size_t (*length)(uint32_t who, uint32_t root);
};

static size_t all_tiny(uint32_t who, uint32_t root)
{
    (void)who, (void)root;
    return TINY;
}

static size_t all_middle(uint32_t who, uint32_t root)
{
    (void)who, (void)root;
    return MIDDLE;
}

static size_t all_long(uint32_t who, uint32_t root)
{
    (void)who, (void)root;
    return LONG;
}

static size_t nothing(uint32_t who, uint32_t root)
{
    (void)who, (void)root;
    return 0;
}

static size_t tiny_that_differ(uint32_t who, uint32_t root)
{
    (void)root;
    return who % 4; /* one of them is empty */
}

static size_t line_and_stage(uint32_t who, uint32_t root)
{
    (void)root;
    return who % 2 == 0 ? TINY : MIDDLE + who;
}

static size_t long_that_differ(uint32_t who, uint32_t root)
{
    (void)root;
    return LONG + 700 * who;
}

static size_t all_but_the_root(uint32_t who, uint32_t root)
{
    return who == root ? 0 : LONG;
}

static size_t the_root_alone(uint32_t who, uint32_t root)
{
    return who == root ? LONG : TINY;
}

static size_t some_are_long(uint32_t who, uint32_t root)
{
    (void)root;
    return who % 3 == 0 ? TINY : who % 3 == 1 ? LONG + who : MIDDLE;
}

static const struct pattern patterns[] = {
    { "all tiny", all_tiny },
    { "all middle", all_middle },
    { "all long", all_long },
    { "nothing", nothing },
    { "tiny that differ", tiny_that_differ },
    { "line and stage", line_and_stage },
    { "long that differ", long_that_differ },
    { "long but the root's", all_but_the_root },
    { "the root's alone is long", the_root_alone },
    { "some are long", some_are_long },
};

/* --- one rank's part ---------------------------------------------------------------------------------- */

struct job {
    enum ch_coll coll;
    uint32_t root;
    const struct pattern *pattern;
    bool in_place;
    uint64_t seq;
};

/* Element `i` of the block between the root and `who`. */
static uint32_t value(uint32_t who, size_t i, uint64_t seq)
{
    return (uint32_t)(who * 1000003 + i * 7 + seq * 31);
}

struct part {
    uint32_t n, me;
    struct ch_piece pieces[TEAM_MOST]; /* the root's list */
    uint32_t *list, *one;
    size_t list_count, one_count;
};

static void make_part(struct part *p, struct mate *mate, const struct job *job)
{
    size_t at = 0;

    *p = (struct part){ .n = mate->team->n, .me = mate->me };
    p->one_count = job->pattern->length(p->me, job->root);
    for (uint32_t i = 0; i < p->n && p->me == job->root; i++)
        p->list_count += job->pattern->length(i, job->root);
    p->list = calloc(p->list_count + GUARD, sizeof(*p->list));
    p->one = calloc(p->one_count + GUARD, sizeof(*p->one));
    for (uint32_t i = 0; i < p->n && p->me == job->root; i++) {
        p->pieces[i] = (struct ch_piece){ p->list + at, job->pattern->length(i, job->root) };
        at += p->pieces[i].count;
    }
}

static struct ch_op op_of(struct part *p, const struct job *job, bool in_place)
{
    bool gathers = job->coll == CH_GATHER, is_root = p->me == job->root;
    struct ch_op op = { .type = gathers ? CHOIR_OP_GATHER : CHOIR_OP_SCATTER,
                        .coll = job->coll,
                        .dtype = CHOIR_U32,
                        .root = job->root,
                        .uneven = true,
                        .in_place = in_place,
                        .longest = p->one_count,
                        .counts = 1,
                        .seq = job->seq,
                        .until = team_patience() };
    struct ch_blocks *one = gathers ? &op.in : &op.out, *list = gathers ? &op.out : &op.in;

    *one = (struct ch_blocks){ .first = p->me, .step = 1, .nblocks = 1, .count = p->one_count };
    one->base = in_place ? p->pieces[p->me].data : (char *)p->one;
    if (!is_root)
        return op;
    *list = (struct ch_blocks){ .step = 1, .nblocks = p->n, .pieces = p->pieces };
    for (uint32_t i = 0; i < p->n; i++) {
        op.differ |= p->pieces[i].count != p->pieces[0].count;
        op.longest = p->pieces[i].count > op.longest ? p->pieces[i].count : op.longest;
    }
    return op;
}

static void fill(uint32_t *at, size_t count, uint32_t who, uint64_t seq)
{
    for (size_t i = 0; i < count; i++)
        at[i] = value(who, i, seq);
}

static void check(const uint32_t *at, size_t count, uint32_t who, uint64_t seq)
{
    for (size_t i = 0; i < count; i++) {
        if (at[i] != value(who, i, seq))
            CHOIR_FAIL("block of rank %u, element %zu of %zu is wrong", who, i, count);
    }
}

static void fill_inputs(struct part *p, const struct job *job, bool in_place)
{
    if (job->coll == CH_GATHER) {
        fill(in_place ? p->pieces[p->me].data : p->one, p->one_count, p->me, job->seq);
        return;
    }
    for (uint32_t i = 0; i < p->n && p->me == job->root; i++)
        fill(p->pieces[i].data, p->pieces[i].count, i, job->seq);
}

static void check_outputs(const struct part *p, const struct job *job, bool in_place)
{
    if (job->coll == CH_SCATTER)
        check(in_place ? p->pieces[p->me].data : p->one, p->one_count, p->me, job->seq);
    for (uint32_t i = 0; i < p->n && p->me == job->root; i++)
        check(p->pieces[i].data, p->pieces[i].count, i, job->seq);
    for (size_t i = 0; i < GUARD; i++) {
        CHOIR_CHECK_EQ(p->list[p->list_count + i], 0u);
        CHOIR_CHECK_EQ(p->one[p->one_count + i], 0u);
    }
}

static choir_status do_job(struct mate *mate)
{
    struct job job = *(struct job *)mate->arg;
    bool in_place = job.in_place && mate->me == job.root;
    choir_status rc = CHOIR_OK;
    struct part p;

    make_part(&p, mate, &job);
    for (int turn = 0; turn < TURNS && rc == CHOIR_OK; turn++, job.seq++) {
        struct ch_op op = op_of(&p, &job, in_place);

        fill_inputs(&p, &job, in_place);
        rc = team_do(mate, &op);
        if (rc == CHOIR_OK)
            check_outputs(&p, &job, in_place);
    }
    free(p.list);
    free(p.one);
    return rc;
}

static void run_job(struct team *team, struct job *job)
{
    CHOIR_ROW("%s of %u, root %u: %s%s", ch_coll_name(job->coll), team->n, job->root,
              job->pattern->name, job->in_place ? ", in place" : "");
    for (uint32_t i = 0; i < team->n; i++)
        team->mates[i].arg = job;
    team_run(team, do_job);
    team_check_ok(team);
    job->seq += TURNS;
}

static void run_patterns(uint32_t n, size_t stage_nbytes)
{
    struct job job = { .seq = 1 };
    struct team team;

    team_start(&team, n);
    team_channel(&team, stage_nbytes);
    for (size_t i = 0; i < CH_ARRAY_LEN(patterns); i++) {
        job.pattern = &patterns[i];
        for (uint32_t root = 0; root<n; root += n> 1 ? n - 1 : 1) {
            job.root = root;
            job.in_place = (i + root) % 2 == 0;
            job.coll = CH_GATHER;
            run_job(&team, &job);
            job.coll = CH_SCATTER;
            run_job(&team, &job);
        }
    }
    team_end(&team);
}

CHOIR_TEST_TIMED(lengths_of_all_kinds, 120)
{
    for (uint32_t n = 1; n <= 5; n++)
        run_patterns(n, STAGE);
}

/* A slot of a scatter is a cache line, or less: then the ranks agree first. */
CHOIR_TEST_TIMED(lengths_of_all_kinds_with_little_stage, 120)
{
    run_patterns(9, CH_STAGE_UNIT);
    if (!choir_test_valgrind())
        run_patterns(17, CH_STAGE_UNIT);
}

/* --- somebody is two operations ahead ------------------------------------------------------------------ */

static choir_status meet(struct mate *mate)
{
    struct ch_op op = {
        .type = CHOIR_OP_BARRIER, .coll = CH_BARRIER, .dtype = CHOIR_U8, .until = team_patience()
    };

    return team_do(mate, &op);
}

static uint64_t flag_of(const struct ch_channel *channel, uint32_t who, uint64_t round)
{
    return atomic_load(&channel->members[who].control->units[round % 2].flag);
}

static choir_status two_and_a_barrier(struct mate *mate)
{
    struct job *job = mate->arg;
    bool is_reader = (mate->me == job->root) == (job->coll == CH_GATHER);
    choir_status rc = CHOIR_OK;
    struct job here = *job;
    uint64_t barrier;
    struct part p;

    make_part(&p, mate, &here);
    /* Who reads comes when the others are in the barrier, whose check is where that of the first one was. */
    barrier = mate->channel->round + 2;
    for (uint32_t who = 0; is_reader && who < p.n; who++) {
        bool writes = (who == job->root) == (job->coll == CH_SCATTER);

        while (writes && flag_of(mate->channel, who, barrier) < ch_flag_value(barrier, 1))
            sched_yield();
    }
    for (int turn = 0; turn < 2 && rc == CHOIR_OK; turn++, here.seq++) {
        struct ch_op op = op_of(&p, &here, false);

        fill_inputs(&p, &here, false);
        rc = team_do(mate, &op);
        if (rc == CHOIR_OK)
            check_outputs(&p, &here, false);
    }
    if (rc == CHOIR_OK)
        rc = meet(mate);
    free(p.list);
    free(p.one);
    return rc;
}

CHOIR_TEST(who_posts_may_be_in_the_next_barrier)
{
    static const struct pattern *const some[] = { &patterns[0], &patterns[4], &patterns[5] };
    struct job job = { .root = 1, .seq = 1 };
    struct team team;

    team_start(&team, 3);
    for (uint32_t i = 0; i < team.n; i++) {
        team.mates[i].arg = &job;
        /* a barrier in which all post at once */
        CHOIR_CHECK_OK(ch_overrules_parse("barrier:flags", &team.mates[i].rank->overrules));
    }
    team_channel(&team, STAGE);
    for (size_t i = 0; i < 2 * CH_ARRAY_LEN(some); i++, job.seq += 3) {
        job.pattern = some[i / 2];
        job.coll = i % 2 == 0 ? CH_GATHER : CH_SCATTER;
        CHOIR_ROW("%s: %s", ch_coll_name(job.coll), job.pattern->name);
        team_run(&team, two_and_a_barrier);
        team_check_ok(&team);
    }
    team_end(&team);
}

/* --- lengths that do not agree ------------------------------------------------------------------------- */

/* The block between the root and rank 2, as the two see it; of the others, rank 1 has `other`. */
struct dispute {
    size_t at_root, at_rank, other;
};

static const struct dispute
    disputes[] = {
        { TINY, TINY + 1, TINY },   /* both in the line; the root's are alike */
        { TINY, TINY + 1, MIDDLE }, /* the root's differ */
        { TINY, MIDDLE, TINY },     /* looked for in another place */
        { MIDDLE, TINY, MIDDLE },   { MIDDLE, MIDDLE - 1, LONG },
        { TINY, LONG, TINY },   /* the rank waits for the root's word */
        { LONG, TINY, MIDDLE }, /* the root waits for nobody, or for a message */
        { LONG, LONG + 1, LONG },   { LONG, LONG + 1, TINY },
        { 0, TINY, TINY },          { TINY, 0, 0 },
    };

struct disputed {
    enum ch_coll coll;
    const struct dispute *dispute;
};

static choir_status do_disputed(struct mate *mate)
{
    const struct disputed *d = mate->arg;
    uint32_t in[3 * (LONG + 1)] = { 0 }, out[3 * (LONG + 1)];
    struct ch_piece pieces[3];
    struct part p = { .n = 3, .me = mate->me, .one = d->coll == CH_GATHER ? in : out };
    struct job job = { .coll = d->coll, .root = 0, .seq = 1 };
    const size_t counts[] = { d->dispute->other, d->dispute->other, d->dispute->at_root };
    struct ch_op op;

    for (size_t i = 0; i < 3; i++) {
        uint32_t *list = d->coll == CH_GATHER ? out : in;

        pieces[i] = (struct ch_piece){ list + i * (LONG + 1), counts[i] };
    }
    memcpy(p.pieces, pieces, sizeof(pieces));
    p.one_count = mate->me == 2 ? d->dispute->at_rank : counts[mate->me];
    op = op_of(&p, &job, false);
    return team_do(mate, &op);
}

static void run_disputed(struct team *team, struct disputed *d)
{
    size_t sent = d->coll == CH_GATHER ? d->dispute->at_rank : d->dispute->at_root;
    size_t expected = d->coll == CH_GATHER ? d->dispute->at_root : d->dispute->at_rank;
    uint32_t reader = d->coll == CH_GATHER ? 0 : 2;
    char says[96];

    snprintf(says, sizeof(says), "rank %u has %zu elements for rank %u, which expects %zu",
             2 - reader, sent, reader, expected);
    CHOIR_ROW("%s: %s", ch_coll_name(d->coll), says);
    for (uint32_t i = 0; i < 3; i++)
        team->mates[i].arg = d;
    team_run(team, do_disputed);
    CHOIR_CHECK_STATUS(team->mates[reader].status, CHOIR_ERR_MISMATCH);
    for (uint32_t i = 0; i < 3; i++) {
        if (team->mates[i].status != CHOIR_OK) /* else it had all its data; its next call fails */
            CHOIR_CHECK_HAS(team->mates[i].error.text, says);
        CHOIR_CHECK_STATUS(ch_poisoned(team->mates[i].channel), CHOIR_ERR_MISMATCH);
    }
}

CHOIR_TEST_TIMED(two_ranks_that_see_a_block_differently, 60)
{
    for (size_t i = 0; i < 2 * CH_ARRAY_LEN(disputes); i++) {
        struct disputed d = { i % 2 == 0 ? CH_GATHER : CH_SCATTER, &disputes[i / 2] };
        struct team team;

        team_start(&team, 3);
        team_channel(&team, STAGE);
        run_disputed(&team, &d);
        team_end(&team);
    }
}

/* --- no memory ---------------------------------------------------------------------------------------- */

/* Whichever allocation fails, on whichever rank: nobody waits for good, and who fails says why. */
static void run_short_of_memory(struct team *team, struct job *job)
{
    bool failed = true;

    for (uint64_t k = 1; failed; k++) {
        CHOIR_ROW("%s, allocation %llu", ch_coll_name(job->coll), (unsigned long long)k);
        team_channel(team, STAGE);
        for (uint32_t i = 0; i < team->n; i++)
            team->mates[i].arg = job;
        ch_fault_arm(CH_FAULT_alloc, k, 0);
        team_run(team, do_job);
        failed = ch_fault_disarm();
        for (uint32_t i = 0; i < team->n; i++) {
            if (team->mates[i].status != CHOIR_OK)
                CHOIR_CHECK_STATUS(team->mates[i].status, CHOIR_ERR_NOMEM);
            if (!failed)
                CHOIR_CHECK_OK(team->mates[i].status);
        }
        team_close_channel(team);
    }
}

CHOIR_TEST_TIMED(whoever_has_no_memory_tells_the_others, 60)
{
    struct job job = { .root = 1, .pattern = &patterns[CH_ARRAY_LEN(patterns) - 1], .seq = 1 };
    struct team team;

    team_start(&team, 3);
    job.coll = CH_GATHER;
    run_short_of_memory(&team, &job);
    job.coll = CH_SCATTER;
    run_short_of_memory(&team, &job);
    team_end(&team);
}
