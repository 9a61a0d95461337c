/*
 * caller.c - the thread that calls back. See caller.h.
 */
#include "group/caller.h"

#include <pthread.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "group/context.h"
#include "group/group.h"

struct ch_caller {
    pthread_t thread;
    struct ch_loop *loop;
    bool ends_by_itself; /* set by a callback that ended the context */
};

static void destroy(struct ch_caller *caller)
{
    ch_loop_destroy(caller->loop);
    ch_free(caller);
}

static void *serve(void *arg)
{
    struct ch_caller *caller = arg;

    pthread_setname_np(pthread_self(), "choir-callbacks");
    while (ch_loop_run(caller->loop) != CHOIR_OK) {
        ch_log_warn("callbacks: %s", choir_last_error());
        (void)!ch_sys_poll(NULL, 0, CH_MS);
    }
    if (caller->ends_by_itself)
        destroy(caller);
    return NULL;
}

static choir_status start(struct ch_caller **caller_out)
{
    struct ch_caller *caller = ch_zalloc(sizeof(*caller));
    choir_status rc;

    if (caller == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a thread that calls back");
    rc = ch_loop_create(&caller->loop);
    if (rc == CHOIR_OK && ch_sys_thread_create(&caller->thread, serve, caller) != 0)
        rc = ch_fail_errno("start the thread that calls back");
    if (rc != CHOIR_OK) {
        destroy(caller);
        return rc;
    }
    *caller_out = caller;
    return CHOIR_OK;
}

choir_status ch_caller_need(struct ch_context *context)
{
    choir_status rc = CHOIR_OK;

    ch_lock(&context->attendant.lock);
    if (context->caller == NULL)
        rc = start(&context->caller);
    ch_unlock(&context->attendant.lock);
    return rc;
}

void ch_caller_end(struct ch_caller *caller)
{
    if (caller == NULL)
        return;
    if (pthread_equal(pthread_self(), caller->thread)) {
        caller->ends_by_itself = true;
        pthread_detach(caller->thread);
        ch_loop_stop(caller->loop);
        return;
    }
    ch_loop_stop(caller->loop);
    pthread_join(caller->thread, NULL);
    destroy(caller);
}

static struct ch_caller *caller_of(struct ch_context *context)
{
    struct ch_caller *caller;

    ch_lock(&context->attendant.lock);
    caller = context->caller;
    ch_unlock(&context->attendant.lock);
    return caller;
}

bool ch_caller_is_here(const struct ch_context *context)
{
    const struct ch_caller *caller = caller_of((struct ch_context *)(uintptr_t)context);

    return caller != NULL && pthread_equal(pthread_self(), caller->thread);
}

/* --- notes -------------------------------------------------------------------------------------- */

choir_status ch_hook_note(choir_group *group, struct ch_note **note_out)
{
    void (*hook)(void *, const choir_work_info *);
    void *arg;

    /* Relaxed: who sets a hook while another thread issues operations may miss some. */
    if (!atomic_load_explicit(&group->hooked, memory_order_relaxed))
        return CHOIR_OK;
    ch_lock(&group->lock);
    hook = group->hook;
    arg = group->hook_arg;
    ch_unlock(&group->lock);
    if (hook == NULL)
        return CHOIR_OK;
    *note_out = ch_zalloc(sizeof(**note_out));
    if (*note_out == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to tell the group's hook");
    (*note_out)->hook = hook;
    (*note_out)->arg = arg;
    return CHOIR_OK;
}

void ch_note_fill(struct ch_note *note, const struct ch_call *call)
{
    uint64_t began = call->began != 0 ? call->began : call->ended;
    uint64_t
        ahead; /* of the wall's clock before ch_now()'s; taken once, or time might seem to run backwards */

    if (note == NULL)
        return;
    ahead = ch_sys_wall_ns() - ch_now();
    note->info = (choir_work_info){ .op = call->op.type,
                                    .sequence = call->op.seq,
                                    .started_ns = began + ahead,
                                    .finished_ns = call->ended + ahead,
                                    .active_ms = (double)(call->ended - began) / CH_MS,
                                    .status = call->status };
}

void ch_note_destroy(struct ch_note *note)
{
    ch_free(note);
}

static void tell(struct ch_task *task)
{
    struct ch_note *note = CH_CONTAINER(task, struct ch_note, task);
    choir_group *group = note->group;

    if (note->hook != NULL)
        note->hook(note->arg, &note->info);
    else
        note->done(note->arg, note->work);
    choir_work_unref(note->work);
    ch_note_destroy(note);
    atomic_fetch_sub_explicit(&group->nnotes, 1, memory_order_relaxed);
    ch_group_settle(group);
    ch_group_unref(group);
}

void ch_caller_post(choir_group *group, struct ch_note *note)
{
    ch_group_ref(group);
    note->group = group;
    note->task.run = tell;
    ch_loop_post(caller_of(group->context)->loop, &note->task);
    /* Last, and after the context was needed: see nothing_but_notes(), which is rung. It may have run already,
     * and the group's context be gone. */
    ch_lock(&group->lock);
    atomic_fetch_add_explicit(&group->nnotes, 1, memory_order_release);
    if (group->context != NULL)
        ch_bell_after_store(&group->context->waiter->bell);
    ch_unlock(&group->lock);
}
