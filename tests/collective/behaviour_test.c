/*
 * behaviour_test.c - what groups, works and messages promise beside right results, with ranks as threads.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>
#include <choir/coll.h>
#include <choir/trace.h>

#include "base/compiler.h"
#include "choir_test.h"

typedef choir_status (*rank_fn)(choir_group *group, void *arg);

static void with_ranks(int nranks, rank_fn fn, void *arg)
{
    CHOIR_CHECK_OK(choir_run_threads(nranks, fn, arg));
}

/* The sum of 1, 2, ... over the ranks; what most tests here want to see go well. */
static void check_sum(choir_group *group)
{
    int32_t value = choir_group_rank(group) + 1, n = choir_group_size(group);

    CHOIR_CHECK_OK(choir_allreduce(group, CHOIR_BUF(&value, 1, CHOIR_I32), NULL, NULL));
    CHOIR_CHECK_EQ(value, n * (n + 1) / 2);
}

static choir_group *split_all(choir_group *group, const char *name)
{
    int ranks[32], n = choir_group_size(group);
    choir_group *child = NULL;

    for (int r = 0; r < n; r++)
        ranks[r] = r;
    CHOIR_CHECK_OK(
        choir_group_split(group, ranks, (size_t)n, CHOIR_OPTS(group_split, .name = name), &child));
    CHOIR_CHECK(child != NULL);
    return child;
}

/* --- groups ------------------------------------------------------------------------------------------------ */

static choir_status children_outlive(choir_group *world, void *arg)
{
    choir_group *child = split_all(world, NULL), *grandchild = split_all(child, NULL);

    (void)arg;
    check_sum(child);
    choir_group_destroy(child);
    check_sum(grandchild);
    check_sum(world);
    choir_group_destroy(grandchild);
    return CHOIR_OK;
}

CHOIR_TEST(a_group_goes_before_those_split_from_it)
{
    with_ranks(3, children_outlive, NULL);
}

/* Overlapping groups: {0, 1}, {1, 2}, both used at once by rank 1. */
static choir_status overlap(choir_group *world, void *arg)
{
    static const int lists[2][2] = { { 0, 1 }, { 1, 2 } };
    choir_group *groups[2] = { NULL, NULL };
    int rank = choir_group_rank(world);

    (void)arg;
    for (int i = 0; i < 2; i++) {
        bool member = rank == lists[i][0] || rank == lists[i][1];

        CHOIR_CHECK_OK(choir_group_split(world, lists[i], member ? 2 : 0, NULL, &groups[i]));
        CHOIR_CHECK_EQ(groups[i] != NULL, member);
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++) {
            if (groups[i] != NULL)
                check_sum(groups[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (groups[i] != NULL) {
            CHOIR_CHECK_EQ(choir_group_global_rank(groups[i], 1), lists[i][1]);
            choir_group_destroy(groups[i]);
        }
    }
    return CHOIR_OK;
}

CHOIR_TEST(groups_overlap)
{
    with_ranks(3, overlap, NULL);
}

static choir_status refuse_splits(choir_group *world, void *arg)
{
    choir_group *child = NULL;

    (void)arg;
    CHOIR_CHECK_STATUS(choir_group_split(world, (const int[]){ 0, 0 }, 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_group_split(world, (const int[]){ 1, 0 }, 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_group_split(world, (const int[]){ 0, 7 }, 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_group_split(world, (const int[]){ -1 }, 1, NULL, &child),
                       CHOIR_ERR_INVALID);
    check_sum(world); /* nothing of it was sent */
    return CHOIR_OK;
}

CHOIR_TEST(splits_that_make_no_sense_are_refused)
{
    with_ranks(2, refuse_splits, NULL);
}

/* --- bad arguments ------------------------------------------------------------------------------------------- */

static choir_status refuse_arguments(choir_group *world, void *arg)
{
    float v[4] = { 1, 2, 3, 4 };
    choir_buf buf = CHOIR_BUF(v, 4, CHOIR_F32), three = CHOIR_BUF(v, 3, CHOIR_F32);
    uint64_t before = choir_group_collective_sequence(world);

    (void)arg;
    CHOIR_CHECK_STATUS(choir_broadcast(world, buf, CHOIR_OPTS(broadcast, .root = 2), NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "root");
    CHOIR_CHECK_STATUS(choir_allreduce(world, CHOIR_BUF(NULL, 4, CHOIR_F32), NULL, NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allreduce(world, CHOIR_BUF(v, 4, (choir_type)99), NULL, NULL),
                       CHOIR_ERR_TYPE);
    CHOIR_CHECK_STATUS(choir_allreduce(world, buf, CHOIR_OPTS(allreduce, .op = CHOIR_BAND), NULL),
                       CHOIR_ERR_TYPE);
    CHOIR_CHECK_STATUS(
        choir_allreduce(world, buf, CHOIR_OPTS(allreduce, .algo = "none such"), NULL),
        CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "none such");
    CHOIR_CHECK_STATUS(choir_reduce_scatter_from(world, three, buf, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allgather_into(world, buf, three, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_send(world, buf, 2, 0, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_send(world, buf, 0, -1, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_recv(world, buf, -1, 0, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(world), before);
    CHOIR_CHECK_OK(choir_group_error(world, NULL));
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(bad_arguments_change_nothing)
{
    with_ranks(2, refuse_arguments, NULL);
}

/* --- messages ------------------------------------------------------------------------------------------------ */

/* Rank 0 is in an all-reduce that rank 1 enters only after messages have gone both ways. */
static choir_status pass_a_collective(choir_group *world, void *arg)
{
    int rank = choir_group_rank(world);
    float sum = 1, sent = 5, got = 0;
    choir_work *work = NULL;

    (void)arg;
    if (rank == 0)
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&sum, 1, CHOIR_F32), NULL, &work));
    if (rank == 0) {
        CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(&sent, 1, CHOIR_F32), 1, 3, NULL, NULL));
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(&got, 1, CHOIR_F32), 1, 4, NULL, NULL));
        CHOIR_CHECK_STATUS(choir_work_test(work), CHOIR_IN_PROGRESS);
        CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(&sent, 1, CHOIR_F32), 1, 3, NULL, NULL));
    } else {
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(&got, 1, CHOIR_F32), 0, 3, NULL, NULL));
        CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(&sent, 1, CHOIR_F32), 0, 4, NULL, NULL));
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(&got, 1, CHOIR_F32), 0, 3, NULL, NULL));
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&sum, 1, CHOIR_F32), NULL, &work));
    }
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ(sum, 2.0f);
    CHOIR_CHECK_EQ(got, 5.0f);
    choir_work_unref(work);
    return CHOIR_OK;
}

