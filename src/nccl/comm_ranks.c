/*
 * comm_ranks.c - a call on communicators that others are part of: an operation of each rank's group.
 *
 * One rank alone takes the group's short way. Several are begun together and driven by this thread in turn: what one
 * of them waits for another may have to do. Where handles are asked for they are begun, and go on by themselves.
 */
#include "nccl/comm_call.h"

#include <string.h>

#include "base/error.h"

enum { TURNS = 64 }; /* without an end of any of them, before we sleep */

static choir_status issue(const struct ch_comm_call *call, size_t i, choir_group *group,
                          choir_work **work_out)
{
    const choir_buf *in = &call->args.ins[i], *out = ch_comm_result(call, i);
    choir_coll_opts opts = { .size = sizeof(opts),
                             .timeout_ms = call->args.timeout_ms,
                             .op = call->redop,
                             .factor = call->factor,
                             .root = call->args.root };
    choir_buf from = CHOIR_BUF(in->data, in->count, in->type), to = from;

    if (out != NULL)
        to = CHOIR_BUF(out->data, out->count, out->type);
    if ((call->op == CH_COMM_REDUCE || call->op == CH_COMM_ALLREDUCE) && to.data != from.data)
        opts.input = from.data;
    switch (call->op) {
    case CH_COMM_REDUCE:
        return choir_reduce(group, to, &opts, work_out);
    case CH_COMM_ALLREDUCE:
        return choir_allreduce(group, to, &opts, work_out);
    case CH_COMM_BROADCAST:
        return choir_broadcast(group, to, &opts, work_out);
    case CH_COMM_ALLGATHER:
        return choir_allgather_into(group, from, to, &opts, work_out);
    case CH_COMM_REDUCE_SCATTER:
        return choir_reduce_scatter_from(group, from, to, &opts, work_out);
    }
    return ch_fail(CHOIR_ERR_INVALID, "%s: no such call", call->name);
}

/* --- several --------------------------------------------------------------------------------------- */

/* Take what is done out of the list; its failure is the call's if it is the first. */
static size_t collect(choir_work **works, size_t n, choir_error *first)
{
    size_t ended = 0;

    for (size_t i = 0; i < n; i++) {
        choir_status rc = works[i] != NULL ? choir_work_test(works[i]) : CHOIR_IN_PROGRESS;

        if (rc == CHOIR_IN_PROGRESS)
            continue;
        if (rc != CHOIR_OK && first->code == CHOIR_OK)
            ch_error_save(first);
        choir_work_unref(works[i]);
        works[i] = NULL;
        ended++;
    }
    return ended;
}

static choir_work *first_of(choir_work **works, size_t n)
{
    size_t i = 0;

    while (i < n && works[i] == NULL)
        i++;
    return i < n ? works[i] : NULL;
}

static void abort_all(choir_work **works, size_t n)
{
    for (size_t i = 0; i < n; i++)
        choir_work_abort(works[i]);
}

/* Until all are done: buffers are lent to each of them, so no failure of one ends the wait for the others. */
static void drive(choir_work **works, size_t n, choir_error *first)
{
    choir_work *pending;
    choir_status rc;

    while ((pending = first_of(works, n)) != NULL) {
        for (int turn = 0; turn < TURNS && first_of(works, n) != NULL; turn++) {
            if (collect(works, n, first) > 0)
                turn = -1;
        }
        pending = first_of(works, n);
        if (pending == NULL)
            return;
        rc = choir_work_wait(pending, 0); /* the others go on by themselves */
        if (rc == CHOIR_ERR_INTERRUPTED && choir_work_test(pending) == CHOIR_IN_PROGRESS) {
            if (first->code == CHOIR_OK)
                ch_error_save(first);
            abort_all(works, n);
        }
    }
}

/* All of them, or none: then what had begun is over when this returns. */
static choir_status issue_all(const struct ch_comm_call *call, choir_group *const *groups,
                              choir_work **works)
{
    choir_error first = { .code = CHOIR_OK };
    size_t n = call->args.nins;

    for (size_t i = 0; i < n && first.code == CHOIR_OK; i++) {
        if (issue(call, i, groups[i], &works[i]) != CHOIR_OK)
            ch_error_save(&first);
    }
    if (first.code == CHOIR_OK)
        return CHOIR_OK;
    abort_all(works, n);
    drive(works, n, &first);
    return ch_error_load(&first);
}

choir_status ch_comm_run_ranks(const struct ch_comm_call *call, choir_group *const *groups,
                               choir_work **works)
{
    choir_error first = { .code = CHOIR_OK };
    size_t n = call->args.nins;
    choir_status rc;

    if (n == 1 && call->args.works_out == NULL)
        return issue(call, 0, groups[0], NULL);
    rc = issue_all(call, groups, works);
    if (rc != CHOIR_OK)
        return rc;
    if (call->args.works_out != NULL) {
        memcpy(call->args.works_out, works, n * sizeof(choir_work *));
        return CHOIR_OK;
    }
    drive(works, n, &first);
    return first.code != CHOIR_OK ? ch_error_load(&first) : CHOIR_OK;
}
