/* comm_test.c - ids, communicators, and calls that drive several ranks. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "base/error.h"
#include "base/sys.h"
#include "kernel/kernel.h"
#include "nccl/unique_id.h"

enum { RANKS_MAX = 64 };

/* --- ranks on threads ------------------------------------------------------------------------------- */

struct joiner {
    pthread_t thread;
    int nranks, rank;
    int64_t timeout_ms;
    const choir_unique_id *id;
    choir_comm *comm;
    choir_status status;
    choir_error error;
};

static void *join(void *arg)
{
    struct joiner *j = arg;

    j->status = choir_comm_init_rank(j->nranks, j->id, j->rank,
                                     CHOIR_OPTS(comm_init_rank, .timeout_ms = j->timeout_ms),
                                     &j->comm);
    if (j->status != CHOIR_OK)
        ch_error_save(&j->error);
    return NULL;
}

static void join_all(struct joiner *joiners, int count)
{
    for (int i = 0; i < count; i++)
        CHOIR_CHECK_EQ(ch_sys_thread_create(&joiners[i].thread, join, &joiners[i]), 0);
    for (int i = 0; i < count; i++)
        pthread_join(joiners[i].thread, NULL);
}

/* A communicator of `n` ranks, all here; the threads that made them have ended. */
static void make_comms(const choir_unique_id *id, int n, choir_comm **comms)
{
    struct joiner joiners[RANKS_MAX];

    for (int r = 0; r < n; r++)
        joiners[r] = (struct joiner){ .nranks = n, .rank = r, .id = id, .timeout_ms = 60000 };
    join_all(joiners, n);
    for (int r = 0; r < n; r++) {
        if (joiners[r].status != CHOIR_OK)
            CHOIR_FAIL("rank %d of %d: %s", r, n, joiners[r].error.text);
        comms[r] = joiners[r].comm;
    }
}

static void destroy_comms(int n, choir_comm **comms)
{
    for (int r = 0; r < n; r++)
        choir_comm_destroy(comms[r]);
}

/* --- ids -------------------------------------------------------------------------------------------- */

static const struct {
    size_t at;
    const char *says;
} spoiled[] = {
    { 0, "does not begin as an id" },
    { 8, "version is" },
    { 16, "checksum" },
    { 40, "checksum" },
    { 70, "checksum" },
    { 127, "checksum" },
};

CHOIR_TEST(an_id_is_random_and_its_bytes_are_checked)
{
    choir_unique_id one, other;
    struct ch_id_parts parts;

    CHOIR_CHECK_OK(choir_unique_id_make(&one));
    CHOIR_CHECK_OK(choir_unique_id_make(&other));
    CHOIR_CHECK(memcmp(&one, &other, sizeof(one)) != 0);
    CHOIR_CHECK_OK(ch_unique_id_read(&one, &parts));
    CHOIR_CHECK(strchr(parts.address, ':') != NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(spoiled); i++) {
        choir_comm *comm = NULL;

        CHOIR_ROW("byte %zu", spoiled[i].at);
        other = one;
        other.bytes[spoiled[i].at] ^= 0x40;
        CHOIR_CHECK_STATUS(choir_comm_init_rank(1, &other, 0, NULL, &comm), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), spoiled[i].says);
        CHOIR_CHECK(comm == NULL);
    }
    ch_unique_id_stop();
}

CHOIR_TEST(an_id_serves_for_several_communicators)
{
    choir_comm *first[3], *second[3];
    choir_unique_id id;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 3, first);
    make_comms(&id, 3, second);
    CHOIR_CHECK(choir_comm_exists(first[2]) && choir_comm_exists(second[2]));
    destroy_comms(3, first);
    destroy_comms(3, second);
    CHOIR_CHECK(!choir_comm_exists(first[2]));
    ch_unique_id_stop();
}

CHOIR_TEST(whoever_made_the_id_is_gone)
{
    choir_unique_id id;
    choir_comm *comm = NULL;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    ch_unique_id_stop();
    CHOIR_CHECK_STATUS(choir_comm_init_rank(2, &id, 0, NULL, &comm), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "process that made this id does not answer");
}

/* --- meeting ---------------------------------------------------------------------------------------- */

static const struct {
    int nranks, rank;
    const char *says;
} numbers[] = {
    { 0, 0, "nranks: 0" },
    { -1, 0, "nranks: -1" },
    { 2, 2, "rank: 2, expected 0 to 1" },
    { 2, -1, "rank: -1" },
};

