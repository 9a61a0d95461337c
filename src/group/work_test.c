/* work_test.c - handles: waiting, callbacks, giving up, ending a group with work in flight; from several threads. */
#include "choir_test.h"

#include <pthread.h>
#include <string.h>

#include <choir/choir.h>

#include "base/clock.h"

static choir_buf i32(int32_t *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_I32 };
}

/* --- in order ----------------------------------------------------------------------------------- */

static choir_status many_async(choir_group *group, void *arg)
{
    enum { WORKS = 200 };
    choir_work *works[WORKS];
    int32_t data[WORKS], n = choir_group_size(group);

    (void)arg;
    for (int i = 0; i < WORKS; i++) {
        data[i] = i;
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&data[i], 1), NULL, &works[i]));
        CHOIR_CHECK_EQ(choir_work_sequence(works[i]), (uint64_t)i);
        CHOIR_CHECK_EQ((int)choir_work_op(works[i]), (int)CHOIR_OP_ALLREDUCE);
    }
    for (int i = choir_group_rank(group) % 2 ? WORKS - 1 : 0; i >= 0 && i < WORKS;
         i += choir_group_rank(group) % 2 ? -1 : 1) {
        choir_buf result;
        double ms = -1;

        CHOIR_CHECK_OK(choir_work_wait(works[i], 0));
        CHOIR_CHECK_EQ(data[i], n * i);
        CHOIR_CHECK_OK(choir_work_duration_ms(works[i], &ms));
        CHOIR_CHECK(ms >= 0);
        CHOIR_CHECK_OK(choir_work_result(works[i], 0, &result));
        CHOIR_CHECK(result.data == &data[i]);
        CHOIR_CHECK_STATUS(choir_work_result(works[i], 1, &result), CHOIR_ERR_INVALID);
        CHOIR_CHECK_STR(choir_work_error(works[i]), "");
        choir_work_unref(works[i]);
    }
    return CHOIR_OK;
}

CHOIR_TEST(works_are_waited_for_in_any_order)
{
    CHOIR_CHECK_OK(choir_run_threads(4, many_async, NULL));
}

/* Nobody waits: it is done by itself. A synchronous call comes after what is queued. */
static choir_status by_itself(choir_group *group, void *arg)
{
    enum { BIG = 100000 };
    static _Thread_local int32_t big[BIG];
    int32_t one = 1;
    choir_work *work;
    uint64_t began = ch_now();

    (void)arg;
    for (int i = 0; i < BIG; i++)
        big[i] = 1;
    CHOIR_CHECK_OK(choir_allreduce(group, i32(big, BIG), NULL, &work));
    while (choir_work_test(work) == CHOIR_IN_PROGRESS) {
        CHOIR_CHECK(ch_now() - began < 20 * (uint64_t)CH_S);
        sched_yield();
    }
    CHOIR_CHECK_OK(choir_work_test(work));
    CHOIR_CHECK_EQ(big[BIG - 1], choir_group_size(group));
    choir_work_unref(work);

    CHOIR_CHECK_OK(choir_allreduce(group, i32(big, BIG), NULL, &work));
    choir_work_unref(work); /* letting go does not stop it */
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_EQ(big[0], choir_group_size(group) * choir_group_size(group));
    return CHOIR_OK;
}

CHOIR_TEST(works_go_on_by_themselves)
{
    CHOIR_CHECK_OK(choir_run_threads(3, by_itself, NULL));
}

/* --- time --------------------------------------------------------------------------------------- */

