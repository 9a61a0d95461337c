/* algo_run_test.c - every algorithm run for real, by ranks that are threads, against a naive reference. */
#include "engine/team.h"

#include "algo/algo.h"
#include "algo/select.h"
#include "engine/plan.h"
#include "kernel/always_by_test.h"
#include "kernel/kernel.h"
#include "sched/blocks.h"

/* One case, the same for all ranks. */
struct job {
    enum ch_coll coll;
    const char *algo;
    choir_type type;
    choir_redop op;
    size_t count; /* of each block, or of the longest */
    uint32_t root;
    bool in_place, uneven;
    int repeats;
    uint64_t seq;
};

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

/* Small whole numbers: every type has them, and sums of 17 are exact in all of them in any order. */
static int value(uint32_t rank, uint64_t block, size_t i, int turn)
{
    return (int)((rank * 3 + block * 5 + i * 7 + (size_t)turn) % 4);
}

static void put(choir_type type, void *at, size_t i, double v)
{
    static const uint16_t f16[] = { 0, 0x3c00, 0x4000, 0x4200 };
    float f = (float)v;

    switch (type) {
    case CHOIR_F32:
        ((float *)at)[i] = f;
        break;
    case CHOIR_F64:
        ((double *)at)[i] = v;
        break;
    case CHOIR_F16:
        ((uint16_t *)at)[i] = f16[(int)v];
        break;
    case CHOIR_BF16:
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
        ch_narrow(type, (char *)at + i * ch_type_bytes[type], &f, 1);
        break;
    default:
        memset((char *)at + i * ch_type_bytes[type], 0, ch_type_bytes[type]);
        ((char *)at)[i * ch_type_bytes[type]] = (char)v;
        if (type == CHOIR_COMPLEX64)
            ((float *)at)[2 * i] = f, ((float *)at)[2 * i + 1] = 1;
        if (type == CHOIR_COMPLEX128)
            ((double *)at)[2 * i] = v, ((double *)at)[2 * i + 1] = 1;
        break;
    }
}

static void fill(choir_type type, void *at, size_t count, uint32_t rank, uint64_t block, int turn)
{
    for (size_t i = 0; i < count; i++)
        put(type, at, i, value(rank, block, i, turn));
}

/* How long a block is: uneven ones are all different, and some are empty. */
static size_t length(const struct job *job, uint32_t n, uint64_t block)
{
    (void)n;
    return job->uneven ? (block * 37 + 11) % (job->count + 1) : job->count;
}

/* The blocks of a region of ours, behind each other in one buffer with a guard. */
struct region {
    struct ch_blocks blocks;
    struct ch_piece pieces[TEAM_MOST];
    char *memory;
    size_t nbytes;
};

static void make_region(struct region *r, const struct job *job, uint32_t n, uint32_t me,
                        enum ch_region which, char *memory)
{
    uint64_t nblocks = ch_coll_nblocks(job->coll, n);
    size_t size = ch_type_bytes[job->type];

    memset(r, 0, sizeof(*r));
    r->blocks.step = 1;
    r->blocks.count = job->count;
    for (uint64_t b = 0; b < nblocks; b++) {
        if (!ch_coll_holds(job->coll, n, job->root, which, me, b))
            continue;
        if (r->blocks.nblocks == 0)
            r->blocks.first = (uint32_t)b;
        else if (r->blocks.nblocks == 1)
            r->blocks.step = (uint32_t)b - r->blocks.first;
        r->pieces[r->blocks.nblocks++] = (struct ch_piece){ NULL, length(job, n, b) };
        r->nbytes += length(job, n, b) * size;
    }
    r->memory = memory != NULL ? memory : malloc(r->nbytes + GUARD);
    if (memory == NULL)
        memset(r->memory + r->nbytes, GUARD_BYTE, GUARD);
    for (size_t i = 0, at = 0; i < r->blocks.nblocks; i++) {
        r->pieces[i].data = r->memory + at;
        at += r->pieces[i].count * size;
    }
    r->blocks.base = r->memory;
    r->blocks.pieces = job->uneven ? r->pieces : NULL;
}

