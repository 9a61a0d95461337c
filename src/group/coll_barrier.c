/*
 * coll_barrier.c - choir_barrier(), and choir_monitored_barrier(), which knows who did not come.
 *
 * The monitored one is made of messages. Everybody tells rank 0 that it is there; rank 0, which alone keeps the
 * time, tells everybody the verdict, also those that did not come: they find it when they do. So all
 * name the same culprits. Messages carry the barrier's number: what is left of one that failed is not taken for
 * the next. The others wait half as long again, for the verdict of a rank 0 that may have begun later.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "group/args.h"
#include "group/batch.h"
#include "group/direct.h"
#include "group/group.h"
#include "group/memory.h"

choir_status choir_barrier(choir_group *group, const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    struct ch_op op;
    choir_status rc;

    if (ch_direct_may(group, opts, work_out)) {
        ch_op_init(&op, CHOIR_OP_BARRIER, CH_BARRIER, CHOIR_U8, 0);
        if (ch_direct_run(group, &op, "choir_barrier", opts, &rc))
            return rc;
    }
    rc = ch_call_open(group, "choir_barrier", CHOIR_OP_BARRIER, opts, work_out != NULL, &here,
                      &call);
    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_BARRIER;
    ch_op_length(call, CHOIR_U8, 0);
    return ch_call_issue(call, CHOIR_OK, work_out);
}

/* --- monitored ---------------------------------------------------------------------------------- */

/* Tags that users cannot have. */
enum { TAG_HERE = -2, TAG_VERDICT = -3, LISTED_MAX = 60 };

struct here {
    uint64_t number;
};

struct verdict {
    uint64_t number;
    int64_t timeout_ms;
    uint32_t nmissing, nlisted;
    int32_t missing[LISTED_MAX];
};

/* One message of the barrier, waited for until `until`. */
static choir_status message(choir_group *group, choir_optype type, int peer, int tag, void *data,
                            size_t nbytes, ch_deadline until)
{
    const choir_buf buf = { .data = data, .count = nbytes, .type = CHOIR_U8 };
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_monitored_barrier", type, NULL, false, &here,
                                   &call);

    if (rc != CHOIR_OK)
        return rc;
    call->collective = false;
    call->inner = true;
    call->op.peer = peer;
    call->op.tag = tag;
    ch_op_length(call, buf.type, buf.count);
    ch_blocks_even(type == CHOIR_OP_SEND ? &call->op.in : &call->op.out, 0, 1, 1, data, nbytes);
    call->op.until = until;
    return ch_call_run(call);
}

/* "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 500 ms" */
static choir_status say(const struct verdict *verdict)
{
    char ranks[LISTED_MAX * 8] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < verdict->nlisted && at + 16 < sizeof(ranks); i++)
        at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%" PRId32, i > 0 ? ", " : "",
                               verdict->missing[i]);
    if (verdict->nmissing > verdict->nlisted)
        snprintf(ranks + at, sizeof(ranks) - at, " and %u more",
                 verdict->nmissing - verdict->nlisted);
    return ch_fail_rank(CHOIR_ERR_TIMEOUT, verdict->missing[0], "monitored_barrier",
                        "[Rank 0]: Rank%s %s failed to pass monitoredBarrier in %lld ms",
                        verdict->nmissing > 1 ? "s" : "", ranks, (long long)verdict->timeout_ms);
}

static choir_status hear_from(choir_group *group, int rank, uint64_t number, ch_deadline until)
{
    struct here here = { 0 };
    choir_status rc;

    do
        rc = message(group, CHOIR_OP_RECV, rank, TAG_HERE, &here, sizeof(here), until);
    while (rc == CHOIR_OK && here.number < number);
    return rc;
}

static void note_missing(struct verdict *verdict, int rank)
{
    if (verdict->nlisted < LISTED_MAX)
        verdict->missing[verdict->nlisted++] = rank;
    verdict->nmissing++;
}

static choir_status rank_zero(choir_group *group, struct verdict *verdict, bool name_all,
                              int64_t timeout_ms)
{
    enum { VERDICT_MS = 1000 };
    ch_deadline until = ch_deadline_ms(timeout_ms);
    choir_status rc = CHOIR_OK;

    for (int r = 1; r < group->nranks; r++) {
        if (name_all && r > 1 && verdict->nmissing > 0)
            until = ch_deadline_ms(0); /* they had as long as the first that is missing */
        rc = hear_from(group, r, verdict->number, until);
        if (rc == CHOIR_OK)
            continue;
        if (rc != CHOIR_ERR_TIMEOUT)
            return rc;
        note_missing(verdict, r);
        if (!name_all)
            break;
    }
    for (int r = 1; r < group->nranks; r++)
        (void)message(group, CHOIR_OP_SEND, r, TAG_VERDICT, verdict, sizeof(*verdict),
                      verdict->nmissing == 0 ? until : ch_deadline_ms(VERDICT_MS));
    return verdict->nmissing > 0 ? say(verdict) : CHOIR_OK;
}

/* Half as long again; negative: for ever. */
static int64_t patience_ms(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > INT64_MAX / 2 ? -1 : timeout_ms + timeout_ms / 2;
}

static choir_status other_rank(choir_group *group, uint64_t number, int64_t timeout_ms)
{
    ch_deadline until = ch_deadline_ms(patience_ms(timeout_ms));
    struct here here = { number };
    struct verdict verdict = { 0 };
    choir_status rc = message(group, CHOIR_OP_SEND, 0, TAG_HERE, &here, sizeof(here), until);

    while (rc == CHOIR_OK && verdict.number < number)
        rc = message(group, CHOIR_OP_RECV, 0, TAG_VERDICT, &verdict, sizeof(verdict), until);
    if (rc == CHOIR_OK && verdict.nmissing > 0)
        return say(&verdict);
    if (rc == CHOIR_ERR_TIMEOUT)
        rc = ch_fail_rank(CHOIR_ERR_TIMEOUT, 0, "monitored_barrier",
                          "[Rank %d]: reached monitoredBarrier successfully, but rank 0 sent no "
                          "verdict in %lld ms: see what rank 0 says",
                          group->rank, (long long)patience_ms(timeout_ms));
    return rc;
}

choir_status choir_monitored_barrier(choir_group *group, bool name_all, const choir_coll_opts *opts)
{
    struct verdict verdict = { 0 };
    struct ch_call here, *call;
    int64_t timeout_ms;
    choir_status rc = ch_call_open(group, "choir_monitored_barrier", CHOIR_OP_BARRIER, opts, false,
                                   &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    timeout_ms = call->op.timeout_ms;
    ch_call_release(call);
    rc = ch_batch_refuse(group);
    if (rc == CHOIR_OK)
        rc = ch_group_check(group);
    if (rc != CHOIR_OK) {
        ch_error_prefix("choir_monitored_barrier: ");
        return rc;
    }
    ch_lock(&group->lock);
    verdict.number = ++group->nmonitored;
    ch_unlock(&group->lock);
    verdict.timeout_ms = timeout_ms;
    if (group->backend->at_once)
        return CHOIR_OK; /* nobody is there to come or not */
    return group->rank == 0 ? rank_zero(group, &verdict, name_all, timeout_ms)
                            : other_rank(group, verdict.number, timeout_ms);
}