static choir_status wait_times_out(choir_group *group, void *arg)
{
    int32_t one = 1, token = 0;

    (void)arg;
    if (choir_group_rank(group) == 0) {
        choir_work *work;

        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, &work));
        CHOIR_CHECK_STATUS(choir_work_wait(work, 20), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(choir_last_error(), "Operation timed out!");
        CHOIR_CHECK_STATUS(choir_work_test(work), CHOIR_IN_PROGRESS);
        CHOIR_CHECK_OK(choir_send(group, i32(&token, 1), 1, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        choir_work_unref(work);
    } else {
        CHOIR_CHECK_OK(choir_recv(group, i32(&token, 1), 0, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    }
    CHOIR_CHECK_EQ(one, 2);
    return CHOIR_OK;
}

CHOIR_TEST(a_wait_that_times_out_leaves_the_work)
{
    CHOIR_CHECK_OK(choir_run_threads(2, wait_times_out, NULL));
}

/* Rank 0 alone calls: synchronous, queued behind one, and a receive. */
static choir_status times_out(choir_group *group, void *arg)
{
    int32_t one = 1, two = 2, token = 0;
    choir_work *first;
    choir_error record;

    (void)arg;
    if (choir_group_rank(group) != 0)
        return choir_recv(group, i32(&token, 1), 0, 1, CHOIR_OPTS(recv, .timeout_ms = 20000),
                          NULL) == CHOIR_ERR_TIMEOUT
                   ? CHOIR_OK
                   : CHOIR_OK;
    CHOIR_CHECK_STATUS(
        choir_recv(group, i32(&token, 1), 1, 0, CHOIR_OPTS(recv, .timeout_ms = 20), NULL),
        CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_OK(choir_group_error(group, NULL)); /* a receive is lost by itself */
    CHOIR_CHECK_OK(
        choir_allreduce(group, i32(&one, 1), CHOIR_OPTS(allreduce, .timeout_ms = -1), &first));
    CHOIR_CHECK_STATUS(
        choir_allreduce(group, i32(&two, 1), CHOIR_OPTS(allreduce, .timeout_ms = 50), NULL),
        CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "waiting behind others");
    CHOIR_CHECK_STATUS(choir_work_wait(first, 0), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STATUS(choir_group_error(group, &record), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_TIMEOUT);
    choir_work_unref(first);
    return CHOIR_OK;
}

CHOIR_TEST(deadlines_of_queued_operations_hold)
{
    CHOIR_CHECK_OK(choir_run_threads(2, times_out, NULL));
}

/* Nobody waits for it: the service thread keeps the time. */
static choir_status unattended(choir_group *group, void *arg)
{
    int32_t one = 1;
    choir_work *work;
    uint64_t began = ch_now();

    (void)arg;
    if (choir_group_rank(group) == 0) {
        CHOIR_CHECK_OK(
            choir_recv(group, i32(&one, 1), 1, 5, CHOIR_OPTS(recv, .timeout_ms = 50), &work));
        while (choir_work_test(work) == CHOIR_IN_PROGRESS) {
            CHOIR_CHECK(ch_now() - began < 20 * (uint64_t)CH_S);
            sched_yield();
        }
        CHOIR_CHECK_STATUS(choir_work_test(work), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK(choir_work_error_record(work) != NULL);
        choir_work_unref(work);
    }
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(deadlines_hold_though_nobody_waits)
{
    CHOIR_CHECK_OK(choir_run_threads(2, unattended, NULL));
}

/* --- giving up ---------------------------------------------------------------------------------- */

static choir_status aborts(choir_group *group, void *arg)
{
    int32_t one = 1, two = 2;
    choir_work *recv, *running, *queued;

    (void)arg;
    if (choir_group_rank(group) == 0) {
        CHOIR_CHECK_OK(choir_recv(group, i32(&one, 1), 1, 0, NULL, &recv));
        choir_work_abort(recv);
        CHOIR_CHECK_STATUS(choir_work_wait(recv, 0), CHOIR_ERR_INTERRUPTED);
        CHOIR_CHECK_OK(choir_group_error(group, NULL));
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, &running));
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&two, 1), NULL, &queued));
        choir_work_abort(queued);
        CHOIR_CHECK_STATUS(choir_work_wait(queued, 0), CHOIR_ERR_INTERRUPTED);
        CHOIR_CHECK_STATUS(choir_work_wait(running, 0), CHOIR_ERR_INTERRUPTED);
        choir_work_abort(running); /* too late, and harmless */
        choir_work_unref(recv);
        choir_work_unref(running);
        choir_work_unref(queued);
    } else {
        CHOIR_CHECK(choir_recv(group, i32(&one, 1), 0, 9, NULL, NULL) != CHOIR_OK);
    }
    CHOIR_CHECK(choir_barrier(group, NULL, NULL) != CHOIR_OK);
    return CHOIR_OK;
}

CHOIR_TEST(an_aborted_collective_takes_its_group_along)
{
    CHOIR_CHECK_OK(choir_run_threads(2, aborts, NULL));
}

static void *abort_soon(void *arg)
{
    choir_group_abort(arg);
    return NULL;
}

static choir_status group_abort(choir_group *group, void *arg)
{
    int32_t one = 1;
    pthread_t thread;
    choir_status rc;

    (void)arg;
    if (choir_group_rank(group) == 0) {
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, abort_soon, group), 0);
        rc = choir_recv(group, i32(&one, 1), 1, 0, NULL, NULL);
        CHOIR_CHECK(rc == CHOIR_ERR_INTERRUPTED || rc == CHOIR_ERR_STATE);
        pthread_join(thread, NULL);
        CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_STATE);
    } else {
        CHOIR_CHECK(choir_barrier(group, NULL, NULL) != CHOIR_OK);
        CHOIR_CHECK_HAS(choir_last_error(), "aborted by rank 0");
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_group_is_aborted_from_any_thread)
{
    CHOIR_CHECK_OK(choir_run_threads(3, group_abort, NULL));
}

