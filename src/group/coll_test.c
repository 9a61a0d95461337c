/* coll_test.c - every collective in every form, between ranks that are threads; what the buffers hold then. */
#include "choir_test.h"

#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

static const int sizes[] = { 1, 2, 3, 5 };

/* How a call is made: done on return, with a handle, or in a batch. */
enum how { SYNC, ASYNC, BATCHED, HOWS };

static choir_buf i32(int32_t *data, size_t count)
{
    return (choir_buf){ .data = data, .count = count, .type = CHOIR_I32 };
}

/* The element at `place` of what rank `from` has for rank `to`. */
static int32_t value(int from, int to, size_t place)
{
    return (int32_t)(from * 1000000 + to * 10000 + (int)place);
}

static void fill(int32_t *data, size_t count, int from, int to)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value(from, to, i);
}

static void check(const int32_t *data, size_t count, int from, int to)
{
    for (size_t i = 0; i < count; i++)
        CHOIR_CHECK_EQ(data[i], value(from, to, i));
}

/* The sum over all ranks of their element for `to`. */
static void check_sum(const int32_t *data, size_t count, int n, int to)
{
    for (size_t i = 0; i < count; i++)
        CHOIR_CHECK_EQ(data[i], (int32_t)(1000000 * (n * (n - 1) / 2) + n * (to * 10000 + (int)i)));
}

struct rank {
    choir_group *group;
    int n, me;
    enum how how;
    choir_work *work, **work_out;
};

static void before(struct rank *r)
{
    r->work = NULL;
    r->work_out = r->how == ASYNC ? &r->work : NULL;
    if (r->how == BATCHED)
        CHOIR_CHECK_OK(choir_batch_begin(r->group));
}

static void after(struct rank *r, choir_status rc)
{
    CHOIR_CHECK_OK(rc);
    if (r->how == BATCHED)
        CHOIR_CHECK_OK(choir_batch_end(r->group, NULL));
    if (r->how == ASYNC)
        CHOIR_CHECK_OK(choir_work_wait(r->work, 0));
    choir_work_unref(r->work);
}

typedef void (*scene)(struct rank *r);

static choir_status play(choir_group *group, void *arg)
{
    struct rank r = { .group = group, .n = choir_group_size(group), .me = choir_group_rank(group) };

    for (r.how = SYNC; r.how < HOWS; r.how++)
        ((scene)arg)(&r);
    CHOIR_CHECK_OK(choir_barrier(group, NULL, NULL));
    return CHOIR_OK;
}

static void run(scene played)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        CHOIR_ROW("%d ranks", sizes[i]);
        CHOIR_CHECK_OK(choir_run_threads(sizes[i], play, (void *)played));
    }
}

enum { COUNT = 37, RANKS = 5 };

static void allreduce(struct rank *r)
{
    int32_t buf[COUNT], out[COUNT];

    fill(buf, COUNT, r->me, 3);
    before(r);
    after(r, choir_allreduce(r->group, i32(buf, COUNT), NULL, r->work_out));
    check_sum(buf, COUNT, r->n, 3);

    fill(buf, COUNT, r->me, 3);
    before(r);
    after(r, choir_allreduce(r->group, i32(out, COUNT), CHOIR_OPTS(allreduce, .input = buf),
                             r->work_out));
    check(buf, COUNT, r->me, 3);
    check_sum(out, COUNT, r->n, 3);

    before(r);
    after(r, choir_allreduce(r->group, i32(NULL, 0), NULL, r->work_out));
}

CHOIR_TEST(allreduce_in_place_and_not)
{
    run(allreduce);
}

static void allreduce_coalesced(struct rank *r)
{
    int32_t a[COUNT], b[3], c[COUNT];
    choir_buf bufs[] = { i32(a, COUNT), i32(b, 3), i32(NULL, 0), i32(c, COUNT) };

    fill(a, COUNT, r->me, 1);
    fill(b, 3, r->me, 2);
    fill(c, COUNT, r->me, 3);
    before(r);
    after(r, choir_allreduce_coalesced(r->group, bufs, 4, NULL, r->work_out));
    check_sum(a, COUNT, r->n, 1);
    check_sum(b, 3, r->n, 2);
    check_sum(c, COUNT, r->n, 3);
}

