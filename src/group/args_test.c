/* args_test.c - bad arguments are refused in their call, with the argument named; a fake group is enough. */
#include "choir_test.h"

#include <string.h>

#include <choir/choir.h>

enum { RANK = 1, RANKS = 4, COUNT = 8 };

static choir_group *group;
static float data[4][COUNT * RANKS];

static choir_buf buf(int which, size_t count)
{
    return (choir_buf){ .data = data[which], .count = count, .type = CHOIR_F32 };
}

static void open_group(void)
{
    CHOIR_CHECK_OK(choir_group_create_fake(RANK, RANKS, NULL, &group));
}

#define REFUSED(call, code, has)                                                                   \
    (CHOIR_CHECK_STATUS(call, code), CHOIR_CHECK_HAS(choir_last_error(), has))

CHOIR_TEST(buffers_are_checked)
{
    choir_buf bad = buf(0, COUNT);

    open_group();
    bad.type = (choir_type)99;
    REFUSED(choir_allreduce(group, bad, NULL, NULL), CHOIR_ERR_TYPE,
            "choir_allreduce: buf: invalid scalar type 99");
    bad = buf(0, COUNT);
    bad.data = NULL;
    REFUSED(choir_broadcast(group, bad, NULL, NULL), CHOIR_ERR_INVALID,
            "choir_broadcast: buf: its data is NULL, but it has 8 elements");
    bad = buf(0, SIZE_MAX);
    REFUSED(choir_reduce(group, bad, NULL, NULL), CHOIR_ERR_INVALID, "more than there is memory");
    REFUSED(choir_allreduce(NULL, buf(0, 1), NULL, NULL), CHOIR_ERR_INVALID,
            "choir_allreduce: group: is NULL");
    REFUSED(choir_allreduce(group, buf(0, 1), &(choir_coll_opts){ 0 }, NULL), CHOIR_ERR_INVALID,
            "CHOIR_OPTS");
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 0u);
    choir_group_destroy(group);
}

static const struct {
    int ndim;
    int64_t sizes[3], strides[3];
    size_t count;
    choir_status status;
    const char *has;
} shapes[] = {
    { 2, { 2, 4 }, { 4, 1 }, 8, CHOIR_OK, "as it lies" },
    { 2, { 4, 2 }, { 1, 4 }, 8, CHOIR_OK, "transposed" },
    { 3, { 2, 1, 4 }, { 4, 0, 1 }, 8, CHOIR_OK, "a stride of a single row does not matter" },
    { 2, { 0, 4 }, { 4, 1 }, 0, CHOIR_OK, "nothing" },
    { 1, { 4 }, { 0 }, 4, CHOIR_ERR_INVALID, "its elements overlap" },
    { 2, { 2, 4 }, { 3, 1 }, 8, CHOIR_ERR_INVALID, "its elements overlap" },
    { 1, { 4 }, { -1 }, 4, CHOIR_ERR_INVALID, "expected none below 0" },
    { 1, { -4 }, { 1 }, 4, CHOIR_ERR_INVALID, "expected none below 0" },
    { 1, { 4 }, { 1 }, 5, CHOIR_ERR_INVALID, "its sizes make 4 elements, but count is 5" },
    { 2, { INT64_MAX, 4 }, { 4, 1 }, 8, CHOIR_ERR_INVALID, "more than there is memory" },
    { 1, { 4 }, { INT64_MAX }, 4, CHOIR_ERR_INVALID, "further than there is memory" },
    { 65, { 1 }, { 1 }, 1, CHOIR_ERR_INVALID, "ndim is 65" },
    { -1, { 1 }, { 1 }, 1, CHOIR_ERR_INVALID, "ndim is -1" },
};

CHOIR_TEST(shapes_are_checked)
{
    choir_buf b = buf(0, 1);

    open_group();
    for (size_t i = 0; i < CH_ARRAY_LEN(shapes); i++) {
        CHOIR_ROW("%s", shapes[i].has);
        b.count = shapes[i].count;
        b.ndim = shapes[i].ndim;
        b.sizes = shapes[i].sizes;
        b.strides = shapes[i].strides;
        CHOIR_CHECK_STATUS(choir_allreduce(group, b, NULL, NULL), shapes[i].status);
        if (shapes[i].status != CHOIR_OK)
            CHOIR_CHECK_HAS(choir_last_error(), shapes[i].has);
    }
    b = buf(0, 4);
    b.ndim = 1;
    REFUSED(choir_allreduce(group, b, NULL, NULL), CHOIR_ERR_INVALID, "sizes is NULL");
    choir_group_destroy(group);
}

