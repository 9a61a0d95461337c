/*
 * op.c - names of operations.
 */
#include "engine/op.h"

static const char *const names[] = {
    [CHOIR_OP_BROADCAST] = "broadcast",
    [CHOIR_OP_ALLREDUCE] = "allreduce",
    [CHOIR_OP_ALLREDUCE_COALESCED] = "allreduce_coalesced",
    [CHOIR_OP_REDUCE] = "reduce",
    [CHOIR_OP_ALLGATHER] = "allgather",
    [CHOIR_OP_ALLGATHER_INTO] = "allgather_into",
    [CHOIR_OP_ALLGATHER_COALESCED] = "allgather_coalesced",
    [CHOIR_OP_GATHER] = "gather",
    [CHOIR_OP_SCATTER] = "scatter",
    [CHOIR_OP_REDUCE_SCATTER] = "reduce_scatter",
    [CHOIR_OP_ALLTOALL_BASE] = "alltoall_base",
    [CHOIR_OP_ALLTOALL] = "alltoall",
    [CHOIR_OP_SEND] = "send",
    [CHOIR_OP_RECV] = "recv",
    [CHOIR_OP_RECV_ANY] = "recv_any",
    [CHOIR_OP_BARRIER] = "barrier",
    [CHOIR_OP_REDUCE_SCATTER_FROM] = "reduce_scatter_from",
    [CHOIR_OP_COALESCED] = "coalesced",
    [CHOIR_OP_ALLREDUCE_SPARSE] = "allreduce_sparse",
    [CHOIR_OP_REDUCE_SCATTER_COALESCED] = "reduce_scatter_coalesced",
    [CHOIR_OP_SPLIT] = "split",
};

const char *ch_optype_name(choir_optype type)
{
    return (size_t)type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;
}