CHOIR_TEST(allreduce_of_several_as_one)
{
    run(allreduce_coalesced);
}

static void strided(struct rank *r)
{
    /* Two columns of a matrix of 6 by 5, transposed: 2 by 6. */
    const int64_t shape[] = { 2, 6 }, strides[] = { 2, 5 };
    int32_t matrix[30], plain[12];
    choir_buf columns = { .data = matrix + 1,
                          .count = 12,
                          .type = CHOIR_I32,
                          .ndim = 2,
                          .sizes = shape,
                          .strides = strides };

    for (int i = 0; i < 30; i++)
        matrix[i] = -1;
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 6; i++)
            matrix[1 + 2 * d + 5 * i] = value(r->me, 2, (size_t)(6 * d + i));
    }
    before(r);
    after(r, choir_allreduce(r->group, columns, NULL, r->work_out));
    for (int i = 0; i < 30; i++) {
        if (i % 5 != 1 && i % 5 != 3)
            CHOIR_CHECK_EQ(matrix[i], -1);
    }
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 6; i++)
            plain[6 * d + i] = matrix[1 + 2 * d + 5 * i];
    }
    check_sum(plain, 12, r->n, 2);
}

CHOIR_TEST(strided_buffers_are_packed_and_unpacked)
{
    run(strided);
}

static void broadcast(struct rank *r)
{
    int32_t buf[COUNT];
    int root = r->n - 1;

    fill(buf, COUNT, r->me, 7);
    before(r);
    after(r, choir_broadcast(r->group, i32(buf, COUNT), CHOIR_OPTS(broadcast, .root = root),
                             r->work_out));
    check(buf, COUNT, root, 7);
}

CHOIR_TEST(broadcast_from_the_last)
{
    run(broadcast);
}

static void reduce(struct rank *r)
{
    int32_t buf[COUNT];
    int root = r->n / 2;

    fill(buf, COUNT, r->me, 7);
    before(r);
    after(r,
          choir_reduce(r->group, i32(buf, COUNT), CHOIR_OPTS(reduce, .root = root), r->work_out));
    if (r->me == root)
        check_sum(buf, COUNT, r->n, 7);
    else
        check(buf, COUNT, r->me, 7);
}

CHOIR_TEST(reduce_changes_the_roots_buffer_alone)
{
    run(reduce);
}

/* Rank i has i + 1 elements, the third none. */
static size_t uneven(int rank)
{
    return rank == 2 ? 0 : (size_t)rank + 1;
}

static void allgather(struct rank *r)
{
    int32_t in[COUNT], out[RANKS][COUNT];
    choir_buf outs[RANKS];

    for (int form = 0; form < 3; form++) { /* even, uneven, even and in place */
        size_t mine = form == 1 ? uneven(r->me) : COUNT;

        memset(out, 0, sizeof(out));
        for (int i = 0; i < r->n; i++)
            outs[i] = i32(out[i], form == 1 ? uneven(i) : COUNT);
        fill(form == 2 ? out[r->me] : in, mine, r->me, 0);
        before(r);
        after(r, choir_allgather(r->group, i32(form == 2 ? out[r->me] : in, mine), outs, NULL,
                                 r->work_out));
        for (int i = 0; i < r->n; i++)
            check(out[i], outs[i].count, i, 0);
    }
}

CHOIR_TEST(allgather_even_uneven_in_place)
{
    run(allgather);
}

static void allgather_into(struct rank *r)
{
    int32_t in[COUNT], out[RANKS * COUNT];

    for (int in_place = 0; in_place < 2; in_place++) {
        int32_t *from = in_place ? out + r->me * COUNT : in;

        memset(out, 0, sizeof(out));
        fill(from, COUNT, r->me, 0);
        before(r);
        after(r, choir_allgather_into(r->group, i32(from, COUNT), i32(out, (size_t)r->n * COUNT),
                                      NULL, r->work_out));
        for (int i = 0; i < r->n; i++)
            check(out + i * COUNT, COUNT, i, 0);
    }
}