CHOIR_TEST(messages_pass_a_collective)
{
    with_ranks(2, pass_a_collective, NULL);
}

/* Long ones, which are not kept for a receiver, in the order that would block without a batch. */
static choir_status batch_of_messages(choir_group *world, void *arg)
{
    enum { COUNT = 500000 };
    int rank = choir_group_rank(world), n = choir_group_size(world);
    int32_t *out = malloc(COUNT * sizeof(*out)), *in = malloc(COUNT * sizeof(*in) * 2);

    (void)arg;
    for (int i = 0; i < COUNT; i++)
        out[i] = rank * 7 + i;
    CHOIR_CHECK_OK(choir_batch_begin(world));
    CHOIR_CHECK_OK(
        choir_send(world, CHOIR_BUF(out, COUNT, CHOIR_I32), (rank + 1) % n, 0, NULL, NULL));
    CHOIR_CHECK_OK(
        choir_send(world, CHOIR_BUF(out, COUNT, CHOIR_I32), (rank + n - 1) % n, 1, NULL, NULL));
    CHOIR_CHECK_OK(
        choir_recv(world, CHOIR_BUF(in, COUNT, CHOIR_I32), (rank + n - 1) % n, 0, NULL, NULL));
    CHOIR_CHECK_OK(
        choir_recv(world, CHOIR_BUF(in + COUNT, COUNT, CHOIR_I32), (rank + 1) % n, 1, NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(world, NULL));
    for (int i = 0; i < COUNT; i++) {
        if (in[i] != (rank + n - 1) % n * 7 + i || in[COUNT + i] != (rank + 1) % n * 7 + i)
            CHOIR_FAIL("element %d is wrong", i);
    }
    free(out);
    free(in);
    return CHOIR_OK;
}

CHOIR_TEST(a_batch_starts_all_its_messages)
{
    with_ranks(3, batch_of_messages, NULL);
}

/* Sender and receiver differ in length: both are told, and what follows goes well. */
static choir_status wrong_length(choir_group *world, void *arg)
{
    float v[100] = { 0 };
    int rank = choir_group_rank(world);

    (void)arg;
    for (size_t count = 1; count <= 100; count += 99) {
        choir_status rc = rank == 0
                              ? choir_send(world, CHOIR_BUF(v, count, CHOIR_F32), 1, 0, NULL, NULL)
                              : choir_recv(world, CHOIR_BUF(v, 50, CHOIR_F32), 0, 0, NULL, NULL);

        if (rank == 1) { /* a short send is done before anybody has looked at it */
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
            CHOIR_CHECK_HAS(choir_last_error(), "200");
        }
    }
    if (rank == 0)
        CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(v, 7, CHOIR_F32), 1, 0, NULL, NULL));
    else
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(v, 7, CHOIR_F32), 0, 0, NULL, NULL));
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(a_message_of_another_length_is_an_error_and_no_more)
{
    with_ranks(2, wrong_length, NULL);
}

