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
#include "trace/flight_impl.h"

enum { MOST = 5000, RANKS = 3, MOST_RANKS = 17 };

static choir_buf f32(float *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_F32 };
}

/* --- the same, both ways ------------------------------------------------------------------------------ */

/* A rank's buffers; the last part of each must stay as it is. */
struct buffers {
    float in[MOST * MOST_RANKS + 16], out[MOST * MOST_RANKS + 16];
};

static void fill(struct buffers *b, int rank)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(b->in); i++) {
        b->in[i] = (float)(rank * 1000) + (float)(i % 997) * 0.25f;
        b->out[i] = -1;
    }
}

static int size(const choir_group *group)
{
    return choir_group_size(group);
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
                        CHOIR_OPTS(reduce, .root = size(g) / 2, .op = CHOIR_MAX, .input = b->in),
                        NULL);
}

static choir_status broadcast(choir_group *g, struct buffers *b, size_t count)
{
    return choir_broadcast(g, f32(b->in, count), CHOIR_OPTS(broadcast, .root = size(g) - 1), NULL);
}

static choir_status allgather(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allgather_into(g, f32(b->in, count), f32(b->out, count * (size_t)size(g)), NULL,
                                NULL);
}

static choir_status allgather_in_place(choir_group *g, struct buffers *b, size_t count)
{
    return choir_allgather_into(g, f32(b->in + (size_t)choir_group_rank(g) * count, count),
                                f32(b->in, count * (size_t)size(g)), NULL, NULL);
}

static choir_status reduce_scatter(choir_group *g, struct buffers *b, size_t count)
{
    return choir_reduce_scatter_from(g, f32(b->in, count * (size_t)size(g)), f32(b->out, count),
                                     NULL, NULL);
}

static choir_status alltoall(choir_group *g, struct buffers *b, size_t count)
{
    return choir_alltoall_base(g, f32(b->in, count * (size_t)size(g)), NULL,
                               f32(b->out, count * (size_t)size(g)), NULL, NULL, NULL);
}

static choir_status alltoall_in_place(choir_group *g, struct buffers *b, size_t count)
{
    return choir_alltoall_base(g, f32(b->in, count * (size_t)size(g)), NULL,
                               f32(b->in, count * (size_t)size(g)), NULL, NULL, NULL);
}

/* The root's list, of blocks behind each other in `data`; NULL elsewhere. Each is `less` shorter than the one before, as
 * long as that leaves something. */
static const choir_buf *list_of(choir_group *g, int root, float *data, size_t count, size_t less,
                                choir_buf list[])
{
    if (choir_group_rank(g) != root)
        return NULL;
    for (int i = 0; i < size(g); i++) {
        list[i] = f32(data, count > less * (size_t)i ? count - less * (size_t)i : 1);
        data += list[i].count;
    }
    return list;
}

static size_t length_of(choir_group *g, size_t count, size_t less)
{
    size_t gone = less * (size_t)choir_group_rank(g);

    return count > gone ? count - gone : 1;
}

static choir_status gather(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];

    return choir_gather(g, f32(b->in, count), list_of(g, 0, b->out, count, 0, list), NULL, NULL);
}

static choir_status gather_uneven(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];
    int root = size(g) - 1;

    return choir_gather(g, f32(b->in, length_of(g, count, 3)),
                        list_of(g, root, b->out, count, 3, list), CHOIR_OPTS(gather, .root = root),
                        NULL);
}

static choir_status scatter(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];

    return choir_scatter(g, list_of(g, 0, b->in, count, 0, list), f32(b->out, count), NULL, NULL);
}

static choir_status scatter_uneven(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];
    int root = size(g) / 2;

    return choir_scatter(g, list_of(g, root, b->in, count, 3, list),
                         f32(b->out, length_of(g, count, 3)), CHOIR_OPTS(scatter, .root = root),
                         NULL);
}

/* The root's own block is where it belongs. */
static choir_status gather_in_place(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];

    return choir_gather(g, f32(b->in, count), list_of(g, 0, b->in, count, 0, list), NULL, NULL);
}