CHOIR_TEST(numbers_of_ranks_make_sense)
{
    choir_unique_id id = { { 0 } };
    choir_comm *comm;

    for (size_t i = 0; i < CH_ARRAY_LEN(numbers); i++) {
        CHOIR_ROW("rank %d of %d", numbers[i].rank, numbers[i].nranks);
        CHOIR_CHECK_STATUS(
            choir_comm_init_rank(numbers[i].nranks, &id, numbers[i].rank, NULL, &comm),
            CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), numbers[i].says);
    }
    CHOIR_CHECK_STATUS(choir_comm_init_rank(1, NULL, 0, NULL, &comm), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_comm_init_rank(1, &id, 0, NULL, NULL), CHOIR_ERR_INVALID);
}

/* Two ranks that cannot be one communicator: both are told, well before the time is up. */
static const struct {
    struct joiner a, b;
    choir_status status;
    const char *says;
} misfits[] = {
    { { .nranks = 2, .rank = 0 }, { .nranks = 3, .rank = 1 }, CHOIR_ERR_INVALID, "3" },
    { { .nranks = 2, .rank = 1 }, { .nranks = 2, .rank = 1 }, CHOIR_ERR_INVALID, "rank 1" },
};

CHOIR_TEST(ranks_that_do_not_fit_are_all_told)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(misfits); i++) {
        struct joiner two[2] = { misfits[i].a, misfits[i].b };
        choir_unique_id id;

        CHOIR_ROW("row %zu", i);
        CHOIR_CHECK_OK(choir_unique_id_make(&id));
        for (int r = 0; r < 2; r++) {
            two[r].id = &id;
            two[r].timeout_ms = 60000;
        }
        join_all(two, 2);
        for (int r = 0; r < 2; r++) {
            CHOIR_CHECK_EQ(two[r].status, misfits[i].status);
            CHOIR_CHECK_HAS(two[r].error.text, misfits[i].says);
        }
    }
    ch_unique_id_stop();
}

CHOIR_TEST(who_is_missing_is_named)
{
    choir_unique_id id;
    choir_comm *comm = NULL;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    CHOIR_CHECK_STATUS(
        choir_comm_init_rank(3, &id, 1, CHOIR_OPTS(comm_init_rank, .timeout_ms = 300), &comm),
        CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "0, 2");
    ch_unique_id_stop();
}

/* --- calls ------------------------------------------------------------------------------------------- */

typedef choir_status (*call_fn)(const choir_comm_call *call, choir_comm_fault *fault_out);

enum { COUNT = 12 }; /* divides by 1, 2, 3, 4 and 6 */

struct arena {
    int32_t in[RANKS_MAX][COUNT], out[RANKS_MAX][RANKS_MAX * COUNT];
    choir_buf ins[RANKS_MAX], outs[RANKS_MAX];
};

static choir_comm_call prepare(struct arena *a, int n, size_t out_count, choir_comm **comms)
{
    memset(a, 0, sizeof(*a));
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < COUNT; k++)
            a->in[r][k] = 100 * r + k;
        a->ins[r] = CHOIR_BUF(a->in[r], COUNT, CHOIR_I32);
        a->outs[r] = CHOIR_BUF(a->out[r], out_count, CHOIR_I32);
    }
    return (choir_comm_call){ .size = sizeof(choir_comm_call),
                              .ins = a->ins,
                              .nins = (size_t)n,
                              .outs = a->outs,
                              .nouts = out_count > 0 ? (size_t)n : 0,
                              .comms = comms,
                              .ncomms = comms != NULL ? (size_t)n : 0 };
}

static int sum_at(int n, int k)
{
    return 100 * n * (n - 1) / 2 + n * k;
}

static void check_allreduce(struct arena *a, int n, choir_comm **comms)
{
    choir_comm_call call = prepare(a, n, COUNT, comms);

    CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < COUNT; k++)
            CHOIR_CHECK_EQ(a->out[r][k], sum_at(n, k));
    }
    call = prepare(a, n, COUNT, comms);
    call.outs = call.ins;
    CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
    for (int r = 0; r < n; r++)
        CHOIR_CHECK_EQ(a->in[r][COUNT - 1], sum_at(n, COUNT - 1));
}

