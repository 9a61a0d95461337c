/*
 * work.h - the handle of one operation that was issued.
 *
 * An operation given a place for its handle returns at once and goes on by itself; the buffers are lent
 * until it is done. It finishes exactly once, well or with an error record. Letting go of the handle does
 * not stop it.
 */
#ifndef CHOIR_WORK_H
#define CHOIR_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/export.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_work choir_work;

/* What an operation is. Values are those of c10d's OpType. */
typedef enum choir_optype {
    CHOIR_OP_BROADCAST = 0,
    CHOIR_OP_ALLREDUCE = 1,
    CHOIR_OP_ALLREDUCE_COALESCED = 2,
    CHOIR_OP_REDUCE = 3,
    CHOIR_OP_ALLGATHER = 4,
    CHOIR_OP_ALLGATHER_INTO = 5,
    CHOIR_OP_ALLGATHER_COALESCED = 6,
    CHOIR_OP_GATHER = 7,
    CHOIR_OP_SCATTER = 8,
    CHOIR_OP_REDUCE_SCATTER = 9,
    CHOIR_OP_ALLTOALL_BASE = 10,
    CHOIR_OP_ALLTOALL = 11,
    CHOIR_OP_SEND = 12,
    CHOIR_OP_RECV = 13,
    CHOIR_OP_RECV_ANY = 14,
    CHOIR_OP_BARRIER = 15,
    CHOIR_OP_REDUCE_SCATTER_FROM = 16,
    CHOIR_OP_COALESCED = 17,
    CHOIR_OP_ALLREDUCE_SPARSE = 18,
    CHOIR_OP_REDUCE_SCATTER_COALESCED = 19,
    CHOIR_OP_UNKNOWN = 100,
    CHOIR_OP_SPLIT = 101 /* ours: the ranks of a group agree on others (choir_group_split) */
} choir_optype;

/* "allreduce", "recv_any"; NULL if it is not one of the list. */
CHOIR_API const char *choir_optype_name(choir_optype op);

/*
 * Wait until it is done.
 * `timeout_ms`: how long at most; 0 or negative: as long as the operation's own deadline allows. One that
 * passes is CHOIR_ERR_TIMEOUT, whose text begins "Operation timed out!", and the work goes on.
 * Returns CHOIR_OK, or what the operation failed with, at every call.
 * Threads: any number, as all calls here. A thread that waits helps to run what the group has queued.
 */
CHOIR_API choir_status choir_work_wait(choir_work *work, int64_t timeout_ms);

/* Without waiting, but helping along: CHOIR_OK, CHOIR_IN_PROGRESS, or what it failed with. */
CHOIR_API choir_status choir_work_test(choir_work *work);

/* The failure of a work that is done: its text ("" if there is none), its whole record (NULL). They live
 * as long as the handle. */
CHOIR_API const char *choir_work_error(const choir_work *work);
CHOIR_API const choir_error *choir_work_error_record(const choir_work *work);

/* What it is, and its number: of the group's collectives, or of its sends and receives; of a batch its first's. */
CHOIR_API choir_optype choir_work_op(const choir_work *work);
CHOIR_API uint64_t choir_work_sequence(const choir_work *work);

/* Of a receive that is done: from which rank. CHOIR_ERR_STATE for any other. */
CHOIR_API choir_status choir_work_source(const choir_work *work, int *rank_out);

/* How long it took, from being issued to its end, when it is done; CHOIR_ERR_STATE before. */
CHOIR_API choir_status choir_work_duration_ms(const choir_work *work, double *ms_out);

/* The buffers that hold its result, in the order of the call's arguments; CHOIR_ERR_STATE before it is
 * done, CHOIR_ERR_INVALID past the last. */
struct choir_buf;
CHOIR_API choir_status choir_work_result(const choir_work *work, size_t index,
                                         struct choir_buf *buf_out);

/* Have `done(arg, work)` called once, when the work is done: on a thread of the library's, never with a
 * lock held, in the order in which they were added; at once, on this thread, if it is done already (and those added
 * before may still be to come). It may issue operations, wait for works, let go of its own and destroy the
 * group; but while it waits no other callback of this rank runs, and it cannot wait for those. */
CHOIR_API choir_status choir_work_on_done(choir_work *work,
                                          void (*done)(void *arg, choir_work *work), void *arg);

/* Give up: a work that has not started is taken out of the queue, one under way fails. Waiters return with
 * CHOIR_ERR_INTERRUPTED. The group of an aborted collective is in error from then on. */
CHOIR_API void choir_work_abort(choir_work *work);

/* A handle is counted: one reference comes with it. Both accept NULL. */
CHOIR_API choir_work *choir_work_ref(choir_work *work);
CHOIR_API void choir_work_unref(choir_work *work);

#ifdef __cplusplus
}
#endif
#endif