static choir_status scatter_in_place(choir_group *g, struct buffers *b, size_t count)
{
    choir_buf list[MOST_RANKS];

    return choir_scatter(g, list_of(g, 0, b->in, count, 0, list), f32(b->in, count), NULL, NULL);
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
    { "allreduce", allreduce },
    { "allreduce in place", allreduce_in_place },
    { "reduce", reduce },
    { "broadcast", broadcast },
    { "allgather", allgather },
    { "allgather in place", allgather_in_place },
    { "barrier", barrier },
    { "reduce_scatter", reduce_scatter },
    { "alltoall", alltoall },
    { "alltoall in place", alltoall_in_place },
    { "gather", gather },
    { "scatter", scatter },
    { "gather, uneven", gather_uneven },
    { "scatter, uneven", scatter_uneven },
    { "gather in place", gather_in_place },
    { "scatter in place", scatter_in_place },
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
                CHOIR_ROW("%s of %zu, %d ranks", operations[i].name, counts[c], size(group));
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

CHOIR_TEST_TIMED(both_ways_give_the_same, 60)
{
    static const int sizes[] = { 1, 2, 3, MOST_RANKS };

    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++)
        CHOIR_CHECK_OK(choir_run_threads(sizes[i], both_ways, NULL));
}

/* --- what is left of them ----------------------------------------------------------------------------- */

static choir_status exchange(choir_group *g, struct buffers *b, size_t count)
{
    int me = choir_group_rank(g);

    CHOIR_CHECK_OK(choir_batch_begin(g));
    CHOIR_CHECK_OK(choir_recv(g, f32(b->out, count), (me + RANKS - 1) % RANKS, 7, NULL, NULL));
    CHOIR_CHECK_OK(choir_send(g, f32(b->in, count), (me + 1) % RANKS, 7, NULL, NULL));
    return choir_batch_end(g, NULL);
}

static choir_status exchange_by_one(choir_group *g, struct buffers *b, size_t count)
{
    int me = choir_group_rank(g);

    return choir_sendrecv(g, f32(b->in, count), (me + 1) % RANKS, f32(b->out, count),
                          (me + RANKS - 1) % RANKS, 7, NULL, NULL);
}

static choir_status too_short(choir_group *g, struct buffers *b, size_t count)
{
    int me = choir_group_rank(g);
    choir_status rc = CHOIR_ERR_INVALID;

    if (me == 0)
        CHOIR_CHECK_OK(choir_send(g, f32(b->in, 1), 1, 3, NULL, NULL));
    else if (me == 1)
        rc = choir_recv(g, f32(b->out, count + 1), 0, 3, CHOIR_OPTS(recv, .timeout_ms = 9000),
                        NULL);
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
    return CHOIR_OK;
}

/* The last `count` records of a rank, which this thread wrote. */
static void last_records(const choir_group *group, size_t count, uint64_t (*out)[CH_FLIGHT_WORDS])
{
    const struct ch_flight *flight = group->flight->flight;
    uint64_t next = atomic_load(&flight->next);

    for (size_t i = 0; i < count; i++) {
        struct ch_flight_slot *slot = &flight->slots[(next - count + i) % flight->capacity];

        for (size_t w = 0; w < CH_FLIGHT_WORDS; w++)
            out[i][w] = atomic_load(&slot->words[w]);
    }
}

/* Everything but when it was, and whatever an operation before left in words that are not used. */
static void same_record(const uint64_t *a, const uint64_t *b, uint64_t apart)
{
    uint64_t used = (uint32_t)a[CH_FLIGHT_SHAPE_WORDS] + (a[CH_FLIGHT_SHAPE_WORDS] >> 32);
    bool p2p = (a[CH_FLIGHT_BITS] & CH_FLIGHT_BIT_P2P) != 0;

    for (size_t w = CH_FLIGHT_GROUP; w < CH_FLIGHT_SHAPES + used; w++) {
        uint64_t want = a[w];

        if (w >= CH_FLIGHT_ISSUED && w <= CH_FLIGHT_DONE)
            continue;
        if (w == (p2p ? CH_FLIGHT_P2P_SEQ : CH_FLIGHT_COLLECTIVE_SEQ) || w == CH_FLIGHT_OP_ID)
            want += apart;
        if (b[w] != want)
            CHOIR_FAIL("word %zu of the record is %llx, the other way %llx", w,
                       (unsigned long long)want, (unsigned long long)b[w]);
    }
    for (int way = 0; way < 2; way++) {
        const uint64_t *r = way == 0 ? a : b;

        CHOIR_CHECK(r[CH_FLIGHT_ISSUED] != 0);
        CHOIR_CHECK_LE(r[CH_FLIGHT_ISSUED], r[CH_FLIGHT_STARTED]);
        CHOIR_CHECK_LE(r[CH_FLIGHT_STARTED], r[CH_FLIGHT_DONE]);
    }
}

