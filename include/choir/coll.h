/*
 * coll.h - operations between the ranks of a group.
 *
 *   choir_allreduce(group, CHOIR_BUF(grad, n, CHOIR_F32), NULL, NULL);                // done on return
 *
 *   choir_work *work;
 *   choir_allreduce(group, CHOIR_BUF(grad, n, CHOIR_BF16),
 *                   CHOIR_OPTS(allreduce, .op = CHOIR_AVG), &work);                    // under way
 *   choir_work_wait(work, 0);
 *   choir_work_unref(work);
 *
 * Every call takes `opts`, NULL for the defaults, and `work_out`, NULL to have it done on return. Buffers
 * are lent until it is done, with their sizes and strides; lists of buffers, lengths of parts and options are read in
 * the call and need not last longer. All ranks make the same calls of a group in the same order; what differs ends
 * as an error on all of them, with a table of who called what. Bad arguments are refused before anything
 * is sent, and change nothing. No elements at all is fine everywhere, and still a call to be matched.
 *
 * Threads: a group may be used from several threads, if they agree on the order; different groups freely.
 */
#ifndef CHOIR_COLL_H
#define CHOIR_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/export.h>
#include <choir/group.h>
#include <choir/opts.h>
#include <choir/status.h>
#include <choir/types.h>
#include <choir/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- buffers ------------------------------------------------------------------------------------- */

/* `count` elements behind each other; or, with ndim > 0, an array of that shape whose elements are strides
 * apart (in elements, not overlapping), taken in row-major order; sizes and strides are lent as well. */
typedef struct choir_buf {
    void *data;
    size_t count;
    choir_type type;
    int ndim;
    const int64_t *sizes, *strides;
} choir_buf;

#ifndef __cplusplus
#define CHOIR_BUF(data_, count_, type_)                                                            \
    ((choir_buf){ .data = (void *)(data_), .count = (count_), .type = (type_) })
#endif

/* One struct for all calls; a call reads what concerns it. */
typedef struct choir_coll_opts {
    size_t size;        /* filled in by CHOIR_OPTS */
    int64_t timeout_ms; /* 0: the group's; negative: none */
    choir_redop op;     /* of reductions: CHOIR_SUM */
    double factor;      /* of premul-sum: this rank's */
    int root;           /* of broadcast, reduce, gather, scatter: 0 */
    const void *input;  /* of allreduce, reduce: where this rank's elements are, laid out (sizes,
                        * strides) as the buffer is; only read; NULL: in the buffer itself */
    const char *algo;   /* the algorithm to use, by name; NULL: the library chooses */
} choir_coll_opts;

typedef choir_coll_opts choir_allreduce_opts, choir_broadcast_opts, choir_reduce_opts,
    choir_allgather_opts, choir_gather_opts, choir_scatter_opts, choir_reduce_scatter_opts,
    choir_alltoall_opts, choir_barrier_opts, choir_send_opts, choir_recv_opts, choir_sendrecv_opts;

/* --- all ranks ------------------------------------------------------------------------------------ */

/* N is the group's size, r the caller's rank. Lists of N have one buffer for each rank, in rank order;
 * their lengths may differ (uneven), as long as the ranks agree on them. */

CHOIR_API choir_status choir_allreduce(choir_group *group, choir_buf buf,
                                       const choir_coll_opts *opts, choir_work **work_out);

/* Several buffers of one type as if they were one. */
CHOIR_API choir_status choir_allreduce_coalesced(choir_group *group, const choir_buf *bufs,
                                                 size_t nbufs, const choir_coll_opts *opts,
                                                 choir_work **work_out);

/* A sparse array in coordinate form: `nnz` entries, each `value_count` elements at `ndim` coordinates
 * (indices[d * nnz + i]). On return of choir_allreduce_sparse() the sum over all ranks, with each coordinate
 * once, in rising order, in memory of the library's: choir_sparse_free(). */
typedef struct choir_sparse {
    int ndim;
    size_t nnz, value_count;
    const int64_t *shape; /* ndim of them */
    int64_t *indices;
    void *values;
    choir_type type;
} choir_sparse;

CHOIR_API choir_status choir_allreduce_sparse(choir_group *group, const choir_sparse *in,
                                              choir_sparse *out, const choir_coll_opts *opts,
                                              choir_work **work_out);
CHOIR_API void choir_sparse_free(choir_sparse *sparse);

/* The root's elements, everywhere. */
CHOIR_API choir_status choir_broadcast(choir_group *group, choir_buf buf,
                                       const choir_coll_opts *opts, choir_work **work_out);

/* The result is the root's alone; the others' buffers are not changed. */
CHOIR_API choir_status choir_reduce(choir_group *group, choir_buf buf, const choir_coll_opts *opts,
                                    choir_work **work_out);

/* outs[i] is rank i's `in`; or all of them behind each other in `out`; k of either at once, where
 * outs[i * k + j] is rank i's ins[j]. */