CHOIR_TEST(allgather_into_one_buffer)
{
    run(allgather_into);
}

static void allgather_coalesced(struct rank *r)
{
    int32_t in[2][COUNT], out[RANKS][2][COUNT], flat[2][RANKS * COUNT];
    choir_buf ins[2] = { i32(in[0], 5), i32(in[1], COUNT) }, outs[2 * RANKS];

    fill(in[0], 5, r->me, 0);
    fill(in[1], COUNT, r->me, 1);
    for (int i = 0; i < 2 * r->n; i++)
        outs[i] = i32(out[i / 2][i % 2], ins[i % 2].count);
    before(r);
    after(r, choir_allgather_coalesced(r->group, ins, outs, 2, NULL, r->work_out));
    for (int i = 0; i < 2 * r->n; i++)
        check(outs[i].data, outs[i].count, i / 2, i % 2);

    outs[0] = i32(flat[0], 5 * (size_t)r->n);
    outs[1] = i32(flat[1], COUNT * (size_t)r->n);
    before(r);
    after(r, choir_allgather_into_coalesced(r->group, ins, outs, 2, NULL, r->work_out));
    for (int i = 0; i < r->n; i++) {
        check(flat[0] + i * 5, 5, i, 0);
        check(flat[1] + i * COUNT, COUNT, i, 1);
    }
}

CHOIR_TEST(allgather_of_several_as_one)
{
    run(allgather_coalesced);
}

static void gather(struct rank *r)
{
    int32_t one[COUNT], all[RANKS][COUNT];
    choir_buf list[RANKS];
    int root = r->n - 1;

    for (int i = 0; i < r->n; i++)
        list[i] = i32(all[i], uneven(i) + 2);
    fill(one, COUNT, r->me, 0);
    before(r);
    after(r, choir_gather(r->group, i32(one, uneven(r->me) + 2), r->me == root ? list : NULL,
                          CHOIR_OPTS(gather, .root = root), r->work_out));
    for (int i = 0; i < r->n && r->me == root; i++)
        check(all[i], list[i].count, i, 0);

    for (int i = 0; i < r->n; i++)
        fill(all[i], list[i].count, r->me, i);
    memset(one, 0, sizeof(one));
    before(r);
    after(r, choir_scatter(r->group, r->me == root ? list : NULL, i32(one, uneven(r->me) + 2),
                           CHOIR_OPTS(scatter, .root = root), r->work_out));
    check(one, uneven(r->me) + 2, root, r->me);
}

CHOIR_TEST(gather_and_scatter_of_uneven_parts)
{
    run(gather);
}

static void reduce_scatter(struct rank *r)
{
    int32_t in[RANKS][COUNT], out[COUNT];
    choir_buf ins[RANKS];

    for (int form = 0; form < 3; form++) { /* uneven, even, in place */
        size_t mine = form == 0 ? uneven(r->me) : COUNT;
        int32_t *to = form == 2 ? in[r->me] : out;

        for (int i = 0; i < r->n; i++) {
            ins[i] = i32(in[i], form == 0 ? uneven(i) : COUNT);
            fill(in[i], ins[i].count, r->me, i);
        }
        before(r);
        after(r, choir_reduce_scatter(r->group, ins, i32(to, mine), NULL, r->work_out));
        check_sum(to, mine, r->n, r->me);
    }
}

CHOIR_TEST(reduce_scatter_of_lists)
{
    run(reduce_scatter);
}

static void reduce_scatter_from(struct rank *r)
{
    int32_t in[2][RANKS * COUNT], out[2][COUNT];
    choir_buf ins[2] = { i32(in[0], 3 * (size_t)r->n), i32(in[1], COUNT * (size_t)r->n) };
    choir_buf outs[2] = { i32(out[0], 3), i32(out[1], COUNT) };

    for (int i = 0; i < r->n; i++) {
        fill(in[0] + 3 * i, 3, r->me, i);
        fill(in[1] + COUNT * i, COUNT, r->me, i);
    }
    before(r);
    after(r, choir_reduce_scatter_coalesced(r->group, ins, outs, 2, NULL, r->work_out));
    check_sum(out[0], 3, r->n, r->me);
    check_sum(out[1], COUNT, r->n, r->me);

    for (int in_place = 0; in_place < 2; in_place++) {
        int32_t *to = in_place ? in[1] + r->me * COUNT : out[1];

        for (int i = 0; i < r->n; i++)
            fill(in[1] + COUNT * i, COUNT, r->me, i);
        before(r);
        after(r, choir_reduce_scatter_from(r->group, ins[1], i32(to, COUNT), NULL, r->work_out));
        check_sum(to, COUNT, r->n, r->me);
    }
}

