/*
 * call.c - the two ends of every public call: opening it, and handing it to the queue. See call.h.
 */
#include "group/call.h"

#include <string.h>

#include "algo/select.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "group/batch.h"
#include "group/caller.h"
#include "group/group.h"
#include "group/memory.h"
#include "group/queue.h"
#include "group/work.h"

/* A caller compiled against a smaller struct has the rest zero. */
static choir_status read_opts(const choir_coll_opts *given, choir_coll_opts *out)
{
    if (given == NULL)
        return CHOIR_OK;
    if (given->size == 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "opts: its size is 0: fill options in with CHOIR_OPTS(allreduce, ...)");
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    return CHOIR_OK;
}

static void set_up(struct ch_call *call, choir_group *group, choir_work *work, const char *name,
                   choir_optype type)
{
    memset(call, 0, offsetof(struct ch_call, error));
    call->group = group;
    call->work = work;
    call->name = name;
    call->collective = true;
    call->op.type = type;
    call->op.peer = -1;
    ch_list_init(&call->link);
}

static void set_time(struct ch_call *call)
{
    call->op.timeout_ms = call->opts.timeout_ms;
    if (call->op.timeout_ms == 0)
        call->op.timeout_ms = atomic_load_explicit(&call->group->timeout_ms, memory_order_relaxed);
    call->issued = ch_now();
    call->op.until = CH_NEVER;
    if (call->op.timeout_ms >= 0 &&
        (uint64_t)call->op.timeout_ms < (CH_NEVER - call->issued) / CH_MS)
        call->op.until = call->issued + (uint64_t)call->op.timeout_ms * CH_MS;
}

choir_status ch_call_open(choir_group *group, const char *name, choir_optype type,
                          const choir_coll_opts *opts, bool wants_work, struct ch_call *here,
                          struct ch_call **call_out)
{
    struct ch_call *call = here;
    choir_work *work = NULL;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && group == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "group: is NULL");
    if (rc == CHOIR_OK && (ch_batch_takes_works(group) || wants_work)) {
        work = ch_work_create(group);
        rc = work != NULL ? CHOIR_OK : CHOIR_ERR_NOMEM;
    }
    if (rc != CHOIR_OK) {
        ch_error_prefix("%s: ", name);
        return rc;
    }
    if (work != NULL)
        call = &work->call;
    set_up(call, group, work, name, type);
    rc = read_opts(opts, &call->opts);
    if (rc != CHOIR_OK) {
        ch_error_prefix("%s: ", name);
        ch_call_release(call);
        return rc;
    }
    call->op.algo = call->opts.algo;
    set_time(call);
    *call_out = call;
    return CHOIR_OK;
}

choir_status ch_call_results(struct ch_call *call, const choir_buf *bufs, size_t nbufs)
{
    if (call->work == NULL || nbufs == 0)
        return CHOIR_OK;
    call->results = &call->result;
    if (nbufs > 1)
        call->results = ch_alloc_array(nbufs, sizeof(*bufs));
    if (call->results == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to remember %zu buffers", nbufs);
    memcpy(call->results, bufs, nbufs * sizeof(*bufs));
    call->nresults = nbufs;
    return CHOIR_OK;
}

void ch_call_release(struct ch_call *call)
{
    choir_error last;

    ch_error_save(&last);
    if (call->cleanup != NULL)
        call->cleanup(call);
    ch_memory_release(call);
    ch_note_destroy(call->note);
    call->note = NULL;
    if (call->work != NULL)
        ch_work_discard(call->work);
    ch_error_load(&last);
}

/* Its own name of it outlives the caller's. */
static choir_status find_algo(struct ch_call *call)
{
    const struct ch_algo *algo;
    char names[256];

    if (CH_LIKELY(call->op.algo == NULL) || !call->collective)
        return CHOIR_OK;
    algo = ch_algo_find(call->op.coll, call->op.algo);
    if (algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "opts->algo: no algorithm \"%s\"; for %s there are: %s",
                       call->op.algo, ch_coll_name(call->op.coll),
                       ch_algo_names(call->op.coll, names, sizeof(names)));
    call->op.algo = algo->name;
    return CHOIR_OK;
}

/* The hook's note is made here, where its failure can still be told. */
static choir_status prepare(struct ch_call *call)
{
    choir_status rc = ch_group_check(call->group);

    if (rc == CHOIR_OK)
        rc = find_algo(call);
    if (rc == CHOIR_OK && !call->inner)
        rc = ch_hook_note(call->group, &call->note);
    return rc;
}

choir_status ch_call_issue(struct ch_call *call, choir_status rc, choir_work **work_out)
{
    choir_work *work = call->work;

    if (rc == CHOIR_OK)
        rc = prepare(call);
    if (rc == CHOIR_OK && work == NULL)
        return ch_queue_run(call);
    if (rc == CHOIR_OK && ch_batch_add(work)) {
        if (work_out != NULL)
            *work_out = NULL;
        return CHOIR_OK;
    }
    if (rc == CHOIR_OK)
        rc = ch_queue_submit(work);
    if (rc != CHOIR_OK) {
        ch_error_prefix("%s: ", call->name);
        ch_call_release(call);
        return rc;
    }
    *work_out = work;
    return CHOIR_OK;
}

choir_status ch_call_run(struct ch_call *call)
{
    choir_status rc = prepare(call);

    if (rc == CHOIR_OK)
        return ch_queue_run(call);
    ch_error_prefix("%s: ", call->name);
    ch_call_release(call);
    return rc;
}
