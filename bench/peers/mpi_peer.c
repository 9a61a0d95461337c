/*
 * mpi_peer.c - an MPI library as a contender: mpirun -n N mpi_peer DIR bound|free NAME
 *
 * Built once with each MPI that there is. Errors end the job: that is MPI's default.
 */
#include <mpi.h>
#include <stdio.h>

#include "contender.h"

static void meet(void *self)
{
    (void)self;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void largest(void *self, double *values, int count)
{
    int rank;

    (void)self;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : values, values, count, MPI_DOUBLE, MPI_MAX, 0,
               MPI_COMM_WORLD);
}

static void call(void *self, const struct perf_shape *s, float *in, float *out)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int count = (int)s->count, block = (int)s->block, n = s->nranks;

    (void)self;
    switch (s->op) {
    case PERF_ALLREDUCE:
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, world);
        break;
    case PERF_BROADCAST:
        MPI_Bcast(out, count, MPI_FLOAT, s->root, world);
        break;
    case PERF_REDUCE:
        MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, s->root, world);
        break;
    case PERF_ALLGATHER:
        MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, world);
        break;
    case PERF_REDUCESCATTER:
        MPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, world);
        break;
    case PERF_ALLTOALL:
        MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, world);
        break;
    case PERF_GATHER:
        MPI_Gather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, s->root, world);
        break;
    case PERF_SCATTER:
        MPI_Scatter(in, block, MPI_FLOAT, out, block, MPI_FLOAT, s->root, world);
        break;
    case PERF_BARRIER:
        MPI_Barrier(world);
        break;
    case PERF_SENDRECV:
        MPI_Sendrecv(in, count, MPI_FLOAT, (s->rank + 1) % n, 0, out, count, MPI_FLOAT,
                     (s->rank + n - 1) % n, 0, world, MPI_STATUS_IGNORE);
        break;
    case PERF_NOPS:
        break;
    }
}

int main(int argc, char **argv)
{
    struct contender c = { .nvariants = 1, .barrier = meet, .call = call, .largest = largest };
    int code;

    MPI_Init(&argc, &argv);
    if (argc < 4) {
        fprintf(stderr, "usage: mpirun -n N mpi_peer DIR bound|free NAME\n");
        return 2;
    }
    c.name = argv[3];
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.nranks);
    contender_bind(argv[2], c.rank);
    code = contender_serve(&c, argv[1]);
    MPI_Finalize();
    return code;
}
