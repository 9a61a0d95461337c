/* group_fault_test.c - one allocation or system call fails while groups are made and used: nobody hangs. */
#include "choir_test.h"

#include <stdatomic.h>

#include <choir/choir.h>

#include "base/fault.h"
#include "base/sys.h"

static choir_buf i32(int32_t *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_I32 };
}

static void told(void *arg, choir_work *work)
{
    (void)arg, (void)work;
}

static void told_of_all(void *arg, const choir_work_info *info)
{
    (void)arg, (void)info;
}

enum { COUNT = 200, LIMIT_MS = 10000 };

/* Waited for in any case: the buffer is the caller's. */
static choir_status waited(choir_status rc, choir_work *work)
{
    choir_status ended = work != NULL ? choir_work_wait(work, 0) : CHOIR_OK;

    choir_work_unref(work);
    return rc != CHOIR_OK ? rc : ended;
}

static choir_status use_works(choir_group *group)
{
    int32_t data[COUNT] = { 0 };
    choir_work *work = NULL;
    choir_status rc = choir_group_on_done(group, told_of_all, NULL);

    if (rc == CHOIR_OK)
        rc = choir_allreduce(group, i32(data, COUNT), NULL, &work);
    if (rc == CHOIR_OK)
        rc = choir_work_on_done(work, told, NULL);
    return waited(rc, work);
}

static choir_status use_batch(choir_group *group)
{
    int32_t in = 0, other = 0, out = 1, sum = 1;
    int peer = 1 - choir_group_rank(group);
    choir_status rc = choir_batch_begin(group);

    if (rc != CHOIR_OK)
        return rc;
    rc = choir_send(group, i32(&out, 1), peer, 0, NULL, NULL);
    if (rc == CHOIR_OK)
        rc = choir_recv(group, i32(&in, 1), peer, 0, NULL, NULL);
    if (rc == CHOIR_OK)
        rc = choir_sendrecv(group, i32(&out, 1), peer, i32(&other, 1), peer, 1, NULL, NULL);
    if (rc == CHOIR_OK)
        rc = choir_allreduce(group, i32(&sum, 1), NULL, NULL);
    if (rc != CHOIR_OK)
        return rc; /* the batch ends with its group */
    return choir_batch_end(group, NULL);
}

static choir_status use_lists(choir_group *group)
{
    static const int64_t sizes[] = { COUNT / 2 }, strides[] = { 2 };
    int32_t in[COUNT] = { 0 }, out[2][COUNT];
    choir_buf outs[2] = { i32(out[0], COUNT / 2), i32(out[1], COUNT / 2) };
    choir_buf strided = { in, COUNT / 2, CHOIR_I32, 1, sizes, strides };
    choir_status rc = choir_allgather(group, strided, outs, NULL, NULL);

    if (rc == CHOIR_OK)
        rc = choir_gather(group, strided, choir_group_rank(group) == 0 ? outs : NULL, NULL, NULL);
    return rc;
}

static choir_status use_sparse(choir_group *group)
{
    const int64_t shape[] = { 4 };
    int64_t index = choir_group_rank(group);
    float value = 1;
    choir_sparse in = { 1, 1, 1, shape, &index, &value, CHOIR_F32 }, out = { 0 };
    choir_status rc = choir_allreduce_sparse(group, &in, &out, NULL, NULL);

    choir_sparse_free(&out);
    return rc;
}

static choir_status split_and_use(choir_group *world)
{
    choir_group *child = NULL;
    choir_status rc = choir_group_split(world, (int[]){ 0, 1 }, 2,
                                        CHOIR_OPTS(group_split, .timeout_ms = LIMIT_MS), &child);

    if (rc == CHOIR_OK)
        rc = use_works(child);
    if (rc == CHOIR_OK)
        rc = use_batch(child);
    if (rc == CHOIR_OK)
        rc = use_lists(child);
    if (rc == CHOIR_OK)
        rc = use_sparse(child);
    if (rc == CHOIR_OK)
        rc = choir_monitored_barrier(child, true, NULL);
    choir_group_destroy(child);
    return rc;
}

struct plan {
    enum ch_fault_point point;
    uint64_t k;
    _Atomic int timeouts, failures;
};

/* Who fails leaves, and so tells the other: nobody's time is ever up. */
static choir_status run_plan(choir_group *world, void *arg)
{
    struct plan *plan = arg;
    choir_status rc;

    CHOIR_CHECK_OK(choir_group_set_timeout(world, LIMIT_MS));
    if (choir_group_rank(world) == 0)
        ch_fault_arm(plan->point, plan->k, 0);
    rc = choir_barrier(world, NULL, NULL);
    if (rc == CHOIR_OK)
        rc = split_and_use(world);
    if (rc == CHOIR_ERR_TIMEOUT)
        atomic_fetch_add(&plan->timeouts, 1);
    if (rc != CHOIR_OK) {
        atomic_fetch_add(&plan->failures, 1);
        CHOIR_CHECK(choir_last_error()[0] != '\0');
    }
    return rc;
}

static void fail_each(enum ch_fault_point point)
{
    int fds = ch_sys_fd_count(), failed = 0;
    bool fired = true;

    for (uint64_t k = 1; fired; k++) {
        struct plan plan = { .point = point, .k = k };
        choir_status rc = choir_run_threads(2, run_plan, &plan);

        fired = ch_fault_disarm();
        CHOIR_ROW("%s %llu", ch_fault_name(point), (unsigned long long)k);
        CHOIR_CHECK_EQ(atomic_load(&plan.timeouts), 0);
        CHOIR_CHECK_EQ(ch_sys_fd_count(), fds);
        CHOIR_CHECK(fired || rc == CHOIR_OK);
        failed += rc != CHOIR_OK;
    }
    CHOIR_CHECK(failed > 10 || point != CH_FAULT_alloc);
}

CHOIR_TEST_TIMED(no_memory_once, 120)
{
    fail_each(CH_FAULT_alloc);
}

CHOIR_TEST_TIMED(no_thread_no_timer_no_seat_once, 120)
{
    fail_each(CH_FAULT_thread_create);
    fail_each(CH_FAULT_timerfd);
    fail_each(CH_FAULT_timerfd_set);
    fail_each(CH_FAULT_epoll_create);
    fail_each(CH_FAULT_epoll_ctl);
    fail_each(CH_FAULT_eventfd);
    fail_each(CH_FAULT_membarrier);
}
