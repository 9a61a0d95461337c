/*
 * queue.c - the run token at work: collectives in order, one at a time, by whoever is there to run them.
 *
 *   a synchronous call, nothing queued     takes the token and runs on its caller's thread, never in the list; most
 *                                          of these are not seen here at all (direct.h)
 *   a synchronous call behind others       in the list; its caller takes the token and runs all up to its own
 *   an asynchronous call                   in the list; run by whoever waits, else by the service thread (after
 *                                          a moment, attend.h); begun in its call if it is small
 *   sends and receives                     begun in their call; stepped by whoever waits for them, and by the
 *                                          service thread; those that are waited for at once: plain_p2p.h
 *
 * A thread that sleeps may hold the token: it is rung when its peers move on, and it runs whatever is in the
 * list, not only its own. It never keeps the token of an empty list. Who leaves with the token while others
 * have asked for it rings them, and has the service thread look after what is left.
 */
#include "group/queue.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/attend.h"
#include "group/caller.h"
#include "group/flightlog.h"
#include "group/group.h"
#include "group/memory.h"
#include "kernel/kernel.h"

/* Up to this size an operation is begun by whoever issues it. */
enum { BEGIN_HERE_NBYTES = 16 * 1024 };

/* --- one operation ------------------------------------------------------------------------------ */

static choir_status begin(struct ch_call *call)
{
    choir_group *group = call->group;
    choir_status rc = ch_group_check(group);

    if (rc != CHOIR_OK)
        return rc;
    if (call->began == 0) {
        call->began = ch_now();
        ch_flightlog_started(call);
    }
    ch_memory_pack(call, group->backend->at_once);
    call->begun = true;
    rc = group->backend->begin(group->backend_self, &call->op, call->run);
    return rc == CHOIR_IN_PROGRESS ? CHOIR_OK : rc;
}

static void end(struct ch_call *call)
{
    choir_group *group = call->group;

    if (call->begun)
        group->backend->end(group->backend_self, &call->op, call->run);
    call->begun = false;
}

choir_status ch_call_advance(struct ch_call *call)
{
    choir_group *group = call->group;
    choir_status rc;

    for (;;) {
        rc = call->begun ? CHOIR_OK : begin(call);
        if (rc == CHOIR_OK)
            rc = group->backend->step(group->backend_self, &call->op, call->run);
        if (rc != CHOIR_OK || call->next == NULL)
            break;
        end(call);
        rc = call->next(call);
        if (rc != CHOIR_IN_PROGRESS)
            break;
    }
    if (rc == CHOIR_OK)
        ch_memory_unpack(call);
    return rc;
}

choir_status ch_queue_timed_out(const choir_group *group, const struct ch_op *op, const char *name,
                                uint64_t issued, bool began)
{
    double s = (double)(ch_now() - issued) / CH_S;

    return ch_fail(CHOIR_ERR_TIMEOUT, "%s %llu of group %s timed out after %.1f s%s", name,
                   (unsigned long long)op->seq, group->name, s,
                   began ? "" : ", waiting behind others of this rank");
}

choir_status ch_queue_interrupted(const choir_group *group, const struct ch_op *op,
                                  const char *name)
{
    return ch_fail_rank(CHOIR_ERR_INTERRUPTED, group->rank, choir_optype_name(op->type),
                        "%s %llu of group %s was interrupted on rank %d", name,
                        (unsigned long long)op->seq, group->name, group->rank);
}

static choir_status timed_out(const struct ch_call *call)
{
    return ch_queue_timed_out(call->group, &call->op, call->name, call->issued, call->began != 0);
}

/* Its time is up: the backend knows best what was missing. */
static choir_status expire(struct ch_call *call)
{
    choir_status rc = ch_call_advance(call);

    return rc == CHOIR_IN_PROGRESS ? timed_out(call) : rc;
}

void ch_queue_name_operation(choir_error *error, choir_optype type)
{
    const char *name = choir_optype_name(type);

    if (error->operation[0] == '\0')
        memcpy(error->operation, name, strlen(name) + 1);
}

/* What was issued must be done on all ranks, or the group is of no use: nobody knows any more who is where.
 * A send or receive may fail by itself, and all that is nobody else's business. */