static uint64_t block_at(const struct region *r, size_t index)
{
    return r->blocks.first + index * r->blocks.step;
}

/* What block `b` of a result must be: gathered from its owner, or the reduction of all. */
static void expect(const struct job *job, uint32_t n, uint64_t b, int turn, char *out, size_t count)
{
    size_t size = ch_type_bytes[job->type];
    const void *srcs[TEAM_MOST];
    double factors[TEAM_MOST];
    struct ch_reduction r = { job->type, job->op, n, factors };
    void *dst = out;
    uint32_t owner = job->coll == CH_ALLTOALL                               ? (uint32_t)(b / n)
                     : job->coll == CH_BROADCAST || job->coll == CH_SCATTER ? job->root
                                                                            : (uint32_t)b;

    if (!ch_coll_reduces(job->coll)) {
        fill(job->type, out, count, owner, b, turn);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        void *in = malloc(count * size + 1);

        fill(job->type, in, count, i, b, turn);
        srcs[i] = in;
        factors[i] = i % 3;
    }
    ch_kernels_scalar.reduce[job->type][job->op](&r, &dst, 1, srcs, n, count);
    for (uint32_t i = 0; i < n; i++)
        free((void *)srcs[i]);
}

static void check_result(const struct job *job, uint32_t n, uint32_t me, const struct region *out,
                         int turn)
{
    size_t size = ch_type_bytes[job->type];

    for (size_t i = 0; i < out->blocks.nblocks; i++) {
        size_t nbytes = out->pieces[i].count * size;
        char *want = malloc(nbytes + 1);

        expect(job, n, block_at(out, i), turn, want, out->pieces[i].count);
        if (memcmp(want, out->pieces[i].data, nbytes) != 0) {
            size_t at = 0;

            while (want[at] == ((char *)out->pieces[i].data)[at])
                at++;
            CHOIR_FAIL("%s %s: rank %u of %u, block %llu, element %zu of %zu is wrong (%s %s, root "
                       "%u, turn %d%s%s)",
                       ch_coll_name(job->coll), job->algo, me, n,
                       (unsigned long long)block_at(out, i), at / size, out->pieces[i].count,
                       choir_type_name(job->type), choir_redop_name(job->op), job->root, turn,
                       job->in_place ? ", in place" : "", job->uneven ? ", uneven" : "");
        }
        free(want);
    }
}

static void check_guard(const struct region *r)
{
    for (size_t i = 0; i < GUARD; i++)
        CHOIR_CHECK_EQ((unsigned char)r->memory[r->nbytes + i], (unsigned char)GUARD_BYTE);
}

/* As far as we know: of gather and scatter only the root knows the others' lengths. */
static void tell_lengths(struct ch_op *op, const struct region *in, const struct region *out)
{
    const struct region *regions[] = { in, out };

    if (!op->uneven || (op->coll != CH_GATHER && op->coll != CH_SCATTER))
        return;
    op->longest = 0;
    for (size_t r = 0; r < CH_ARRAY_LEN(regions); r++) {
        for (size_t i = 0; i < regions[r]->blocks.nblocks; i++) {
            size_t count = regions[r]->pieces[i].count;

            op->differ |= count != regions[r]->pieces[0].count;
            op->longest = count > op->longest ? count : op->longest;
        }
    }
}

static choir_status do_turn(struct mate *mate, struct job *job, struct region *in,
                            struct region *out, int turn)
{
    struct ch_op op = { .type = CHOIR_OP_ALLREDUCE,
                        .coll = job->coll,
                        .dtype = job->type,
                        .redop = job->op,
                        .factor = mate->me % 3,
                        .root = job->root,
                        .reduces = ch_coll_reduces(job->coll),
                        .in = in->blocks,
                        .out = out->blocks,
                        .in_place = in->memory == out->memory,
                        .longest = job->count,
                        .uneven = job->uneven,
                        .counts = job->count,
                        .algo = job->algo,
                        .seq = job->seq + (uint64_t)turn,
                        .until = team_patience() };
    choir_status rc;