/* --- being told --------------------------------------------------------------------------------- */

struct told {
    _Atomic int count;
    int order[8];
    choir_group *group;
    int32_t more;
    choir_work *work;
};

static void note(void *arg, choir_work *work)
{
    struct told *told = arg;

    CHOIR_CHECK_OK(choir_work_test(work));
    told->order[told->count] = told->count;
    told->count++;
    if (told->count == 2) /* issuing more is fine */
        CHOIR_CHECK_OK(choir_allreduce(told->group, i32(&told->more, 1), NULL, &told->work));
}

static choir_status callbacks(choir_group *group, void *arg)
{
    struct told told = { .group = group, .more = 1 };
    int32_t one = 1;
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, &work));
    CHOIR_CHECK_OK(choir_work_on_done(work, note, &told));
    CHOIR_CHECK_OK(choir_work_on_done(work, note, &told));
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_OK(choir_group_wait_pending(group, 0));
    CHOIR_CHECK_EQ(told.count, 2);
    choir_work_unref(work);
    CHOIR_CHECK_OK(choir_work_wait(told.work, 0));
    CHOIR_CHECK_EQ(told.more, choir_group_size(group));
    CHOIR_CHECK_OK(choir_work_on_done(told.work, note, &told)); /* at once, here */
    CHOIR_CHECK_EQ(told.count, 3);
    choir_work_unref(told.work);
    return CHOIR_OK;
}

CHOIR_TEST(callbacks_run_once_in_order)
{
    CHOIR_CHECK_OK(choir_run_threads(3, callbacks, NULL));
}

static void end_group(void *arg, choir_work *work)
{
    struct told *told = arg;

    CHOIR_CHECK_OK(choir_work_test(work));
    choir_group_destroy(told->group);
    told->count++;
}