static choir_status to_oneself(choir_group *world, void *arg)
{
    static const size_t counts[] = { 0, 1, 1000, 1000000 };
    int rank = choir_group_rank(world);

    (void)arg;
    for (size_t i = 0; i < CH_ARRAY_LEN(counts); i++) {
        uint8_t *out = calloc(counts[i] + 1, 1), *in = calloc(counts[i] + 1, 1);
        choir_work *works[2];

        memset(out, rank + 3, counts[i]);
        CHOIR_CHECK_OK(
            choir_send(world, CHOIR_BUF(out, counts[i], CHOIR_U8), rank, 0, NULL, &works[0]));
        CHOIR_CHECK_OK(
            choir_recv(world, CHOIR_BUF(in, counts[i], CHOIR_U8), rank, 0, NULL, &works[1]));
        for (int w = 0; w < 2; w++) {
            CHOIR_CHECK_OK(choir_work_wait(works[w], 0));
            choir_work_unref(works[w]);
        }
        CHOIR_CHECK(memcmp(out, in, counts[i]) == 0);
        free(out);
        free(in);
    }
    return CHOIR_OK;
}

CHOIR_TEST(messages_to_oneself)
{
    with_ranks(2, to_oneself, NULL);
}

/*
 * A rank may be ahead of others by many calls where it only gives (a reduction by messages). Its descriptions must not
 * be overwritten as long as somebody is where they are compared: rank 0 waits in the first for rank 2, and looks at
 * what the others do, while rank 1 goes as far as it can.
 */
enum { AHEAD = 40 };

static choir_status run_ahead(choir_group *world, void *arg)
{
    int32_t rank = choir_group_rank(world), sums[AHEAD], go = 1;
    choir_work *works[AHEAD];
    choir_coll_opts opts = { .size = sizeof(opts), .algo = "binomial" };

    (void)arg;
    if (rank == 2)
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(&go, 1, CHOIR_I32), 0, 0, NULL, NULL));
    for (int i = 0; i < AHEAD; i++) {
        sums[i] = rank + i;
        CHOIR_CHECK_OK(choir_reduce(world, CHOIR_BUF(&sums[i], 1, CHOIR_I32), &opts, &works[i]));
    }
    if (rank == 0) { /* long enough to look around more than once */
        CHOIR_CHECK_STATUS(choir_work_wait(works[0], 600), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(&go, 1, CHOIR_I32), 2, 0, NULL, NULL));
    }
    for (int i = 0; i < AHEAD; i++) {
        CHOIR_CHECK_OK(choir_work_wait(works[i], 0));
        CHOIR_CHECK(rank != 0 || sums[i] == 3 + 3 * i);
        choir_work_unref(works[i]);
    }
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(who_runs_ahead_is_not_taken_for_one_who_differs)
{
    with_ranks(3, run_ahead, NULL);
}

/* --- time-outs, aborts ------------------------------------------------------------------------------------- */

/* Rank 2 does not come. The others say so, by name, and stay so. */
static choir_status nobody_comes(choir_group *world, void *arg)
{
    float v = 1;
    choir_error record;
    _Atomic int *done = arg;

    if (choir_group_rank(world) != 2) {
        CHOIR_CHECK_STATUS(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32),
                                           CHOIR_OPTS(allreduce, .timeout_ms = 200), NULL),
                           CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(choir_last_error(), "rank 2");
        CHOIR_CHECK_STATUS(choir_group_error(world, &record), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_STATUS(choir_barrier(world, NULL, NULL), CHOIR_ERR_TIMEOUT);
        atomic_fetch_add(done, 1);
    } else {
        while (atomic_load(done) < 2)
            sched_yield();
        CHOIR_CHECK_STATUS(choir_barrier(world, NULL, NULL), CHOIR_ERR_TIMEOUT);
    }
    return CHOIR_OK;
}

CHOIR_TEST(who_does_not_come_in_time_is_named)
{
    _Atomic int done = 0;

    with_ranks(3, nobody_comes, &done);
}