static choir_status both_records(choir_group *group, void *arg)
{
    struct buffers *b = malloc(sizeof(*b));

    (void)arg;
    CHOIR_CHECK(b != NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(operations) + 3; i++) {
        bool by_one = i == CH_ARRAY_LEN(operations) + 2;
        bool is_exchange = i == CH_ARRAY_LEN(operations) || by_one;
        bool is_short = i == CH_ARRAY_LEN(operations) + 1;
        size_t count = is_exchange ? 2 : is_short && choir_group_rank(group) > 1 ? 0 : 1;
        uint64_t records[2][2][CH_FLIGHT_WORDS];

        for (int way = 0; way < 2; way++) {
            fill(b, choir_group_rank(group));
            group->direct = way == 0;
            CHOIR_CHECK_OK((by_one        ? exchange_by_one
                            : is_exchange ? exchange
                            : is_short    ? too_short
                                          : operations[i].fn)(group, b, 100));
            last_records(group, count, records[way]);
        }
        group->direct = true;
        for (size_t r = 0; r < count; r++)
            same_record(records[0][r], records[1][r], count);
    }
    free(b);
    return CHOIR_OK;
}

CHOIR_TEST(both_ways_are_recorded_alike)
{
    CHOIR_CHECK_OK(choir_run_threads(RANKS, both_records, NULL));
}

/* --- mixed -------------------------------------------------------------------------------------------- */

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

/* Each rank as the root: what the short way does not take, the long one refuses. */
static bool bad_lists(choir_group *group, float data[8])
{
    const choir_coll_opts *opts = CHOIR_OPTS(gather, .root = choir_group_rank(group));
    choir_buf i32 = { .data = data + 2, .count = 2, .type = CHOIR_I32 };
    const choir_buf lists[][2] = {
        { f32(data, 2), f32(data + 1, 2) },     /* touch each other */
        { f32(data, 2), i32 },                  /* of another type */
        { f32(data + 3, 1), f32(data + 4, 1) }, /* its own is shorter */
        { f32(data + 5, 2), f32(data + 3, 2) }, /* its own touches what is not its own */
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(lists); i++) {
        if (choir_gather(group, f32(data + 4, 2), lists[i], opts, NULL) == CHOIR_OK)
            return false;
    }
    return choir_gather(group, f32(data, 2), NULL, opts, NULL) == CHOIR_ERR_INVALID &&
           choir_scatter(group, lists[3], f32(data + 4, 2), opts, NULL) == CHOIR_ERR_INVALID;
}

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
    CHOIR_CHECK(bad_lists(group, data));
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

/* Threads of a rank take turns by the group's numbers: who has one is before who saw it. */
enum { TURNS = 5000 };

static void wait_for_number(const choir_group *group, uint64_t number)
{
    for (int looks = 0; choir_group_collective_sequence(group) < number; looks++) {
        if (looks % 1000 == 999)
            sched_yield();
    }
}

static void *follow(void *arg)
{
    struct other *other = arg;

    for (uint64_t turn = 0; turn < TURNS; turn++) {
        float pair[2] = { 1, 1 };

        wait_for_number(other->group, 2 * turn + 1);
        CHOIR_CHECK_OK(choir_allreduce(other->group, f32(pair, 2), NULL, NULL));
    }
    return NULL;
}