static void check_rooted(struct arena *a, int n, choir_comm **comms)
{
    for (int root = 0; root < n; root++) {
        choir_comm_call call = prepare(a, n, COUNT, comms);

        CHOIR_ROW("%d ranks, root %d", n, root);
        call.root = root;
        call.nouts = 1;
        CHOIR_CHECK_OK(choir_comm_reduce(&call, NULL));
        CHOIR_CHECK_EQ(a->out[0][5], sum_at(n, 5));
        CHOIR_CHECK_EQ(a->in[n - 1][5], 100 * (n - 1) + 5);
        call.nouts = 0; /* in place, at the root alone */
        CHOIR_CHECK_OK(choir_comm_reduce(&call, NULL));
        for (int r = 0; r < n; r++)
            CHOIR_CHECK_EQ(a->in[r][5], r == root ? sum_at(n, 5) : 100 * r + 5);

        call = prepare(a, n, 0, comms);
        call.root = root;
        CHOIR_CHECK_OK(choir_comm_broadcast(&call, NULL));
        for (int r = 0; r < n; r++)
            CHOIR_CHECK_EQ(a->in[r][7], 100 * root + 7);
    }
}

static void check_shares(struct arena *a, int n, choir_comm **comms)
{
    choir_comm_call call = prepare(a, n, (size_t)n * COUNT, comms);
    int share = COUNT / n;

    CHOIR_CHECK_OK(choir_comm_allgather(&call, NULL));
    for (int r = 0; r < n; r++) {
        for (int j = 0; j < n; j++)
            CHOIR_CHECK_EQ(a->out[r][j * COUNT + 3], 100 * j + 3);
    }
    for (int r = 0; r < n; r++) /* each input where its share of the output is */
        a->ins[r].data = a->out[r] + r * COUNT;
    CHOIR_CHECK_OK(choir_comm_allgather(&call, NULL));
    CHOIR_CHECK_EQ(a->out[0][(n - 1) * COUNT + 3], 100 * (n - 1) + 3);
    if (COUNT % n != 0)
        return;
    call = prepare(a, n, (size_t)share, comms);
    CHOIR_CHECK_OK(choir_comm_reduce_scatter(&call, NULL));
    for (int r = 0; r < n; r++) {
        CHOIR_CHECK_EQ(a->out[r][share - 1], sum_at(n, r * share + share - 1));
        a->outs[r].data = a->in[r] + r * share;
    }
    CHOIR_CHECK_OK(choir_comm_reduce_scatter(&call, NULL));
    CHOIR_CHECK_EQ(a->in[n - 1][(n - 1) * share], sum_at(n, (n - 1) * share));
}

static void check_calls(int n, choir_comm **comms)
{
    struct arena *a = malloc(sizeof(*a));

    CHOIR_CHECK(a != NULL);
    CHOIR_ROW("%d ranks%s", n, comms != NULL ? "" : ", implicit");
    check_allreduce(a, n, comms);
    check_rooted(a, n, comms);
    check_shares(a, n, comms);
    free(a);
}

CHOIR_TEST(the_inputs_are_ranks_of_their_own)
{
    static const int counts[] = { 1, 2, 3, 4, 12, 17, 64 };

    for (size_t i = 0; i < CH_ARRAY_LEN(counts); i++)
        check_calls(counts[i], NULL);
}

CHOIR_TEST_TIMED(one_thread_drives_all_ranks, 120)
{
    static const int counts[] = { 1, 2, 3, 5, 17 };

    /* The last are many, for valgrind too many. */
    for (size_t i = 0; i < CH_ARRAY_LEN(counts) - choir_test_valgrind(); i++) {
        choir_comm *comms[RANKS_MAX];
        choir_unique_id id;

        CHOIR_CHECK_OK(choir_unique_id_make(&id));
        make_comms(&id, counts[i], comms);
        check_calls(counts[i], comms);
        destroy_comms(counts[i], comms);
    }
    ch_unique_id_stop();
}

CHOIR_TEST_TIMED(many_ranks_meet, 120)
{
    choir_comm *comms[RANKS_MAX];
    choir_unique_id id;
    int n = choir_test_valgrind() ? 8 : RANKS_MAX;
    struct arena *a = malloc(sizeof(*a));

    CHOIR_CHECK(a != NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, n, comms);
    check_allreduce(a, n, comms);
    destroy_comms(n, comms);
    free(a);
    ch_unique_id_stop();
}

static choir_comm_call of_one_rank(const choir_buf *in, const choir_buf *out,
                                   choir_comm *const *comm)
{
    return (choir_comm_call){ .size = sizeof(choir_comm_call),
                              .ins = in,
                              .nins = 1,
                              .outs = out,
                              .nouts = 1,
                              .comms = comm,
                              .ncomms = 1 };
}