/* A wait that ends is not the work's end. */
static choir_status impatient(choir_group *world, void *arg)
{
    _Atomic int *waited = arg;
    choir_work *work;
    float v = 1;

    if (choir_group_rank(world) == 0) {
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, &work));
        CHOIR_CHECK_STATUS(choir_work_wait(work, 20), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(choir_last_error(), "Operation timed out!");
        CHOIR_CHECK_STATUS(choir_work_test(work), CHOIR_IN_PROGRESS);
        atomic_store(waited, 1);
    } else {
        while (atomic_load(waited) == 0)
            sched_yield();
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, &work));
    }
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ(v, 2.0f);
    choir_work_unref(work);
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(a_wait_that_times_out_leaves_the_work)
{
    _Atomic int waited = 0;

    with_ranks(2, impatient, &waited);
}

/* One rank aborts while the others wait: all are told, nothing hangs. */
static void *abort_group(void *group)
{
    choir_group_abort(group);
    return NULL;
}

static choir_status aborted(choir_group *world, void *arg)
{
    float v = 1;
    pthread_t thread;

    (void)arg;
    check_sum(world);
    if (choir_group_rank(world) == 1) {
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, abort_group, world), 0);
        pthread_join(thread, NULL);
    }
    CHOIR_CHECK_NE(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, NULL), CHOIR_OK);
    CHOIR_CHECK_NE(choir_barrier(world, NULL, NULL), CHOIR_OK);
    CHOIR_CHECK_NE(choir_group_error(world, NULL), CHOIR_OK);
    return CHOIR_OK;
}

CHOIR_TEST(an_abort_ends_everybody)
{
    with_ranks(4, aborted, NULL);
}

/* The failure of a child is not its parent's. */
static choir_status child_fails(choir_group *world, void *arg)
{
    choir_group *child = split_all(world, NULL);
    float v = 1;

    (void)arg;
    if (choir_group_rank(world) == 0)
        choir_group_abort(child);
    CHOIR_CHECK_NE(choir_allreduce(child, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, NULL), CHOIR_OK);
    check_sum(world);
    choir_group_destroy(child);
    child = split_all(world, "another");
    check_sum(child);
    choir_group_destroy(child);
    return CHOIR_OK;
}

CHOIR_TEST(a_group_that_failed_does_not_drag_others_along)
{
    with_ranks(3, child_fails, NULL);
}

/* Destroyed with work in flight, which others never join: it finishes, with an error. */
static choir_status destroyed(choir_group *world, void *arg)
{
    choir_group *child = split_all(world, NULL);
    choir_work *works[10];
    float v[10] = { 0 };

    (void)arg;
    if (choir_group_rank(world) == 0) {
        for (int i = 0; i < 10; i++)
            CHOIR_CHECK_OK(choir_allreduce(child, CHOIR_BUF(&v[i], 1, CHOIR_F32), NULL, &works[i]));
    }
    check_sum(world);
    choir_group_destroy(child);
    if (choir_group_rank(world) == 0) {
        for (int i = 0; i < 10; i++) {
            CHOIR_CHECK_NE(choir_work_wait(works[i], 0), CHOIR_OK);
            CHOIR_CHECK_NE(choir_work_error(works[i])[0], '\0');
            choir_work_unref(works[i]);
        }
    }
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(a_group_may_be_destroyed_with_work_in_flight)
{
    with_ranks(2, destroyed, NULL);
}

/* --- works ------------------------------------------------------------------------------------------------- */

struct seen {
    _Atomic int callbacks, hooks;
};

static void on_work_done(void *arg, choir_work *work)
{
    struct seen *seen = arg;

    CHOIR_CHECK_OK(choir_work_test(work));
    atomic_fetch_add(&seen->callbacks, 1);
}

static void on_any_done(void *arg, const struct choir_work_info *info)
{
    struct seen *seen = arg;

    CHOIR_CHECK_EQ(info->status, CHOIR_OK);
    CHOIR_CHECK_LE(info->started_ns, info->finished_ns);
    atomic_fetch_add(&seen->hooks, 1);
}

static choir_status hooks(choir_group *world, void *arg)
{
    struct seen seen = { 0 };
    float v[20];
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(choir_group_on_done(world, on_any_done, &seen));
    CHOIR_CHECK_STATUS(choir_group_on_done(world, on_any_done, &seen), CHOIR_ERR_STATE);
    for (int i = 0; i < 20; i++) {
        v[i] = 1;
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&v[i], 1, CHOIR_F32), NULL, &work));
        CHOIR_CHECK_EQ(choir_work_op(work), CHOIR_OP_ALLREDUCE);
        CHOIR_CHECK_OK(choir_work_on_done(work, on_work_done, &seen));
        choir_work_unref(work);
    }
    CHOIR_CHECK_OK(choir_group_wait_pending(world, 0));
    CHOIR_CHECK_EQ(atomic_load(&seen.callbacks), 20);
    CHOIR_CHECK_EQ(atomic_load(&seen.hooks), 20);
    for (int i = 0; i < 20; i++)
        CHOIR_CHECK_EQ(v[i], (float)choir_group_size(world));
    CHOIR_CHECK_OK(choir_group_on_done(world, NULL, NULL));
    return CHOIR_OK;
}

