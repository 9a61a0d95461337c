/* queue_test.c - who runs what when: deadlines behind others, ends beside waiters, numbers, batches. */
#include "choir_test.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <choir/choir.h>

#include "base/clock.h"

static choir_buf i32(int32_t *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_I32 };
}

static choir_group *split_all(choir_group *world)
{
    int ranks[16], n = choir_group_size(world);
    choir_group *child = NULL;

    for (int r = 0; r < n; r++)
        ranks[r] = r;
    CHOIR_CHECK_OK(choir_group_split(world, ranks, (size_t)n, NULL, &child));
    return child;
}

/* --- deadlines ---------------------------------------------------------------------------------- */

/* The first waits for ever, and this thread for it, with the token; the second has a deadline. */
static choir_status second_expires(choir_group *group, void *arg)
{
    int32_t one = 1, two = 2, token = 0;
    choir_work *first, *second;

    (void)arg;
    if (choir_group_rank(group) != 0) {
        CHOIR_CHECK(choir_recv(group, i32(&token, 1), 0, 0, NULL, NULL) != CHOIR_OK);
        return CHOIR_OK;
    }
    CHOIR_CHECK_OK(
        choir_allreduce(group, i32(&one, 1), CHOIR_OPTS(allreduce, .timeout_ms = -1), &first));
    CHOIR_CHECK_OK(
        choir_allreduce(group, i32(&two, 1), CHOIR_OPTS(allreduce, .timeout_ms = 50), &second));
    CHOIR_CHECK_STATUS(choir_work_wait(first, 20000), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "waiting behind others");
    CHOIR_CHECK_STATUS(choir_work_wait(second, 20000), CHOIR_ERR_TIMEOUT);
    choir_work_unref(first);
    choir_work_unref(second);
    return CHOIR_OK;
}

CHOIR_TEST(a_deadline_holds_behind_one_that_is_waited_for)
{
    CHOIR_CHECK_OK(choir_run_threads(2, second_expires, NULL));
}

/* --- by themselves ------------------------------------------------------------------------------ */

static void count(void *arg, choir_work *work)
{
    (void)work;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* Nobody waits and nobody asks; again and again, so that the service thread was asleep before. */
static choir_status unasked(choir_group *group, void *arg)
{
    enum { BIG = 50000, TIMES = 20 };
    static _Thread_local int32_t big[BIG], sent[BIG], got[BIG];
    int me = choir_group_rank(group), n = choir_group_size(group);

    (void)arg;
    for (int i = 0; i < TIMES; i++) {
        _Atomic int done = 0;
        int32_t one = 1;
        uint64_t began = ch_now();
        choir_work *works[4];

        CHOIR_CHECK_OK(choir_allreduce(group, i32(big, BIG), NULL, &works[0]));
        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, &works[1]));
        CHOIR_CHECK_OK(choir_send(group, i32(sent, BIG), (me + 1) % n, 0, NULL, &works[2]));
        CHOIR_CHECK_OK(choir_recv(group, i32(got, BIG), (me + n - 1) % n, 0, NULL, &works[3]));
        for (int w = 0; w < 4; w++) {
            CHOIR_CHECK_OK(choir_work_on_done(works[w], count, &done));
            choir_work_unref(works[w]);
        }
        while (atomic_load(&done) < 4) {
            CHOIR_CHECK(ch_now() - began < 20 * (uint64_t)CH_S);
            sched_yield();
        }
        CHOIR_CHECK_EQ(one, n);
    }
    return CHOIR_OK;
}

CHOIR_TEST(works_are_done_though_nobody_asks)
{
    CHOIR_CHECK_OK(choir_run_threads(3, unasked, NULL));
}

/* --- numbers ------------------------------------------------------------------------------------ */

