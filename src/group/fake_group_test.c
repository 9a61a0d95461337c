/* fake_group_test.c - groups without peers: what they leave alone, and what they refuse. */
#include "choir_test.h"

#include <choir/choir.h>

static choir_group *make_fake(int rank, int nranks, bool error_on_collective)
{
    choir_group *group = NULL;

    CHOIR_CHECK_OK(choir_group_create_fake(
        rank, nranks, CHOIR_OPTS(group_create_fake, .error_on_collective = error_on_collective),
        &group));
    return group;
}

CHOIR_TEST(failing_collectives_leave_messages_alone)
{
    choir_group *group = make_fake(1, 4, true);
    float v = 3, other = 4;
    choir_buf buf = CHOIR_BUF(&v, 1, CHOIR_F32);

    for (int i = 0; i < 2; i++) {
        CHOIR_CHECK_OK(
            choir_sendrecv(group, buf, 2, CHOIR_BUF(&other, 1, CHOIR_F32), 3, 0, NULL, NULL));
        CHOIR_CHECK_STATUS(choir_allreduce(group, buf, NULL, NULL), CHOIR_ERR_UNSUPPORTED);
        CHOIR_CHECK_HAS(choir_last_error(), "error_on_collective");
        CHOIR_CHECK_OK(choir_send(group, buf, 2, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_recv(group, buf, 2, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_batch_begin(group));
        CHOIR_CHECK_OK(choir_send(group, buf, 3, 0, NULL, NULL));
        CHOIR_CHECK_OK(choir_batch_end(group, NULL));
    }
    CHOIR_CHECK_OK(choir_group_error(group, NULL));
    choir_group_destroy(group);
}

CHOIR_TEST(an_aborted_fake_group_refuses_everything)
{
    choir_group *group = make_fake(0, 2, false);
    float v = 3;

    choir_group_abort(group);
    CHOIR_CHECK_STATUS(choir_send(group, CHOIR_BUF(&v, 1, CHOIR_F32), 1, 0, NULL, NULL),
                       CHOIR_ERR_STATE);
    CHOIR_CHECK_STATUS(choir_barrier(group, NULL, NULL), CHOIR_ERR_STATE);
    choir_group_destroy(group);
}

/* Every second of six. */
static const int64_t three[] = { 3 }, two_apart[] = { 2 };

static choir_buf every_second(int32_t *data)
{
    return (choir_buf){
        .data = data, .count = 3, .type = CHOIR_I32, .ndim = 1, .sizes = three, .strides = two_apart
    };
}

static void check_untouched(const int32_t *data)
{
    for (int i = 0; i < 6; i++)
        CHOIR_CHECK_EQ(data[i], i + 1);
}

CHOIR_TEST(strided_buffers_are_left_alone_too)
{
    choir_group *group = make_fake(1, 2, false);
    int32_t data[] = { 1, 2, 3, 4, 5, 6 }, in[6] = { 0 };

    CHOIR_CHECK_OK(choir_recv(group, every_second(data), 0, 0, NULL, NULL));
    check_untouched(data);
    CHOIR_CHECK_OK(choir_broadcast(group, every_second(data), NULL, NULL));
    check_untouched(data);
    CHOIR_CHECK_OK(choir_reduce_scatter_from(group, CHOIR_BUF(in, 6, CHOIR_I32), every_second(data),
                                             NULL, NULL));
    check_untouched(data);
    CHOIR_CHECK_OK(choir_allreduce(group, every_second(data), NULL, NULL));
    check_untouched(data);
    choir_group_destroy(group);
}

CHOIR_TEST(gathers_repeat_what_this_rank_has)
{
    choir_group *group = make_fake(1, 2, false);
    int32_t in[] = { 7, 8, 9 }, all[6] = { 0 }, apart[2][6] = { 0 };
    choir_buf outs[] = { every_second(apart[0]), every_second(apart[1]) };

    CHOIR_CHECK_OK(choir_allgather_into(group, CHOIR_BUF(in, 3, CHOIR_I32),
                                        CHOIR_BUF(all, 6, CHOIR_I32), NULL, NULL));
    CHOIR_CHECK_OK(choir_allgather(group, CHOIR_BUF(in, 3, CHOIR_I32), outs, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        CHOIR_CHECK_EQ(all[i], in[i]);
        CHOIR_CHECK_EQ(all[3 + i], in[i]);
        CHOIR_CHECK_EQ(apart[0][2 * i], in[i]);
        CHOIR_CHECK_EQ(apart[1][2 * i], in[i]);
        CHOIR_CHECK_EQ(apart[1][2 * i + 1], 0);
    }
    choir_group_destroy(group);
}
