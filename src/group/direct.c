/*
 * direct.c - see direct.h. What it does is what call.c and queue.c do with a call that meets nobody.
 *
 * Who waits for the group's operations to end (choir_group_destroy(), choir_group_wait_pending()) sees a call of
 * this kind by the token alone.
 */
#include "group/direct.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/flightlog.h"
#include "group/queue.h"

/* --- waiting ---------------------------------------------------------------------------------------- */

struct direct_run {
    choir_group *group;
    struct ch_op *op;
    const char *name;
    uint64_t issued, flight;
    choir_status rc;
    _Alignas(64) char run[CH_BACKEND_RUN_MAX]; /* begin() sets it up */
};

static bool advance(struct direct_run *d)
{
    d->rc = d->group->backend->step(d->group->backend_self, d->op, d->run);
    return d->rc != CHOIR_IN_PROGRESS;
}

/* What is waited for is the next step, not the last one: a wait of its own for each, or all ranks would sleep between the
 * steps of a long operation. */
static bool get_on(void *arg)
{
    struct direct_run *d = arg;
    uint64_t before = d->op->moves;

    return advance(d) || d->op->moves != before;
}

/* Its time is up: the backend knows best what was missing. */
static choir_status expire(struct direct_run *d)
{
    if (advance(d))
        return d->rc;
    return ch_queue_timed_out(d->group, d->op, d->name, d->issued, true);
}

static CH_NOINLINE choir_status wait_for_it(struct direct_run *d)
{
    struct ch_wait wait = { .waiter = d->group->context->waiter,
                            .ready = get_on,
                            .arg = d,
                            .looked = true,
                            .until = d->op->until,
                            .what = d->name };
    choir_status rc;

    do {
        rc = ch_wait(&wait);
    } while (rc == CHOIR_OK && d->rc == CHOIR_IN_PROGRESS);
    if (rc == CHOIR_OK)
        return d->rc;
    if (rc == CHOIR_ERR_INTERRUPTED)
        return ch_queue_interrupted(d->group, d->op, d->name);
    return rc == CHOIR_ERR_TIMEOUT ? expire(d) : rc;
}

/* --- turns ------------------------------------------------------------------------------------------ */

/* How often others run before a wait and its watch are set up: that takes longer than many a turn of the processor. */
enum { TURNS = 4 };

static bool look_again(void *arg)
{
    return advance(arg);
}

/* Where ranks outnumber processors, what is missing comes when others have had their turn. */
static choir_status take_turns(struct direct_run *d)
{
    d->rc = CHOIR_IN_PROGRESS;
    d->op->attended = true;
    (void)ch_wait_turns(d->group->context->waiter, TURNS, look_again, d);
    d->op->attended = false;
    return d->rc;
}

/* --- a run ------------------------------------------------------------------------------------------- */

static void set_time(struct direct_run *d, const choir_coll_opts *opts)
{
    struct ch_op *op = d->op;

    op->timeout_ms = opts != NULL ? opts->timeout_ms : 0;
    if (op->timeout_ms == 0)
        op->timeout_ms = atomic_load_explicit(&d->group->timeout_ms, memory_order_relaxed);
    d->issued = ch_now_rough();
    op->until = ch_deadline_after(d->issued, op->timeout_ms);
}

/* Others wait for what the first step gives them: what they need not wait for comes after it, and while what
 * they give is on its way. */
static choir_status run(struct direct_run *d)
{
    choir_group *group = d->group;
    choir_status rc = group->backend->step(group->backend_self, d->op, d->run);

    d->flight = ch_flightlog_direct(group, d->op, d->issued);
    if (rc == CHOIR_IN_PROGRESS)
        rc = group->context->waiter->crowded
                 ? take_turns(d)
                 : group->backend->step(group->backend_self, d->op, d->run);
    if (rc == CHOIR_IN_PROGRESS)
        rc = wait_for_it(d);
    group->backend->end(group->backend_self, d->op, d->run);
    return rc;
}

static CH_NOINLINE void fail(struct direct_run *d)
{
    choir_error error;

    ch_error_save(&error);
    ch_queue_name_operation(&error, d->op->type);
    ch_group_fail(d->group, &error);
    ch_error_load(&error);
}

bool ch_direct_run(choir_group *group, struct ch_op *op, const char *name,
                   const choir_coll_opts *opts, choir_status *rc_out)
{
    struct direct_run d; /* not cleared: most of it is for waits */

    if (CH_UNLIKELY(ch_is_forked()) || !ch_token_try(&group->token))
        return false;
    /* Relaxed: those before us, in whatever way this thread knows of them, counted themselves before it could
     * (enter_locked()). Acquire, pairs with the release in choir_group_shutdown() and _destroy(). Who queues or closes
     * from now on finds the token taken. */
    if (CH_UNLIKELY(atomic_load_explicit(&group->nqueued, memory_order_relaxed) != 0 ||
                    atomic_load_explicit(&group->closed, memory_order_acquire) ||
                    group->backend->begin(group->backend_self, op, d.run) != CHOIR_OK)) {
        ch_queue_leave(group);
        return false;
    }
    d.group = group;
    d.op = op;
    d.name = name;
    set_time(&d, opts);
    /* Release, pairs with the acquire in choir_group_collective_sequence(): who sees the number finds the
     * token taken. */
    op->seq = atomic_fetch_add_explicit(&group->ncollectives, 1, memory_order_release);
    *rc_out = run(&d);
    if (CH_UNLIKELY(*rc_out != CHOIR_OK))
        fail(&d);
    ch_flightlog_direct_done(group, d.flight, ch_now_rough(), *rc_out);
    ch_queue_leave(group);
    return true;
}