CHOIR_TEST(reduce_scatter_from_one_buffer)
{
    run(reduce_scatter_from);
}

/* What rank `from` sends rank `to`. */
static size_t pair(int from, int to)
{
    return (size_t)((from * 3 + to * 5) % 7);
}

static void alltoall(struct rank *r)
{
    int32_t in[RANKS][COUNT], out[RANKS][COUNT];
    choir_buf ins[RANKS], outs[RANKS];

    for (int i = 0; i < r->n; i++) {
        ins[i] = i32(in[i], pair(r->me, i));
        outs[i] = i32(out[i], pair(i, r->me));
        fill(in[i], ins[i].count, r->me, i);
    }
    before(r);
    after(r, choir_alltoall(r->group, ins, outs, NULL, r->work_out));
    for (int i = 0; i < r->n; i++)
        check(out[i], outs[i].count, i, r->me);
}

CHOIR_TEST(alltoall_of_uneven_lists)
{
    run(alltoall);
}

static void alltoall_base(struct rank *r)
{
    int32_t in[RANKS * COUNT], out[RANKS * COUNT], *buf = in;
    size_t in_splits[RANKS], out_splits[RANKS], nin = 0, nout = 0;

    for (int form = 0; form < 2; form++) { /* even, and in place */
        for (int i = 0; i < r->n; i++)
            fill(in + i * COUNT, COUNT, r->me, i);
        buf = form == 1 ? in : out;
        before(r);
        after(r, choir_alltoall_base(r->group, i32(in, (size_t)r->n * COUNT), NULL,
                                     i32(buf, (size_t)r->n * COUNT), NULL, NULL, r->work_out));
        for (int i = 0; i < r->n; i++)
            check(buf + i * COUNT, COUNT, i, r->me);
    }
    for (int i = 0; i < r->n; i++) {
        in_splits[i] = pair(r->me, i);
        out_splits[i] = pair(i, r->me);
        fill(in + nin, in_splits[i], r->me, i);
        nin += in_splits[i];
        nout += out_splits[i];
    }
    before(r);
    after(r, choir_alltoall_base(r->group, i32(in, nin), in_splits, i32(out, nout), out_splits,
                                 NULL, r->work_out));
    nout = 0;
    for (int i = 0; i < r->n; i++) {
        check(out + nout, out_splits[i], i, r->me);
        nout += out_splits[i];
    }
}

CHOIR_TEST(alltoall_of_parts)
{
    run(alltoall_base);
}

static void send_recv(struct rank *r)
{
    int32_t out[COUNT], in[COUNT];
    int next = (r->me + 1) % r->n, before_me = (r->me + r->n - 1) % r->n, from = -1;
    choir_work *send, *recv, *any;

    fill(out, COUNT, r->me, next);
    CHOIR_CHECK_OK(choir_recv(r->group, i32(in, COUNT), before_me, 7, NULL, &recv));
    CHOIR_CHECK_OK(choir_send(r->group, i32(out, COUNT), next, 7, NULL, &send));
    CHOIR_CHECK_OK(choir_work_wait(recv, 0));
    CHOIR_CHECK_OK(choir_work_wait(send, 0));
    check(in, COUNT, before_me, r->me);
    CHOIR_CHECK_OK(choir_work_source(recv, &from));
    CHOIR_CHECK_EQ(from, before_me);
    CHOIR_CHECK_STATUS(choir_work_source(send, &from), CHOIR_ERR_STATE);
    choir_work_unref(send);
    choir_work_unref(recv);

    memset(in, 0, sizeof(in));
    from = -1;
    CHOIR_CHECK_OK(choir_recv_any(r->group, i32(in, COUNT), 8, &from, NULL, &any));
    CHOIR_CHECK_OK(choir_send(r->group, i32(out, COUNT), next, 8, NULL, NULL));
    CHOIR_CHECK_OK(choir_work_wait(any, 0));
    CHOIR_CHECK_EQ(from, before_me);
    check(in, COUNT, before_me, r->me);
    choir_work_unref(any);
}

