/* direct_test.c - the short way and the long one do the same, and the group knows of both. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "base/clock.h"
#include "group/group.h"

enum { MOST = 5000, RANKS = 3 };

static choir_buf f32(float *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_F32 };
}

/* --- the same, both ways ------------------------------------------------------------------------------ */

/* A rank's buffers; the last part of each must stay as it is. */
struct buffers {
    float in[MOST * RANKS + 16], out[MOST * RANKS + 16];
};

static void fill(struct buffers *b, int rank)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(b->in); i++) {
        b->in[i] = (float)(rank * 1000) + (float)(i % 997) * 0.25f;
        b->out[i] = -1;
    }
}

typedef choir_status (*operation)(choir_group *group, struct buffers *b, size_t count);

static choir_status allreduce(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allreduce(g, f32(b->out, count), CHOIR_OPTS(allreduce, .input = b->in), NULL);
}

static choir_status allreduce_in_place(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allreduce(g, f32(b->in, count), CHOIR_OPTS(allreduce, .op = CHOIR_AVG), NULL);
}

static choir_status reduce(choir_group *g, struct buffers *b, size_t count)
{
    return choir_reduce(g, f32(b->out, count),
                        CHOIR_OPTS(reduce, .root = 1, .op = CHOIR_MAX, .input = b->in), NULL);
}

static choir_status broadcast(choir_group *g, struct buffers *b, size_t count)
{
    return choir_broadcast(g, f32(b->in, count), CHOIR_OPTS(broadcast, .root = 2), NULL);
}

static choir_status allgather(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allgather_into(g, f32(b->in, count), f32(b->out, count * RANKS), NULL, NULL);
}

static choir_status allgather_in_place(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allgather_into(g, f32(b->in + (size_t)choir_group_rank(g) * count, count),
                                f32(b->in, count * RANKS), NULL, NULL);
}

static choir_status reduce_scatter(choir_group *g, struct buffers *b, size_t count)
{
    return choir_reduce_scatter_from(g, f32(b->in, count * RANKS), f32(b->out, count), NULL, NULL);
}

static choir_status alltoall(choir_group *g, struct buffers *b, size_t count)
{
    return choir_alltoall_base(g, f32(b->in, count * RANKS), NULL, f32(b->out, count * RANKS), NULL,
                               NULL, NULL);
}

static choir_status barrier(choir_group *g, struct buffers *b, size_t count)
{
    (void)b, (void)count;
    return choir_barrier(g, NULL, NULL);
}

static const struct {
    const char *name;
    operation fn;
} operations[] = {
    { "allreduce", allreduce }, { "allreduce in place", allreduce_in_place },
    { "reduce", reduce },       { "broadcast", broadcast },
    { "allgather", allgather }, { "allgather in place", allgather_in_place },
    { "barrier", barrier },     { "reduce_scatter", reduce_scatter },
    { "alltoall", alltoall },
};

static choir_status both_ways(choir_group *group, void *arg)
{
    static const size_t counts[] = { 1, 2, 7, 28, 1000, MOST };
    int rank = choir_group_rank(group);
    struct buffers *b = malloc(2 * sizeof(*b));

    (void)arg;
    CHOIR_CHECK(b != NULL && group->direct);
    for (size_t i = 0; i < CH_ARRAY_LEN(operations); i++) {
        for (size_t c = 0; c < CH_ARRAY_LEN(counts); c++) {
            uint64_t before = choir_group_collective_sequence(group);

            if (rank == 0) /* the row is the whole test's */
                CHOIR_ROW("%s of %zu", operations[i].name, counts[c]);
            for (int way = 0; way < 2; way++) {
                fill(&b[way], rank);
                group->direct = way == 0;
                CHOIR_CHECK_OK(operations[i].fn(group, &b[way], counts[c]));
            }
            group->direct = true;
            CHOIR_CHECK(memcmp(&b[0], &b[1], sizeof(b[0])) == 0);
            CHOIR_CHECK_EQ(choir_group_collective_sequence(group), before + 2);
        }
    }
    free(b);
    return CHOIR_OK;
}