static choir_status numbers(choir_group *group, void *arg)
{
    const int64_t shape[] = { 4 };
    int64_t index = 1;
    float value = 1;
    int32_t one = 1, two = 2;
    choir_sparse in = { .ndim = 1,
                        .nnz = 1,
                        .value_count = 1,
                        .shape = shape,
                        .indices = &index,
                        .values = &value,
                        .type = CHOIR_F32 };
    choir_sparse out = { 0 };
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce_sparse(group, &in, &out, NULL, &work));
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ(choir_work_sequence(work), 1u);
    choir_work_unref(work);
    choir_sparse_free(&out);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 2u);
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&two, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(group, &work));
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ((int)choir_work_op(work), (int)CHOIR_OP_COALESCED);
    CHOIR_CHECK_EQ(choir_work_sequence(work), 2u); /* its first's */
    choir_work_unref(work);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 4u);
    return CHOIR_OK;
}

CHOIR_TEST(a_call_takes_one_number_and_a_batch_has_its_firsts)
{
    CHOIR_CHECK_OK(choir_run_threads(2, numbers, NULL));
}

/* --- batches ------------------------------------------------------------------------------------ */

static choir_status not_in_batches(choir_group *group, void *arg)
{
    int32_t one = 1;
    choir_group *child = NULL;

    (void)arg;
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_STATUS(choir_monitored_barrier(group, true, NULL), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "batch");
    CHOIR_CHECK_STATUS(choir_group_split(group, (int[]){ 0, 1 }, 2, NULL, &child), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "batch");
    CHOIR_CHECK_OK(choir_batch_end(group, NULL));
    CHOIR_CHECK_EQ(one, 2);
    CHOIR_CHECK_OK(choir_monitored_barrier(group, true, NULL));
    return CHOIR_OK;
}

CHOIR_TEST(what_cannot_be_in_a_batch_is_refused_there)
{
    CHOIR_CHECK_OK(choir_run_threads(2, not_in_batches, NULL));
}

/* One part is refused: the others are issued as if it had not been called. */
static choir_status refused_part(choir_group *group, void *arg)
{
    int32_t one = 1, in = 0, out = choir_group_rank(group);
    int peer = 1 - choir_group_rank(group);

    (void)arg;
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_send(group, i32(&out, 1), peer, 0, NULL, NULL));
    CHOIR_CHECK_STATUS(choir_send(group, i32(&out, 1), 2, 0, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allreduce(group, i32(NULL, 1), NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_OK(choir_recv(group, i32(&in, 1), peer, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(group, NULL));
    CHOIR_CHECK_EQ(in, peer);
    CHOIR_CHECK_EQ(one, 2);
    return CHOIR_OK;
}

CHOIR_TEST(a_refused_part_is_not_in_the_batch)
{
    CHOIR_CHECK_OK(choir_run_threads(2, refused_part, NULL));
}

/* Nothing of it is issued, and calls are done on return again. */
static choir_status dropped(choir_group *group, void *arg)
{
    int32_t one = 1, other = 1;
    int peer = 1 - choir_group_rank(group);

    (void)arg;
    CHOIR_CHECK_STATUS(choir_batch_drop(group), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "no batch open");
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_send(group, i32(&one, 1), peer, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_drop(group));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&other, 1), NULL, NULL));
    CHOIR_CHECK_EQ(other, 2);
    CHOIR_CHECK_EQ(one, 1);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 1u);
    return CHOIR_OK;
}

CHOIR_TEST(what_is_in_a_dropped_batch_is_never_issued)
{
    CHOIR_CHECK_OK(choir_run_threads(2, dropped, NULL));
}

static void *leave_open(void *group)
{
    CHOIR_CHECK_OK(choir_batch_begin(group));
    return NULL;
}

static void *has_none(void *group)
{
    CHOIR_CHECK_STATUS(choir_batch_end(group, NULL), CHOIR_ERR_STATE);
    return NULL;
}

/* A new thread is often what the system takes for the same one. */
CHOIR_TEST(a_batch_that_a_thread_left_open_is_nobody_elses)
{
    enum { NLEFT = 2, NOTHERS = 4 }; /* the group's own, and one on the heap */
    choir_group *group;
    pthread_t thread;

    CHOIR_CHECK_OK(choir_group_create_fake(0, 2, NULL, &group));
    for (int i = 0; i < NLEFT + NOTHERS; i++) {
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, i < NLEFT ? leave_open : has_none, group), 0);
        CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    choir_group_destroy(group);
}

