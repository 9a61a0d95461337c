/*
 * comm_call.c - the collectives of communicators. See comm_call.h.
 */
#include "nccl/comm_call.h"

#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/mem.h"

/* Room for every rank of the call, on the stack for as many as one process usually is. */
enum { FEW = 16 };

struct room {
    choir_group *groups[FEW];
    void *pointers[2 * FEW];
};

/* --- carrying out ---------------------------------------------------------------------------------- */

static choir_status enter(struct ch_comm_call *call, choir_group **groups, size_t *entered_out)
{
    choir_status rc;

    for (size_t i = 0; i < call->args.ncomms; i++) {
        if (call->args.comms[i] == NULL)
            return ch_fail(CHOIR_ERR_INVALID, "%s: comms[%zu]: is NULL", call->name, i);
        rc = ch_comm_enter(call->args.comms[i], &groups[i]);
        if (rc != CHOIR_OK) {
            if (rc == CHOIR_ERR_STATE)
                call->fault = (choir_comm_fault){ CHOIR_RULE_COMM_STATE, false, (int)i };
            ch_error_prefix("%s: comms[%zu]: ", call->name, i);
            return rc;
        }
        (*entered_out)++;
    }
    return CHOIR_OK;
}

static choir_status carry_out(struct ch_comm_call *call, choir_group **groups, void **pointers)
{
    choir_status rc = ch_comm_check(call);

    if (rc != CHOIR_OK)
        return rc;
    if (call->args.comms != NULL)
        return ch_comm_run_ranks(call, groups, (choir_work **)pointers);
    ch_comm_run_here(call, (const void **)pointers, pointers + call->args.nins);
    return CHOIR_OK;
}

static choir_status with_room(struct ch_comm_call *call, choir_group **groups, void **pointers)
{
    size_t entered = 0;
    choir_status rc = enter(call, groups, &entered);

    if (rc == CHOIR_OK)
        rc = carry_out(call, groups, pointers);
    for (size_t i = 0; i < entered; i++)
        ch_comm_leave(call->args.comms[i]);
    return rc;
}

static choir_status with_heap(struct ch_comm_call *call, size_t n)
{
    choir_group **groups = ch_zalloc_array(n, sizeof(*groups));
    void **pointers = ch_zalloc_array(n, 2 * sizeof(*pointers));
    choir_status rc = groups != NULL && pointers != NULL
                          ? with_room(call, groups, pointers)
                          : ch_fail(CHOIR_ERR_NOMEM, "%s: no memory for %zu ranks", call->name, n);

    ch_free(groups);
    ch_free(pointers);
    return rc;
}

static choir_status run(struct ch_comm_call *call)
{
    size_t n = call->args.nins > call->args.ncomms ? call->args.nins : call->args.ncomms;
    struct room room;

    if (call->args.nins == 0) {
        call->fault = (choir_comm_fault){ .rule = CHOIR_RULE_NO_INPUTS, .index = -1 };
        return ch_fail(CHOIR_ERR_INVALID, "%s: there are no inputs, expected at least one",
                       call->name);
    }
    if (n > FEW)
        return with_heap(call, n);
    memset(&room, 0, sizeof(room));
    return with_room(call, room.groups, room.pointers);
}

/* --- entry ----------------------------------------------------------------------------------------- */

static choir_status begin(enum ch_comm_op op, const char *name, const choir_comm_call *args,
                          choir_comm_fault *fault_out)
{
    struct ch_comm_call call = { .op = op, .name = name, .fault = { .index = -1 } };
    choir_status rc;

    if (args == NULL || args->size == 0)
        return ch_fail(CHOIR_ERR_INVALID, "%s: call: %s", name,
                       args == NULL ? "is NULL" : "its size is 0");
    memcpy(&call.args, args, args->size < sizeof(call.args) ? args->size : sizeof(call.args));
    if ((call.args.ins == NULL && call.args.nins > 0) ||
        (call.args.outs == NULL && call.args.nouts > 0) ||
        (call.args.comms == NULL && call.args.ncomms > 0))
        return ch_fail(CHOIR_ERR_INVALID, "%s: a list that is not empty is NULL", name);
    for (size_t i = 0; call.args.works_out != NULL && i < call.args.nins; i++)
        call.args.works_out[i] = NULL;
    rc = run(&call);
    if (rc != CHOIR_OK && fault_out != NULL)
        *fault_out = call.fault;
    return rc;
}

choir_status choir_comm_reduce(const choir_comm_call *call, choir_comm_fault *fault_out)
{
    return begin(CH_COMM_REDUCE, "reduce", call, fault_out);
}

choir_status choir_comm_allreduce(const choir_comm_call *call, choir_comm_fault *fault_out)
{
    return begin(CH_COMM_ALLREDUCE, "all_reduce", call, fault_out);
}

choir_status choir_comm_broadcast(const choir_comm_call *call, choir_comm_fault *fault_out)
{
    return begin(CH_COMM_BROADCAST, "broadcast", call, fault_out);
}

choir_status choir_comm_allgather(const choir_comm_call *call, choir_comm_fault *fault_out)
{
    return begin(CH_COMM_ALLGATHER, "all_gather", call, fault_out);
}

choir_status choir_comm_reduce_scatter(const choir_comm_call *call, choir_comm_fault *fault_out)
{
    return begin(CH_COMM_REDUCE_SCATTER, "reduce_scatter", call, fault_out);
}
