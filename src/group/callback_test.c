/* callback_test.c - what a function may do that the library calls back. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <choir/choir.h>

static choir_buf i32(int32_t *data)
{
    return (choir_buf){ .data = data, .count = 1, .type = CHOIR_I32 };
}

struct seen {
    choir_group *group;
    int32_t sum;
    choir_status waited; /* what waiting for callbacks returned */
    _Atomic int done;
};

static void await(struct seen *seen)
{
    while (atomic_load(&seen->done) == 0)
        sched_yield();
}

/* Synchronous, asynchronous and waited for; and the user's reference goes here. */
static void go_on(void *arg, choir_work *work)
{
    struct seen *seen = arg;
    int32_t one = 1;
    choir_work *more;

    seen->sum = 1;
    CHOIR_CHECK_OK(choir_allreduce(seen->group, i32(&seen->sum), NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(seen->group, i32(&one), NULL, &more));
    CHOIR_CHECK_OK(choir_work_wait(more, 0));
    choir_work_unref(more);
    choir_work_unref(work);
    atomic_store(&seen->done, 1);
}

static choir_status run_more(choir_group *group, void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        struct seen seen = { .group = group };
        int32_t one = 1;
        choir_work *work;

        CHOIR_CHECK_OK(choir_allreduce(group, i32(&one), NULL, &work));
        CHOIR_CHECK_OK(choir_work_on_done(work, go_on, &seen));
        await(&seen);
        CHOIR_CHECK_EQ(seen.sum, choir_group_size(group));
    }
    return CHOIR_OK;
}

CHOIR_TEST(it_may_run_operations_and_drop_its_work)
{
    CHOIR_CHECK_OK(choir_run_threads(3, run_more, NULL));
}

static void wait_for_callbacks(void *arg, choir_work *work)
{
    struct seen *seen = arg;

    (void)work;
    seen->waited = choir_group_wait_pending(seen->group, 0);
    atomic_store(&seen->done, 1);
}

/* Added while it cannot be done yet, so that it runs on the library's thread. */
static choir_status wait_there(choir_group *group, void *arg)
{
    struct seen seen = { .group = group };
    int32_t got = 0, go = 1;
    choir_work *work;

    (void)arg;
    if (choir_group_rank(group) == 1) {
        CHOIR_CHECK_OK(choir_recv(group, i32(&got), 0, 0, NULL, NULL));
        return choir_send(group, i32(&go), 0, 1, NULL, NULL);
    }
    CHOIR_CHECK_OK(choir_recv(group, i32(&got), 1, 1, NULL, &work));
    CHOIR_CHECK_OK(choir_work_on_done(work, wait_for_callbacks, &seen));
    CHOIR_CHECK_OK(choir_send(group, i32(&go), 1, 0, NULL, NULL));
    await(&seen);
    CHOIR_CHECK_STATUS(seen.waited, CHOIR_ERR_STATE);
    choir_work_unref(work);
    return CHOIR_OK;
}

CHOIR_TEST(it_cannot_wait_for_callbacks)
{
    CHOIR_CHECK_OK(choir_run_threads(2, wait_there, NULL));
}

/* --- the end of everything ------------------------------------------------------------------------ */

static void leave(void *arg, choir_work *work)
{
    struct seen *seen = arg;

    (void)work;
    choir_group_destroy(seen->group);
    atomic_store(&seen->done, 1);
}

struct joiner {
    choir_store *store;
    int rank;
};

static void *join_and_leave(void *arg)
{
    const struct joiner *joiner = arg;

    for (int i = 0; i < 20; i++) {
        struct seen seen = { 0 };
        int32_t one = 1;
        choir_work *work;

        CHOIR_CHECK_OK(choir_init(&seen.group, CHOIR_OPTS(init, .store = joiner->store,
                                                          .rank = joiner->rank, .nranks = 2)));
        CHOIR_CHECK_OK(choir_allreduce(seen.group, i32(&one), NULL, &work));
        CHOIR_CHECK_OK(choir_work_on_done(work, leave, &seen));
        await(&seen);
        CHOIR_CHECK_OK(choir_work_wait(work, 0)); /* outlives its group, and its rank */
        CHOIR_CHECK_EQ(one, 2);
        choir_work_unref(work);
    }
    return NULL;
}

CHOIR_TEST(it_may_leave_the_job)
{
    struct joiner joiners[2] = { { .rank = 0 }, { .rank = 1 } };
    pthread_t threads[2];
    choir_store *store;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    for (int r = 0; r < 2; r++) {
        joiners[r].store = store;
        CHOIR_CHECK_EQ(pthread_create(&threads[r], NULL, join_and_leave, &joiners[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    choir_store_close(store);
}