static choir_status ended_by_callback(choir_group *world, void *arg)
{
    int all[] = { 0, 1 };
    struct told told = { 0 };
    choir_work *work;

    (void)arg;
    for (int i = 0; i < 50; i++) {
        told.count = 0;
        CHOIR_CHECK_OK(choir_group_split(world, all, 2, NULL, &told.group));
        CHOIR_CHECK_OK(choir_barrier(told.group, NULL, &work));
        CHOIR_CHECK_OK(choir_work_on_done(work, end_group, &told));
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        while (told.count == 0)
            sched_yield();
        choir_work_unref(work);
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_callback_may_destroy_the_group)
{
    CHOIR_CHECK_OK(choir_run_threads(2, ended_by_callback, NULL));
}

struct log {
    _Atomic int count;
    choir_work_info last;
};

static void record(void *arg, const choir_work_info *info)
{
    struct log *log = arg;

    log->last = *info;
    log->count++;
}

static choir_status hooked(choir_group *group, void *arg)
{
    struct log log = { 0 };
    int32_t one = 1;
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(choir_group_on_done(group, record, &log));
    CHOIR_CHECK_STATUS(choir_group_on_done(group, record, &log), CHOIR_ERR_STATE);
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_barrier(group, NULL, &work));
    CHOIR_CHECK_OK(choir_group_wait_pending(group, 0));
    CHOIR_CHECK_OK(choir_work_test(work));
    choir_work_unref(work);
    CHOIR_CHECK_EQ(log.count, 2);
    CHOIR_CHECK_EQ((int)log.last.op, (int)CHOIR_OP_BARRIER);
    CHOIR_CHECK_EQ(log.last.sequence, 1u);
    CHOIR_CHECK(log.last.started_ns <= log.last.finished_ns);
    CHOIR_CHECK_OK(choir_group_on_done(group, NULL, NULL));
    CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    CHOIR_CHECK_EQ(log.count, 2);
    CHOIR_CHECK_OK(choir_group_shutdown(group, 0));
    CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_STATE);
    return CHOIR_OK;
}

CHOIR_TEST(a_hook_is_told_of_every_operation)
{
    CHOIR_CHECK_OK(choir_run_threads(2, hooked, NULL));
}

/* --- ending ------------------------------------------------------------------------------------- */

static choir_status in_flight(choir_group *world, void *arg)
{
    enum { CHILDREN = 3, WORKS = 5 };
    int all[] = { 0, 1, 2 }, me = choir_group_rank(world);
    choir_group *child[CHILDREN];
    choir_work *works[CHILDREN][WORKS];
    int32_t data[CHILDREN][WORKS], never;

    (void)arg;
    for (int c = 0; c < CHILDREN; c++) {
        choir_work *recv;

        CHOIR_CHECK_OK(choir_group_split(world, all, 3, NULL, &child[c]));
        for (int i = 0; i < WORKS; i++) {
            data[c][i] = 1;
            CHOIR_CHECK_OK(choir_allreduce(child[c], i32(&data[c][i], 1), NULL, &works[c][i]));
        }
        CHOIR_CHECK_OK(choir_recv(child[c], i32(&never, 1), me, 3, NULL, &recv));
        choir_work_unref(recv);
    }
    for (int c = 0; c < CHILDREN; c++) /* each rank in another order */
        choir_group_destroy(child[(c + me) % CHILDREN]);
    for (int c = 0; c < CHILDREN; c++) {
        for (int i = 0; i < WORKS; i++) {
            CHOIR_CHECK_OK(choir_work_wait(works[c][i], 0));
            CHOIR_CHECK_EQ(data[c][i], 3);
            choir_work_unref(works[c][i]);
        }
    }
    return CHOIR_OK;
}

CHOIR_TEST(groups_end_in_any_order_with_work_in_flight)
{
    CHOIR_CHECK_OK(choir_run_threads(3, in_flight, NULL));
}

struct shared {
    choir_group *group;
    int32_t data[100];
};

static void *wait_all(void *arg)
{
    choir_work **works = arg;

    for (int i = 0; i < 100; i++)
        CHOIR_CHECK_OK(choir_work_wait(works[i], 0));
    return NULL;
}

/* Several threads of each rank wait for the same works, and one goes on issuing. */
static choir_status several_threads(choir_group *group, void *arg)
{
    enum { THREADS = 3 };
    choir_work *works[100];
    int32_t data[100], one = 1;
    pthread_t threads[THREADS];

    (void)arg;
    for (int i = 0; i < 100; i++) {
        data[i] = 1;
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&data[i], 1), NULL, &works[i]));
    }
    for (int t = 0; t < THREADS; t++)
        CHOIR_CHECK_EQ(pthread_create(&threads[t], NULL, wait_all, works), 0);
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_EQ(one, choir_group_size(group));
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int i = 0; i < 100; i++) {
        CHOIR_CHECK_EQ(data[i], choir_group_size(group));
        choir_work_unref(works[i]);
    }
    return CHOIR_OK;
}

