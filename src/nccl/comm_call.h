/*
 * comm_call.h - one call that drives several ranks of this process, on its way.
 *
 * comm_check.c says whether the arguments fit; then it is carried out: where all ranks are in the call, and nobody can
 * know their communicator, on the spot (comm_local.c); otherwise by the ranks' groups (comm_ranks.c).
 */
#ifndef CH_COMM_CALL_H
#define CH_COMM_CALL_H

#include "nccl/comm.h"

enum ch_comm_op {
    CH_COMM_REDUCE,
    CH_COMM_ALLREDUCE,
    CH_COMM_BROADCAST,
    CH_COMM_ALLGATHER,
    CH_COMM_REDUCE_SCATTER
};

struct ch_comm_call {
    enum ch_comm_op op;
    const char *name;     /* "all_reduce", for texts */
    choir_comm_call args; /* whole */
    choir_comm_fault fault;

    /* Worked out by ch_comm_check(): */
    size_t nranks; /* of the communicator */
    size_t root;   /* which of the inputs is the root's; nins: none */
    size_t count;  /* of elements of an input */
    choir_type type;
    choir_redop redop;
    double factor;
};

/* The rank of input i. */
static inline size_t ch_comm_rank_of(const struct ch_comm_call *call, size_t i)
{
    return call->args.comms != NULL ? (size_t)call->args.comms[i]->rank : i;
}

static inline bool ch_comm_reduces(const struct ch_comm_call *call)
{
    return call->op == CH_COMM_REDUCE || call->op == CH_COMM_ALLREDUCE ||
           call->op == CH_COMM_REDUCE_SCATTER;
}

/* Where the result of input i goes, and how many elements; NULL: nowhere. */
const choir_buf *ch_comm_result(const struct ch_comm_call *call, size_t i);

/* CHOIR_OK, or the first rule that is broken, in call->fault and in words. Communicators are open. */
choir_status ch_comm_check(struct ch_comm_call *call);

/* Where all ranks are inputs. `srcs` and `dsts` are scratch, with room for as many. */
void ch_comm_run_here(const struct ch_comm_call *call, const void **srcs, void **dsts);

/* By the groups of the communicators. `works` is scratch for as many, zeroed. */
choir_status ch_comm_run_ranks(const struct ch_comm_call *call, choir_group *const *groups,
                               choir_work **works);

#endif
