/*
 * contender.h - what the programs of bench/compare have in common: a rank that measures blocks when told to.
 *
 * A contender is a library, or the limit, that can carry the operations out. It fills in struct contender and calls
 * contender_serve(), which does everything else, the same for all: buffers, values, rounds, time. What is measured
 * and how is in tools/perf_shape.h, perf_values.h and perf_manner.h, as for `choir perf`.
 *
 * Contenders stay for a whole comparison and take turns. A rank waits for its turn in read() from a pipe of its own,
 * DIR/go.RANK, so that those whose turn it is not take no processor, however their library waits. An order is a line
 *     OP BYTES FRESH WHOLE ROUNDS WARM
 * and rank 0 answers in DIR/told with a line
 *     OP BYTES P50_US MIN_US P99_US WALL_US WRONG
 * where WALL_US is what the whole block took. The end of DIR/go.RANK is the end of the rank.
 */
#ifndef CONTENDER_H
#define CONTENDER_H

#include <stdbool.h>
#include <stddef.h>

#include "perf_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions end the process with a word to standard error if something fails. */
struct contender {
    const char *name;
    void *self; /* handed to the functions */
    int rank, nranks;
    int nvariants; /* ways to do it, of which the fastest counts */

    void (*set_variant)(void *self, int variant); /* NULL if there is one */
    /* Two buffers, 0 for input and 1 for output, touched; NULL: ordinary memory. */
    void *(*memory)(void *self, int which, size_t nbytes);
    void (*release)(void *self, void *memory, size_t nbytes);
    void (*barrier)(void *self);
    /* Elements are f32, reductions sums, the root is 0. A broadcast has in == out. */
    void (*call)(void *self, const struct perf_shape *shape, float *in, float *out);
    /* On rank 0 each of `values` becomes the largest of all ranks. */
    void (*largest)(void *self, double *values, int count);
};

/* Serve until told to end. Returns the exit code. */
int contender_serve(struct contender *contender, const char *folder);

/* PROGRAM DIR bound|free ...: bind the calling thread, a rank, as asked. */
void contender_bind(const char *how, int rank);

#ifdef __cplusplus
}
#endif
#endif
