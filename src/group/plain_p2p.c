/*
 * plain_p2p.c - see plain_p2p.h. What it does is what queue.c does with sends and receives that are waited for at once.
 */
#include "group/plain_p2p.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/flightlog.h"
#include "group/queue.h"
#include "transport/p2p.h"

struct part {
    struct ch_op op;
    uint64_t flight;
    choir_status rc;
    _Alignas(64) char run[CH_BACKEND_TRANSFER_MAX]; /* begin() sets it up */
};

/* What is asked for. */
struct plain_call {
    choir_group *group;
    struct ch_plain *parts;
    size_t count;
    uint64_t issued;
    uint64_t seq, flight; /* the number and the record of the first; those of the others follow */
    bool over;            /* the short way was all: it is not counted as pending */
};

/* The long way. Not cleared: most of it is for failures, or not used at all. */
struct plain_run {
    choir_group *group;
    uint64_t issued;
    size_t count, left; /* how many are not done */
    size_t turn;        /* whose it is to be looked after */
    choir_status failed;
    choir_error error; /* if it has: of the first that did */
    struct part parts[CH_PLAIN_MAX];
};

static const char *name_of(const struct part *part)
{
    return part->op.type == CHOIR_OP_SEND ? "choir_send" : "choir_recv";
}

/* --- before ------------------------------------------------------------------------------------------ */

/* Number all and record them as started: after the bytes of sends have gone, which others may wait for, and while what is received is
 * under way. */
static void note(void *arg, bool all_sent)
{
    struct plain_call *call = arg;
    choir_group *group = call->group;

    call->issued = ch_now_rough();
    /* Relaxed: it only hands out numbers. */
    call->seq = atomic_fetch_add_explicit(&group->ntransfers, call->count, memory_order_relaxed);
    call->flight = ch_flightlog_plain(group, call->parts, call->count, all_sent, call->seq,
                                      call->issued);
}

static void set_up(struct plain_run *r, struct part *part, const struct ch_plain *asked)
{
    struct ch_blocks all = { .step = 1, .nblocks = 1, .base = asked->data, .count = asked->count };
    int64_t timeout_ms = asked->timeout_ms;

    if (timeout_ms == 0)
        timeout_ms = atomic_load_explicit(&r->group->timeout_ms, memory_order_relaxed);
    ch_op_init(&part->op, asked->type, 0, asked->dtype, asked->count);
    part->op.peer = asked->peer;
    part->op.tag = asked->tag;
    part->op.until = ch_deadline_after(r->issued, timeout_ms);
    part->op.timeout_ms = timeout_ms;
    *(asked->type == CHOIR_OP_SEND ? &part->op.in : &part->op.out) = all;
    part->rc = asked->done ? CHOIR_OK : CHOIR_IN_PROGRESS;
    r->left -= asked->done;
}

/* --- while -------------------------------------------------------------------------------------------- */

/* As in queue.c, note_failure(): it is the group's if no rank knows any more who is where. */
static CH_NOINLINE void note_failure(struct plain_run *r, struct part *part)
{
    choir_error error;

    ch_error_save(&error);
    ch_queue_name_operation(&error, part->op.type);
    if (choir_status_loses(part->rc) == CHOIR_LOSES_GROUP)
        ch_group_fail(r->group, &error);
    if (r->failed != CHOIR_OK)
        return;
    r->failed = part->rc;
    r->error = error;
}

static void finish(struct plain_run *r, struct part *part, choir_status rc)
{
    part->rc = rc;
    r->left--;
    if (CH_UNLIKELY(rc != CHOIR_OK))
        note_failure(r, part);
    r->group->backend->end(r->group->backend_self, &part->op, part->run);
}

static void begin(struct plain_run *r, struct part *part)
{
    choir_status rc = r->group->backend->begin(r->group->backend_self, &part->op, part->run);

    if (CH_UNLIKELY(rc != CHOIR_OK && rc != CHOIR_IN_PROGRESS))
        finish(r, part, rc);
}

