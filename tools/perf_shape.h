/*
 * perf_shape.h - what is measured: the operations, who gives and who gets how much, and what must come out.
 *
 * For `choir perf` and for the programs that measure others in the same manner (bench/peers), so that all of them
 * move the same bytes and check the same results. C and C++; nothing here knows a library.
 *
 * `count` is the larger of a rank's input and output, in elements, as nccl-tests count; where it is made of one block
 * for each rank, a block has count / nranks elements, at least one.
 */
#ifndef PERF_SHAPE_H
#define PERF_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum perf_op {
    PERF_ALLREDUCE,
    PERF_BROADCAST,
    PERF_REDUCE,
    PERF_ALLGATHER,
    PERF_REDUCESCATTER,
    PERF_ALLTOALL,
    PERF_GATHER,
    PERF_SCATTER,
    PERF_BARRIER,
    PERF_SENDRECV, /* every rank sends to the next and receives from the one before */
    PERF_NOPS
};

struct perf_shape {
    enum perf_op op;
    int rank, nranks, root;
    size_t count, block; /* elements */
};

/* Elements of an output that come from one place: `count` of them, from `pos` on, of `rank`'s input, or of all ranks'. */
struct perf_piece {
    bool reduced;
    int rank;
    size_t pos, count;
};

static inline const char *perf_op_name(enum perf_op op)
{
    static const char *const names[] = { "allreduce",     "broadcast", "reduce", "allgather",
                                         "reducescatter", "alltoall",  "gather", "scatter",
                                         "barrier",       "sendrecv" };

    return names[op];
}

/* PERF_NOPS if there is none of that name; "reduce_scatter" and "all-to-all" are understood. */
static inline enum perf_op perf_op_find(const char *name)
{
    char plain[32];
    size_t n = 0;

    for (; *name != '\0' && n + 1 < sizeof(plain); name++) {
        if (*name != '_' && *name != '-')
            plain[n++] = *name;
    }
    plain[n] = '\0';
    for (int op = 0; op < PERF_NOPS; op++) {
        if (strcmp(perf_op_name((enum perf_op)op), plain) == 0)
            return (enum perf_op)op;
    }
    return PERF_NOPS;
}

static inline bool perf_op_reduces(enum perf_op op)
{
    return op == PERF_ALLREDUCE || op == PERF_REDUCE || op == PERF_REDUCESCATTER;
}

static inline bool perf_op_has_root(enum perf_op op)
{
    return op == PERF_BROADCAST || op == PERF_REDUCE || op == PERF_GATHER || op == PERF_SCATTER;
}

/* Its size is that of one block for each rank. */
static inline bool perf_op_in_blocks(enum perf_op op)
{
    return op == PERF_ALLGATHER || op == PERF_REDUCESCATTER || op == PERF_ALLTOALL ||
           op == PERF_GATHER || op == PERF_SCATTER;
}

/* Bytes that cross the busiest link, per byte of the operation's size: busbw of nccl-tests over algbw. */
static inline double perf_bus_factor(enum perf_op op, int nranks)
{
    double others = (double)(nranks - 1) / nranks;

    return op == PERF_ALLREDUCE ? 2 * others : perf_op_in_blocks(op) ? others : 1;
}

static inline struct perf_shape perf_shape_of(enum perf_op op, int rank, int nranks, int root,
                                              size_t nbytes, size_t element)
{
    struct perf_shape s;

    s.op = op;
    s.rank = rank;
    s.nranks = nranks;
    s.root = root;
    s.count = op == PERF_BARRIER ? 0 : nbytes / element > 0 ? nbytes / element : 1;
    s.block = s.count;
    if (perf_op_in_blocks(op)) {
        s.block = s.count / (size_t)nranks > 0 ? s.count / (size_t)nranks : 1;
        s.count = s.block * (size_t)nranks;
    }
    return s;
}

static inline size_t perf_in_count(const struct perf_shape *s)
{
    if (s->op == PERF_ALLGATHER || s->op == PERF_GATHER)
        return s->block;
    if ((s->op == PERF_BROADCAST || s->op == PERF_SCATTER) && s->rank != s->root)
        return 0;
    return s->count;
}

static inline size_t perf_out_count(const struct perf_shape *s)
{
    if (s->op == PERF_REDUCESCATTER || s->op == PERF_SCATTER)
        return s->block;
    if ((s->op == PERF_REDUCE || s->op == PERF_GATHER) && s->rank != s->root)
        return 0;
    return s->count;
}

/* Where in place the input begins in the output, or the output in the input; the larger of them is the buffer. */
static inline size_t perf_place(const struct perf_shape *s)
{
    bool within = s->op == PERF_ALLGATHER || s->op == PERF_REDUCESCATTER ||
                  (s->rank == s->root && (s->op == PERF_GATHER || s->op == PERF_SCATTER));

    return within ? (size_t)s->rank * s->block : 0;
}

static inline int perf_npieces(const struct perf_shape *s)
{
    if (perf_out_count(s) == 0)
        return 0;
    return s->op == PERF_ALLGATHER || s->op == PERF_ALLTOALL || s->op == PERF_GATHER ? s->nranks
                                                                                     : 1;
}

static inline struct perf_piece perf_piece_of(const struct perf_shape *s, int i)
{
    struct perf_piece piece = { perf_op_reduces(s->op), i, 0, s->block };

    if (s->op == PERF_REDUCESCATTER || s->op == PERF_ALLTOALL || s->op == PERF_SCATTER)
        piece.pos = (size_t)s->rank * s->block;
    if (s->op == PERF_BROADCAST || s->op == PERF_SCATTER)
        piece.rank = s->root;
    if (s->op == PERF_SENDRECV)
        piece.rank = (s->rank + s->nranks - 1) % s->nranks;
    return piece;
}

#endif
