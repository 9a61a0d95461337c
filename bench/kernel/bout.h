/*
 * bout.h - several contenders do the same work in alternating blocks of one run.
 *
 * Machines are shared and change their speed; what two contenders did within the same few
 * milliseconds can still be compared. So a block of one is followed by a block of the next, each
 * round begins with another one, and a ratio is the median of the ratios of single rounds.
 */
#ifndef CH_BENCH_BOUT_H
#define CH_BENCH_BOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"

#include "plain.h"
#include "stats.h"

enum { BOUT_MAX_CONTENDERS = 8, BOUT_MAX_BLOCKS = 101 };

enum bout_work { BOUT_REDUCE, BOUT_COPY };

struct contender {
    const char *name;
    choir_type type; /* of the elements, for a reduction */
    choir_redop op;
    const struct ch_kernels *kernels; /* whose reduce, or copy */
    bool past_cache;                  /* copy_nt instead of copy */
    plain_sum_fn plain;               /* instead of a kernel's reduce */
    bool is_libc;                     /* memcpy instead of a kernel's copy */
};

struct bout {
    enum bout_work work;
    size_t nbytes;     /* of each buffer */
    bool two_cores;    /* another core has just written the (last) source */
    size_t dst_offset; /* of the destination in its page; sources are aligned */
    int nblocks;
    size_t ncontenders;
    struct contender contenders[BOUT_MAX_CONTENDERS];

    /* Results. Rates are 1e9 bytes read and written in a second. */
    double rates[BOUT_MAX_CONTENDERS][BOUT_MAX_BLOCKS];
};

/* Measure. False if there is no memory or no thread to be had. The calling thread is on the first
 * processor (stats.h); work between two cores takes the second. */
bool bout_run(struct bout *b);

struct spread bout_rate(const struct bout *b, size_t who);
struct spread bout_ratio(const struct bout *b, size_t who, size_t to_whom);

#endif