    tell_lengths(&op, in, out);
    for (size_t i = 0; i < in->blocks.nblocks; i++)
        fill(job->type, in->pieces[i].data, in->pieces[i].count, mate->me, block_at(in, i), turn);
    rc = team_do(mate, &op);
    if (rc == CHOIR_OK)
        check_result(job, mate->team->n, mate->me, out, turn);
    return rc;
}

/* In place is possible where one of the two holds the other: all but those where blocks are one of many. */
static bool can_be_in_place(enum ch_coll coll)
{
    return coll == CH_ALLREDUCE || coll == CH_REDUCE || coll == CH_BROADCAST || coll == CH_ALLTOALL;
}

static choir_status do_job(struct mate *mate)
{
    struct job job = *(struct job *)mate->arg;
    struct region in, out;
    choir_status rc = CHOIR_OK;

    make_region(&in, &job, mate->team->n, mate->me, CH_IN, NULL);
    make_region(&out, &job, mate->team->n, mate->me, CH_OUT,
                job.in_place && in.blocks.nblocks > 0 &&
                        ch_coll_holds(job.coll, mate->team->n, job.root, CH_OUT, mate->me,
                                      job.coll == CH_ALLTOALL ? mate->me : 0)
                    ? in.memory
                    : NULL);
    for (int turn = 0; turn < job.repeats && rc == CHOIR_OK; turn++)
        rc = do_turn(mate, &job, &in, &out, turn);
    check_guard(&in);
    if (out.memory != in.memory) {
        check_guard(&out);
        free(out.memory);
    }
    free(in.memory);
    return rc;
}

static void run_job(struct team *team, struct job *job)
{
    CHOIR_ROW("%s %s: %u ranks, %zu %s %s, root %u%s%s", ch_coll_name(job->coll), job->algo,
              team->n, job->count, choir_type_name(job->type), choir_redop_name(job->op), job->root,
              job->in_place ? ", in place" : "", job->uneven ? ", uneven" : "");
    for (uint32_t i = 0; i < team->n; i++)
        team->mates[i].arg = job;
    team_run(team, do_job);
    team_check_ok(team);
    job->seq += (uint64_t)job->repeats;
}

static const choir_type types[] = { CHOIR_F32, CHOIR_BF16, CHOIR_I64, CHOIR_U8, CHOIR_F16 };
static const choir_redop redops[] = { CHOIR_SUM, CHOIR_MAX, CHOIR_AVG };

/* Lengths of a block: what a stage of 4 KiB makes several rounds of, ends that do not divide, nothing. */
static const size_t counts[] = { 1, 0, 7, 1000, 3001 };

static void run_algorithm(struct team *team, const struct ch_algo *algo, struct job *job)
{
    uint32_t n = team->n;

    job->coll = algo->coll;
    job->algo = algo->name;
    for (size_t i = 0; i < CH_ARRAY_LEN(counts); i++) {
        struct ch_situation s = {
            .coll = algo->coll, .nranks = n, .line_bytes = CH_LINE_NBYTES, .shared = true
        };

        job->type = types[(i + n) % CH_ARRAY_LEN(types)];
        job->op = redops[(i + n) % CH_ARRAY_LEN(redops)];
        job->count = counts[i];
        job->root = (uint32_t)(i * 5 + 1) % n;
        job->in_place = can_be_in_place(algo->coll) && i % 2 == 1;
        job->uneven = false;
        s.nbytes = job->count * ch_type_bytes[job->type] * ch_coll_nblocks(algo->coll, n);
        if (algo->coll == CH_ALLTOALL)
            s.nbytes /= n;
        if (ch_algo_objection(algo, &s) != NULL)
            continue; /* only inline ones, of what does not fit */
        run_job(team, job);
        if (algo->even_only || ch_coll_nblocks(algo->coll, n) < 2)
            continue;
        job->uneven = true;
        job->in_place = false;
        run_job(team, job);
    }
}