CHOIR_TEST(messages_round_a_ring)
{
    run(send_recv);
}

static void batched_messages(struct rank *r)
{
    enum { BIG = 20000 };
    int32_t *out = malloc(BIG * sizeof(*out)), *in = malloc(RANKS * BIG * sizeof(*in)), sum = 1;
    choir_work *work;

    fill(out, BIG, r->me, 0);
    CHOIR_CHECK_OK(choir_batch_begin(r->group));
    for (int i = 0; i < r->n; i++) /* all sends first: whoever waited for one would wait for ever */
        CHOIR_CHECK_OK(choir_send(r->group, i32(out, BIG), i, 1, NULL, NULL));
    CHOIR_CHECK_OK(choir_allreduce(r->group, i32(&sum, 1), NULL, &work));
    CHOIR_CHECK(work == NULL);
    for (int i = 0; i < r->n; i++)
        CHOIR_CHECK_OK(choir_recv(r->group, i32(in + i * BIG, BIG), i, 1, NULL, NULL));
    CHOIR_CHECK_OK(choir_batch_end(r->group, r->how == ASYNC ? &work : NULL));
    if (r->how == ASYNC)
        CHOIR_CHECK_OK(choir_work_wait(work, 0));
    for (int i = 0; i < r->n; i++)
        check(in + i * BIG, BIG, i, 0);
    CHOIR_CHECK_EQ(sum, r->n);
    choir_work_unref(work);
    free(out);
    free(in);
}

CHOIR_TEST(batches_start_everything_before_waiting)
{
    run(batched_messages);
}

static void sparse(struct rank *r)
{
    /* Every rank has an entry at (1, 2), one of its own at (me, 3), and twice one at (0, 0). */
    const int64_t shape[] = { RANKS, 4 };
    int64_t indices[] = { 1, r->me, 0, 0, /* rows */ 2, 3, 0, 0 /* columns */ };
    float values[] = { 1, 1, (float)r->me, 2, 1, 1, 0.5F, 0.5F };
    choir_sparse in = { .ndim = 2,
                        .nnz = 4,
                        .value_count = 2,
                        .shape = shape,
                        .indices = indices,
                        .values = values,
                        .type = CHOIR_F32 };
    choir_sparse out = { 0 };
    const float *sums;

    before(r);
    after(r, choir_allreduce_sparse(r->group, &in, &out, NULL, r->work_out));
    CHOIR_CHECK_EQ(out.nnz, (size_t)r->n + 2);
    sums = out.values;
    CHOIR_CHECK_EQ(out.indices[0], 0); /* (0, 0) comes first */
    CHOIR_CHECK_EQ(out.indices[out.nnz], 0);
    CHOIR_CHECK_EQ(sums[0], 1.5F * (float)r->n);
    CHOIR_CHECK_EQ(sums[1], 1.5F * (float)r->n);
    CHOIR_CHECK_EQ(out.indices[1], 0); /* then rank 0's own, then (1, 2) */
    CHOIR_CHECK_EQ(out.indices[out.nnz + 1], 3);
    CHOIR_CHECK_EQ(out.indices[2], 1);
    CHOIR_CHECK_EQ(out.indices[out.nnz + 2], 2);
    CHOIR_CHECK_EQ(sums[4], (float)r->n);
    choir_sparse_free(&out);
}

CHOIR_TEST(sparse_sums_have_each_place_once)
{
    run(sparse);
}

static void barriers(struct rank *r)
{
    before(r);
    after(r, choir_barrier(r->group, NULL, r->work_out));
    CHOIR_CHECK_OK(choir_monitored_barrier(r->group, r->how == ASYNC, NULL));
}

CHOIR_TEST(barriers_let_everybody_through)
{
    run(barriers);
}