/* False: it is not done. */
static bool step(struct plain_run *r, struct part *part)
{
    choir_status rc;

    if (part->rc != CHOIR_IN_PROGRESS)
        return true;
    rc = r->group->backend->step(r->group->backend_self, &part->op, part->run);
    if (rc == CHOIR_IN_PROGRESS)
        return false;
    finish(r, part, rc);
    return true;
}

/* Go on with all of them: true if all are done. */
static bool advance_all(struct plain_run *r)
{
    for (size_t i = 0; i < r->count; i++)
        step(r, &r->parts[i]);
    return r->left == 0;
}

/* The same up to the first that is not done, which another is in turn: a step moves the bytes of all, and one
 * look in vain is enough. */
static bool advance(struct plain_run *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct part *part = &r->parts[r->turn];

        r->turn = r->turn + 1 < r->count ? r->turn + 1 : 0;
        if (!step(r, part))
            return false;
    }
    return true;
}

static uint64_t moves(const struct plain_run *r)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < r->count; i++)
        sum += r->parts[i].op.moves;
    return sum;
}

/* What is waited for is the next bytes, not the last ones: a wait of its own for each, or a long message
 * would put both its ends to sleep. */
static bool get_on(void *arg)
{
    struct plain_run *r = arg;
    uint64_t before = moves(r);

    return advance(r) || moves(r) != before;
}

/* Give up those whose time is up, or all that are left, with this thread's last error. */
static CH_NOINLINE void give_up(struct plain_run *r, choir_status why)
{
    for (size_t i = 0; i < r->count; i++) {
        struct part *part = &r->parts[i];

        if (part->rc != CHOIR_IN_PROGRESS)
            continue;
        if (why != CHOIR_ERR_TIMEOUT)
            finish(r, part, why);
        else if (ch_deadline_passed(part->op.until))
            finish(r, part,
                   ch_queue_timed_out(r->group, &part->op, name_of(part), r->issued, true));
    }
}

static ch_deadline first_deadline(const struct plain_run *r)
{
    ch_deadline first = CH_NEVER;

    for (size_t i = 0; i < r->count; i++) {
        if (r->parts[i].rc == CHOIR_IN_PROGRESS && r->parts[i].op.until < first)
            first = r->parts[i].op.until;
    }
    return first;
}

static void wait_for_all(struct plain_run *r)
{
    struct ch_wait wait = {
        .waiter = r->group->context->waiter, .ready = get_on, .arg = r, .what = "sends and receives"
    };

    while (r->left > 0) {
        choir_status rc;

        wait.until = first_deadline(r);
        rc = ch_wait(&wait);
        /* The backend knows best what was missing: it is asked once more. */
        if (rc != CHOIR_OK && !(rc == CHOIR_ERR_TIMEOUT && advance_all(r)))
            give_up(r, rc);
    }
}

/* --- after ---------------------------------------------------------------------------------------------- */

static choir_status leave(struct plain_run *r)
{
    uint64_t now = ch_now_rough();

    for (size_t i = 0; i < r->count; i++)
        ch_flightlog_direct_done(r->group, r->parts[i].flight, now, r->parts[i].rc);
    return r->failed == CHOIR_OK ? CHOIR_OK : ch_error_load(&r->error);
}

static CH_NOINLINE choir_status run_long(const struct plain_call *call)
{
    struct plain_run r;

    r.group = call->group;
    r.issued = call->issued;
    r.count = r.left = call->count;
    r.turn = 0;
    r.failed = CHOIR_OK;
    for (size_t i = 0; i < r.count; i++) {
        set_up(&r, &r.parts[i], &call->parts[i]);
        r.parts[i].op.seq = call->seq + i;
        r.parts[i].flight = call->flight != 0 ? call->flight + i : 0;
    }
    for (size_t i = 0; i < r.count; i++) {
        if (r.parts[i].rc == CHOIR_IN_PROGRESS)
            begin(&r, &r.parts[i]);
    }
    if (!advance(&r))
        wait_for_all(&r);
    return leave(&r);
}