static void run_all(uint32_t n, size_t stage_nbytes)
{
    struct team team;
    struct job job = { .repeats = 2, .seq = 1 };

    team_start(&team, n);
    team_channel(&team, stage_nbytes);
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        if (ch_algo_fits(ch_algos[i], n))
            run_algorithm(&team, ch_algos[i], &job);
    }
    team_end(&team);
}

CHOIR_TEST_TIMED(every_algorithm_gives_what_it_should_up_to_5, 120)
{
    for (uint32_t n = 1; n <= 5; n++)
        run_all(n, n == 3 ? 0 : 4096);
}

CHOIR_TEST_TIMED(every_algorithm_gives_what_it_should_up_to_9, 120)
{
    for (uint32_t n = 6; n <= (choir_test_valgrind() ? 6 : 9); n++)
        run_all(n, n == 8 ? 0 : 8192);
}

CHOIR_TEST_TIMED(every_algorithm_gives_what_it_should_with_17, 120)
{
    if (choir_test_valgrind())
        CHOIR_SKIP("too slow here");
    run_all(17, 0);
}

CHOIR_TEST_TIMED(every_type_and_reduction, 120)
{
    struct team team;
    struct job job = { .coll = CH_ALLREDUCE, .repeats = 1, .seq = 1 };
    static const char *const algos[] = { NULL, "one-shot", "two-shot", "ring" };

    team_start(&team, 3);
    team_channel(&team, 4096);
    for (int t = 0; t < CHOIR_NTYPES; t++) {
        for (int op = 0; op < CHOIR_NREDOPS; op++) {
            for (size_t a = 0; a < CH_ARRAY_LEN(algos); a++) {
                if (choir_redop_check((choir_redop)op, (choir_type)t) != CHOIR_OK)
                    continue;
                job.type = (choir_type)t;
                job.op = (choir_redop)op;
                job.algo = algos[a];
                job.count = a == 0 ? 3 : 531;
                job.root = 0;
                run_job(&team, &job);
            }
        }
    }
    team_end(&team);
}

/* Each contribution is scaled by its rank's factor, once, whatever way it goes. */
CHOIR_TEST_TIMED(premul_sum_by_every_algorithm, 120)
{
    static const choir_type floats[] = { CHOIR_F32, CHOIR_BF16, CHOIR_F64, CHOIR_COMPLEX64 };

    for (uint32_t n = 2; n <= 6; n++) {
        struct team team;
        struct job job = { .op = CHOIR_PREMUL_SUM, .count = 531, .repeats = 2, .seq = 1 };

        team_start(&team, n);
        team_channel(&team, n == 4 ? 0 : 4096);
        for (size_t i = 0; ch_algos[i] != NULL; i++) {
            if (!ch_coll_reduces(ch_algos[i]->coll) || !ch_algo_fits(ch_algos[i], n))
                continue;
            job.coll = ch_algos[i]->coll;
            job.algo = ch_algos[i]->name;
            job.type = floats[(n + i) % CH_ARRAY_LEN(floats)];
            job.count = ch_algos[i]->in_line ? 1 : 531;
            job.root = n - 1;
            job.in_place = can_be_in_place(job.coll) && i % 2 == 0;
            run_job(&team, &job);
        }
        team_end(&team);
    }
}

static const char *chosen(struct team *team, enum ch_coll coll, size_t count)
{
    struct ch_op op = { .coll = coll, .dtype = CHOIR_U8, .redop = CHOIR_SUM, .longest = count };
    const struct ch_plan *plan;

    op.reduces = ch_coll_reduces(coll);
    CHOIR_CHECK_OK(ch_plan_find(team->mates[0].channel, &op, NULL, count, false, &plan));
    return plan->sched->algo; /* the algorithm's own */
}