CHOIR_API choir_status choir_allgather(choir_group *group, choir_buf in, const choir_buf *outs,
                                       const choir_coll_opts *opts, choir_work **work_out);
CHOIR_API choir_status choir_allgather_into(choir_group *group, choir_buf in, choir_buf out,
                                            const choir_coll_opts *opts, choir_work **work_out);
CHOIR_API choir_status choir_allgather_coalesced(choir_group *group, const choir_buf *ins,
                                                 const choir_buf *outs, size_t k,
                                                 const choir_coll_opts *opts,
                                                 choir_work **work_out);
CHOIR_API choir_status choir_allgather_into_coalesced(choir_group *group, const choir_buf *ins,
                                                      const choir_buf *outs, size_t k,
                                                      const choir_coll_opts *opts,
                                                      choir_work **work_out);

/* The root's outs[i] is rank i's `in`; `outs` is NULL on the others. And the way back. */
CHOIR_API choir_status choir_gather(choir_group *group, choir_buf in, const choir_buf *outs,
                                    const choir_coll_opts *opts, choir_work **work_out);
CHOIR_API choir_status choir_scatter(choir_group *group, const choir_buf *ins, choir_buf out,
                                     const choir_coll_opts *opts, choir_work **work_out);

/* `out` is the reduction of all ranks' ins[r]; or of the r-th of N equal parts of `in`; k of those. */
CHOIR_API choir_status choir_reduce_scatter(choir_group *group, const choir_buf *ins, choir_buf out,
                                            const choir_coll_opts *opts, choir_work **work_out);
CHOIR_API choir_status choir_reduce_scatter_from(choir_group *group, choir_buf in, choir_buf out,
                                                 const choir_coll_opts *opts,
                                                 choir_work **work_out);
CHOIR_API choir_status choir_reduce_scatter_coalesced(choir_group *group, const choir_buf *ins,
                                                      const choir_buf *outs, size_t k,
                                                      const choir_coll_opts *opts,
                                                      choir_work **work_out);

/* outs[i] is rank i's ins[r]; or parts of one buffer each, with their lengths in elements (NULL: equal; either all
 * ranks give lengths or none does). */
CHOIR_API choir_status choir_alltoall(choir_group *group, const choir_buf *ins,
                                      const choir_buf *outs, const choir_coll_opts *opts,
                                      choir_work **work_out);
CHOIR_API choir_status choir_alltoall_base(choir_group *group, choir_buf in,
                                           const size_t *in_splits, choir_buf out,
                                           const size_t *out_splits, const choir_coll_opts *opts,
                                           choir_work **work_out);

/* Done when every rank has entered it. */
CHOIR_API choir_status choir_barrier(choir_group *group, const choir_coll_opts *opts,
                                     choir_work **work_out);

/* The same, done on return, and if not all come in time, everybody is told by rank 0 who did not: the first, or all of them. */
CHOIR_API choir_status choir_monitored_barrier(choir_group *group, bool name_all,
                                               const choir_coll_opts *opts);

/* --- two ranks ------------------------------------------------------------------------------------ */

/* Matched by peer and tag (0 or more), in order; never held up by collectives. The receiver's buffer has
 * exactly the message's size. A send is done when its buffer may be used again. */
CHOIR_API choir_status choir_send(choir_group *group, choir_buf buf, int to, int tag,
                                  const choir_coll_opts *opts, choir_work **work_out);
CHOIR_API choir_status choir_recv(choir_group *group, choir_buf buf, int from, int tag,
                                  const choir_coll_opts *opts, choir_work **work_out);

/* Both at once, as in a batch of the two: neither waits for the other, so all ranks of a ring may call it. The
 * ranks and the buffers may differ in all, but the buffers must not overlap. */
CHOIR_API choir_status choir_sendrecv(choir_group *group, choir_buf send_buf, int to,
                                      choir_buf recv_buf, int from, int tag,
                                      const choir_coll_opts *opts, choir_work **work_out);

/* From whoever comes first; *from_out (may be NULL) is written when it is done. */
CHOIR_API choir_status choir_recv_any(choir_group *group, choir_buf buf, int tag, int *from_out,
                                      const choir_coll_opts *opts, choir_work **work_out);

/* --- several at once -------------------------------------------------------------------------------- */

/* What this thread issues on `group` between the two starts together when the batch ends, and is one work;
 * calls in between return at once and give no handle. Sends and receives of a batch may be in any order. A call that
 * is refused is not part of it; monitored barriers and splits are refused with CHOIR_ERR_STATE. */
CHOIR_API choir_status choir_batch_begin(choir_group *group);
CHOIR_API choir_status choir_batch_end(choir_group *group, choir_work **work_out);

/* End it without issuing anything: as if nothing had been called since it began. */
CHOIR_API choir_status choir_batch_drop(choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