/* A thread for each rank, which makes its own calls: lengths and roots are the communicator's. */
static void *one_rank_alone(void *arg)
{
    choir_comm *comm = arg;
    int n = choir_comm_size(comm), rank = choir_comm_rank(comm), in[4], out[64];
    choir_buf from = CHOIR_BUF(in, 2, CHOIR_I32), to = CHOIR_BUF(out, 2 * n, CHOIR_I32);
    choir_comm_call call = of_one_rank(&from, &to, &comm);

    in[0] = rank;
    in[1] = 10 * rank;
    CHOIR_CHECK_OK(choir_comm_allgather(&call, NULL));
    for (int r = 0; r < n; r++)
        CHOIR_CHECK_EQ(out[2 * r + 1], 10 * r);
    from = to; /* 2 n elements in, 2 out */
    to = CHOIR_BUF(in, 2, CHOIR_I32);
    CHOIR_CHECK_OK(choir_comm_reduce_scatter(&call, NULL));
    CHOIR_CHECK_EQ(in[1], n * 10 * rank);
    from = to;
    call.nouts = 0;
    call.root = n - 1;
    CHOIR_CHECK_OK(choir_comm_broadcast(&call, NULL));
    CHOIR_CHECK_EQ(in[1], n * 10 * (n - 1));
    in[0] = 1;
    CHOIR_CHECK_OK(choir_comm_reduce(&call, NULL));
    CHOIR_CHECK_EQ(in[0], rank == n - 1 ? n : 1);
    return NULL;
}

CHOIR_TEST(each_rank_makes_its_own_calls)
{
    pthread_t threads[5];
    choir_comm *comms[5];
    choir_unique_id id;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 5, comms);
    for (int r = 0; r < 5; r++)
        CHOIR_CHECK_EQ(ch_sys_thread_create(&threads[r], one_rank_alone, comms[r]), 0);
    for (int r = 0; r < 5; r++)
        pthread_join(threads[r], NULL);
    destroy_comms(5, comms);
    ch_unique_id_stop();
}

/* Every reduction of every type: as one pass of the kernels over all inputs has it, whoever the ranks are. */
static void check_matrix(int n, choir_comm **comms)
{
    static const choir_redop meant[] = { CHOIR_SUM, CHOIR_PRODUCT, CHOIR_MAX, CHOIR_MIN,
                                         CHOIR_AVG };
    struct choir_test_random random = { 42 };
    unsigned char in[4][16 * 9], out[4][16 * 9], want[16 * 9];
    const void *srcs[4] = { in[0], in[1], in[2], in[3] };

    for (int t = 0; t < CHOIR_NTYPES; t++) {
        for (int op = 0; op < 5; op++) {
            choir_buf ins[4], outs[4];
            choir_comm_call call = { .size = sizeof(call),
                                     .ins = ins,
                                     .outs = outs,
                                     .comms = comms,
                                     .nins = (size_t)n,
                                     .op = op };
            choir_comm_fault fault = { 0 };
            choir_status refused = choir_redop_check(meant[op], (choir_type)t);

            CHOIR_ROW("%s of %s", choir_redop_name(meant[op]), choir_type_name((choir_type)t));
            call.nouts = (size_t)n;
            call.ncomms = comms != NULL ? (size_t)n : 0;
            for (int r = 0; r < n; r++) {
                for (size_t b = 0; b < sizeof(in[r]); b++) /* small: no float is NaN by it */
                    in[r][b] = (unsigned char)(choir_test_random(&random) & 0x3b);
                ins[r] = CHOIR_BUF(in[r], 9, (choir_type)t);
                outs[r] = CHOIR_BUF(out[r], 9, (choir_type)t);
            }
            if (refused != CHOIR_OK) {
                CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_TYPE);
                CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_OP_TYPE);
                continue;
            }
            CHOIR_CHECK_OK(choir_reduce_local(want, srcs, (size_t)n, 9, (choir_type)t,
                                              CHOIR_OPTS(reduce_local, .op = meant[op])));
            CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
            for (int r = 0; r < n; r++)
                CHOIR_CHECK_EQ(memcmp(out[r], want, 9 * choir_type_size((choir_type)t)), 0);
        }
    }
}

CHOIR_TEST(every_reduction_of_every_type)
{
    choir_comm *comms[4];
    choir_unique_id id;

    check_matrix(1, NULL);
    check_matrix(4, NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 3, comms);
    check_matrix(3, comms);
    destroy_comms(3, comms);
    ch_unique_id_stop();
}

/* --- what is refused --------------------------------------------------------------------------------- */

struct refusal {
    const char *name;
    call_fn fn;
    void (*spoil)(choir_comm_call *call, struct arena *a);
    choir_comm_rule rule;
    int index;
    const char *says;
};

static int64_t gap_sizes[] = { 6, 2 }, gap_strides[] = { 3, 1 };