/* With many ranks and many groups a slot of the stage is a few bytes: better by messages than in a thousand
 * rounds. What is summed stays where it is summed in the ranks' order. */
CHOIR_TEST(little_stage_is_for_little)
{
    struct team team;

    team_start(&team, 16);
    team_channel(&team, CH_STAGE_UNIT);
    CHOIR_CHECK_STR(chosen(&team, CH_ALLTOALL, 256), "staged");
    CHOIR_CHECK_STR(chosen(&team, CH_ALLTOALL, 32768), "pairwise");
    CHOIR_CHECK_STR(chosen(&team, CH_SCATTER, 32768), "linear");
    CHOIR_CHECK_STR(chosen(&team, CH_REDUCE_SCATTER, 32768), "one-shot");
    CHOIR_CHECK_STR(chosen(&team, CH_ALLGATHER, 32768), "staged"); /* one slot, and long enough */
    team_end(&team);
}

/* Some of the ranks run the steps of a schedule, others the function that is written for it: the same bits, and the same flags. */
CHOIR_TEST_TIMED(functions_do_what_their_schedules_say, 120)
{
    struct job job = { .coll = CH_ALLREDUCE, .repeats = 3, .seq = 1 };

    for (uint32_t n = 2; n <= 5; n++) {
        struct team team;

        team_start(&team, n);
        team_channel(&team, 0);
        for (uint32_t r = 0; r < n; r += 2)
            team.mates[r].channel->stepwise = true;
        for (int type = 0; type < CHOIR_NTYPES; type++) {
            for (int op = 0; op < CHOIR_NREDOPS; op++) {
                if (ch_kernels_scalar.reduce[type][op] == NULL)
                    continue;
                job.type = (choir_type)type;
                job.op = (choir_redop)op;
                job.in_place = (type + op) % 2 != 0;
                job.count = (size_t)(type * 5 + op) % (CH_LINE_NBYTES / ch_type_bytes[type] + 1);
                run_job(&team, &job);
                for (uint32_t r = 0; r < n; r++)
                    CHOIR_CHECK_EQ(team.mates[r].channel->last_plan->fused != NULL,
                                   r % 2 == 1 && job.count > 0 && op != CHOIR_PREMUL_SUM);
            }
        }
        team_end(&team);
    }
}

enum { UNLIKE = 7 };

/* What adds up differently in another order: no two sums of three are rounded alike for long. */
static void fill_unlike(float *values, uint32_t rank)
{
    for (size_t i = 0; i < UNLIKE; i++)
        values[i] = (float)((rank * 7919 + i * 104729 + 1) % 1000003) * 0.37F;
}

static choir_status add_up_unlike(struct mate *mate)
{
    static const struct ch_reduction sum = { .type = CHOIR_F32, .op = CHOIR_SUM };
    float in[UNLIKE], out[UNLIKE], want[UNLIKE], all[TEAM_MOST][UNLIKE];
    struct ch_op op = { .type = CHOIR_OP_ALLREDUCE,
                        .coll = CH_ALLREDUCE,
                        .dtype = CHOIR_F32,
                        .redop = CHOIR_SUM,
                        .reduces = true,
                        .in = { .step = 1, .nblocks = 1, .base = (char *)in, .count = UNLIKE },
                        .out = { .step = 1, .nblocks = 1, .base = (char *)out, .count = UNLIKE },
                        .longest = UNLIKE,
                        .counts = UNLIKE,
                        .seq = 1,
                        .until = team_patience() };
    const void *srcs[TEAM_MOST];
    void *dst = want;
    choir_status rc;

    for (uint32_t r = 0; r < mate->team->n; r++) {
        fill_unlike(all[r], r);
        srcs[r] = all[r];
    }
    ch_kernels_scalar.reduce[CHOIR_F32][CHOIR_SUM](&sum, &dst, 1, srcs, mate->team->n, UNLIKE);
    fill_unlike(in, mate->me);
    rc = team_do(mate, &op);
    if (rc == CHOIR_OK)
        CHOIR_CHECK(memcmp(want, out, sizeof(want)) == 0);
    return rc;
}