static void note_failure(struct ch_call *call)
{
    ch_error_save(&call->error);
    ch_queue_name_operation(&call->error, call->op.type);
    if (call->group->backend->at_once)
        return;
    if (call->collective || choir_status_loses(call->status) == CHOIR_LOSES_GROUP)
        ch_group_fail(call->group, &call->error);
}

static void ring(choir_group *group)
{
    ch_bell_after_store(&group->context->waiter->bell);
}

static void kick(choir_group *group)
{
    ch_attend_kick(&group->context->attendant, group);
}

void ch_group_settle_locked(choir_group *group)
{
    /* With the lock, through which choir_group_destroy() goes before the context does: who counts the last one
     * down must still find its bell. Release, pairs with the acquire in nothing_pending(). */
    ch_lock_assert_held(&group->lock);
    atomic_fetch_sub_explicit(&group->npending, 1, memory_order_acq_rel);
    if (group->context != NULL) /* NULL: a callback destroyed the group before this one ran */
        ring(
            group); /* also who waits for callbacks alone to be left (group.c, nothing_but_notes) */
}

void ch_group_settle(choir_group *group)
{
    ch_lock(&group->lock);
    ch_group_settle_locked(group);
    ch_unlock(&group->lock);
}

void ch_call_finish(struct ch_call *call, choir_status rc)
{
    choir_group *group = call->group;
    choir_work *work = call->work;
    struct ch_note *note = call->note;
    struct ch_list callbacks;

    call->status = rc;
    if (rc != CHOIR_OK)
        note_failure(call);
    end(call);
    if (call->cleanup != NULL)
        call->cleanup(call);
    ch_memory_release(call);
    call->ended = ch_now();
    ch_flightlog_done(call);
    ch_note_fill(note, call);
    call->note = NULL;

    ch_list_init(&callbacks);
    ch_lock(&group->lock);
    ch_list_remove(&call->link);
    if (work != NULL) {
        while (!ch_list_empty(&work->callbacks))
            ch_list_push_back(&callbacks, ch_list_pop_front(&work->callbacks));
    }
    if (call->collective)
        atomic_fetch_sub_explicit(&group->nqueued, 1, memory_order_acq_rel);
    /* Release, pairs with the acquire in ch_call_is_done(). On a stack it may be gone now. */
    atomic_store_explicit(&call->state, CH_CALL_DONE, memory_order_release);
    ring(group);
    ch_unlock(&group->lock);

    if (work != NULL) {
        ch_work_tell(work, &callbacks);
        if (work->batch != NULL)
            ch_work_part_done(work->batch, call);
    }
    if (note != NULL)
        ch_caller_post(group, note); /* settles when it has run */
    else
        ch_group_settle(group);
    choir_work_unref(work);
}

/* --- the list ----------------------------------------------------------------------------------- */

/* Number it and count it in. */
static choir_status enter_locked(struct ch_call *call)
{
    choir_group *group = call->group;

    ch_lock_assert_held(&group->lock);
    if (atomic_load_explicit(&group->closed, memory_order_relaxed))
        return ch_fail(CHOIR_ERR_STATE, "group %s was shut down", group->name);
    if (call->collective) {
        /* Counted before it is numbered: a thread that sees the number, and takes that for its turn, is not to pass
         * by on the short way (ch_direct_run()). Release, pairs with the acquire in
         * choir_group_collective_sequence(). */
        atomic_fetch_add_explicit(&group->nqueued, 1, memory_order_relaxed);
        call->op.seq = atomic_fetch_add_explicit(&group->ncollectives, 1, memory_order_release);
    } else if (!call->inner) {
        call->op.seq = atomic_fetch_add_explicit(&group->ntransfers, 1, memory_order_relaxed);
    }
    ch_flightlog_issued(call);
    atomic_fetch_add_explicit(&group->npending, 1, memory_order_relaxed);
    atomic_store_explicit(&call->state, CH_CALL_QUEUED, memory_order_relaxed);
    if (call->collective &&
        call->op.until < atomic_load_explicit(&group->next_due, memory_order_relaxed))
        atomic_store_explicit(&group->next_due, call->op.until, memory_order_relaxed);
    return CHOIR_OK;
}

static bool queue_is_empty(choir_group *group)
{
    bool empty;

    ch_lock(&group->lock);
    empty = ch_list_empty(&group->queue);
    ch_unlock(&group->lock);
    return empty;
}