CHOIR_TEST(both_ways_give_the_same)
{
    CHOIR_CHECK_OK(choir_run_threads(RANKS, both_ways, NULL));
}

/* One rank goes the short way, the others the long one: they meet. */
static choir_status mixed_ways(choir_group *group, void *arg)
{
    (void)arg;
    for (int turn = 0; turn < 200; turn++) {
        float value = 1;

        group->direct = (turn + choir_group_rank(group)) % 2 == 0;
        CHOIR_CHECK_OK(choir_allreduce(group, f32(&value, 1), NULL, NULL));
        CHOIR_CHECK(value == RANKS);
    }
    return CHOIR_OK;
}

CHOIR_TEST(ranks_on_different_ways_meet)
{
    CHOIR_CHECK_OK(choir_run_threads(RANKS, mixed_ways, NULL));
}

/* --- what goes wrong ------------------------------------------------------------------------------ */

static choir_status bad_arguments(choir_group *group, void *arg)
{
    float data[8] = { 0 };
    choir_buf strange = { .data = data, .count = 1, .type = (choir_type)99 };
    uint64_t before = choir_group_collective_sequence(group);

    (void)arg;
    CHOIR_CHECK_STATUS(choir_allreduce(NULL, f32(data, 1), NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allreduce(group, f32(NULL, 1), NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allreduce(group, strange, NULL, NULL), CHOIR_ERR_TYPE);
    CHOIR_CHECK_STATUS(choir_allreduce(group, f32(data, SIZE_MAX / 2), NULL, NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK(choir_allreduce(group, f32(data, 1), CHOIR_OPTS(allreduce, .op = (choir_redop)77),
                                NULL) != CHOIR_OK);
    CHOIR_CHECK(choir_allreduce(group, f32(data, 1), CHOIR_OPTS(allreduce, .op = CHOIR_BAND),
                                NULL) != CHOIR_OK);
    CHOIR_CHECK_STATUS(
        choir_allreduce(group, f32(data, 4), CHOIR_OPTS(allreduce, .input = data + 1), NULL),
        CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(
        choir_broadcast(group, f32(data, 1), CHOIR_OPTS(broadcast, .root = -1), NULL),
        CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_reduce(group, f32(data, 1), CHOIR_OPTS(reduce, .root = 2), NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allgather_into(group, f32(data, 2), f32(data + 3, 3), NULL, NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_allgather_into(group, f32(data, 2), f32(data + 1, 4), NULL, NULL),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), before); /* nothing was sent */
    return choir_barrier(group, NULL, NULL);
}

CHOIR_TEST(bad_arguments_are_told_and_not_counted)
{
    CHOIR_CHECK_OK(choir_run_threads(2, bad_arguments, NULL));
}

static choir_status nobody_comes(choir_group *group, void *arg)
{
    float one = 1;
    choir_error error;
    int32_t go = 0;
    choir_buf token = { .data = &go, .count = 1, .type = CHOIR_I32 };

    (void)arg;
    if (choir_group_rank(group) != 0) {
        CHOIR_CHECK(choir_recv(group, token, 0, 0, NULL, NULL) != CHOIR_OK);
        return CHOIR_OK;
    }
    CHOIR_CHECK_STATUS(
        choir_allreduce(group, f32(&one, 1), CHOIR_OPTS(allreduce, .timeout_ms = 50), NULL),
        CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 1 has not entered it");
    CHOIR_CHECK_STATUS(choir_group_error(group, &error), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_EQ(error.culprit, 1);
    CHOIR_CHECK_STR(error.operation, "allreduce, number 0");
    /* From now on at once, with the same culprit, and not counted. */
    CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 1 has not entered it");
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 1u);
    return CHOIR_OK;
}

CHOIR_TEST(a_deadline_holds_and_fails_the_group)
{
    CHOIR_CHECK_OK(choir_run_threads(2, nobody_comes, NULL));
}

/* --- beside others -------------------------------------------------------------------------------- */

struct other {
    choir_group *group;
    choir_status status;
};

static void *in_a_barrier(void *arg)
{
    struct other *other = arg;

    other->status = choir_barrier(other->group, NULL, NULL);
    return NULL;
}

/* Who waits for all operations also waits for one that no queue knows of. */
static choir_status wait_beside(choir_group *group, void *arg)
{
    struct other other = { .group = group };
    pthread_t thread;
    int32_t go = 1;
    choir_buf token = { .data = &go, .count = 1, .type = CHOIR_I32 };

    (void)arg;
    if (choir_group_rank(group) != 0) {
        CHOIR_CHECK_OK(choir_recv(group, token, 0, 0, NULL, NULL));
        return choir_barrier(group, NULL, NULL);
    }
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, in_a_barrier, &other), 0);
    while (choir_group_collective_sequence(group) == 0)
        sched_yield();
    CHOIR_CHECK_STATUS(choir_group_wait_pending(group, 20), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_OK(choir_send(group, token, 1, 0, NULL, NULL));
    CHOIR_CHECK_OK(choir_group_shutdown(group, 0));
    CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    CHOIR_CHECK_OK(other.status);
    CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "was shut down");
    return CHOIR_OK;
}

CHOIR_TEST(who_waits_for_all_waits_for_these_too)
{
    CHOIR_CHECK_OK(choir_run_threads(2, wait_beside, NULL));
}

/* Behind one with a handle, a synchronous call keeps its turn. */
static choir_status in_turn(choir_group *group, void *arg)
{
    (void)arg;
    for (int turn = 0; turn < 100; turn++) {
        static _Thread_local float big[20000];
        float small = 2;
        choir_work *work;

        for (size_t i = 0; i < CH_ARRAY_LEN(big); i++)
            big[i] = 1;
        CHOIR_CHECK_OK(choir_allreduce(group, f32(big, CH_ARRAY_LEN(big)), NULL, &work));
        CHOIR_CHECK_OK(choir_allreduce(group, f32(&small, 1), NULL, NULL));
        CHOIR_CHECK(small == 2 * RANKS);
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        CHOIR_CHECK(big[0] == RANKS && big[CH_ARRAY_LEN(big) - 1] == RANKS);
        choir_work_unref(work);
    }
    return CHOIR_OK;
}

CHOIR_TEST(those_with_a_handle_come_first)
{
    CHOIR_CHECK_OK(choir_run_threads(RANKS, in_turn, NULL));
}

/* --- ends ------------------------------------------------------------------------------------------ */

static void *in_a_long_barrier(void *arg)
{
    struct other *other = arg;

    other->status = choir_barrier(other->group, CHOIR_OPTS(barrier, .timeout_ms = -1), NULL);
    return NULL;
}

static void note_end(void *arg, choir_work *work)
{
    (void)work;
    atomic_store((_Atomic bool *)arg, true);
}

/* One with a handle is behind another thread's, which waits for ever, and nobody waits for it itself. */
static choir_status behind_a_long_one(choir_group *group, void *arg)
{
    struct other other = { .group = group };
    float one = 1;
    _Atomic bool over = false;
    choir_work *work;
    pthread_t thread;
    int32_t go = 1;
    choir_buf token = { .data = &go, .count = 1, .type = CHOIR_I32 };

    (void)arg;
    if (choir_group_rank(group) != 0) {
        CHOIR_CHECK_STATUS(choir_recv(group, token, 0, 0, NULL, NULL), CHOIR_ERR_TIMEOUT);
        return CHOIR_OK;
    }
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, in_a_long_barrier, &other), 0);
    while (choir_group_collective_sequence(group) == 0)
        sched_yield();
    CHOIR_CHECK_OK(
        choir_allreduce(group, f32(&one, 1), CHOIR_OPTS(allreduce, .timeout_ms = 50), &work));
    CHOIR_CHECK_OK(choir_work_on_done(work, note_end, &over));
    while (!atomic_load(&over))
        sched_yield();
    CHOIR_CHECK_STATUS(choir_work_wait(work, 0), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "waiting behind others");
    choir_work_unref(work);
    CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    CHOIR_CHECK_STATUS(other.status, CHOIR_ERR_TIMEOUT);
    return CHOIR_OK;
}

CHOIR_TEST(a_deadline_holds_behind_one_of_another_thread)
{
    CHOIR_CHECK_OK(choir_run_threads(2, behind_a_long_one, NULL));
}