CHOIR_TEST(everybody_who_asked_is_told_once)
{
    with_ranks(3, hooks, NULL);
}

/* Callbacks of one work, added before it can be done. */
struct turns {
    int count, order[3];
};

struct turn {
    struct turns *turns;
    int number;
};

static void take_turn(void *arg, choir_work *work)
{
    struct turn *turn = arg;

    (void)work;
    turn->turns->order[turn->turns->count++] = turn->number;
}

static choir_status in_turn(choir_group *world, void *arg)
{
    struct turns turns = { 0 };
    struct turn turn[3];
    choir_work *work;
    float v = 1, go = 1;

    (void)arg;
    if (choir_group_rank(world) == 1) {
        CHOIR_CHECK_OK(choir_recv(world, CHOIR_BUF(&go, 1, CHOIR_F32), 0, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, NULL));
        return CHOIR_OK;
    }
    CHOIR_CHECK_OK(choir_allreduce(world, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, &work));
    for (int i = 0; i < 3; i++) {
        turn[i] = (struct turn){ &turns, i };
        CHOIR_CHECK_OK(choir_work_on_done(work, take_turn, &turn[i]));
    }
    CHOIR_CHECK_OK(choir_send(world, CHOIR_BUF(&go, 1, CHOIR_F32), 1, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_group_wait_pending(world, 0));
    CHOIR_CHECK_EQ(turns.count, 3);
    for (int i = 0; i < 3; i++)
        CHOIR_CHECK_EQ(turns.order[i], i);
    choir_work_unref(work);
    return CHOIR_OK;
}

CHOIR_TEST(callbacks_of_a_work_come_in_their_order)
{
    with_ranks(2, in_turn, NULL);
}

static choir_status shut(choir_group *world, void *arg)
{
    choir_group *child = split_all(world, NULL);
    choir_work *work;
    float v = 1;

    (void)arg;
    CHOIR_CHECK_OK(choir_allreduce(child, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, &work));
    CHOIR_CHECK_OK(choir_group_shutdown(child, 0));
    CHOIR_CHECK_OK(choir_work_test(work));
    CHOIR_CHECK_STATUS(choir_barrier(child, NULL, NULL), CHOIR_ERR_STATE);
    choir_work_unref(work);
    choir_group_destroy(child);
    check_sum(world);
    return CHOIR_OK;
}

CHOIR_TEST(shutdown_waits_and_then_refuses)
{
    with_ranks(2, shut, NULL);
}

/* Every thread has a group of its own; all are used at once, while the rank's own thread uses the first. */
enum { THREADS = 3 };

static void *use_group(void *group)
{
    for (int i = 0; i < 50; i++)
        check_sum(group);
    return NULL;
}

static choir_status threads(choir_group *world, void *arg)
{
    choir_group *groups[THREADS];
    pthread_t ids[THREADS];

    (void)arg;
    for (int i = 0; i < THREADS; i++)
        groups[i] = split_all(world, NULL);
    for (int i = 0; i < THREADS; i++)
        CHOIR_CHECK_EQ(pthread_create(&ids[i], NULL, use_group, groups[i]), 0);
    use_group(world);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        choir_group_destroy(groups[i]);
    }
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(groups_are_used_from_threads_freely, 120)
{
    with_ranks(2, threads, NULL);
}

/* --- without others ---------------------------------------------------------------------------------------- */

CHOIR_TEST(a_fake_group_is_done_at_once)
{
    choir_group *group, *same;
    float v = 3;

    CHOIR_CHECK_OK(choir_group_create_fake(2, 5, NULL, &group));
    CHOIR_CHECK_EQ(choir_group_rank(group), 2);
    CHOIR_CHECK_EQ(choir_group_size(group), 5);
    CHOIR_CHECK_OK(choir_allreduce(group, CHOIR_BUF(&v, 1, CHOIR_F32), NULL, NULL));
    CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    CHOIR_CHECK_OK(choir_group_find(choir_group_name(group), &same));
    CHOIR_CHECK(same == group);
    choir_group_destroy(group);
}