/* --- after some turns ---------------------------------------------------------------------------------- */

/* How often others run before a wait is set up for a message that has not come: it takes longer than many a turn. */
enum { TURNS = 4 };

struct lateness {
    const struct plain_call *call;
    size_t done;
};

/* Nothing is in the way of those that are not done but that their messages have not come. */
static bool all_late(const struct plain_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        if (!call->parts[i].done && !call->parts[i].late)
            return false;
    }
    return true;
}

/* True: all are done, or one needs more than its message. */
static bool look_again(void *arg)
{
    struct lateness *l = arg;
    const struct plain_call *call = l->call;

    l->done = call->group->backend->run_short(call->group->backend_self, call->parts, call->count,
                                              NULL);
    return l->done == call->count || !all_late(call);
}

static CH_NOINLINE choir_status run_late(const struct plain_call *call)
{
    struct lateness l = { call, 0 };

    (void)ch_wait_turns(call->group->context->waiter, TURNS, look_again, &l);
    if (l.done != call->count)
        return run_long(call);
    ch_flightlog_plain_done(call->group, call->flight, call->count);
    return CHOIR_OK;
}

/* --- at once -------------------------------------------------------------------------------------------- */

/* The last of the short way that nobody interferes with (ch_backend_ops.pass_short): who is not through is counted as pending,
 * so that the group stays. */
static void end_short(void *arg, bool over)
{
    struct plain_call *call = arg;

    call->over = over;
    if (CH_LIKELY(over))
        ch_flightlog_plain_done(call->group, call->flight, call->count);
    else
        atomic_fetch_add_explicit(&call->group->npending, 1, memory_order_relaxed);
}

/* False: the group is closed. */
static bool count_in(choir_group *group)
{
    bool closed;

    ch_lock(&group->lock);
    closed = atomic_load_explicit(&group->closed, memory_order_relaxed);
    if (!closed)
        atomic_fetch_add_explicit(&group->npending, 1, memory_order_relaxed);
    ch_unlock(&group->lock);
    return !closed;
}

/* What the short way has left: `done` of them are. Counted as pending. */
static CH_NOINLINE choir_status go_on(const struct plain_call *call, size_t done)
{
    choir_status rc = CHOIR_OK;

    if (done == call->count)
        ch_flightlog_plain_done(call->group, call->flight, call->count);
    else if (call->group->context->waiter->crowded && all_late(call))
        rc = run_late(call);
    else
        rc = run_long(call);
    ch_group_settle(call->group);
    return rc;
}

/* The short way takes p2p's lock and no other. It is not counted as pending either: who closes the group lets it pass
 * (choir_group_destroy()). */
bool ch_plain_run(choir_group *group, struct ch_plain *parts, size_t count, choir_status *rc_out)
{
    struct plain_call call = { .group = group, .parts = parts, .count = count };
    const struct ch_meanwhile meanwhile = { note, end_short, &call };
    size_t done = 0;

    ch_assert(count <= CH_PLAIN_MAX);
    /* Relaxed: of this thread's own. */
    if (CH_UNLIKELY(ch_group_check(group) != CHOIR_OK ||
                    atomic_load_explicit(&group->closed, memory_order_relaxed)))
        return false;
    if (CH_LIKELY(group->backend->run_short != NULL)) {
        done = group->backend->run_short(group->backend_self, parts, count, &meanwhile);
    } else {
        if (!count_in(group))
            return false;
        note(&call, false);
    }
    *rc_out = CH_LIKELY(call.over) ? CHOIR_OK : go_on(&call, done);
    return true;
}

choir_status ch_plain_call(choir_group *group, const struct ch_plain *part)
{
    choir_buf buf = CHOIR_BUF(part->data, part->count, part->dtype);
    choir_coll_opts opts = { .size = sizeof(opts), .timeout_ms = part->timeout_ms };

    return part->type == CHOIR_OP_SEND ? choir_send(group, buf, part->peer, part->tag, &opts, NULL)
                                       : choir_recv(group, buf, part->peer, part->tag, &opts, NULL);
}