/* A part that fails alone (a receive of another length) fails the batch, not the group. */
static choir_status failing_part(choir_group *group, void *arg)
{
    int32_t data[2] = { 1, 2 }, one = 1;
    choir_work *work = NULL;

    (void)arg;
    CHOIR_CHECK_OK(choir_batch_begin(group));
    if (choir_group_rank(group) == 0)
        CHOIR_CHECK_OK(choir_send(group, i32(data, 1), 1, 0, NULL, NULL));
    else
        CHOIR_CHECK_OK(choir_recv(group, i32(data, 2), 0, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(group, &work));
    if (choir_group_rank(group) == 0) {
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
    } else {
        CHOIR_CHECK_STATUS(choir_work_wait(work, 0), CHOIR_ERR_INVALID);
        CHOIR_CHECK(choir_work_error(work)[0] != '\0');
    }
    CHOIR_CHECK_EQ(one, 2);
    choir_work_unref(work);
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(a_failing_message_fails_its_batch_alone)
{
    CHOIR_CHECK_OK(choir_run_threads(2, failing_part, NULL));
}

/* --- batches of sends and receives alone ---------------------------------------------------------- */

static void exchange(choir_group *group, int count, bool wants_handle)
{
    enum { MOST = 12 };
    int32_t out[MOST], in[MOST] = { 0 };
    int me = choir_group_rank(group), peer = 1 - me;
    choir_work *work = NULL;

    CHOIR_CHECK_OK(choir_batch_begin(group));
    for (int i = 0; i < count; i++) {
        out[i] = 100 * me + i;
        CHOIR_CHECK_OK(choir_send(group, i32(&out[i], 1), peer, i / 2, NULL, NULL));
        CHOIR_CHECK_OK(choir_recv(group, i32(&in[i], 1), peer, i / 2, NULL, NULL));
    }
    CHOIR_CHECK_OK(choir_batch_end(group, wants_handle ? &work : NULL));
    if (wants_handle)
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
    for (int i = 0; i < count; i++)
        CHOIR_CHECK_EQ(in[i], 100 * peer + i);
    choir_work_unref(work);
}

/* A few of them need no works, more of them do: nobody sees a difference. */
static choir_status few_and_many(choir_group *group, void *arg)
{
    (void)arg;
    for (int count = 1; count <= 12; count++) {
        exchange(group, count, false);
        exchange(group, count, true);
    }
    return CHOIR_OK;
}

CHOIR_TEST(batches_of_few_and_of_many_messages)
{
    CHOIR_CHECK_OK(choir_run_threads(2, few_and_many, NULL));
}

struct opener {
    choir_group *group;
    pthread_barrier_t *start;
};

static void *open_a_batch(void *arg)
{
    const struct opener *o = arg;
    int32_t out = 1, in = 0;

    pthread_barrier_wait(o->start);
    CHOIR_CHECK_OK(choir_batch_begin(o->group));
    CHOIR_CHECK_OK(choir_send(o->group, i32(&out, 1), 0, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_recv(o->group, i32(&in, 1), 0, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(o->group, NULL));
    CHOIR_CHECK_EQ(in, 1);
    return NULL;
}

/* A group makes room for a batch with the first: several threads have theirs at once, each time in a new group. */
static choir_status first_batches(choir_group *world, void *arg)
{
    enum { OPENERS = 3, GROUPS = 100 };
    pthread_barrier_t start;

    (void)arg;
    pthread_barrier_init(&start, NULL, OPENERS);
    for (int i = 0; i < GROUPS; i++) {
        pthread_t threads[OPENERS];
        struct opener o = { split_all(world), &start };

        for (int t = 0; t < OPENERS; t++)
            CHOIR_CHECK_EQ(pthread_create(&threads[t], NULL, open_a_batch, &o), 0);
        for (int t = 0; t < OPENERS; t++)
            pthread_join(threads[t], NULL);
        choir_group_destroy(o.group);
    }
    pthread_barrier_destroy(&start);
    return CHOIR_OK;
}

CHOIR_TEST(threads_open_their_first_batches_at_once)
{
    CHOIR_CHECK_OK(choir_run_threads(1, first_batches, NULL));
}

/* One has another length, one never comes: the batch fails with the first, and the third has come all the same. */
static choir_status failing_messages(choir_group *group, void *arg)
{
    int64_t patience_ms = 100 * (int64_t)choir_test_slowness(); /* the other two come in it */
    int32_t data[2] = { 7, 8 }, in[2] = { 0 }, never;

    (void)arg;
    if (choir_group_rank(group) == 0) {
        CHOIR_CHECK_OK(choir_send(group, i32(data, 1), 1, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_send(group, i32(data, 2), 1, 2, NULL, NULL));
        return choir_barrier(group, NULL, NULL);
    }
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(
        choir_recv(group, i32(&never, 1), 0, 1, CHOIR_OPTS(recv, .timeout_ms = patience_ms), NULL));
    CHOIR_CHECK_OK(choir_recv(group, i32(data, 2), 0, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_recv(group, i32(in, 2), 0, 2, NULL, NULL));
    CHOIR_CHECK_STATUS(choir_batch_end(group, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "bytes");
    CHOIR_CHECK_EQ(in[1], 8);
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(a_batch_of_messages_fails_when_all_are_done)
{
    CHOIR_CHECK_OK(choir_run_threads(2, failing_messages, NULL));
}

/* Sender and receiver mean different types: both are told which, the sender of what was not kept for it. */
static choir_status other_type(choir_group *group, void *arg)
{
    enum { MANY = 100000 };
    static _Thread_local float data[MANY];
    choir_status rc;

    (void)arg;
    for (size_t count = 1; count <= MANY; count += MANY - 1) {
        if (choir_group_rank(group) == 0) {
            rc = choir_send(group, CHOIR_BUF(data, count, CHOIR_F32), 1, 0, NULL, NULL);
            if (count == 1)
                continue;
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
            CHOIR_CHECK_HAS(choir_last_error(), "here f32, there i32");
        } else {
            rc = choir_recv(group, CHOIR_BUF(data, count, CHOIR_I32), 0, 0, NULL, NULL);
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
            CHOIR_CHECK_HAS(choir_last_error(), "here i32, there f32");
        }
    }
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(a_message_of_another_type_is_told_with_both)
{
    CHOIR_CHECK_OK(choir_run_threads(2, other_type, NULL));
}

/* All parts are given up: one under way, one queued, messages that nobody answers. */
static choir_status give_up_batch(choir_group *world, void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        choir_group *child = split_all(world);
        int32_t one = 1, two = 2, in, out = 0;
        choir_error record;
        choir_work *work;

        if (choir_group_rank(world) == 0) {
            CHOIR_CHECK_OK(choir_batch_begin(child));
            CHOIR_CHECK_OK(choir_recv(child, i32(&in, 1), 1, 5, NULL, NULL));
            CHOIR_CHECK_OK(choir_allreduce(child, i32(&one, 1), NULL, NULL));
            CHOIR_CHECK_OK(choir_send(child, i32(&out, 1), 1, 5, NULL, NULL));
            CHOIR_CHECK_OK(choir_allreduce(child, i32(&two, 1), NULL, NULL));
            CHOIR_CHECK_OK(choir_batch_end(child, &work));
            choir_work_abort(work);
            CHOIR_CHECK_STATUS(choir_work_wait(work, 0), CHOIR_ERR_INTERRUPTED);
            choir_work_unref(work);
        } else {
            while (choir_group_error(child, &record) == CHOIR_OK)
                sched_yield();
            CHOIR_CHECK_EQ(record.culprit, 0);
        }
        choir_group_destroy(child);
    }
    return choir_barrier(world, NULL, NULL);
}

CHOIR_TEST(a_batch_is_given_up_whole)
{
    CHOIR_CHECK_OK(choir_run_threads(2, give_up_batch, NULL));
}

/* --- ends beside waiters -------------------------------------------------------------------------- */

enum { ROUNDS = 100 };

/* In turn: wait a little, again and again, until it is done; wait for ever; give it up. */
struct beside {
    choir_work *work;
    int how;
};

static void *wait_beside(void *arg)
{
    struct beside *b = arg;
    choir_status rc = CHOIR_ERR_TIMEOUT;

    if (b->work == NULL)
        return NULL;
    if (b->how == 2)
        choir_work_abort(b->work);
    while (rc == CHOIR_ERR_TIMEOUT)
        rc = choir_work_wait(b->work, b->how == 0 ? 1 : 0);
    CHOIR_CHECK(rc == CHOIR_OK || b->how == 2);
    choir_work_unref(b->work);
    return NULL;
}

static choir_status destroy_beside(choir_group *world, void *arg)
{
    int me = choir_group_rank(world), how = *(int *)arg;

    for (int i = 0; i < ROUNDS; i++) {
        choir_group *child = split_all(world);
        int32_t data[3] = { 1, 1, 1 };
        struct beside b[3];
        pthread_t threads[3];

        for (int w = 0; w < 3; w++) {
            b[w].how = how;
            b[w].work = NULL; /* and stays so if the other rank has given up already */
            if (choir_allreduce(child, i32(&data[w], 1), NULL, &b[w].work) != CHOIR_OK)
                CHOIR_CHECK_EQ(how, 2);
        }
        for (int w = 0; w < 3; w++)
            CHOIR_CHECK_EQ(pthread_create(&threads[w], NULL, wait_beside, &b[w]), 0);
        if (i % 2 == me)
            sched_yield();
        choir_group_destroy(child);
        for (int w = 0; w < 3; w++)
            pthread_join(threads[w], NULL);
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_group_is_destroyed_while_threads_wait)
{
    for (int how = 0; how < 3; how++) {
        CHOIR_ROW("%s", how == 0 ? "again and again" : how == 1 ? "for ever" : "and give up");
        CHOIR_CHECK_OK(choir_run_threads(2, destroy_beside, &how));
    }
}

/* A callback ends the group while another operation is under way and other callbacks are to come. */
struct ending {
    choir_group *group;
    _Atomic int told, ended;
};

static void tell(void *arg, choir_work *work)
{
    struct ending *e = arg;

    CHOIR_CHECK_OK(choir_work_test(work));
    atomic_fetch_add(&e->told, 1);
}

static void tell_and_end(void *arg, choir_work *work)
{
    struct ending *e = arg;

    tell(arg, work);
    choir_group_destroy(e->group);
    atomic_store(&e->ended, 1);
}

static choir_status end_in_callback(choir_group *world, void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct ending e = { .group = split_all(world) };
        int32_t one = 1, two = 2, three = 3;
        choir_work *first, *second, *third;
        uint64_t began = ch_now();

        CHOIR_CHECK_OK(choir_allreduce(e.group, i32(&one, 1), NULL, &first));
        CHOIR_CHECK_OK(choir_allreduce(e.group, i32(&two, 1), NULL, &second));
        CHOIR_CHECK_OK(choir_allreduce(e.group, i32(&three, 1), NULL, &third));
        CHOIR_CHECK_OK(choir_work_on_done(third, tell, &e));
        CHOIR_CHECK_OK(choir_work_on_done(second, tell, &e));
        CHOIR_CHECK_OK(choir_work_on_done(first, tell_and_end, &e));
        choir_work_unref(first);
        choir_work_unref(second);
        while (atomic_load(&e.told) < 3 || atomic_load(&e.ended) == 0) {
            CHOIR_CHECK(ch_now() - began < 20 * (uint64_t)CH_S);
            sched_yield();
        }
        CHOIR_CHECK_OK(choir_work_wait(third, 0));
        CHOIR_CHECK_EQ(three, 6);
        choir_work_unref(third);
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_callback_ends_the_group_with_more_to_come)
{
    CHOIR_CHECK_OK(choir_run_threads(2, end_in_callback, NULL));
}

/* What comes too late changes nothing. */
static choir_status late_abort(choir_group *group, void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        int32_t one = 1;
        choir_work *work;

        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1), NULL, &work));
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        choir_work_abort(work);
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        choir_work_unref(work);
        CHOIR_CHECK_OK(choir_group_error(group, NULL));
    }
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(giving_up_what_is_done_harms_nobody)
{
    CHOIR_CHECK_OK(choir_run_threads(2, late_abort, NULL));
}

/* --- after a failure ------------------------------------------------------------------------------ */

static choir_status go_on(choir_group *old, void *arg)
{
    int me = choir_group_rank(old);
    int32_t one = 1;
    choir_error first, again;
    choir_group *fresh = NULL;
    choir_store *apart;
    choir_work *work;

    (void)arg;
    if (me == 2)
        return CHOIR_ERR_PERMISSION; /* as good as dead */
    CHOIR_CHECK(choir_allreduce(old, i32(&one, 1), NULL, NULL) != CHOIR_OK);
    CHOIR_CHECK(choir_group_error(old, &first) != CHOIR_OK);
    CHOIR_CHECK_EQ(first.culprit, 2);
    CHOIR_CHECK(choir_barrier(old, NULL, NULL) != CHOIR_OK);
    CHOIR_CHECK(choir_send(old, i32(&one, 1), 0, 0, NULL, NULL) != CHOIR_OK);
    CHOIR_CHECK(choir_allreduce(old, i32(&one, 1), NULL, &work) != CHOIR_OK);
    CHOIR_CHECK(choir_group_split(old, (int[]){ 0, 1 }, 2, NULL, &fresh) != CHOIR_OK);
    CHOIR_CHECK(choir_monitored_barrier(old, true, NULL) != CHOIR_OK);
    CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 2);
    CHOIR_CHECK(choir_group_error(old, &again) != CHOIR_OK);
    CHOIR_CHECK_STR(again.text, first.text);
    /* In a place of their own: in the old one three ranks have met. */
    CHOIR_CHECK_OK(choir_store_prefix(choir_group_store(old), choir_str("survivors/"), &apart));
    CHOIR_CHECK_OK(choir_init(
        &fresh, CHOIR_OPTS(init, .store = apart, .rank = me, .nranks = 2, .name = "survivors")));
    choir_store_close(apart);
    one = 1;
    CHOIR_CHECK_OK(choir_allreduce(fresh, i32(&one, 1), NULL, NULL));
    CHOIR_CHECK_EQ(one, 2);
    choir_group_destroy(fresh);
    return CHOIR_OK;
}

CHOIR_TEST(survivors_make_a_new_group_through_the_store)
{
    CHOIR_CHECK_STATUS(choir_run_threads(3, go_on, NULL), CHOIR_ERR_PERMISSION);
}

/* --- time without limits ---------------------------------------------------------------------------- */

static choir_status long_times(choir_group *group, void *arg)
{
    int32_t one = 1;
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(
        choir_monitored_barrier(group, false, CHOIR_OPTS(barrier, .timeout_ms = INT64_MAX)));
    CHOIR_CHECK_OK(choir_monitored_barrier(group, false, CHOIR_OPTS(barrier, .timeout_ms = -1)));
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one, 1),
                                   CHOIR_OPTS(allreduce, .timeout_ms = INT64_MAX), &work));
    CHOIR_CHECK_OK(choir_work_wait(work, INT64_MAX));
    choir_work_unref(work);
    CHOIR_CHECK_OK(choir_group_wait_pending(group, INT64_MAX));
    return choir_barrier(group, CHOIR_OPTS(barrier, .timeout_ms = INT64_MIN), NULL);
}

CHOIR_TEST(very_long_times_are_no_times)
{
    CHOIR_CHECK_OK(choir_run_threads(2, long_times, NULL));
}
