/*
 * reduce.h - combine buffers of this process; no other rank takes part.
 *
 * The same kernels that the collectives use, for programs that have the pieces already: several
 * sources in a given order, one pass over memory, one rounding (rules: choir/types.h).
 */
#ifndef CHOIR_REDUCE_H
#define CHOIR_REDUCE_H

#include <stddef.h>

#include <choir/export.h>
#include <choir/opts.h>
#include <choir/status.h>
#include <choir/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_reduce_local_opts {
    size_t size;           /* sizeof(choir_reduce_local_opts); CHOIR_OPTS() fills it in */
    choir_redop op;        /* CHOIR_SUM */
    size_t divisor;        /* avg: what the sum is divided by; 0 means the number of sources */
    const double *factors; /* premul-sum: one factor for each source */
} choir_reduce_local_opts;

/*
 * dst[i] = op(srcs[0][i], srcs[1][i], ...) for i below `count`. `dst` may be one of the sources,
 * but must not overlap one partly. `opts` NULL means CHOIR_SUM. No alignment is asked for.
 * Threads: any number at once.
 * Errors:  CHOIR_ERR_INVALID names the argument; CHOIR_ERR_TYPE if the pair is refused.
 */
CHOIR_API choir_status choir_reduce_local(void *dst, const void *const *srcs, size_t nsrcs,
                                          size_t count, choir_type type,
                                          const choir_reduce_local_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
