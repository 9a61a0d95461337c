/* sendrecv_test.c - choir_sendrecv(): on every way it takes, what is refused, how it ends. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "group/group.h"

static choir_buf i32(int32_t *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_I32 };
}

/* --- every way ---------------------------------------------------------------------------------------- */

/* Plain; without the short way; with a handle; in a batch; with a handle of the batch. */
enum way { PLAIN, LONG, HANDLE, BATCH, BATCH_HANDLE, NWAYS };

enum { MOST = 100000 };

/* What rank `from` sends to its next one: no two ranks send as much. */
static size_t length_of(size_t base, int from)
{
    return base == 0 ? 0 : base + (size_t)from;
}

static void finish(choir_work *work)
{
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    choir_work_unref(work);
}

static void exchange(choir_group *group, enum way way, choir_buf sent, int to, choir_buf got,
                     int from)
{
    bool batch = way == BATCH || way == BATCH_HANDLE;
    choir_work *work = NULL, *none;

    group->direct = way != LONG;
    if (batch)
        CHOIR_CHECK_OK(choir_batch_begin(group));
    CHOIR_CHECK_OK(choir_sendrecv(group, sent, to, got, from, 3, NULL,
                                  way == HANDLE         ? &work
                                  : way == BATCH_HANDLE ? &none
                                                        : NULL));
    if (way == BATCH_HANDLE)
        CHOIR_CHECK(none == NULL);
    if (batch)
        CHOIR_CHECK_OK(choir_batch_end(group, way == BATCH_HANDLE ? &work : NULL));
    if (work != NULL)
        finish(work);
    group->direct = true;
}

static void round_a_ring(choir_group *group, enum way way, size_t base, int shift)
{
    int n = choir_group_size(group), me = choir_group_rank(group);
    int to = (me + shift) % n, from = (me + n - shift % n) % n;
    size_t nsent = length_of(base, me), ngot = length_of(base, from);
    int32_t *sent = malloc((nsent + 1) * sizeof(*sent)), *got = calloc(ngot + 1, sizeof(*got));
    uint64_t before = choir_group_p2p_sequence(group);

    CHOIR_CHECK(sent != NULL && got != NULL);
    for (size_t i = 0; i < nsent; i++)
        sent[i] = (int32_t)(me * 1000000 + (int)i);
    exchange(group, way, i32(sent, nsent), to, i32(got, ngot), from);
    for (size_t i = 0; i < ngot; i++)
        CHOIR_CHECK_EQ(got[i], (int32_t)(from * 1000000 + (int)i));
    CHOIR_CHECK_EQ(got[ngot], 0);
    CHOIR_CHECK_EQ(choir_group_p2p_sequence(group) - before, 2u);
    free(sent);
    free(got);
}