static void no_inputs(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->nins = call->nouts = 0;
}
static void root_3(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->root = 3;
    call->nouts = 0;
}
static void root_below(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->root = -1;
    call->nouts = 0;
}
static void two_streams(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->nstreams = 2;
}
static void two_outputs(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->nouts = 2;
}
static void other_type(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->ins[1].type = CHOIR_F32;
}
static void no_type(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->ins[0].type = (choir_type)99;
}
static void other_output_type(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[2].type = CHOIR_F32;
}
static void gaps(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->ins[2].ndim = 2;
    a->ins[2].sizes = gap_sizes;
    a->ins[2].strides = gap_strides;
}
static void output_gaps(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[1].ndim = 2;
    a->outs[1].sizes = gap_sizes;
    a->outs[1].strides = gap_strides;
}
static void short_input(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->ins[2].count--;
}
static void short_output(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[1].count--;
}
static void same_output(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[2].data = a->outs[0].data;
}
static void half_over(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[1].data = a->in[1] + 1;
}
static void over_another(choir_comm_call *call, struct arena *a)
{
    (void)call;
    a->outs[1].data = a->in[2];
}
static void op_5(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->op = 5;
}
static void op_below(choir_comm_call *call, struct arena *a)
{
    (void)a;
    call->op = -1;
}
static void average_of_bool(choir_comm_call *call, struct arena *a)
{
    call->op = CHOIR_COMM_AVG;
    for (int r = 0; r < 3; r++)
        a->ins[r].type = a->outs[r].type = CHOIR_BOOL;
}

static const struct refusal refusals[] = {
    { "no inputs", choir_comm_allreduce, no_inputs, CHOIR_RULE_NO_INPUTS, -1, "no inputs" },
    { "root", choir_comm_broadcast, root_3, CHOIR_RULE_ROOT, -1, "root is 3" },
    { "root", choir_comm_reduce, root_below, CHOIR_RULE_ROOT, -1, "root is -1" },
    { "streams", choir_comm_allreduce, two_streams, CHOIR_RULE_NSTREAMS, -1, "2 streams for 3" },
    { "outputs", choir_comm_allreduce, two_outputs, CHOIR_RULE_NOUTPUTS, -1, "2 outputs for 3" },
    { "outputs", choir_comm_reduce, two_outputs, CHOIR_RULE_NOUTPUTS, -1, "expected one" },
    { "outputs", choir_comm_broadcast, two_outputs, CHOIR_RULE_NOUTPUTS, -1, "expected none" },
    { "type", choir_comm_allreduce, other_type, CHOIR_RULE_TYPE, 1, "inputs[1]: its type is f32" },
    { "type", choir_comm_allreduce, no_type, CHOIR_RULE_TYPE, 0, "inputs[0]: its type, 99" },
    { "type", choir_comm_allreduce, other_output_type, CHOIR_RULE_TYPE, 2, "outputs[2]" },
    { "gaps", choir_comm_allreduce, gaps, CHOIR_RULE_CONTIGUOUS, 2, "inputs[2]: it is not" },
    { "gaps", choir_comm_allreduce, output_gaps, CHOIR_RULE_CONTIGUOUS, 1, "outputs[1]" },
    { "count", choir_comm_allreduce, short_input, CHOIR_RULE_COUNT, 2, "11 elements, expected 12" },
    { "count", choir_comm_allreduce, short_output, CHOIR_RULE_OUTPUT_COUNT, 1, "outputs[1]: 11" },
    { "gather", choir_comm_allgather, NULL, CHOIR_RULE_OUTPUT_COUNT, 0, "times the ranks" },
    { "scatter", choir_comm_reduce_scatter, NULL, CHOIR_RULE_OUTPUT_COUNT, 0, "there are 3 ranks" },
    { "twice", choir_comm_allreduce, same_output, CHOIR_RULE_UNIQUE, 2,
      "outputs[0] and outputs[2]" },
    { "overlap", choir_comm_allreduce, half_over, CHOIR_RULE_OVERLAP, 1, "exactly in place" },
    { "overlap", choir_comm_allreduce, over_another, CHOIR_RULE_OVERLAP, 1, "inputs[2]" },
    { "op", choir_comm_allreduce, op_5, CHOIR_RULE_OP, -1, "op: 5" },
    { "op", choir_comm_reduce_scatter, op_below, CHOIR_RULE_OUTPUT_COUNT, 0, "outputs[0]" },
    { "op", choir_comm_allreduce, op_below, CHOIR_RULE_OP, -1, "op: -1" },
    { "op", choir_comm_allreduce, average_of_bool, CHOIR_RULE_OP_TYPE, -1, "bool" },
};

