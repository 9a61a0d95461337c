/*
 * suspect.c - see suspect.h.
 */
#include "engine/suspect.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/params.h"
#include "engine/describe.h"
#include "engine/poison.h"
#include "engine/stopped.h"

enum {
    /* The first look around comes before a wait turns into a sleep (base/wait.c), the others with the
     * rank's tick. */
    FIRST_LOOK_NS = 50 * CH_US,
    FROZEN_NS = CH_S,
};

/* --- who is missing ------------------------------------------------------------------------------- */

static bool has_not_entered(const struct ch_channel *channel, uint32_t who, const void *arg)
{
    (void)arg;
    return ch_call_view(channel, who) == CH_NOT_ENTERED;
}

static int first_missing(const struct ch_channel *channel)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        if (has_not_entered(channel, who, NULL))
            return (int)who;
    }
    return CHOIR_NO_RANK;
}

/* "ranks 2, 3 have not entered it (rank 2's last operation: barrier, number 4)" */
static int say_missing(const struct ch_channel *channel, int whom, char *buf, size_t size)
{
    char ranks[128], last[CH_CALL_TEXT_MAX];
    int first = first_missing(channel);
    uint32_t count;

    if (first != CHOIR_NO_RANK) {
        count = ch_ranks_text(channel, has_not_entered, NULL, ranks, sizeof(ranks));
        snprintf(buf, size, "%s %s not entered it (rank %d's last operation: %s)", ranks,
                 count == 1 ? "has" : "have", first,
                 ch_call_text_last(channel, (uint32_t)first, last, sizeof(last)));
        return first;
    }
    if (whom >= 0)
        snprintf(buf, size, "all ranks have entered it, and rank %u waits for rank %d", channel->me,
                 whom);
    else
        snprintf(buf, size, "all ranks have entered it, but are not through");
    return whom >= 0 ? whom : CHOIR_NO_RANK;
}

/* --- verdicts -------------------------------------------------------------------------------------- */

static choir_status too_late(struct ch_channel *channel, const struct ch_op *op, int whom,
                             bool collective, uint64_t waited_ns)
{
    char what[CH_CALL_TEXT_MAX], missing[256];
    int culprit = whom >= 0 ? whom : CHOIR_NO_RANK;

    ch_op_text(op, what, sizeof(what));
    if (!collective) {
        snprintf(missing, sizeof(missing), "no message that matches");
        if (whom >= 0)
            snprintf(missing, sizeof(missing), "waiting for rank %d", whom);
    } else {
        culprit = say_missing(channel, whom, missing, sizeof(missing));
    }
    ch_fail_rank(CHOIR_ERR_TIMEOUT, culprit, what,
                 "group %s: %s: timed out on rank %u, timeout %" PRId64 " ms, the last %" PRIu64
                 " ms of it waiting: %s",
                 channel->name, what, channel->me, op->timeout_ms, waited_ns / CH_MS, missing);
    return collective ? ch_poison_last_error(channel) : CHOIR_ERR_TIMEOUT;
}

static choir_status left(struct ch_channel *channel, const struct ch_op *op, uint32_t who,
                         bool collective)
{
    char what[CH_CALL_TEXT_MAX];

    ch_op_text(op, what, sizeof(what));
    ch_fail_rank(CHOIR_ERR_REMOTE, (int)who, what,
                 "group %s: %s: rank %u has left the group and will never take part", channel->name,
                 what, who);
    return collective ? ch_poison_last_error(channel) : CHOIR_ERR_REMOTE;
}

static choir_status frozen_for_too_long(struct ch_channel *channel, const struct ch_op *op,
                                        uint32_t who)
{
    char what[CH_CALL_TEXT_MAX];

    ch_op_text(op, what, sizeof(what));
    ch_fail_rank(CHOIR_ERR_TIMEOUT, (int)who, what,
                 "group %s: %s: rank %u is frozen (process %" PRIu64
                 " is stopped), for CHOIR_FROZEN_S, %" PRId64 " s, by now",
                 channel->name, what, who, channel->members[who].neighbour->page->pid,
                 ch_params()->frozen_s);
    return ch_poison_last_error(channel);
}

/* --- looking around -------------------------------------------------------------------------------- */

static choir_status look_for_mismatch(struct ch_channel *channel, const struct ch_op *op)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        bool gone = ch_member_has_left(&channel->members[who]);
        enum ch_view view = gone ? CH_NOT_ENTERED : ch_call_view(channel, who);

        if (view == CH_DIFFERS)
            return ch_call_mismatch(channel);
        /* Who has left may have entered it, and been done, before. */
        if (gone && ch_call_view(channel, who) == CH_NOT_ENTERED)
            return left(channel, op, who, true);
    }
    return CHOIR_IN_PROGRESS;
}