static choir_status rings(choir_group *group, void *arg)
{
    static const size_t bases[] = { 0, 1, 2, 1000, 16384 - 3, MOST };

    (void)arg;
    for (int way = 0; way < NWAYS; way++) {
        for (size_t i = 0; i < CH_ARRAY_LEN(bases); i++) {
            for (int shift = 0; shift < choir_group_size(group); shift++) {
                if (choir_group_rank(group) == 0) /* for all: there is one text of a test */
                    CHOIR_ROW("way %d, %zu elements, to the %d. next", way, bases[i], shift);
                round_a_ring(group, (enum way)way, bases[i], shift);
            }
        }
    }
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(every_way_round_a_ring, 90)
{
    for (int n = 1; n <= 3; n++)
        CHOIR_CHECK_OK(choir_run_threads(n, rings, NULL));
}

/* Ranks on different ways meet, and those with calls of their own for each. */
static choir_status mixed(choir_group *group, void *arg)
{
    int me = choir_group_rank(group), peer = 1 - me;

    (void)arg;
    for (int turn = 0; turn < 60; turn++) {
        int32_t out = 100 * me + turn, in = -1;
        int way = (turn + 2 * me) % (NWAYS + 1);

        if (way < NWAYS) {
            exchange(group, (enum way)way, i32(&out, 1), peer, i32(&in, 1), peer);
        } else {
            CHOIR_CHECK_OK(choir_send(group, i32(&out, 1), peer, 3, NULL, NULL));
            CHOIR_CHECK_OK(choir_recv(group, i32(&in, 1), peer, 3, NULL, NULL));
        }
        CHOIR_CHECK_EQ(in, 100 * peer + turn);
    }
    return CHOIR_OK;
}

CHOIR_TEST(ranks_on_different_ways_meet)
{
    CHOIR_CHECK_OK(choir_run_threads(2, mixed, NULL));
}

static choir_status late(choir_group *group, void *arg);

/* As if there were too few processors for them: late messages are looked for again before they are waited for. */
static choir_status crowd(choir_group *group, void *arg)
{
    group->context->waiter->crowded = true;
    group->context->waiter->yield_ns = 1000;
    CHOIR_CHECK_OK(mixed(group, arg));
    return late(group, arg);
}

CHOIR_TEST(late_messages_in_a_crowd)
{
    CHOIR_CHECK_OK(choir_run_threads(2, crowd, NULL));
}

/* Each direction has a length and a type of its own, and one side has gaps. */
static choir_status unlike(choir_group *group, void *arg)
{
    static const int64_t sizes[] = { 3 }, strides[] = { 2 };
    int me = choir_group_rank(group), peer = 1 - me;
    double wide[2] = { 1.5, 2.5 };
    int32_t gaps[6] = { 1, 0, 2, 0, 3, 0 };
    choir_buf doubles = CHOIR_BUF(wide, 2, CHOIR_F64);
    choir_buf strided = { gaps, 3, CHOIR_I32, 1, sizes, strides };
    double came[2] = { 0 };
    int32_t dense[3] = { 0 };

    (void)arg;
    if (me == 0) {
        CHOIR_CHECK_OK(choir_sendrecv(group, doubles, peer, i32(dense, 3), peer, 0, NULL, NULL));
        CHOIR_CHECK_EQ(dense[0] + 10 * dense[1] + 100 * dense[2], 321);
    } else {
        CHOIR_CHECK_OK(choir_sendrecv(group, strided, peer, CHOIR_BUF(came, 2, CHOIR_F64), peer, 0,
                                      NULL, NULL));
        CHOIR_CHECK(came[0] == 1.5 && came[1] == 2.5);
    }
    return CHOIR_OK;
}

CHOIR_TEST(both_directions_are_what_they_like)
{
    CHOIR_CHECK_OK(choir_run_threads(2, unlike, NULL));
}

/* --- what is refused ---------------------------------------------------------------------------------- */

#define REFUSED(call, text)                                                                        \
    do {                                                                                           \
        CHOIR_CHECK_STATUS(call, CHOIR_ERR_INVALID);                                               \
        CHOIR_CHECK_HAS(choir_last_error(), "choir_sendrecv: " text);                              \
    } while (0)

static void refuse_all(choir_group *group)
{
    int32_t a[4] = { 0 }, b[4] = { 0 };
    choir_buf out = i32(a, 2), in = i32(b, 2);
    choir_coll_opts empty = { 0 };
    choir_work *work;

    REFUSED(choir_sendrecv(NULL, out, 0, in, 0, 0, NULL, NULL), "group: is NULL");
    REFUSED(choir_sendrecv(group, out, -1, in, 0, 0, NULL, NULL), "to: invalid rank -1");
    REFUSED(choir_sendrecv(group, out, 2, in, 0, 0, NULL, NULL), "to: invalid rank 2");
    REFUSED(choir_sendrecv(group, out, 0, in, 2, 0, NULL, NULL), "from: invalid rank 2");
    REFUSED(choir_sendrecv(group, out, 0, in, -1, 0, NULL, &work), "from: invalid rank -1");
    REFUSED(choir_sendrecv(group, out, 0, in, 0, -1, NULL, NULL), "tag: -1");
    REFUSED(choir_sendrecv(group, out, 0, in, 0, 0, &empty, NULL), "opts: its size is 0");
    REFUSED(choir_sendrecv(group, i32(NULL, 2), 0, in, 0, 0, NULL, NULL), "send_buf: its data");
    REFUSED(choir_sendrecv(group, out, 0, i32(NULL, 2), 0, 0, NULL, NULL), "recv_buf: its data");
    REFUSED(choir_sendrecv(group, out, 0, out, 0, 0, NULL, NULL), "recv_buf: overlaps");
    REFUSED(choir_sendrecv(group, i32(a, 3), 0, i32(a + 2, 2), 0, 0, NULL, &work),
            "recv_buf: over");
    out.type = (choir_type)99;
    CHOIR_CHECK_STATUS(choir_sendrecv(group, in, 0, out, 0, 0, NULL, NULL), CHOIR_ERR_TYPE);
    CHOIR_CHECK_HAS(choir_last_error(), "choir_sendrecv: recv_buf: invalid scalar type 99");
    CHOIR_CHECK_STATUS(choir_sendrecv(group, out, 0, in, 0, 0, NULL, NULL), CHOIR_ERR_TYPE);
    CHOIR_CHECK_HAS(choir_last_error(), "choir_sendrecv: send_buf: invalid scalar type 99");
}

/* Nothing is left of those that were refused, neither messages nor parts of a batch. */
static choir_status refusals(choir_group *group, void *arg)
{
    int me = choir_group_rank(group);
    int32_t out = me, in = -1;

    (void)arg;
    refuse_all(group);
    CHOIR_CHECK_OK(choir_batch_begin(group));
    refuse_all(group);
    CHOIR_CHECK_OK(choir_sendrecv(group, i32(&out, 1), 1 - me, i32(&in, 1), 1 - me, 0, NULL, NULL));
    refuse_all(group);
    CHOIR_CHECK_OK(choir_batch_end(group, NULL));
    CHOIR_CHECK_EQ(in, 1 - me);
    CHOIR_CHECK_EQ(choir_group_p2p_sequence(group), 2u);
    return CHOIR_OK;
}

CHOIR_TEST(wrong_arguments_are_named)
{
    CHOIR_CHECK_OK(choir_run_threads(2, refusals, NULL));
}

/* --- how it ends -------------------------------------------------------------------------------------- */

static choir_status plain_or_handle(choir_group *group, bool handle, choir_buf sent, int to,
                                    choir_buf got, int from, const choir_coll_opts *opts)
{
    choir_work *work = NULL;
    choir_status rc = choir_sendrecv(group, sent, to, got, from, 0, opts, handle ? &work : NULL);

    if (rc != CHOIR_OK || !handle)
        return rc;
    rc = choir_work_wait(work, 0);
    choir_work_unref(work);
    return rc;
}

/* Nobody sends to rank 0: its time passes, but what it sends has come, and the group goes on. */
static choir_status late(choir_group *group, void *arg)
{
    const choir_coll_opts *soon = CHOIR_OPTS(sendrecv, .timeout_ms = 30);

    (void)arg;
    for (int handle = 0; handle < 2; handle++) {
        int32_t out = 5 + handle, in = -1;

        if (choir_group_rank(group) == 0) {
            CHOIR_CHECK_STATUS(
                plain_or_handle(group, handle, i32(&out, 1), 1, i32(&in, 1), 1, soon),
                CHOIR_ERR_TIMEOUT);
            CHOIR_CHECK_HAS(choir_last_error(), "recv");
        } else {
            CHOIR_CHECK_OK(choir_recv(group, i32(&in, 1), 0, 0, NULL, NULL));
            CHOIR_CHECK_EQ(in, 5 + handle);
        }
        CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    }
    CHOIR_CHECK_OK(choir_group_error(group, NULL));
    return CHOIR_OK;
}

CHOIR_TEST(a_deadline_takes_the_receive_alone)
{
    CHOIR_CHECK_OK(choir_run_threads(2, late, NULL));
}

/* What comes is longer than what is expected: its receiver is told, and the other direction is not touched. */
static choir_status too_long(choir_group *group, void *arg)
{
    int me = choir_group_rank(group);

    (void)arg;
    for (int handle = 0; handle < 2; handle++) {
        int32_t out[2] = { me, me }, in[2] = { -1, -1 };
        choir_status rc = plain_or_handle(group, handle, i32(out, me == 0 ? 2 : 1), 1 - me,
                                          i32(in, 1), 1 - me, NULL);

        CHOIR_CHECK_STATUS(rc, me == 0 ? CHOIR_OK : CHOIR_ERR_INVALID);
        if (me == 0)
            CHOIR_CHECK_EQ(in[0], 1);
        else
            CHOIR_CHECK_HAS(choir_last_error(), "bytes");
        CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_message_of_another_length_fails_its_receive)
{
    CHOIR_CHECK_OK(choir_run_threads(2, too_long, NULL));
}

/* A group that has failed says why. */
static choir_status after_the_end(choir_group *group, void *arg)
{
    int32_t out = 1, in;
    choir_work *work;

    (void)arg;
    CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    choir_group_abort(group);
    CHOIR_CHECK(choir_sendrecv(group, i32(&out, 1), 0, i32(&in, 1), 0, 0, NULL, NULL) != CHOIR_OK);
    CHOIR_CHECK(choir_sendrecv(group, i32(&out, 1), 0, i32(&in, 1), 0, 0, NULL, &work) != CHOIR_OK);
    CHOIR_CHECK_HAS(choir_last_error(), "abort");
    return CHOIR_OK;
}

CHOIR_TEST(an_aborted_group_refuses_it)
{
    CHOIR_CHECK_OK(choir_run_threads(2, after_the_end, NULL));
}

/* --- beside the end of a group ------------------------------------------------------------------------ */

struct beside {
    choir_group *group;
    choir_status status;
    int32_t got;
    _Atomic bool ending; /* the group is about to be shut down */
};

/* Until the group ends. The peer's may have ended before, hence the deadline; before that it says only that the machine is slow. */
static void *exchange_on(void *arg)
{
    struct beside *b = arg;
    int peer = 1 - choir_group_rank(b->group);
    const choir_coll_opts *soon = CHOIR_OPTS(sendrecv, .timeout_ms = 200);

    do {
        int32_t out = 1;

        b->status = choir_sendrecv(b->group, i32(&out, 1), peer, i32(&b->got, 1), peer, 5, soon,
                                   NULL);
    } while (b->status == CHOIR_OK || (b->status == CHOIR_ERR_TIMEOUT && !b->ending));
    return NULL;
}

/* Whoever is in the middle of it is through, or waited for; later ones are refused. One of the two may miss the other's
 * last, or the other. */
static choir_status shut_down_beside(choir_group *group, void *arg)
{
    struct beside b = { .group = group };
    pthread_t thread;

    (void)arg;
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, exchange_on, &b), 0);
    while (choir_group_p2p_sequence(group) < 50)
        sched_yield();
    b.ending = true;
    CHOIR_CHECK_OK(choir_group_shutdown(group, 0));
    CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    CHOIR_CHECK(b.status == CHOIR_ERR_STATE || b.status == CHOIR_ERR_TIMEOUT ||
                b.status == CHOIR_ERR_REMOTE);
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(a_group_is_shut_down_beside_it, 60)
{
    for (int i = 0; i < 5; i++)
        CHOIR_CHECK_OK(choir_run_threads(2, shut_down_beside, NULL));
}

static void *receive_one(void *arg)
{
    struct beside *b = arg;

    b->status = choir_recv(b->group, i32(&b->got, 1), 1, 5, NULL, NULL);
    return NULL;
}

/* Its message comes while the group is being destroyed, or before. */
static void destroy_beside(choir_group *group, choir_group *part)
{
    struct beside b = { .group = part };
    int32_t word = 7;
    pthread_t thread;

    if (choir_group_rank(group) == 1) {
        CHOIR_CHECK_OK(choir_recv(group, i32(&word, 1), 0, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_send(part, i32(&word, 1), 0, 5, NULL, NULL));
        choir_group_destroy(part);
        return;
    }
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, receive_one, &b), 0);
    while (choir_group_p2p_sequence(part) == 0)
        sched_yield();
    CHOIR_CHECK_OK(choir_send(group, i32(&word, 1), 1, 0, NULL, NULL));
    choir_group_destroy(part);
    CHOIR_CHECK_EQ(pthread_join(thread, NULL), 0);
    CHOIR_CHECK_OK(b.status);
    CHOIR_CHECK_EQ(b.got, 7);
}

