/*
 * naive.h - what every collective promises, written to be read and believed. Read this first.
 *
 * A call is described the same on all ranks (struct call). The elements that a rank gives are made from the
 * call's seed, the rank, the buffer and the position, so every rank knows what all others gave; and what
 * a rank must find in its output is a list of pieces: elements of one rank's input, or the reduction of
 * the same elements of all ranks. naive_sources() is that list for every operation; there is nothing else to
 * a collective.
 */
#ifndef NAIVE_H
#define NAIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/choir.h>
#include <choir/coll.h>

enum { RANKS_MAX = 17, LISTS_MAX = 3, BUFS_MAX = RANKS_MAX * LISTS_MAX };

enum form {
    ALLREDUCE,
    ALLREDUCE_COALESCED,
    ALLREDUCE_SPARSE, /* sparse_case.c */
    BROADCAST,
    REDUCE,
    ALLGATHER,
    ALLGATHER_INTO,
    ALLGATHER_COALESCED,
    ALLGATHER_INTO_COALESCED,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    REDUCE_SCATTER_FROM,
    REDUCE_SCATTER_COALESCED,
    ALLTOALL,
    ALLTOALL_BASE,
    BARRIER,
    MONITORED_BARRIER,
    SEND_RECV, /* everybody sends to the rank `shift` behind it */
    RECV_ANY,  /* everybody sends to the root, which takes them as they come */
    NFORMS
};

extern const char *const form_names[NFORMS];

struct call {
    uint64_t seed; /* of elements */
    enum form form;
    int group, nranks; /* which group, and its size; ranks below are the group's */
    choir_type type;
    choir_redop op;
    double factors[RANKS_MAX]; /* premul-sum: each rank's */
    int root, shift, k;        /* k: lists of coalesced forms */
    const char *algo;          /* NULL: the library chooses */
    bool
        exact; /* only elements whose reduction is exact in any order; else from the first rank to the last */
    /* Elements: of list j of rank i for (all)gather, scatter, reduce-scatter and messages (equal for all i
     * where the operation says so), or from i to j for all-to-all. */
    size_t lens[RANKS_MAX][RANKS_MAX];
    int tag; /* of messages: another in every call of a row, as ranks need not be in the same case */
};

/* How many input and output buffers a rank gives, and how long they are. */
int naive_nins(const struct call *c, int rank);
int naive_nouts(const struct call *c, int rank);
size_t naive_in_count(const struct call *c, int rank, int in);
size_t naive_out_count(const struct call *c, int rank, int out);

/* A piece of an output: `count` elements, from `first` on, of input `in` of `rank`, or of all ranks. */
struct source {
    bool reduced;
    int rank, in;
    size_t first, count;
};

/* The pieces of output `out` of `rank`, in order. None: the output is not touched. */
int naive_sources(const struct call *c, int rank, int out, struct source list[RANKS_MAX]);

/* Does the call reduce? */
bool naive_reduces(const struct call *c);

/* Element `pos` of input `in` of `rank`, as it lies in memory. */
void naive_element(const struct call *c, int rank, int in, size_t pos, void *element);

/* elements[i] is rank i's: the result, by the rules of choir/types.h. */
void naive_reduce(const struct call *c, const void *const *elements, void *result);

#endif