static void check_refusals(choir_comm **comms)
{
    struct arena *a = malloc(sizeof(*a));

    CHOIR_CHECK(a != NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(refusals); i++) {
        const struct refusal *row = &refusals[i];
        choir_comm_call call = prepare(a, 3, COUNT, comms);
        choir_comm_fault fault = { 0 };

        CHOIR_ROW("%zu: %s, %s", i, row->name, row->says);
        if (row->spoil != NULL)
            row->spoil(&call, a);
        CHOIR_CHECK(row->fn(&call, &fault) != CHOIR_OK);
        CHOIR_CHECK_HAS(choir_last_error(), row->says);
        CHOIR_CHECK_EQ((int)fault.rule, (int)row->rule);
        CHOIR_CHECK_EQ(fault.index, row->index);
    }
    check_allreduce(a, 3, comms); /* nothing was begun by any of them */
    free(a);
}

CHOIR_TEST(every_rule_has_its_refusal)
{
    choir_comm *comms[3];
    choir_unique_id id;

    check_refusals(NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 3, comms);
    check_refusals(comms);
    destroy_comms(3, comms);
    ch_unique_id_stop();
}

CHOIR_TEST(communicators_of_a_call_fit_each_other)
{
    choir_comm *two[2], *one[1], *mixed[3];
    choir_unique_id a, b;
    choir_comm_fault fault;
    choir_comm_call call;
    struct arena *arena = malloc(sizeof(*arena));

    CHOIR_CHECK(arena != NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&a));
    CHOIR_CHECK_OK(choir_unique_id_make(&b));
    make_comms(&a, 2, two);
    make_comms(&b, 1, one);
    mixed[0] = two[0];
    mixed[1] = one[0];
    call = prepare(arena, 2, COUNT, mixed);
    CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_COMM_SIZES);
    CHOIR_CHECK_EQ(fault.index, 1);
    mixed[1] = two[0];
    CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_UNIQUE);
    call.ncomms = 1;
    CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_NCOMMS);
    call.ncomms = 0;
    CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_NCOMMS);
    destroy_comms(2, two);
    destroy_comms(1, one);
    free(arena);
    ch_unique_id_stop();
}

/* One output cannot be the root's in two communicators. */
CHOIR_TEST(a_reduction_has_one_root)
{
    struct arena *arena = malloc(sizeof(*arena));
    choir_comm *first[2], *second[2], *mixed[2];
    choir_comm_fault fault;
    choir_comm_call call;
    choir_unique_id id;

    CHOIR_CHECK(arena != NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 2, first);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 2, second);
    mixed[0] = first[1];
    mixed[1] = second[1];
    call = prepare(arena, 2, COUNT, mixed);
    call.root = 1;
    for (call.nouts = 0; call.nouts < 2; call.nouts++) {
        CHOIR_CHECK_STATUS(choir_comm_reduce(&call, &fault), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), "comms[0] and comms[1] are both rank 1, the root");
        CHOIR_CHECK_EQ((int)fault.rule, CHOIR_RULE_UNIQUE);
        CHOIR_CHECK_EQ(fault.index, 1);
    }
    destroy_comms(2, first);
    destroy_comms(2, second);
    free(arena);
    ch_unique_id_stop();
}

/* --- calls that do not wait ------------------------------------------------------------------------- */

/* One thread is both ranks, one call after the other: a call that waited would never end. */
CHOIR_TEST(a_call_that_gives_handles_does_not_wait)
{
    float v[2] = { 1, 2 };
    choir_buf bufs[2] = { CHOIR_BUF(&v[0], 1, CHOIR_F32), CHOIR_BUF(&v[1], 1, CHOIR_F32) };
    choir_work *works[2];
    choir_comm *comms[2];
    choir_unique_id id;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 2, comms);
    for (int r = 0; r < 2; r++) {
        choir_comm_call call = of_one_rank(&bufs[r], &bufs[r], &comms[r]);

        call.works_out = &works[r];
        CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
        CHOIR_CHECK(works[r] != NULL);
    }
    for (int r = 0; r < 2; r++) {
        CHOIR_CHECK_OK(choir_work_wait(works[r], 0));
        CHOIR_CHECK_EQ(v[r], 3.0f);
        choir_work_unref(works[r]);
    }
    destroy_comms(2, comms);
    ch_unique_id_stop();
}