/* One element, then two; the first of rank 0 has a handle, and its second is another thread's. */
static choir_status by_numbers(choir_group *group, void *arg)
{
    struct other other = { .group = group };
    pthread_t thread;

    (void)arg;
    if (choir_group_rank(group) == 0)
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, follow, &other), 0);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        float pair[2] = { 1, 1 };
        choir_work *work;

        if (choir_group_rank(group) != 0) {
            CHOIR_CHECK_OK(choir_allreduce(group, f32(pair, 1), NULL, NULL));
            CHOIR_CHECK_OK(choir_allreduce(group, f32(pair, 2), NULL, NULL));
            continue;
        }
        wait_for_number(group, 2 * turn);
        CHOIR_CHECK_OK(choir_allreduce(group, f32(pair, 1), NULL, &work));
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        choir_work_unref(work);
    }
    if (choir_group_rank(group) == 0)
        CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(who_has_a_number_comes_first, 90)
{
    CHOIR_CHECK_OK(choir_run_threads(2, by_numbers, NULL));
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

/* What a call of another thread ends with: the same on both ways. */
struct ending {
    choir_group *group;
    int receives; /* 0: a barrier; 2: choir_sendrecv() */
    _Atomic bool waits;
    choir_error error;
};

/* Asked by its own wait, and by nothing else. */
static bool goes_on(void *arg)
{
    struct ending *e = arg;

    atomic_store(&e->waits, true);
    return false;
}

static void *in_a_call(void *arg)
{
    struct ending *e = arg;
    float out = 0, in;

    choir_set_interrupt_check(goes_on, e);
    if (e->receives == 1)
        CHOIR_CHECK(choir_recv(e->group, f32(&in, 1), 1, 5, NULL, NULL) != CHOIR_OK);
    else if (e->receives == 2)
        CHOIR_CHECK(choir_sendrecv(e->group, f32(&out, 1), 1, f32(&in, 1), 1, 6, NULL, NULL) !=
                    CHOIR_OK);
    else
        CHOIR_CHECK(choir_barrier(e->group, NULL, NULL) != CHOIR_OK);
    e->error = *choir_last_error_record();
    return NULL;
}

/* Rank 0 is in a call, which its other thread (`aborts`) or rank 1, by going away, brings to an end. */
static choir_error end_a_call(choir_group *world, bool is_short, int receives, bool aborts)
{
    struct ending e = { .receives = receives };
    float in, ready = 0;
    pthread_t thread;

    CHOIR_CHECK_OK(choir_group_split(world, (int[]){ 0, 1 }, 2,
                                     CHOIR_OPTS(group_split, .name = "ending"), &e.group));
    e.group->direct = is_short;
    if (choir_group_rank(world) == 0) {
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, in_a_call, &e), 0);
        /* Not only counted: one that has a number and has not begun finds a group that is over. And that somebody sleeps is
         * no proof: it may be the service thread. */
        while (!atomic_load(&e.waits))
            sched_yield();
        CHOIR_CHECK_OK(choir_send(world, f32(&ready, 1), 1, 0, NULL, NULL));
        if (aborts)
            choir_group_abort(e.group);
        CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
        CHOIR_CHECK_EQ((int)e.error.code, aborts ? CHOIR_ERR_INTERRUPTED : CHOIR_ERR_REMOTE);
        CHOIR_CHECK_EQ(e.error.culprit, aborts ? 0 : 1);
    } else {
        CHOIR_CHECK_OK(choir_recv(world, f32(&ready, 1), 0, 0, NULL, NULL));
        if (aborts)
            CHOIR_CHECK_STATUS(choir_recv(e.group, f32(&in, 1), 0, 5, NULL, NULL),
                               CHOIR_ERR_INTERRUPTED);
    }
    choir_group_destroy(e.group);
    return e.error;
}

static choir_status endings(choir_group *world, void *arg)
{
    (void)arg;
    for (int how = 0; how < 6; how++) {
        choir_error errors[2];

        for (int is_short = 0; is_short < 2; is_short++)
            errors[is_short] = end_a_call(world, is_short, how % 3, how / 3 != 0);
        if (choir_group_rank(world) == 0) {
            CHOIR_CHECK_STR(errors[1].text, errors[0].text);
            CHOIR_CHECK_STR(errors[1].operation, errors[0].operation);
        }
    }
    return choir_barrier(world, NULL, NULL);
}

CHOIR_TEST(calls_under_way_end_alike)
{
    CHOIR_CHECK_OK(choir_run_threads(2, endings, NULL));
}

/* --- many at once ---------------------------------------------------------------------------------- */

enum { TALKERS = 3, TALKS = 300 };

struct talk {
    choir_group *group;
    int tag;
};