static choir_status destroyed_beside(choir_group *group, void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        choir_group *part = NULL;

        CHOIR_CHECK_OK(choir_group_split(group, (int[]){ 0, 1 }, 2, NULL, &part));
        destroy_beside(group, part);
    }
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(a_group_is_destroyed_beside_it, 60)
{
    CHOIR_CHECK_OK(choir_run_threads(2, destroyed_beside, NULL));
}

/* --- failing in the middle ----------------------------------------------------------------------------- */

/* In a batch, of memory with gaps, so that each part needs memory: it is in it whole or not at all. */
static choir_status in_a_batch(choir_group *group)
{
    static const int64_t sizes[] = { 2 }, strides[] = { 2 };
    int32_t out[4] = { 1, 0, 2, 0 }, in[4] = { 0 };
    choir_buf sent = { out, 2, CHOIR_I32, 1, sizes, strides };
    choir_buf got = { in, 2, CHOIR_I32, 1, sizes, strides };
    choir_status rc = choir_batch_begin(group), added;

    if (rc != CHOIR_OK)
        return rc;
    added = choir_sendrecv(group, sent, 0, got, 0, 0, NULL, NULL);
    rc = choir_batch_end(group, NULL);
    rc = rc == CHOIR_OK ? added : rc;
    if (rc == CHOIR_OK)
        CHOIR_CHECK(in[0] == 1 && in[2] == 2);
    return rc;
}

static choir_status alone(choir_group *group, bool handle)
{
    int32_t out = 4, in = 0;
    choir_status rc = plain_or_handle(group, handle, i32(&out, 1), 0, i32(&in, 1), 0, NULL);

    if (rc == CHOIR_OK)
        CHOIR_CHECK_EQ(in, 4);
    return rc;
}

static choir_status use(choir_group *group, void *arg)
{
    choir_status rc = alone(group, false);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = alone(group, true);
    return rc == CHOIR_OK ? in_a_batch(group) : rc;
}

static choir_status use_with_faults(void *arg)
{
    return choir_run_threads(1, use, arg);
}

CHOIR_TEST_TIMED(every_failing_call_is_an_error, 60)
{
    choir_test_all_faults(use_with_faults, NULL);
}
