/* group_fork_test.c - in a forked child every call of a group and its works is refused, and harmless. */
#include "choir_test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

static choir_buf i32(int32_t *data)
{
    return (choir_buf){ .data = data, .count = 1, .type = CHOIR_I32 };
}

static choir_status do_nothing(choir_group *group, void *arg)
{
    (void)group, (void)arg;
    return CHOIR_OK;
}

static void tell_nobody(void *arg, choir_work *work)
{
    (void)arg, (void)work;
}

/* 1, with a word about it, if `rc` is anything else. */
static int not_refused(choir_status rc, const char *call)
{
    if (rc == CHOIR_ERR_FORKED)
        return 0;
    fprintf(stderr, "%s: %s\n", call, choir_status_name(rc));
    return 1;
}

#define NOT_REFUSED(call) not_refused(call, #call)

static int call_everything(choir_group *group, choir_work *work)
{
    int32_t one = 1, two = 2;
    choir_group *other;
    choir_error record;
    bool alive;
    int bad = 0;

    bad |= NOT_REFUSED(choir_allreduce(group, i32(&one), NULL, NULL));
    bad |= NOT_REFUSED(choir_barrier(group, NULL, &work));
    bad |= NOT_REFUSED(choir_monitored_barrier(group, true, NULL));
    bad |= NOT_REFUSED(choir_send(group, i32(&one), 1, 0, NULL, NULL));
    bad |= NOT_REFUSED(choir_sendrecv(group, i32(&one), 1, i32(&two), 1, 0, NULL, NULL));
    bad |= NOT_REFUSED(choir_batch_begin(group));
    bad |= NOT_REFUSED(choir_batch_end(group, NULL));
    bad |= NOT_REFUSED(choir_batch_drop(group));
    bad |= NOT_REFUSED(choir_work_wait(work, 0));
    bad |= NOT_REFUSED(choir_work_test(work));
    bad |= NOT_REFUSED(choir_work_on_done(work, tell_nobody, NULL));
    bad |= NOT_REFUSED(choir_group_error(group, &record));
    bad |= NOT_REFUSED(choir_group_alive(group, 1, &alive));
    bad |= NOT_REFUSED(choir_group_set_timeout(group, 5));
    bad |= NOT_REFUSED(choir_group_wait_pending(group, 0));
    bad |= NOT_REFUSED(choir_group_shutdown(group, 0));
    bad |= NOT_REFUSED(choir_group_on_done(group, NULL, NULL));
    bad |= NOT_REFUSED(choir_group_split(group, (int[]){ 0 }, 1, NULL, &other));
    bad |= NOT_REFUSED(choir_group_find("world", &other));
    bad |= NOT_REFUSED(choir_group_create_fake(0, 1, NULL, &other));
    bad |= NOT_REFUSED(choir_init(&other, NULL));
    bad |= NOT_REFUSED(choir_run_threads(1, do_nothing, NULL));
    choir_work_abort(work);
    choir_work_unref(work);
    choir_group_abort(group);
    choir_group_destroy(group);
    return bad;
}

/* Rank 0 forks with an all-reduce under way, which then goes on. */
static choir_status fork_in_one(choir_group *group, void *arg)
{
    int32_t one = 1, go = 1;
    choir_work *work;
    int status;
    pid_t child;

    (void)arg;
    if (choir_group_rank(group) == 1) {
        CHOIR_CHECK_OK(choir_recv(group, i32(&go), 0, 0, NULL, NULL));
        return choir_allreduce(group, i32(&one), NULL, NULL);
    }
    CHOIR_CHECK_OK(choir_allreduce(group, i32(&one), NULL, &work));
    child = fork();
    if (child == 0)
        _exit(call_everything(group, work));
    CHOIR_CHECK_EQ(waitpid(child, &status, 0), child);
    CHOIR_CHECK_EQ(status, 0);
    CHOIR_CHECK_OK(choir_send(group, i32(&go), 1, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ(one, 2);
    choir_work_unref(work);
    return CHOIR_OK;
}

CHOIR_TEST(a_forked_child_is_refused_everything)
{
    if (choir_test_valgrind())
        CHOIR_SKIP("at its end valgrind looks through segments that a child does not have");
    CHOIR_CHECK_OK(choir_run_threads(2, fork_in_one, NULL));
}

/* The same in the middle of a batch, which a child must not go on with. */
static choir_status fork_in_a_batch(choir_group *group, void *arg)
{
    int32_t one = 1, got = 0;
    int peer = 1 - choir_group_rank(group), status;
    pid_t child;

    (void)arg;
    CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_send(group, i32(&one), peer, 0, NULL, NULL));
    child = fork();
    if (child == 0)
        _exit(NOT_REFUSED(choir_send(group, i32(&one), peer, 0, NULL, NULL)) |
              NOT_REFUSED(choir_recv(group, i32(&one), peer, 0, NULL, NULL)) |
              NOT_REFUSED(choir_allreduce(group, i32(&one), NULL, NULL)) |
              NOT_REFUSED(choir_batch_end(group, NULL)));
    CHOIR_CHECK_EQ(waitpid(child, &status, 0), child);
    CHOIR_CHECK_EQ(status, 0);
    CHOIR_CHECK_OK(choir_recv(group, i32(&got), peer, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(group, NULL));
    CHOIR_CHECK_EQ(got, 1);
    return CHOIR_OK;
}

CHOIR_TEST(a_forked_child_is_refused_the_rest_of_a_batch)
{
    if (choir_test_valgrind())
        CHOIR_SKIP("at its end valgrind looks through segments that a child does not have");
    CHOIR_CHECK_OK(choir_run_threads(2, fork_in_a_batch, NULL));
}