/* In the ranks' order, also where the sum is not the same in another. */
CHOIR_TEST(functions_add_up_in_the_order_of_ranks)
{
    for (uint32_t n = 2; n <= 9; n++) {
        struct team team;

        CHOIR_ROW("%u ranks", n);
        team_start(&team, n);
        team_channel(&team, 0);
        team.mates[n - 1].channel->stepwise = true;
        team_run(&team, add_up_unlike);
        team_check_ok(&team);
        CHOIR_CHECK(team.mates[0].channel->last_plan->fused != NULL);
        CHOIR_CHECK(team.mates[n - 1].channel->last_plan->fused == NULL);
        team_end(&team);
    }
}

/* Results so long that they go past the caches, in several windows and with an odd end. */
CHOIR_TEST_TIMED(long_results_are_the_same, 120)
{
    static const enum ch_coll colls[] = { CH_ALLREDUCE, CH_BROADCAST, CH_ALLGATHER, CH_ALLTOALL };
    struct job job = { .op = CHOIR_SUM, .type = CHOIR_F32, .repeats = 1, .seq = 1 };
    struct team team;

    if (choir_test_valgrind())
        CHOIR_SKIP("too slow here");
    team_start(&team, 2);
    team_channel(&team, 0);
    for (size_t i = 0; i < CH_ARRAY_LEN(colls); i++) {
        job.coll = colls[i];
        job.count = ((size_t)2 << 20) / (ch_coll_nblocks(colls[i], 2) > 1 ? 2 : 1) + 3;
        run_job(&team, &job);
        CHOIR_CHECK(team.mates[0].channel->last_plan->past_caches);
        job.count = 1000;
        run_job(&team, &job);
        CHOIR_CHECK(!team.mates[0].channel->last_plan->past_caches);
    }
    CHOIR_ROW("in place, where they were just read");
    job = (struct job){ .coll = CH_ALLREDUCE,
                        .op = CHOIR_SUM,
                        .type = CHOIR_F32,
                        .repeats = 1,
                        .seq = job.seq,
                        .count = ((size_t)2 << 20) + 3,
                        .in_place = true };
    run_job(&team, &job);
    CHOIR_CHECK(!team.mates[0].channel->last_plan->past_caches);
    team_end(&team);
}

/* What is staged by another way than ordinary stores; lengths with odd ends, and averages. */
static void stage_by(enum ch_copy_how how)
{
    static const enum ch_coll colls[] = { CH_ALLREDUCE, CH_BROADCAST, CH_ALLGATHER,
                                          CH_ALLTOALL,  CH_REDUCE,    CH_REDUCE_SCATTER };
    static const struct {
        choir_type type;
        choir_redop op;
    } sums[] = { { CHOIR_F32, CHOIR_SUM },
                 { CHOIR_BF16, CHOIR_AVG },
                 { CHOIR_COMPLEX128, CHOIR_SUM } };
    static const size_t lengths[] = { 2049, 50021, 300007 };
    struct job job = { .repeats = 2, .seq = 1 };
    struct team team;

    team_start(&team, 3);
    team_channel(&team, 0);
    for (size_t i = 0; i < CH_ARRAY_LEN(colls) * CH_ARRAY_LEN(sums) * CH_ARRAY_LEN(lengths); i++) {
        job.coll = colls[i % CH_ARRAY_LEN(colls)];
        job.type = sums[i / CH_ARRAY_LEN(colls) % CH_ARRAY_LEN(sums)].type;
        job.op = sums[i / CH_ARRAY_LEN(colls) % CH_ARRAY_LEN(sums)].op;
        job.count = lengths[i / CH_ARRAY_LEN(colls) / CH_ARRAY_LEN(sums)];
        for (int r = 0; r < 3; r++)
            for (int reader = 0; reader <= 3; reader++)
                always_by(&team.mates[r].channel->to_stage[reader], how);
        run_job(&team, &job);
        for (int r = 0; r < 3; r++)
            CHOIR_CHECK_EQ(ch_copy_over_how(&team.mates[r].channel->to_stage[(r + 1) % 3], 65536),
                           how);
    }
    team_end(&team);
}