/* Whether to run it takes no longer than to wake somebody who does. */
static bool is_small(const struct ch_call *call)
{
    const struct ch_op *op = &call->op;
    size_t blocks = op->in.nblocks > op->out.nblocks ? op->in.nblocks : op->out.nblocks;

    if (call->group->backend->at_once)
        return true;
    return call->next == NULL &&
           op->longest * ch_type_bytes[op->dtype] <= BEGIN_HERE_NBYTES / (blocks + 1);
}

/* The first in the list, which is running from now on; NULL if there is none, or none that is small. */
static struct ch_call *take_first(choir_group *group, bool small)
{
    struct ch_call *call = NULL;

    ch_lock(&group->lock);
    if (!ch_list_empty(&group->queue)) {
        call = CH_CONTAINER(group->queue.next, struct ch_call, link);
        if (small && !is_small(call))
            call = NULL;
        else
            atomic_store_explicit(&call->state, CH_CALL_RUNNING, memory_order_relaxed);
    }
    ch_unlock(&group->lock);
    return call;
}

/* Of those that wait in the list, one whose time is up; NULL if there is none. It is the caller's to finish. */
static struct ch_call *take_overdue(choir_group *group)
{
    struct ch_call *found = NULL;
    ch_deadline next = CH_NEVER;

    ch_lock(&group->lock);
    CH_LIST_EACH (link, &group->queue) {
        struct ch_call *call = CH_CONTAINER(link, struct ch_call, link);

        if (atomic_load_explicit(&call->state, memory_order_relaxed) != CH_CALL_QUEUED)
            continue;
        if (found == NULL && ch_deadline_passed(call->op.until)) {
            found = call;
            ch_list_remove(&call->link);
            atomic_store_explicit(&call->state, CH_CALL_RUNNING, memory_order_relaxed);
        } else if (call->op.until < next) {
            next = call->op.until;
        }
    }
    atomic_store_explicit(&group->next_due, next, memory_order_relaxed);
    ch_unlock(&group->lock);
    return found;
}

static void finish_overdue(choir_group *group)
{
    struct ch_call *overdue;

    /* Relaxed: who enters an earlier one meanwhile is seen the next time. */
    if (!ch_deadline_passed(atomic_load_explicit(&group->next_due, memory_order_relaxed)))
        return;
    while ((overdue = take_overdue(group)) != NULL)
        ch_call_finish(overdue, timed_out(overdue));
}

/* By the holder of the token, who runs all or all that are small: true if there are no more, false if the first has
 * to wait. */
static bool run_some(choir_group *group, bool small)
{
    struct ch_call *call;

    while ((call = take_first(group, small)) != NULL) {
        choir_status rc = ch_call_advance(call);

        if (rc == CHOIR_IN_PROGRESS && ch_deadline_passed(call->op.until))
            rc = expire(call);
        if (rc == CHOIR_IN_PROGRESS) {
            finish_overdue(group); /* those behind it have deadlines of their own */
            return false;
        }
        ch_call_finish(call, rc);
    }
    return true;
}

static bool run_queue(choir_group *group)
{
    return run_some(group, false);
}

/* Give the token back. What is left in the list is somebody's: of who waits, and is rung if it asked, or of
 * the service thread, which asked if it found the token taken. */
void ch_queue_leave(choir_group *group)
{
    /* Who asked may be choir_group_destroy(), which lets go of the context as soon as it has the token. The one
     * who leaves has it by other means: its own reference, the service thread's, or a call that the user is in. */
    struct ch_context *context = group->context;

    if (!ch_token_release(&group->token))
        return;
    ch_bell_after_store(&context->waiter->bell);
    if (!queue_is_empty(group))
        ch_attend_kick(&context->attendant, group);
}

struct helper {
    choir_group *group;
    bool (*ready)(void *arg);
    void *arg;
    bool holding;
};

static bool help(void *arg)
{
    struct helper *helper = arg;
    choir_group *group = helper->group;

    if (helper->ready(helper->arg))
        return true;
    if (!helper->holding)
        helper->holding = ch_token_try(&group->token);
    if (helper->holding && run_queue(group)) {
        ch_queue_leave(group);
        helper->holding = false;
    }
    return helper->ready(helper->arg);
}

