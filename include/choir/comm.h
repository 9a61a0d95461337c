/*
 * comm.h - communicators in the manner of NCCL, on host memory.
 *
 *   choir_unique_id id;
 *   choir_comm *comm;
 *
 *   choir_unique_id_make(&id);                                // in one process; hand it to the others
 *   choir_comm_init_rank(nranks, &id, rank, NULL, &comm);     // in all
 *   choir_comm_allreduce(&(choir_comm_call){ .size = sizeof(choir_comm_call), .ins = &in, .nins = 1,
 *                                            .outs = &out, .nouts = 1, .comms = &comm, .ncomms = 1 },
 *                        NULL);
 *
 * Ranks find each other by an id that a process made, not by an environment, and a process may be several of
 * them: a call takes lists, an input for each rank that the caller is, and is done when all of these are. Where
 * NCCL has devices there are ranks here, and nothing else: `root` is a rank of the communicator, lengths follow from
 * how many ranks it has.
 *
 * Without communicators the inputs are the ranks of one that exists for the call alone: input i is rank i. All
 * of it is in this process, so it is worked out here, and nothing is kept.
 */
#ifndef CHOIR_COMM_H
#define CHOIR_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/coll.h>
#include <choir/export.h>
#include <choir/group.h>
#include <choir/opts.h>
#include <choir/status.h>
#include <choir/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- ids ------------------------------------------------------------------------------------------- */

enum { CHOIR_UNIQUE_ID_NBYTES = 128 };

/* Where ranks meet, and the secret one needs there: keep it from strangers. */
typedef struct choir_unique_id {
    unsigned char bytes[CHOIR_UNIQUE_ID_NBYTES];
} choir_unique_id;

/* A new one. Ranks meet in this process, which need not be one of them, and must live until they have met. An id
 * may serve for several communicators, one after the other. */
CHOIR_API choir_status choir_unique_id_make(choir_unique_id *id_out);

/* --- communicators --------------------------------------------------------------------------------- */

typedef struct choir_comm choir_comm;

typedef struct choir_comm_init_rank_opts {
    size_t size;        /* filled in by CHOIR_OPTS */
    int64_t timeout_ms; /* for all ranks to come; 0: five minutes, negative: none */
} choir_comm_init_rank_opts;

/*
 * Become rank `rank` of the `nranks` that are given this id.
 * Blocks:  until all have come, or one of them has failed.
 * Errors:  CHOIR_ERR_INVALID if these are no numbers of ranks, the bytes are no id of ours, or ranks differ on their
 *          number or have the same one; CHOIR_ERR_NETWORK if whoever made the id is gone; CHOIR_ERR_TIMEOUT names who is
 *          missing.
 * Threads: any; a rank is not bound to the thread that made it.
 */
CHOIR_API choir_status choir_comm_init_rank(int nranks, const choir_unique_id *id, int rank,
                                            const choir_comm_init_rank_opts *opts,
                                            choir_comm **comm_out);

/* Leave, as soon as no call of this rank is under way; the handle stays, to be destroyed, and its calls fail with
 * CHOIR_ERR_STATE. And the same with the handle, which no other thread may be using. Both accept NULL.
 * Blocks:  until calls that gave handles (works_out) are done; abort them first not to wait. */
CHOIR_API void choir_comm_close(choir_comm *comm);
CHOIR_API void choir_comm_destroy(choir_comm *comm);

/* End what is under way on all its ranks, and all that may come, with an error. Accepts NULL. */
CHOIR_API void choir_comm_abort(choir_comm *comm);

/* Wait until nothing is under way, and take no more calls. */
CHOIR_API choir_status choir_comm_finalize(choir_comm *comm, int64_t timeout_ms);

/* CHOIR_OK, or what it has failed with, that it is finalized or closed included; *record_out may be NULL. */
CHOIR_API choir_status choir_comm_error(choir_comm *comm, choir_error *record_out);

/* Which rank of how many. */
CHOIR_API int choir_comm_rank(const choir_comm *comm);
CHOIR_API int choir_comm_size(const choir_comm *comm);

/* Whether there is a communicator at this address, for those who have it from somebody else. */
CHOIR_API bool choir_comm_exists(const void *address);

/* --- reductions ------------------------------------------------------------------------------------ */

/* NCCL's numbers; above them are those that choir_comm_premul_sum() gives. */
enum {
    CHOIR_COMM_SUM = 0,
    CHOIR_COMM_PROD = 1,
    CHOIR_COMM_MAX = 2,
    CHOIR_COMM_MIN = 3,
    CHOIR_COMM_AVG = 4
};

/* The sum of this rank's elements times `*factor`, which is of `type`, a floating one; for this communicator
 * and type alone. `copied`: the factor is read now; otherwise in each call, and lent until then. */