CHOIR_TEST_TIMED(what_is_staged_past_the_caches_is_the_same, 120)
{
    if (choir_test_valgrind())
        CHOIR_SKIP("too slow here");
    stage_by(CH_COPY_PAST);
}

CHOIR_TEST_TIMED(what_is_staged_by_the_instruction_is_the_same, 120)
{
    if (choir_test_valgrind())
        CHOIR_SKIP("too slow here");
    stage_by(CH_COPY_STRING);
}

static bool was_copied_for(const struct ch_channel *channel, uint32_t reader)
{
    for (int size = 0; size < CH_COPY_OVER_SIZES; size++) {
        if (channel->to_stage[reader].by_size[size].turn != 0)
            return true;
    }
    return false;
}

/* Some of the others may share our processor, and some be far: each is known by its own copies. */
CHOIR_TEST(copies_are_known_by_who_reads_them)
{
    static const enum ch_coll colls[] = { CH_ALLREDUCE, CH_ALLTOALL, CH_REDUCE_SCATTER,
                                          CH_BROADCAST };

    if (ch_copy_there() == 1u << CH_COPY_STORES)
        CHOIR_SKIP("there is one way to copy here");
    for (size_t i = 0; i < CH_ARRAY_LEN(colls); i++) {
        struct job job = {
            .coll = colls[i], .type = CHOIR_F32, .repeats = 1, .seq = 1, .count = 30001
        };
        struct team team;

        team_start(&team, 3);
        team_channel(&team, 0);
        run_job(&team, &job);
        for (uint32_t r = 0; r < 3; r++) {
            bool for_all = colls[i] == CH_BROADCAST;

            for (uint32_t reader = 0; reader < 3; reader++)
                CHOIR_CHECK(was_copied_for(team.mates[r].channel, reader) ==
                            (!for_all && reader != r));
            CHOIR_CHECK(was_copied_for(team.mates[r].channel, 3) == (for_all && r == job.root));
        }
        team_end(&team);
    }
}

/* A note that a copy was made outlived its operation, and its schedule's memory is another's now. */
CHOIR_TEST(a_note_of_a_copy_ends_with_its_operation)
{
    struct job job = {
        .coll = CH_BROADCAST, .type = CHOIR_F32, .repeats = 1, .seq = 1, .count = 5000
    };
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    run_job(&team, &job); /* the plan is made */
    for (int r = 0; r < 2; r++) {
        const struct ch_sched *s = team.mates[r].channel->last_plan->sched;

        for (uint32_t i = 0; i < s->nsteps; i++) {
            if (s->steps[i].kind == CH_COPY)
                team.mates[r].channel->copied = &s->steps[i];
        }
        CHOIR_CHECK(team.mates[r].channel->copied != NULL);
    }
    run_job(&team, &job);
    team_end(&team);
}