choir_status ch_group_wait(choir_group *group, bool (*ready)(void *arg), void *arg,
                           ch_deadline until, const char *what)
{
    struct helper helper = { .group = group, .ready = ready, .arg = arg };
    struct ch_wait wait = { .waiter = group->context->waiter,
                            .ready = help,
                            .arg = &helper,
                            .until = until,
                            .what = what };
    choir_status rc = ch_wait(&wait);

    if (helper.holding) {
        /* Asked or not: what is left in the list must not be forgotten. */
        bool left = !queue_is_empty(group);

        ch_queue_leave(group);
        if (left)
            kick(group);
    }
    return rc;
}

/* --- giving up ---------------------------------------------------------------------------------- */

/* How far it was; out of the list, if it has not begun: the caller then finishes it. */
static enum ch_call_state take_back(struct ch_call *call)
{
    choir_group *group = call->group;
    enum ch_call_state was;

    ch_lock(&group->lock);
    was = atomic_load_explicit(&call->state, memory_order_relaxed);
    if (was == CH_CALL_QUEUED) {
        ch_list_remove(&call->link);
        atomic_store_explicit(&call->state, CH_CALL_RUNNING, memory_order_relaxed);
    }
    ch_unlock(&group->lock);
    return was;
}

void ch_queue_give_up(struct ch_call *call, const choir_error *why)
{
    choir_group *group = call->group;
    enum ch_call_state was;

    if (!call->collective) {
        atomic_store_explicit(&call->aborted, true, memory_order_release);
        ch_queue_step_transfer(call->work);
        return;
    }
    was = take_back(call);
    if (was == CH_CALL_QUEUED) {
        ch_call_finish(call, ch_error_load(why));
    } else if (was == CH_CALL_RUNNING) {
        /* Whoever runs it finds that the group has failed. */
        atomic_store_explicit(&call->aborted, true, memory_order_release);
        ch_group_fail(group, why);
        ring(group);
        kick(group);
    }
}

/* --- done on return ------------------------------------------------------------------------------ */

struct advance {
    struct ch_call *call;
    choir_status rc;
};

static bool advance(void *arg)
{
    struct advance *a = arg;
    uint64_t before = a->call->op.moves;

    a->rc = ch_call_advance(a->call);
    return a->rc != CHOIR_IN_PROGRESS || a->call->op.moves != before;
}

/* Run it to the end on this thread, which nobody else does. */
static choir_status run_here(struct ch_call *call)
{
    struct advance a = { call, ch_call_advance(call) };
    struct ch_wait wait = { .waiter = call->group->context->waiter,
                            .ready = advance,
                            .arg = &a,
                            .looked = true,
                            .until = call->op.until,
                            .what = call->name };
    choir_status rc;

    if (a.rc != CHOIR_IN_PROGRESS)
        return a.rc;
    do { /* a wait for each step (direct.c) */
        rc = ch_wait(&wait);
    } while (rc == CHOIR_OK && a.rc == CHOIR_IN_PROGRESS);
    if (rc == CHOIR_OK)
        return a.rc;
    if (rc == CHOIR_ERR_INTERRUPTED)
        return ch_queue_interrupted(call->group, &call->op, call->name);
    return rc == CHOIR_ERR_TIMEOUT ? expire(call) : rc;
}

static bool call_is_done(void *arg)
{
    return ch_call_is_done(arg);
}

/* Behind others: they come first, and this thread runs them if nobody else does. */
static void run_in_turn(struct ch_call *call)
{
    choir_status rc = ch_group_wait(call->group, call_is_done, call, call->op.until, call->name);
    choir_error why;

    if (rc == CHOIR_OK)
        return;
    if (rc == CHOIR_ERR_TIMEOUT)
        timed_out(call);
    else if (rc == CHOIR_ERR_INTERRUPTED)
        ch_queue_interrupted(call->group, &call->op, call->name);
    ch_error_save(&why);
    ch_queue_give_up(call, &why);
    /* What runs fails now that the group has: this is not long. */
    while (!ch_call_is_done(call))
        (void)ch_group_wait(call->group, call_is_done, call, CH_NEVER, call->name);
}