/* What is said of one process is said once, until it goes on. Relaxed: who waits with us says the same. */
static bool look_if_frozen(struct ch_channel *channel, const struct ch_op *op, uint32_t who)
{
    struct ch_member *member = &channel->members[who];
    bool frozen = ch_neighbour_is_stopped(member->neighbour);
    bool was = atomic_exchange_explicit(&member->frozen, frozen, memory_order_relaxed);
    char what[CH_CALL_TEXT_MAX];

    if (frozen && !was)
        ch_log_warn("group %s: rank %u is frozen (process %" PRIu64
                    " is stopped, by a signal or a debugger); rank %u waits for it in %s",
                    channel->name, who, member->neighbour->page->pid, channel->me,
                    ch_op_text(op, what, sizeof(what)));
    if (!frozen && was)
        ch_log_warn("group %s: rank %u goes on", channel->name, who);
    return frozen;
}

static choir_status look_for_frozen(struct ch_vigil *vigil, struct ch_channel *channel,
                                    const struct ch_op *op, int whom, uint64_t now)
{
    uint64_t limit = (uint64_t)ch_params()->frozen_s * CH_S;
    int first = CHOIR_NO_RANK;

    if (now < vigil->next_frozen || whom == CH_FOR_ANY)
        return CHOIR_IN_PROGRESS;
    vigil->next_frozen = now + FROZEN_NS;
    for (uint32_t who = 0; who < channel->nranks; who++) {
        if (who != channel->me && (whom == CH_FOR_ALL || (uint32_t)whom == who) &&
            look_if_frozen(channel, op, who) && first == CHOIR_NO_RANK)
            first = (int)who;
    }
    vigil->saw_frozen |= first != CHOIR_NO_RANK;
    if (first == CHOIR_NO_RANK || vigil->frozen_since == 0)
        vigil->frozen_since = first == CHOIR_NO_RANK ? 0 : now;
    if (first != CHOIR_NO_RANK && limit > 0 && now - vigil->frozen_since >= limit)
        return frozen_for_too_long(channel, op, (uint32_t)first);
    return CHOIR_IN_PROGRESS;
}

/* The wait is over: it got on, or was given up. The next one tells anew. */
static void forget_frozen(struct ch_channel *channel)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        struct ch_member *member = &channel->members[who];

        if (atomic_exchange_explicit(&member->frozen, false, memory_order_relaxed) &&
            !ch_neighbour_is_stopped(member->neighbour))
            ch_log_warn("group %s: rank %u goes on", channel->name, who);
    }
}

static void look_for_those_behind(struct ch_vigil *vigil, const struct ch_channel *channel,
                                  const struct ch_op *op, int whom, uint64_t now)
{
    int64_t after_s = ch_params()->behind_s;
    char what[CH_CALL_TEXT_MAX], missing[256];

    if (vigil->told_behind || after_s == 0 || now - vigil->since < (uint64_t)after_s * CH_S)
        return;
    vigil->told_behind = true;
    say_missing(channel, whom, missing, sizeof(missing));
    ch_log_warn("group %s: rank %u has waited %" PRId64 " s in %s: %s", channel->name, channel->me,
                after_s, ch_op_text(op, what, sizeof(what)), missing);
}

static choir_status look_around(struct ch_vigil *vigil, struct ch_channel *channel,
                                const struct ch_op *op, int whom, bool collective, uint64_t now)
{
    choir_status rc = CHOIR_IN_PROGRESS;

    if (collective)
        rc = look_for_mismatch(channel, op);
    else if (whom >= 0 && ch_member_has_left(&channel->members[whom]))
        rc = left(channel, op, (uint32_t)whom, false);
    if (rc == CHOIR_IN_PROGRESS)
        rc = look_for_frozen(vigil, channel, op, whom, now);
    if (rc == CHOIR_IN_PROGRESS && collective)
        look_for_those_behind(vigil, channel, op, whom, now);
    return rc;
}

/* --- a vigil --------------------------------------------------------------------------------------- */

static void begin(struct ch_vigil *vigil, struct ch_channel *channel, uint64_t now)
{
    *vigil = (struct ch_vigil){ .begun = true, .since = now };
    vigil->ticks = atomic_load_explicit(&channel->rank->ticks, memory_order_relaxed);
    vigil->next_frozen = vigil->since + FROZEN_NS;
    ch_rank_wait_begins(channel->rank);
}

choir_status ch_vigil_keep(struct ch_vigil *vigil, struct ch_channel *channel,
                           const struct ch_op *op, int whom, bool collective)
{
    choir_status rc = ch_poisoned(channel);
    uint32_t ticks;
    uint64_t now;

    if (rc != CHOIR_OK)
        return rc;
    now = ch_now_rough();
    if (!vigil->begun)
        begin(vigil, channel, now);
    if (now >= op->until)
        return too_late(channel, op, whom, collective, now - vigil->since);
    ticks = atomic_load_explicit(&channel->rank->ticks, memory_order_relaxed);
    if (ticks == vigil->ticks && (vigil->looked != 0 || now - vigil->since < FIRST_LOOK_NS))
        return CHOIR_IN_PROGRESS;
    vigil->ticks = ticks;
    vigil->looked = now;
    return look_around(vigil, channel, op, whom, collective, now);
}

void ch_vigil_end(struct ch_vigil *vigil, struct ch_channel *channel)
{
    if (!vigil->begun)
        return;
    vigil->begun = false;
    if (CH_UNLIKELY(vigil->saw_frozen))
        forget_frozen(channel);
    ch_rank_wait_ends(channel->rank);
}