CHOIR_TEST(several_threads_of_a_rank_help)
{
    CHOIR_CHECK_OK(choir_run_threads(3, several_threads, NULL));
}

/* --- monitored barriers --------------------------------------------------------------------------- */

static choir_status missing(choir_group *group, void *arg)
{
    /* Long enough for rank 0's verdict to come in half of it, on a slow machine too. */
    int64_t patience_ms = 200 * (int64_t)choir_test_slowness();
    int me = choir_group_rank(group);
    int32_t token = 0;

    (void)arg;
    if (me != 2) {
        CHOIR_CHECK_STATUS(
            choir_monitored_barrier(group, true, CHOIR_OPTS(barrier, .timeout_ms = patience_ms)),
            CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(choir_last_error(), "[Rank 0]: Rank 2 failed to pass monitoredBarrier");
        CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 2);
        if (me == 0)
            CHOIR_CHECK_OK(choir_send(group, i32(&token, 1), 2, 0, NULL, NULL));
    } else {
        CHOIR_CHECK_OK(choir_recv(group, i32(&token, 1), 0, 0, NULL, NULL));
        /* Too late: the verdict has been waiting. */
        CHOIR_CHECK_STATUS(choir_monitored_barrier(group, true, NULL), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 2);
    }
    /* What is left of the first is not taken for the second. */
    CHOIR_CHECK_OK(choir_monitored_barrier(group, false, NULL));
    return CHOIR_OK;
}

CHOIR_TEST(who_misses_a_monitored_barrier_is_named_everywhere)
{
    CHOIR_CHECK_OK(choir_run_threads(4, missing, NULL));
}

/* --- ranks as threads ------------------------------------------------------------------------------ */

static choir_status one_fails(choir_group *group, void *arg)
{
    (void)arg;
    if (choir_group_rank(group) == 1)
        return CHOIR_ERR_PERMISSION;
    CHOIR_CHECK(choir_barrier(group, NULL, NULL) != CHOIR_OK);
    return CHOIR_OK;
}

CHOIR_TEST(a_rank_that_fails_is_what_threads_return)
{
    CHOIR_CHECK_STATUS(choir_run_threads(3, one_fails, NULL), CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "choir_run_threads: rank 1 returned");
    CHOIR_CHECK_STATUS(choir_run_threads(0, one_fails, NULL), CHOIR_ERR_INVALID);
}

/* Its thread is all that tells of a rank that is a thread. */
static choir_status one_ends(choir_group *group, void *arg)
{
    int32_t one = 1;

    (void)arg;
    if (choir_group_rank(group) == 1)
        pthread_exit(NULL);
    CHOIR_CHECK_STATUS(
        choir_allreduce(group, i32(&one, 1), CHOIR_OPTS(allreduce, .timeout_ms = 20000), NULL),
        CHOIR_ERR_DEAD);
    CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 1);
    return CHOIR_OK;
}

CHOIR_TEST(a_thread_that_ends_with_its_group_open_is_dead)
{
    CHOIR_CHECK_STATUS(choir_run_threads(3, one_ends, NULL), CHOIR_ERR_DEAD);
    CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 1);
    CHOIR_CHECK_HAS(choir_last_error(), "its thread ended");
}

/* --- the flight record ----------------------------------------------------------------------------- */

static choir_status recorded(choir_group *group, void *arg)
{
    int32_t one = 1;
    choir_blob dump;

    (void)arg;
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_broadcast(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_trace_dump(CHOIR_TRACE_JSON, &dump));
    CHOIR_CHECK_HAS(dump.data, "all_reduce");
    CHOIR_CHECK_HAS(dump.data, "broadcast");
    CHOIR_CHECK_HAS(dump.data, "completed");
    choir_blob_free(&dump);
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(operations_are_in_the_flight_record)
{
    CHOIR_CHECK_OK(choir_run_threads(2, recorded, NULL));
}