/* With the ranks beside us, by messages that only this thread's have the tag of. */
static void *talk(void *arg)
{
    const struct talk *t = arg;
    int me = choir_group_rank(t->group), right = (me + 1) % RANKS, left = (me + RANKS - 1) % RANKS;
    static _Thread_local float out[3000], in[3000];

    for (int turn = 0; turn < TALKS; turn++) {
        size_t count = turn % 10 == 0 ? CH_ARRAY_LEN(out) : 1 + (size_t)turn % 5;

        out[0] = (float)(me * 1000 + turn);
        out[count - 1] = out[0];
        if (turn % 4 == 0) {
            CHOIR_CHECK_OK(choir_sendrecv(t->group, f32(out, count), right, f32(in, count), left,
                                          t->tag, NULL, NULL));
        } else if (turn % 3 == 0) { /* small ones go without their receive */
            CHOIR_CHECK_OK(choir_send(t->group, f32(out, 1), right, t->tag, NULL, NULL));
            CHOIR_CHECK_OK(choir_recv(t->group, f32(in, 1), left, t->tag, NULL, NULL));
            count = 1;
        } else {
            CHOIR_CHECK_OK(choir_batch_begin(t->group));
            CHOIR_CHECK_OK(choir_send(t->group, f32(out, count), right, t->tag, NULL, NULL));
            CHOIR_CHECK_OK(choir_recv(t->group, f32(in, count), left, t->tag, NULL, NULL));
            CHOIR_CHECK_OK(choir_batch_end(t->group, NULL));
        }
        CHOIR_CHECK(in[count - 1] == (float)(left * 1000 + turn));
    }
    return NULL;
}

/* Messages of several threads, and collectives of this one with and without handles between each other. */
static choir_status crowd(choir_group *group, void *arg)
{
    struct talk talks[TALKERS];
    pthread_t threads[TALKERS];

    (void)arg;
    for (int i = 0; i < TALKERS; i++) {
        talks[i] = (struct talk){ group, i };
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, talk, &talks[i]), 0);
    }
    for (int turn = 0; turn < TALKS; turn++) {
        float a = 1, b = 2, c = 3;
        choir_work *work;

        CHOIR_CHECK_OK(choir_allreduce(group, f32(&a, 1), NULL, NULL));
        CHOIR_CHECK_OK(choir_allreduce(group, f32(&b, 1), NULL, &work));
        CHOIR_CHECK_OK(choir_allreduce(group, f32(&c, 1), NULL, NULL));
        CHOIR_CHECK(a == RANKS && b == 2 * RANKS && c == 3 * RANKS);
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
        choir_work_unref(work);
    }
    for (int i = 0; i < TALKERS; i++)
        CHOIR_CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 3u * TALKS);
    CHOIR_CHECK_EQ(choir_group_p2p_sequence(group), 2u * TALKERS * TALKS);
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(messages_of_many_threads_beside_collectives, 90)
{
    CHOIR_CHECK_OK(choir_run_threads(RANKS, crowd, NULL));
}

/* --- interrupts ------------------------------------------------------------------------------------------ */

static bool always(void *arg)
{
    (void)arg;
    return true;
}

/* Rank 0 is interrupted where it waits for rank 1, which then finds the group failed, by rank 0. */
static choir_status first_is_interrupted(choir_group *group, void *arg)
{
    const choir_error *error = choir_last_error_record();
    float x = 1;

    (void)arg;
    if (choir_group_rank(group) == 0) {
        choir_set_interrupt_check(always, NULL);
        CHOIR_CHECK_STATUS(choir_allreduce(group, f32(&x, 1), NULL, NULL), CHOIR_ERR_INTERRUPTED);
        choir_set_interrupt_check(NULL, NULL);
    } else {
        while (choir_group_error(group, NULL) == CHOIR_OK)
            sched_yield();
        CHOIR_CHECK_STATUS(choir_allreduce(group, f32(&x, 1), NULL, NULL), CHOIR_ERR_INTERRUPTED);
    }
    CHOIR_CHECK_EQ(error->culprit, 0);
    CHOIR_CHECK_STR(error->operation, "allreduce");
    CHOIR_CHECK_HAS(error->text, "was interrupted on rank 0");
    return CHOIR_OK;
}

CHOIR_TEST(an_interrupted_call_fails_the_group_for_all)
{
    CHOIR_CHECK_OK(choir_run_threads(2, first_is_interrupted, NULL));
}
