/*
 * plain_p2p.c - see plain_p2p.h. What it does is what queue.c does with sends and receives that are waited for at once.
 */
#include "group/plain_p2p.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/flightlog.h"
#include "group/queue.h"

struct part {
    struct ch_op op;
    uint64_t flight;
    choir_status rc;
    _Alignas(64) char run[CH_BACKEND_TRANSFER_MAX]; /* begin() sets it up */
};

/* All of a call. Not cleared: most of it is for failures, or not used at all. */
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

/* Numbers for `count` of them; the first. Under the lock, as whoever else does: it needs no exchange. */
static uint64_t take_numbers_locked(choir_group *group, size_t count)
{
    uint64_t first = atomic_load_explicit(&group->ntransfers, memory_order_relaxed);

    ch_lock_assert_held(&group->lock);
    atomic_store_explicit(&group->ntransfers, first + count, memory_order_relaxed);
    return first;
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

/* Count the call in as one that is pending, and number its parts, in the order of the flight record. */
static void enter_locked(struct plain_run *r)
{
    choir_group *group = r->group;
    uint64_t seq = take_numbers_locked(group, r->count);

    atomic_fetch_add_explicit(&group->npending, 1, memory_order_relaxed);
    for (size_t i = 0; i < r->count; i++) {
        r->parts[i].op.seq = seq + i;
        r->parts[i].flight = ch_flightlog_direct(group, &r->parts[i].op, true, r->issued);
    }
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
    ch_group_settle(r->group);
    return r->failed == CHOIR_OK ? CHOIR_OK : ch_error_load(&r->error);
}

/* Gives the lock back. */
static CH_NOINLINE choir_status run_long_locked(choir_group *group, const struct ch_plain *parts,
                                                size_t count, uint64_t issued)
    CH_RELEASES(&group->lock)
{
    struct plain_run r;

    r.group = group;
    r.issued = issued;
    r.count = r.left = count;
    r.turn = 0;
    r.failed = CHOIR_OK;
    for (size_t i = 0; i < count; i++)
        set_up(&r, &r.parts[i], &parts[i]);
    enter_locked(&r);
    ch_unlock(&group->lock);
    for (size_t i = 0; i < count; i++) {
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
    choir_group *group;
    struct ch_plain *parts;
    size_t count, done;
};

/* Nothing is in the way of those that are not done but that their messages have not come. */
static bool all_late(const struct ch_plain *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!parts[i].done && !parts[i].late)
            return false;
    }
    return true;
}

/* True: all are done, or one needs more than its message. */
static bool look_again(void *arg)
{
    struct lateness *l = arg;

    l->done = l->group->backend->run_short(l->group->backend_self, l->parts, l->count);
    return l->done == l->count || !all_late(l->parts, l->count);
}

/* Counted as pending meanwhile, so that the group stays. Gives the lock back. */
static CH_NOINLINE choir_status run_late_locked(choir_group *group, struct ch_plain *parts,
                                                size_t count, uint64_t issued)
    CH_RELEASES(&group->lock)
{
    struct lateness l = { group, parts, count, 0 };
    choir_status rc = CHOIR_OK;

    atomic_fetch_add_explicit(&group->npending, 1, memory_order_relaxed);
    ch_unlock(&group->lock);
    (void)ch_wait_turns(group->context->waiter, TURNS, look_again, &l);
    ch_lock(&group->lock);
    if (l.done == count) {
        ch_flightlog_short(group, parts, count, take_numbers_locked(group, count), issued);
        ch_unlock(&group->lock);
    } else {
        rc = run_long_locked(group, parts, count, issued);
    }
    ch_group_settle(group);
    return rc;
}

/* --- at once -------------------------------------------------------------------------------------------- */

/* True if all were done, and are numbered and recorded as what is over: after their bytes have gone, which others may
 * wait for. */
static bool run_short_locked(choir_group *group, struct ch_plain *parts, size_t count,
                             uint64_t issued)
{
    const struct ch_backend_ops *backend = group->backend;

    if (backend->run_short == NULL ||
        backend->run_short(group->backend_self, parts, count) != count)
        return false;
    ch_flightlog_short(group, parts, count, take_numbers_locked(group, count), issued);
    return true;
}

/* One round of the lock is all that the short way needs: nobody closes the group meanwhile (group.c), so it is not counted as
 * pending, and nobody waits for it to be over. What is held beside it, p2p's lock, is held as long anyway. */
bool ch_plain_run(choir_group *group, struct ch_plain *parts, size_t count, choir_status *rc_out)
{
    uint64_t issued;

    ch_assert(count <= CH_PLAIN_MAX);
    if (CH_UNLIKELY(ch_group_check(group) != CHOIR_OK))
        return false;
    issued = ch_now_rough();
    ch_lock(&group->lock);
    if (CH_UNLIKELY(atomic_load_explicit(&group->closed, memory_order_relaxed))) {
        ch_unlock(&group->lock);
        return false;
    }
    if (CH_LIKELY(run_short_locked(group, parts, count, issued))) {
        ch_unlock(&group->lock);
        *rc_out = CHOIR_OK;
    } else if (group->context->waiter->crowded && all_late(parts, count)) {
        *rc_out = run_late_locked(group, parts, count, issued);
    } else {
        *rc_out = run_long_locked(group, parts, count, issued);
    }
    return true;
}

choir_status ch_plain_call(choir_group *group, const struct ch_plain *part)
{
    choir_buf buf = CHOIR_BUF(part->data, part->count, part->dtype);
    choir_coll_opts opts = { .size = sizeof(opts), .timeout_ms = part->timeout_ms };

    return part->type == CHOIR_OP_SEND ? choir_send(group, buf, part->peer, part->tag, &opts, NULL)
                                       : choir_recv(group, buf, part->peer, part->tag, &opts, NULL);
}