CHOIR_TEST(reductions_are_checked)
{
    choir_buf complex = { .data = data[0], .count = 1, .type = CHOIR_COMPLEX64 };
    choir_buf truth = { .data = data[0], .count = 1, .type = CHOIR_BOOL };

    open_group();
    REFUSED(choir_allreduce(group, complex, CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL),
            CHOIR_ERR_TYPE, "opts->op");
    REFUSED(choir_reduce(group, truth, CHOIR_OPTS(reduce, .op = CHOIR_AVG), NULL), CHOIR_ERR_TYPE,
            "opts->op");
    REFUSED(choir_allreduce(group, buf(0, 1), CHOIR_OPTS(allreduce, .op = (choir_redop)9), NULL),
            CHOIR_ERR_INVALID, "unhandled reduction 9");
    REFUSED(choir_allreduce(group, buf(0, 8), CHOIR_OPTS(allreduce, .input = &data[0][4]), NULL),
            CHOIR_ERR_INVALID, "opts->input and buf overlap");
    REFUSED(choir_allreduce_coalesced(group, NULL, 0, NULL, NULL), CHOIR_ERR_INVALID,
            "bufs: requires non-empty tensor list");
    choir_group_destroy(group);
}

CHOIR_TEST(roots_and_ranks_are_checked)
{
    choir_buf outs[RANKS] = { buf(1, 1), buf(2, 1), buf(3, 1), buf(1, 0) };

    open_group();
    for (int root = -1; root <= RANKS; root += RANKS + 1) {
        const choir_coll_opts *opts = CHOIR_OPTS(broadcast, .root = root);

        REFUSED(choir_broadcast(group, buf(0, 1), opts, NULL), CHOIR_ERR_INVALID,
                "opts->root: invalid root rank: ");
        REFUSED(choir_reduce(group, buf(0, 1), opts, NULL), CHOIR_ERR_INVALID, "invalid root rank");
        REFUSED(choir_gather(group, buf(0, 1), NULL, opts, NULL), CHOIR_ERR_INVALID, "root rank");
        REFUSED(choir_scatter(group, NULL, buf(0, 1), opts, NULL), CHOIR_ERR_INVALID, "root rank");
        REFUSED(choir_send(group, buf(0, 1), root, 0, NULL, NULL), CHOIR_ERR_INVALID,
                "to: invalid rank");
        REFUSED(choir_recv(group, buf(0, 1), root, 0, NULL, NULL), CHOIR_ERR_INVALID,
                "from: invalid rank");
    }
    REFUSED(choir_send(group, buf(0, 1), 0, -1, NULL, NULL), CHOIR_ERR_INVALID,
            "Tag must be nonnegative");
    REFUSED(choir_recv_any(group, buf(0, 1), -1, NULL, NULL, NULL), CHOIR_ERR_INVALID,
            "Tag must be nonnegative");
    REFUSED(choir_gather(group, buf(0, 1), outs, NULL, NULL), CHOIR_ERR_INVALID,
            "outs: requires empty output on non-root");
    REFUSED(choir_scatter(group, outs, buf(0, 1), NULL, NULL), CHOIR_ERR_INVALID,
            "ins: requires empty input on non-root");
    REFUSED(choir_gather(group, buf(0, 1), NULL, CHOIR_OPTS(gather, .root = RANK), NULL),
            CHOIR_ERR_INVALID, "outs: is NULL, expected 4 buffers");
    choir_group_destroy(group);
}

CHOIR_TEST(lists_are_checked)
{
    choir_buf list[RANKS] = { buf(1, 2), buf(2, 2), buf(3, 2), buf(3, 0) };

    open_group();
    CHOIR_CHECK_OK(choir_allgather(group, buf(0, 2), list, NULL, NULL));
    REFUSED(choir_allgather(group, buf(0, 3), list, NULL, NULL), CHOIR_ERR_INVALID,
            "outs: invalid tensor size at index 1 (expected (3), got (2))");
    list[2].type = CHOIR_I32;
    REFUSED(choir_allgather(group, buf(0, 2), list, NULL, NULL), CHOIR_ERR_TYPE,
            "outs: invalid tensor type at index 2 (expected f32, got i32)");
    list[2] = buf(1, 2);
    REFUSED(choir_allgather(group, buf(0, 2), list, NULL, NULL), CHOIR_ERR_INVALID,
            "outs: those at index 0 and 2 overlap");
    list[2] = buf(3, 2);
    list[2].data = NULL;
    REFUSED(choir_reduce_scatter(group, list, buf(0, 2), NULL, NULL), CHOIR_ERR_INVALID,
            "at index 2 of ins: its data is NULL");
    list[2] = buf(0, 2);
    REFUSED(choir_allgather(group, buf(0, 2), list, NULL, NULL), CHOIR_ERR_INVALID,
            "in and outs overlap");
    choir_group_destroy(group);
}