CHOIR_TEST(handles_of_several_of_none_and_of_a_refused_call)
{
    struct arena *a = malloc(sizeof(*a));
    choir_work *works[3], *const unset = (choir_work *)a;
    choir_comm *comms[3];
    choir_unique_id id;
    choir_comm_call call;

    CHOIR_CHECK(a != NULL);
    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 3, comms);
    for (int with = 0; with < 2; with++) {
        CHOIR_ROW("%s communicators", with ? "with" : "without");
        call = prepare(a, 3, COUNT, with ? comms : NULL);
        call.works_out = works;
        works[0] = works[1] = works[2] = unset;
        call.op = 99;
        CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, NULL), CHOIR_ERR_INVALID);
        CHOIR_CHECK(works[0] == NULL && works[1] == NULL && works[2] == NULL);
        call.op = CHOIR_COMM_SUM;
        CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
        for (int r = 0; r < 3; r++) {
            CHOIR_CHECK((works[r] != NULL) == (with == 1));
            if (with)
                CHOIR_CHECK_OK(choir_work_wait(works[r], 0));
            choir_work_unref(works[r]);
        }
    }
    destroy_comms(3, comms);
    free(a);
    ch_unique_id_stop();
}

CHOIR_TEST(a_handle_outlives_its_communicator)
{
    float v = 1;
    choir_buf buf = CHOIR_BUF(&v, 1, CHOIR_F32);
    choir_comm *comms[2];
    choir_unique_id id;
    choir_work *work;
    choir_comm_call call;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 2, comms);
    call = of_one_rank(&buf, &buf, &comms[0]);
    call.works_out = &work;
    CHOIR_CHECK_OK(choir_comm_allreduce(&call, NULL));
    CHOIR_CHECK_STATUS(choir_work_test(work), CHOIR_IN_PROGRESS);
    choir_comm_abort(comms[0]); /* leaving alone would wait for it */
    destroy_comms(2, comms);
    CHOIR_CHECK(choir_work_wait(work, 0) != CHOIR_OK);
    CHOIR_CHECK(choir_work_error_record(work) != NULL);
    choir_work_unref(work);
    ch_unique_id_stop();
}

/* --- life ------------------------------------------------------------------------------------------- */

static void check_state(choir_comm *comm, const char *says)
{
    float v = 1;
    choir_buf buf = CHOIR_BUF(&v, 1, CHOIR_F32);
    choir_comm_call call = of_one_rank(&buf, &buf, &comm);
    choir_comm_fault fault = { 0 };

    CHOIR_CHECK_STATUS(choir_comm_allreduce(&call, &fault), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), says);
}

CHOIR_TEST(finalized_aborted_closed)
{
    choir_comm *comms[2];
    choir_unique_id id;
    choir_error record;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 2, comms);
    CHOIR_CHECK_OK(choir_comm_error(comms[0], &record));
    CHOIR_CHECK_OK(choir_comm_finalize(comms[0], 0));
    check_state(comms[0], "finalized");
    CHOIR_CHECK_STATUS(choir_comm_finalize(comms[0], 0), CHOIR_ERR_STATE);
    choir_comm_close(comms[0]);
    choir_comm_close(comms[0]);
    check_state(comms[0], "destroyed");
    choir_comm_abort(comms[0]); /* nothing left to abort */
    choir_comm_abort(comms[1]);
    CHOIR_CHECK(choir_comm_error(comms[1], &record) != CHOIR_OK);
    check_state(comms[1], "abort");
    destroy_comms(2, comms);
    choir_comm_destroy(NULL);
    choir_comm_close(NULL);
    choir_comm_abort(NULL);
    ch_unique_id_stop();
}

/* --- reductions of one's own -------------------------------------------------------------------------- */

static choir_status scaled(choir_comm *comm, int op, float *v)
{
    choir_buf buf = CHOIR_BUF(v, 2, CHOIR_F32);
    choir_comm_call call = of_one_rank(&buf, &buf, &comm);

    call.op = op;
    return choir_comm_allreduce(&call, NULL);
}