static choir_status run_collective(struct ch_call *call)
{
    choir_group *group = call->group;
    bool at_once = false;
    choir_status rc;

    ch_lock(&group->lock);
    rc = enter_locked(call);
    if (rc == CHOIR_OK) {
        at_once = ch_list_empty(&group->queue) && ch_token_try(&group->token);
        if (!at_once)
            ch_list_push_back(&group->queue, &call->link);
    }
    ch_unlock(&group->lock);
    if (rc != CHOIR_OK)
        return rc;
    if (at_once) {
        ch_call_finish(call, run_here(call));
        ch_queue_leave(group);
    } else {
        run_in_turn(call);
    }
    return CHOIR_OK;
}

static choir_status run_transfer(struct ch_call *call)
{
    choir_group *group = call->group;
    choir_status rc;

    ch_lock(&group->lock);
    rc = enter_locked(call);
    ch_unlock(&group->lock);
    if (rc == CHOIR_OK)
        ch_call_finish(call, run_here(call));
    return rc;
}

choir_status ch_queue_run(struct ch_call *call)
{
    choir_status rc = call->collective ? run_collective(call) : run_transfer(call);

    if (rc != CHOIR_OK) {
        ch_error_prefix("%s: ", call->name);
        ch_call_release(call);
        return rc;
    }
    return call->status == CHOIR_OK ? CHOIR_OK : ch_error_load(&call->error);
}

/* --- with a handle ------------------------------------------------------------------------------- */

choir_status ch_queue_enter(choir_work *work)
{
    struct ch_call *call = &work->call;
    choir_group *group = call->group;
    choir_status rc;

    ch_lock(&group->lock);
    rc = enter_locked(call);
    if (rc == CHOIR_OK && call->collective)
        ch_list_push_back(&group->queue, &call->link);
    ch_unlock(&group->lock);
    return rc;
}

/* Take something off the list, if nobody else does. */
static void run_a_little(choir_group *group, bool small)
{
    if (!ch_token_try(&group->token))
        return;
    (void)run_some(group, small);
    ch_queue_leave(group);
}

/* The work is the caller's: it stays. */
static void start_collective(choir_work *work)
{
    choir_group *group = work->call.group;

    if (is_small(&work->call))
        run_a_little(group, true);
    if (!ch_call_is_done(&work->call))
        kick(group);
}

/* The work is the caller's: it stays. */
static void start_transfer(choir_work *work)
{
    struct ch_call *call = &work->call;
    choir_group *group = call->group;
    choir_status rc;

    (void)ch_token_try(&call->token); /* nobody else knows it yet */
    rc = ch_call_advance(call);
    if (rc != CHOIR_IN_PROGRESS) {
        ch_call_finish(call, rc);
        return;
    }
    ch_lock(&group->lock);
    ch_list_push_back(&group->transfers, &call->link);
    ch_unlock(&group->lock);
    (void)ch_token_release(&call->token);
    kick(group);
}

void ch_queue_start(choir_work *work)
{
    if (work->call.collective)
        start_collective(work);
    else
        start_transfer(work);
}

choir_status ch_queue_submit(choir_work *work)
{
    choir_status rc = ch_queue_enter(work);

    if (rc == CHOIR_OK)
        ch_queue_start(work);
    return rc;
}

/* --- sends and receives under way ------------------------------------------------------------------ */

static choir_status step_transfer(struct ch_call *call)
{
    choir_status rc;

    if (atomic_load_explicit(&call->aborted, memory_order_acquire))
        return ch_fail(CHOIR_ERR_INTERRUPTED, "%s %llu was aborted", call->name,
                       (unsigned long long)call->op.seq);
    rc = ch_call_advance(call);
    if (rc == CHOIR_IN_PROGRESS && ch_deadline_passed(call->op.until))
        rc = expire(call);
    return rc;
}

void ch_queue_step_transfer(choir_work *work)
{
    struct ch_call *call = &work->call;

    do {
        choir_status rc;

        if (!ch_token_try(&call->token))
            return; /* whoever has it looks again */
        rc = ch_call_is_done(call) ? CHOIR_IN_PROGRESS : step_transfer(call);
        if (rc != CHOIR_IN_PROGRESS)
            ch_call_finish(call, rc);
    } while (ch_token_release(&call->token));
}