CHOIR_TEST(parts_are_checked)
{
    const size_t few[RANKS] = { 1, 1, 1, 1 }, many[RANKS] = { 1, SIZE_MAX, 1, 1 };
    const size_t own[RANKS] = { 1, 3, 2, 2 };
    choir_buf odd = buf(1, 7), k[2] = { buf(0, 2), buf(1, 2) };

    open_group();
    REFUSED(choir_allgather_into(group, buf(0, 2), buf(1, 7), NULL, NULL), CHOIR_ERR_INVALID,
            "out: invalid tensor size (expected 4 times the 2 elements of in, got 7)");
    REFUSED(choir_reduce_scatter_from(group, buf(0, 9), buf(1, 2), NULL, NULL), CHOIR_ERR_INVALID,
            "in: invalid tensor size");
    REFUSED(choir_allgather_into_coalesced(group, k, k, 2, NULL, NULL), CHOIR_ERR_INVALID,
            "at index 0 of outs: invalid tensor size");
    REFUSED(choir_alltoall_base(group, odd, NULL, buf(0, 7), NULL, NULL, NULL), CHOIR_ERR_INVALID,
            "does not divide equally across group size");
    REFUSED(choir_alltoall_base(group, buf(0, 8), few, buf(1, 8), NULL, NULL, NULL),
            CHOIR_ERR_INVALID, "in_splits: Split sizes doesn't match total dim 0 size");
    REFUSED(choir_alltoall_base(group, buf(0, 8), many, buf(1, 8), NULL, NULL, NULL),
            CHOIR_ERR_INVALID, "in_splits: Split sizes doesn't match total dim 0 size");
    REFUSED(choir_alltoall_base(group, buf(0, 8), own, buf(1, 8), NULL, NULL, NULL),
            CHOIR_ERR_INVALID, "2 elements from this rank itself, which sends 3");
    REFUSED(choir_alltoall(group, NULL, k, NULL, NULL), CHOIR_ERR_INVALID, "ins: is NULL");
    choir_group_destroy(group);
}

CHOIR_TEST(sparse_arrays_are_checked)
{
    const int64_t shape[] = { 4 };
    int64_t indices[] = { 0, 4 };
    choir_sparse in = { .ndim = 1,
                        .nnz = 2,
                        .value_count = 1,
                        .shape = shape,
                        .indices = indices,
                        .values = data[0],
                        .type = CHOIR_F32 };
    choir_sparse out;

    open_group();
    REFUSED(choir_allreduce_sparse(group, &in, &out, NULL, NULL), CHOIR_ERR_INVALID,
            "in->indices: entry 1 has 4 in dimension 0, expected 0 to 3");
    indices[1] = 0;
    REFUSED(choir_allreduce_sparse(group, &in, &out, CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL),
            CHOIR_ERR_UNSUPPORTED, "needs ReduceOp.SUM");
    CHOIR_CHECK_OK(choir_allreduce_sparse(group, &in, &out, NULL, NULL));
    CHOIR_CHECK_EQ(out.nnz, 1u);
    choir_sparse_free(&out);
    in.ndim = 0;
    REFUSED(choir_allreduce_sparse(group, &in, &out, NULL, NULL), CHOIR_ERR_INVALID, "in->ndim");
    choir_group_destroy(group);
}

/* --- fake groups -------------------------------------------------------------------------------- */

CHOIR_TEST(fake_groups_are_done_at_once)
{
    choir_buf outs[RANKS] = { buf(1, 2), buf(2, 2), buf(3, 2), buf(1, 0) };
    choir_work *work;
    int from = -1;

    open_group();
    data[0][0] = 7;
    CHOIR_CHECK_OK(choir_allgather(group, buf(0, 2), outs, NULL, &work));
    CHOIR_CHECK_OK(choir_work_test(work));
    choir_work_unref(work);
    CHOIR_CHECK_EQ(data[1][0], 7.0F);
    CHOIR_CHECK_EQ(data[3][0], 7.0F);
    CHOIR_CHECK_OK(choir_allreduce(group, buf(0, 2), NULL, NULL));
    CHOIR_CHECK_EQ(data[0][0], 7.0F);
    CHOIR_CHECK_OK(choir_recv_any(group, buf(0, 2), 0, &from, NULL, NULL));
    CHOIR_CHECK_EQ(from, RANK);
    CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    CHOIR_CHECK_OK(choir_monitored_barrier(group, true, NULL));
    CHOIR_CHECK_EQ(choir_group_collective_sequence(group), 3u);
    CHOIR_CHECK_EQ(choir_group_p2p_sequence(group), 1u);
    CHOIR_CHECK_EQ(choir_group_rank(group), RANK);
    CHOIR_CHECK_EQ(choir_group_size(group), RANKS);
    CHOIR_CHECK(choir_group_store(group) == NULL);
    choir_group_destroy(group);
    REFUSED(choir_group_create_fake(4, 4, NULL, &group), CHOIR_ERR_INVALID, "rank 4 of 4");
}

