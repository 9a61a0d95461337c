/*
 * comm_local.c - a call whose communicator nobody else can know: all its ranks are here, so nothing has to be sent.
 *
 * The results have the bits that a group of as many ranks would give: the same kernels, sources in rank order.
 */
#include "nccl/comm_call.h"

#include "kernel/kernel.h"

/* --- reductions ------------------------------------------------------------------------------------ */

/* Every rank's `count` elements from `first` on, into `dsts`. */
static void reduce(const struct ch_comm_call *call, const void **srcs, void *const *dsts,
                   size_t ndsts, size_t first, size_t count)
{
    struct ch_reduction reduction = { .type = call->type,
                                      .op = call->redop,
                                      .divisor = call->nranks };
    size_t at = first * ch_type_bytes[call->type];

    for (size_t i = 0; i < call->nranks; i++)
        srcs[i] = (const char *)call->args.ins[i].data + at;
    if (count > 0)
        ch_reduce(&reduction, dsts, ndsts, srcs, call->nranks, count);
}

static void reduce_all(const struct ch_comm_call *call, const void **srcs, void **dsts)
{
    size_t share = call->count / call->nranks;

    if (call->op == CH_COMM_REDUCE) {
        dsts[0] = ch_comm_result(call, call->root)->data;
        reduce(call, srcs, dsts, 1, 0, call->count);
    } else if (call->op == CH_COMM_ALLREDUCE) {
        for (size_t i = 0; i < call->nranks; i++)
            dsts[i] = call->args.outs[i].data;
        reduce(call, srcs, dsts, call->nranks, 0, call->count);
    } else {
        for (size_t i = 0; i < call->nranks; i++) {
            dsts[0] = call->args.outs[i].data;
            reduce(call, srcs, dsts, 1, i * share, share);
        }
    }
}

/* --- copies ---------------------------------------------------------------------------------------- */

static void copy(const struct ch_comm_call *call, void *dst, const void *src)
{
    if (dst != src && call->count > 0)
        ch_copy(dst, src, call->count * ch_type_bytes[call->type]);
}

static void broadcast(const struct ch_comm_call *call)
{
    for (size_t i = 0; i < call->nranks; i++)
        copy(call, call->args.ins[i].data, call->args.ins[call->root].data);
}

static void gather_all(const struct ch_comm_call *call)
{
    size_t nbytes = call->count * ch_type_bytes[call->type];

    for (size_t i = 0; i < call->nranks; i++) {
        for (size_t j = 0; j < call->nranks && nbytes > 0; j++)
            copy(call, (char *)call->args.outs[i].data + j * nbytes, call->args.ins[j].data);
    }
}

void ch_comm_run_here(const struct ch_comm_call *call, const void **srcs, void **dsts)
{
    if (call->op == CH_COMM_BROADCAST)
        broadcast(call);
    else if (call->op == CH_COMM_ALLGATHER)
        gather_all(call);
    else
        reduce_all(call, srcs, dsts);
}