CHOIR_API choir_status choir_comm_premul_sum(choir_comm *comm, const void *factor, choir_type type,
                                             bool copied, int *op_out);

/* CHOIR_ERR_INVALID for one that is not of this communicator, or was destroyed. */
CHOIR_API choir_status choir_comm_redop_destroy(choir_comm *comm, int op);

/* --- calls ----------------------------------------------------------------------------------------- */

typedef struct choir_comm_call {
    size_t size; /* sizeof(choir_comm_call) */

    /* One for each rank that the caller is, all of one type, without gaps. An input and an output are the same memory
     * (in place), or have nothing in common. */
    const choir_buf *ins, *outs;
    size_t nins, nouts;

    choir_comm *const *comms; /* those ranks; NULL: the inputs are all there are */
    size_t ncomms;            /* as many as inputs */

    /* NULL, or one for each input. Host memory has only the caller's own order: they are counted, and not used. */
    const void *const *streams;
    size_t nstreams;

    int op;             /* CHOIR_COMM_SUM ... */
    int root;           /* of broadcast and reduce: a rank */
    int64_t timeout_ms; /* 0: 30 minutes, negative: none */

    /* NULL: the call waits. Otherwise room for a handle for each input: it returns when all have begun, and communicators
     * and memory are lent until they are done. Without communicators it is done on return, and they are NULL. */
    choir_work **works_out;
} choir_comm_call;

/* What of the arguments a call was refused for; in the order in which they are looked at. */
typedef enum choir_comm_rule {
    CHOIR_RULE_NONE = 0,   /* it was not that */
    CHOIR_RULE_NO_INPUTS,  /* there are none */
    CHOIR_RULE_COMM_STATE, /* a communicator is destroyed or finalized */
    CHOIR_RULE_COMM_SIZES, /* communicators of different sizes */
    CHOIR_RULE_ROOT,       /* is no rank */
    CHOIR_RULE_NSTREAMS,   /* not as many as inputs */
    CHOIR_RULE_NCOMMS,     /* not as many as inputs */
    CHOIR_RULE_NOUTPUTS,   /* not as many as inputs */
    CHOIR_RULE_TYPE,       /* not that of the first input */
    CHOIR_RULE_CONTIGUOUS, /* there are gaps between its elements */
    CHOIR_RULE_COUNT,      /* not as many elements as the first input */
    CHOIR_RULE_OUTPUT_COUNT, /* not as many elements as its input has, or times the ranks, or by them */
    CHOIR_RULE_UNIQUE, /* two inputs for one rank or for a reduction's root, or outputs in the same memory */
    CHOIR_RULE_OVERLAP, /* an output overlaps an input, and is not in place */
    CHOIR_RULE_OP,      /* no such reduction, or not of this communicator */
    CHOIR_RULE_OP_TYPE  /* not defined on these elements */
} choir_comm_rule;

typedef struct choir_comm_fault {
    choir_comm_rule rule;
    bool is_output; /* it is about an output */
    int index;      /* about which element of a list; -1: none */
} choir_comm_fault;

/*
 * The collectives. N is the number of ranks:
 *   reduce          outs[0], at the root, has the reduction of all inputs; none given: in place of the root's input
 *   allreduce       outs[i] has the reduction of all inputs
 *   broadcast       ins[i] becomes the root's
 *   allgather       outs[i], N times as long, has all inputs in rank order
 *   reduce_scatter  outs[i], an N-th as long, has its rank's share of the reduction
 * All arguments are checked before anything is begun. *fault_out, which may be NULL, is filled in if one is refused.
 * Blocks:  until all ranks of the call are done; not with works_out, which has no handle after a failure.
 */
CHOIR_API choir_status choir_comm_reduce(const choir_comm_call *call, choir_comm_fault *fault_out);
CHOIR_API choir_status choir_comm_allreduce(const choir_comm_call *call,
                                            choir_comm_fault *fault_out);
CHOIR_API choir_status choir_comm_broadcast(const choir_comm_call *call,
                                            choir_comm_fault *fault_out);
CHOIR_API choir_status choir_comm_allgather(const choir_comm_call *call,
                                            choir_comm_fault *fault_out);
CHOIR_API choir_status choir_comm_reduce_scatter(const choir_comm_call *call,
                                                 choir_comm_fault *fault_out);

/* --- NCCL itself ----------------------------------------------------------------------------------- */

/* The NCCL that the dynamic linker finds, or CHOIR_LIBNCCL names: where it is, its version (22809 for
 * 2.28.9), and an id of its own. CHOIR_ERR_UNSUPPORTED, saying what was tried, if there is none. */
CHOIR_API choir_status choir_libnccl_path(const char **path_out);
CHOIR_API choir_status choir_libnccl_version(int *code_out);
CHOIR_API choir_status choir_libnccl_unique_id(choir_unique_id *id_out);

#ifdef __cplusplus
}
#endif
#endif