/* Who waits for a long operation is told whenever it got on, so that each of its waits is one of its own. */
CHOIR_TEST(getting_on_is_told)
{
    struct team team;
    struct ch_op ops[2];
    struct ch_run runs[2];
    uint64_t moves = 0;

    team_start(&team, 2);
    team_channel(&team, 4096);
    for (int i = 0; i < 2; i++) {
        ops[i] = (struct ch_op){ .type = CHOIR_OP_BARRIER, .coll = CH_BARRIER, .dtype = CHOIR_U8 };
        ops[i].until = team_patience();
        CHOIR_CHECK_OK(ch_run_begin(team.mates[i].channel, &ops[i], &runs[i]));
    }
    for (int turn = 0; turn < 3; turn++) {
        CHOIR_CHECK_STATUS(ch_run_step(team.mates[0].channel, &ops[0], &runs[0]),
                           CHOIR_IN_PROGRESS);
        if (turn == 0)
            moves = ops[0].moves; /* it has entered, and posted */
        CHOIR_CHECK_LE(1u, ops[0].moves);
        CHOIR_CHECK_EQ(ops[0].moves, moves); /* alone it does not get on */
    }
    CHOIR_CHECK_OK(ch_run_step(team.mates[1].channel, &ops[1], &runs[1]));
    CHOIR_CHECK_OK(ch_run_step(team.mates[0].channel, &ops[0], &runs[0]));
    for (int i = 0; i < 2; i++)
        ch_run_end(team.mates[i].channel, &runs[i]);
    team_end(&team);
}

static void run_tiny(struct team *team, struct job *job, enum ch_coll coll, uint32_t root)
{
    job->coll = coll;
    job->root = root;
    run_job(team, job);
}

/* Who has something for the others after each barrier leaves it first, however many processors there are. */
static void check_who_leads(uint32_t processors)
{
    struct team team;
    struct job job = { .type = CHOIR_F32, .op = CHOIR_SUM, .count = 1, .repeats = 1, .seq = 1 };

    team_start(&team, 3);
    for (uint32_t i = 0; i < team.n; i++)
        team.mates[i].rank->processors = processors;
    team_channel(&team, 4096);
    CHOIR_CHECK_STR(chosen(&team, CH_BARRIER, 0), "flags");
    for (int turn = 0; turn < 2; turn++) {
        run_tiny(&team, &job, CH_BARRIER, 0);
        run_tiny(&team, &job, turn == 0 ? CH_BROADCAST : CH_SCATTER, 2);
        CHOIR_CHECK_STR(chosen(&team, CH_BARRIER, 0), "central");
        CHOIR_CHECK_EQ(team.mates[0].channel->last_plan->key.root, 2);
        run_tiny(&team, &job, CH_ALLREDUCE, 0); /* not after a barrier */
        CHOIR_CHECK_STR(chosen(&team, CH_BARRIER, 0), "central");
        run_tiny(&team, &job, CH_BARRIER, 0);
        run_tiny(&team, &job, CH_REDUCE, 1);
        CHOIR_CHECK_STR(chosen(&team, CH_BARRIER, 0), "flags");
    }
    team_end(&team);
}

CHOIR_TEST(who_leads_leaves_first)
{
    check_who_leads(1);
    check_who_leads(3);
}

/* Different operations back to back, without a word between, in many orders. */
CHOIR_TEST_TIMED(operations_mixed_back_to_back, 120)
{
    struct choir_test_random random = { 20 };
    struct team team;
    struct job job = { .repeats = 1, .seq = 1 };

    team_start(&team, 4);
    team_channel(&team, 8192);
    for (int i = 0; i < (choir_test_long() ? 5000 : 300); i++) {
        job.coll = (enum ch_coll)(choir_test_random(&random) % CH_NCOLLS);
        job.algo = NULL;
        job.type = types[choir_test_random(&random) % CH_ARRAY_LEN(types)];
        job.op = redops[choir_test_random(&random) % CH_ARRAY_LEN(redops)];
        job.count = counts[choir_test_random(&random) % CH_ARRAY_LEN(counts)];
        job.root = (uint32_t)choir_test_random(&random) % 4;
        job.repeats = 1 + (int)(choir_test_random(&random) % 4);
        job.uneven = choir_test_random(&random) % 3 == 0 && job.coll != CH_BARRIER;
        job.in_place = can_be_in_place(job.coll) && !job.uneven && choir_test_random(&random) % 2;
        run_job(&team, &job);
    }
    team_end(&team);
}