void ch_queue_nudge(choir_work *work)
{
    choir_group *group = work->call.group;

    if (work->call.op.type == CHOIR_OP_COALESCED)
        ch_queue_step_transfers(group);
    else if (!work->call.collective)
        ch_queue_step_transfer(work);
    if (!ch_call_is_done(&work->call))
        run_a_little(group, false);
}

static size_t count_transfers(choir_group *group)
{
    size_t count = 0;

    ch_lock(&group->lock);
    CH_LIST_EACH (link, &group->transfers)
        count++;
    ch_unlock(&group->lock);
    return count;
}

/* The next in turn, with a reference; NULL if there is none. */
static choir_work *next_transfer(choir_group *group)
{
    struct ch_list *link;
    choir_work *work = NULL;

    ch_lock(&group->lock);
    link = ch_list_pop_front(&group->transfers);
    if (link != NULL) {
        work = CH_CONTAINER(link, struct ch_call, link)->work;
        ch_list_push_back(&group->transfers, link);
        choir_work_ref(work);
    }
    ch_unlock(&group->lock);
    return work;
}

void ch_queue_step_transfers(choir_group *group)
{
    for (size_t left = count_transfers(group); left > 0; left--) {
        choir_work *work = next_transfer(group);

        if (work == NULL)
            return;
        ch_queue_step_transfer(work);
        choir_work_unref(work);
    }
}

/* --- the service thread's turn --------------------------------------------------------------------- */

static void lower(struct ch_list *list, ch_deadline *next_io)
{
    CH_LIST_EACH (link, list) {
        const struct ch_call *call = CH_CONTAINER(link, struct ch_call, link);

        if (call->op.until < *next_io)
            *next_io = call->op.until;
    }
}

/* Somebody else runs the queue, and looks at nothing but what it runs: it may be one that is not in the list. */
static void watch_the_rest_locked(choir_group *group, enum ch_turn *left_io, ch_deadline *next_io)
{
    /* Not those in the list: the first of them may be running, and late, which is its runner's to see. */
    ch_deadline due = atomic_load_explicit(&group->next_due, memory_order_relaxed);

    ch_lock_assert_held(&group->lock);
    if (ch_list_empty(&group->queue))
        return;
    if (*left_io == CH_TURN_NOTHING)
        *left_io = CH_TURN_TAKEN;
    *next_io = due < *next_io ? due : *next_io;
}

/* When the first of a list was issued; CH_NEVER if it is empty. */
static uint64_t since_locked(const struct ch_list *list)
{
    uint64_t since = CH_NEVER;

    CH_LIST_EACH (link, list) {
        const struct ch_call *call = CH_CONTAINER(link, struct ch_call, link);

        since = call->issued < since ? call->issued : since;
    }
    return since;
}

/* Whether something is there, and of an age at which nobody is likely to wait for it soon. What is younger is looked
 * at when it is not any more. */
static bool is_ripe(uint64_t since, enum ch_turn *left_io, ch_deadline *next_io)
{
    uint64_t ripe = since + CH_ATTEND_AFTER_NS;

    if (since == CH_NEVER)
        return false;
    if (ch_now() >= ripe)
        return true;
    *left_io = CH_TURN_YOUNG;
    *next_io = ripe < *next_io ? ripe : *next_io;
    return false;
}

enum ch_turn ch_group_turn(choir_group *group, ch_deadline *next_io)
{
    enum ch_turn left = CH_TURN_NOTHING;
    uint64_t queued, moving;
    bool mine, step;

    ch_lock(&group->lock);
    queued = since_locked(&group->queue);
    moving = since_locked(&group->transfers);
    ch_unlock(&group->lock);
    mine = is_ripe(queued, &left, next_io) && ch_token_try(&group->token);
    step = is_ripe(moving, &left, next_io);
    if (mine) {
        (void)run_queue(group);
        ch_queue_leave(group);
    }
    finish_overdue(group);
    if (step)
        ch_queue_step_transfers(group);

    ch_lock(&group->lock);
    if ((mine && !ch_list_empty(&group->queue)) || (step && !ch_list_empty(&group->transfers)))
        left = CH_TURN_WAITS;
    if (mine)
        lower(&group->queue, next_io);
    else
        watch_the_rest_locked(group, &left, next_io);
    lower(&group->transfers, next_io);
    ch_unlock(&group->lock);
    return left;
}