CHOIR_TEST(factors_of_a_communicators_own)
{
    float v[2] = { 1, 2 }, factor = 3;
    choir_comm *comm, *other;
    choir_unique_id id;
    int copied, lent, op;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 1, &comm);
    make_comms(&id, 1, &other);
    CHOIR_CHECK_OK(choir_comm_premul_sum(comm, &factor, CHOIR_F32, true, &copied));
    CHOIR_CHECK_OK(choir_comm_premul_sum(comm, &factor, CHOIR_F32, false, &lent));
    CHOIR_CHECK_LT(4, copied);
    factor = 5;
    CHOIR_CHECK_OK(scaled(comm, copied, v));
    CHOIR_CHECK_EQ(v[1], 6.0f);
    CHOIR_CHECK_OK(scaled(comm, lent, v));
    CHOIR_CHECK_EQ(v[1], 30.0f);
    CHOIR_CHECK_STATUS(scaled(other, copied, v), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "another communicator's");
    CHOIR_CHECK_OK(choir_comm_redop_destroy(comm, copied));
    CHOIR_CHECK_STATUS(scaled(comm, copied, v), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "was destroyed");
    CHOIR_CHECK_STATUS(choir_comm_redop_destroy(comm, copied), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_comm_redop_destroy(comm, CHOIR_COMM_SUM), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_comm_premul_sum(comm, &factor, CHOIR_I32, true, &op), CHOIR_ERR_TYPE);
    for (int i = 1; i < 64; i++) /* one is there */
        CHOIR_CHECK_OK(choir_comm_premul_sum(comm, &factor, CHOIR_F32, true, &op));
    CHOIR_CHECK_STATUS(choir_comm_premul_sum(comm, &factor, CHOIR_F32, true, &op), CHOIR_ERR_STATE);
    choir_comm_destroy(comm);
    choir_comm_destroy(other);
    ch_unique_id_stop();
}

struct caller {
    choir_comm *comm;
    int op;
    _Atomic int nright, nwrong;
};

static void *scale_until_refused(void *arg)
{
    struct caller *self = arg;

    for (;;) {
        float v[2] = { 1, 2 };

        if (scaled(self->comm, self->op, v) != CHOIR_OK)
            return NULL;
        atomic_fetch_add(v[1] == 6 ? &self->nright : &self->nwrong, 1);
    }
}

/* Whoever destroys a reduction has the factor's memory back at once. */
CHOIR_TEST(a_lent_factor_is_not_read_once_it_is_given_back)
{
    struct caller caller = { 0 };
    choir_unique_id id;
    pthread_t thread;

    CHOIR_CHECK_OK(choir_unique_id_make(&id));
    make_comms(&id, 1, &caller.comm);
    for (int i = 0; i < 100; i++) {
        float factor = 3;

        CHOIR_CHECK_OK(choir_comm_premul_sum(caller.comm, &factor, CHOIR_F32, false, &caller.op));
        atomic_store(&caller.nright, 0);
        CHOIR_CHECK_EQ(ch_sys_thread_create(&thread, scale_until_refused, &caller), 0);
        while (atomic_load(&caller.nright) < 10 && atomic_load(&caller.nwrong) == 0)
            sched_yield();
        CHOIR_CHECK_OK(choir_comm_redop_destroy(caller.comm, caller.op));
        factor = 4;
        pthread_join(thread, NULL);
        CHOIR_CHECK_EQ(atomic_load(&caller.nwrong), 0);
    }
    choir_comm_destroy(caller.comm);
    ch_unique_id_stop();
}

/* --- NCCL itself, faults ------------------------------------------------------------------------------ */

CHOIR_TEST(without_nccl_it_is_said)
{
    choir_unique_id id;
    const char *path;
    int code;

    CHOIR_CHECK_EQ(setenv("CHOIR_LIBNCCL", "/nowhere/libnccl.so.2", 1), 0);
    CHOIR_CHECK_STATUS(choir_libnccl_version(&code), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "/nowhere/libnccl.so.2");
    CHOIR_CHECK_STATUS(choir_libnccl_unique_id(&id), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_STATUS(choir_libnccl_path(&path), CHOIR_ERR_UNSUPPORTED);
}

static choir_status whole_life(void *arg)
{
    float v[32] = { 1 };
    choir_buf bufs[17];
    choir_comm *comm = NULL;
    choir_unique_id id;
    choir_comm_call call = of_one_rank(bufs, bufs, &comm);
    choir_status rc = choir_unique_id_make(&id);

    (void)arg;
    for (int i = 0; i < 17; i++)
        bufs[i] = CHOIR_BUF(&v[i], 1, CHOIR_F32);
    if (rc == CHOIR_OK)
        rc = choir_comm_init_rank(1, &id, 0, CHOIR_OPTS(comm_init_rank, .timeout_ms = 2000), &comm);
    if (rc == CHOIR_OK)
        rc = choir_comm_allreduce(&call, NULL);
    call.comms = NULL;
    call.ncomms = 0;
    call.nins = call.nouts = 17; /* more than fit on the stack */
    if (rc == CHOIR_OK)
        rc = choir_comm_allreduce(&call, NULL);
    choir_comm_destroy(comm);
    ch_unique_id_stop();
    return rc;
}

CHOIR_TEST_TIMED(all_faults, 240)
{
    choir_test_all_faults(whole_life, NULL);
}