CHOIR_TEST(fake_groups_can_fail_on_purpose)
{
    CHOIR_CHECK_OK(choir_group_create_fake(
        RANK, RANKS, CHOIR_OPTS(group_create_fake, .error_on_collective = true), &group));
    CHOIR_CHECK_OK(choir_send(group, buf(0, 1), 0, 0, NULL, NULL));
    REFUSED(choir_allreduce(group, buf(0, 1), NULL, NULL), CHOIR_ERR_UNSUPPORTED,
            "error_on_collective");
    REFUSED(choir_barrier(group, NULL, NULL), CHOIR_ERR_UNSUPPORTED, "error_on_collective");
    CHOIR_CHECK_STR(choir_last_error_record()->operation, "barrier");
    CHOIR_CHECK_OK(choir_group_error(group, NULL)); /* messages are as before: fake_group_test.c */
    choir_group_destroy(group);
}

CHOIR_TEST(nothing_is_not_a_group_nor_a_work)
{
    choir_peer peer;
    choir_work *work;
    bool alive;
    double ms;
    int rank;

    REFUSED(choir_barrier(NULL, NULL, NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_monitored_barrier(NULL, true, NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_batch_begin(NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_batch_end(NULL, NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_batch_drop(NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_error(NULL, NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_wait_pending(NULL, 0), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_shutdown(NULL, 0), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_set_timeout(NULL, 1), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_on_done(NULL, NULL, NULL), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_peer(NULL, 0, &peer), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_group_alive(NULL, 0, &alive), CHOIR_ERR_INVALID, "group");
    REFUSED(choir_work_wait(NULL, 0), CHOIR_ERR_INVALID, "work");
    REFUSED(choir_work_test(NULL), CHOIR_ERR_INVALID, "work");
    REFUSED(choir_work_source(NULL, &rank), CHOIR_ERR_INVALID, "work");
    REFUSED(choir_work_duration_ms(NULL, &ms), CHOIR_ERR_INVALID, "work");
    choir_group_abort(NULL);
    choir_group_destroy(NULL);
    choir_work_abort(NULL);
    choir_work_unref(NULL);
    open_group();
    CHOIR_CHECK_OK(choir_barrier(group, NULL, &work));
    REFUSED(choir_work_duration_ms(work, NULL), CHOIR_ERR_INVALID, "answer");
    REFUSED(choir_work_result(work, 0, NULL), CHOIR_ERR_INVALID, "answer");
    REFUSED(choir_work_on_done(work, NULL, NULL), CHOIR_ERR_INVALID, "done");
    choir_work_unref(work);
    choir_group_destroy(group);
}

static choir_status everything(void *arg)
{
    choir_buf outs[RANKS] = { buf(1, 2), buf(2, 2), buf(3, 2), buf(1, 0) };
    choir_group *made, *child = NULL;
    choir_work *work;
    choir_status rc = choir_group_create_fake(RANK, RANKS, NULL, &made);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    rc = choir_allgather_coalesced(made, buf(0, 2).data ? (choir_buf[]){ buf(0, 2) } : NULL, outs,
                                   1, NULL, &work);
    if (rc == CHOIR_OK)
        choir_work_unref(work);
    if (rc == CHOIR_OK)
        rc = choir_batch_begin(made);
    if (rc == CHOIR_OK) {
        choir_status sent = choir_send(made, buf(0, 1), 0, 0, NULL, NULL);

        rc = choir_batch_end(made, NULL);
        rc = rc == CHOIR_OK ? sent : rc;
    }
    if (rc == CHOIR_OK)
        rc = choir_group_split(made, (int[]){ 1, 3 }, 2, NULL, &child);
    choir_group_destroy(child);
    choir_group_destroy(made);
    return rc;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    choir_test_all_faults(everything, NULL);
}
