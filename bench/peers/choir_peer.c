/*
 * choir_peer.c - Choir as a contender: choir run -n N choir_peer DIR bound|free
 */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "contender.h"

static void check(choir_status rc, const char *what)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "choir: %s: %s\n", what, choir_last_error());
    exit(1);
}

static choir_buf f32(float *data, size_t count)
{
    return CHOIR_BUF(data, count, CHOIR_F32);
}

static void meet(void *self)
{
    check(choir_barrier(self, NULL, NULL), "barrier");
}

static void largest(void *self, double *values, int count)
{
    check(choir_allreduce(self, CHOIR_BUF(values, (size_t)count, CHOIR_F64),
                          CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL),
          "largest");
}

static choir_status exchange(choir_group *group, const struct perf_shape *s, float *in, float *out)
{
    return choir_sendrecv(group, f32(in, s->count), (s->rank + 1) % s->nranks, f32(out, s->count),
                          (s->rank + s->nranks - 1) % s->nranks, 0, NULL, NULL);
}

/* The root's buffer as one for each rank. */
static const choir_buf *blocks(const struct perf_shape *s, float *data, choir_buf list[])
{
    if (s->rank != s->root)
        return NULL;
    for (int i = 0; i < s->nranks; i++)
        list[i] = f32(data + (size_t)i * s->block, s->block);
    return list;
}

static choir_status carry_out(choir_group *group, const struct perf_shape *s, float *in, float *out)
{
    choir_coll_opts reads = { .size = sizeof(reads), .input = in };
    choir_buf list[1024], from = f32(in, perf_in_count(s)), to = f32(out, perf_out_count(s));

    switch (s->op) {
    case PERF_ALLREDUCE:
        return choir_allreduce(group, to, &reads, NULL);
    case PERF_BROADCAST:
        return choir_broadcast(group, to, NULL, NULL);
    case PERF_REDUCE:
        return choir_reduce(group, f32(out, s->count), &reads, NULL);
    case PERF_ALLGATHER:
        return choir_allgather_into(group, from, to, NULL, NULL);
    case PERF_REDUCESCATTER:
        return choir_reduce_scatter_from(group, from, to, NULL, NULL);
    case PERF_ALLTOALL:
        return choir_alltoall_base(group, from, NULL, to, NULL, NULL, NULL);
    case PERF_GATHER:
        return choir_gather(group, from, blocks(s, out, list), NULL, NULL);
    case PERF_SCATTER:
        return choir_scatter(group, blocks(s, in, list), to, NULL, NULL);
    case PERF_BARRIER:
        return choir_barrier(group, NULL, NULL);
    case PERF_SENDRECV:
        return exchange(group, s, in, out);
    case PERF_NOPS:
        break;
    }
    return CHOIR_ERR_INVALID;
}

static void call(void *self, const struct perf_shape *s, float *in, float *out)
{
    check(carry_out(self, s, in, out), perf_op_name(s->op));
}

int main(int argc, char **argv)
{
    struct contender c = {
        .name = "choir", .nvariants = 1, .barrier = meet, .call = call, .largest = largest
    };
    choir_group *group;
    int code;

    if (argc < 3) {
        fprintf(stderr, "usage: choir run -n N choir_peer DIR bound|free\n");
        return 2;
    }
    check(choir_init(&group, NULL), "init");
    c.self = group;
    c.rank = choir_group_rank(group);
    c.nranks = choir_group_size(group);
    if (c.nranks > 1024) {
        fprintf(stderr, "choir: %d ranks, 1024 at most\n", c.nranks);
        return 2;
    }
    contender_bind(argv[2], c.rank);
    code = contender_serve(&c, argv[1]);
    choir_group_destroy(group);
    return code;
}
