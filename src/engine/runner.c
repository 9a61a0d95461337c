/*
 * runner.c - see runner.h. The steps are those of sched.h; what they do to bytes is in move.c.
 */
#include "engine/runner.h"

#include "base/error.h"
#include "engine/agree.h"
#include "engine/describe.h"
#include "engine/flags.h"
#include "engine/fused.h"
#include "engine/move.h"
#include "engine/place.h"
#include "engine/poison.h"
#include "engine/rooted.h"

/* --- flags ----------------------------------------------------------------------------------------- */

CH_NOINLINE choir_status ch_flag_compare(struct ch_channel *channel, const struct ch_run *run,
                                         uint32_t who, uint64_t check)
{
    if (run->pairs != NULL)
        return ch_rooted_compare(channel, run->pairs, who, check, run->round);
    return ch_call_view(channel, who) == CH_AGREES ? CHOIR_OK : ch_call_mismatch(channel);
}

/* We are through with a round: few wait for that, and most who sleep await something else. It is told in a line of its
 * own: others may still be reading what lies beside our flag. */
static void end_round(struct ch_channel *channel, const struct ch_run *run)
{
    /* Release, pairs with the acquire in ch_ask_all(): our reads are over. */
    atomic_store_explicit(&channel->control->through, run->round, CH_POST_ORDER);
    for (uint32_t who = 0; who < channel->nranks; who++) {
        const struct ch_member *member = &channel->members[who];

        /* Relaxed: ordered as `asleep` is; the owner stored it before it looked for the last time (wait.h,
         * ch_waiter_wants_more()). */
        if (who != channel->me && ch_bell_may_sleep(&member->neighbour->bell) &&
            atomic_load_explicit(&member->control->gated, memory_order_relaxed) != 0)
            ch_bell_ring(&member->neighbour->bell);
    }
}

/* --- messages -------------------------------------------------------------------------------------- */

static int fill_iov(const struct ch_channel *channel, const struct ch_run *run, uint32_t first,
                    uint32_t nranges, struct iovec *iov)
{
    for (uint32_t i = 0; i < nranges; i++) {
        struct ch_place place = ch_place_of(channel, run, first + i);

        iov[i].iov_base = place.at;
        iov[i].iov_len = place.nbytes;
    }
    return (int)nranges;
}

/* Never 0, which would mean "do not compare". */
static uint64_t message_check(const struct ch_channel *channel)
{
    return channel->check | 1;
}

static void start_send(struct ch_channel *channel, struct ch_run *run, uint32_t to, uint32_t first,
                       uint32_t nranges, struct iovec *iov)
{
    ch_p2p_send(channel->rank->p2p, &run->out, (uint32_t)channel->members[to].neighbour->rank,
                ch_channel_context(channel, false), 0, message_check(channel), iov,
                fill_iov(channel, run, first, nranges, iov));
}

static void start_recv(struct ch_channel *channel, struct ch_run *run, uint32_t from,
                       uint32_t first, uint32_t nranges, struct iovec *iov)
{
    ch_p2p_recv(channel->rank->p2p, &run->in, channel->members[from].neighbour->rank,
                ch_channel_context(channel, false), 0, message_check(channel), iov,
                fill_iov(channel, run, first, nranges, iov));
}

static void start_transfers(struct ch_channel *channel, struct ch_run *run,
                            const struct ch_step *step)
{
    uint32_t first = step->first_range;
    uint32_t nsent = step->kind == CH_RECV       ? 0
                     : step->kind == CH_SENDRECV ? step->nsrcs
                                                 : step->nranges;

    run->out = run->in = (struct ch_transfer){ .done = 1 };
    if (step->kind != CH_SEND) {
        run->in.done = 0;
        start_recv(channel, run, step->kind == CH_RECV ? step->peer : step->flag, first + nsent,
                   step->nranges - nsent, channel->iov + nsent);
    }
    if (step->kind != CH_RECV) {
        run->out.done = 0;
        start_send(channel, run, step->peer, first, nsent, channel->iov);
    }
    run->moving = true;
}

static bool is_done(struct ch_transfer *transfer)
{
    /* Acquire, pairs with the release with which p2p sets it: all else is readable. */
    return atomic_load_explicit(&transfer->done, memory_order_acquire) != 0;
}

/* A transfer that failed: perhaps because the group has, which then is the better answer. */
static choir_status transfer_failed(struct ch_channel *channel, const struct ch_transfer *transfer)
{
    choir_status rc = ch_poisoned(channel);

    if (rc != CHOIR_OK)
        return rc;
    for (uint32_t who = 0; who < channel->nranks; who++) {
        if (ch_call_view(channel, who) == CH_DIFFERS)
            return ch_call_mismatch(channel);
    }
    ch_channel_transfer_error(channel, &transfer->error);
    return ch_poison_last_error(channel);
}

static bool is_nothing(const struct ch_channel *channel, const struct ch_run *run,
                       const struct ch_step *step)
{
    for (uint32_t i = 0; i < step->nranges; i++) {
        if (ch_place_of(channel, run, step->first_range + i).count > 0)
            return false;
    }
    return true;
}

static choir_status move_messages(struct ch_channel *channel, struct ch_run *run,
                                  const struct ch_step *step)
{
    if (!run->moving && run->some && is_nothing(channel, run, step))
        return CHOIR_OK;
    if (!run->moving)
        start_transfers(channel, run, step);
    if (!is_done(&run->in) || !is_done(&run->out))
        run->got_on |= ch_p2p_progress(channel->rank->p2p) != 0;
    if (is_done(&run->in) && run->in.status != CHOIR_OK)
        return transfer_failed(channel, &run->in);
    if (is_done(&run->out) && run->out.status != CHOIR_OK)
        return transfer_failed(channel, &run->out);
    run->waits_for = (int)(step->kind == CH_SENDRECV && !is_done(&run->in) ? step->flag
                                                                           : step->peer);
    if (!is_done(&run->in) || !is_done(&run->out))
        return CHOIR_IN_PROGRESS;
    run->moving = false;
    return CHOIR_OK;
}

/* --- steps ----------------------------------------------------------------------------------------- */

static choir_status do_step(struct ch_channel *channel, struct ch_run *run,
                            const struct ch_step *step)
{
    switch ((enum ch_step_kind)step->kind) {
    case CH_COPY:
        ch_move_copy(channel, run, step);
        return CHOIR_OK;
    case CH_REDUCE_ALL:
        ch_move_reduce(channel, run, step);
        return CHOIR_OK;
    case CH_COMBINE:
        ch_move_combine(channel, run, step);
        return CHOIR_OK;
    case CH_FINISH:
        ch_move_finish(channel, run, step);
        return CHOIR_OK;
    case CH_POST:
        ch_flag_raise(channel, run, step->flag,
                      CH_LIKELY(run->pairs == NULL)
                          ? channel->check
                          : ch_rooted_tell(channel, run->pairs, run->round));
        ch_channel_ring(channel);
        return CHOIR_OK;
    case CH_AWAIT:
        return ch_flag_await(channel, run, step->peer, step->flag);
    case CH_GATE:
        run->waits_for = CH_FOR_ALL;
        return ch_all_are_through(channel, run->round - 2) ? CHOIR_OK : CHOIR_IN_PROGRESS;
    case CH_SEND:
    case CH_RECV:
    case CH_SENDRECV:
        return move_messages(channel, run, step);
    case CH_NSTEPS:
        break;
    }
    return ch_fail(CHOIR_ERR_STATE, "a schedule has a step of kind %d", step->kind);
}

static choir_status run_steps(struct ch_channel *channel, struct ch_run *run)
{
    while (run->step < run->plan->sched->nsteps) {
        choir_status rc = do_step(channel, run, &run->plan->sched->steps[run->step]);

        if (rc != CHOIR_OK)
            return rc;
        run->step++;
    }
    return CHOIR_OK;
}

/* All rounds of the schedule, as far as they go. */
static choir_status run_schedule(struct ch_channel *channel, struct ch_run *run)
{
    while (run->rounds_left > 0) {
        choir_status rc = CH_LIKELY(run->plan->fused != NULL) ? run->plan->fused(channel, run)
                                                              : run_steps(channel, run);

        if (rc != CHOIR_OK)
            return rc;
        run->step = 0;
        run->offset += run->plan->window;
        run->rounds_left--;
        if (CH_UNLIKELY(run->some))
            continue;
        end_round(channel, run);
        channel->round = ++run->round;
    }
    return CHOIR_OK;
}

/* --- phases ---------------------------------------------------------------------------------------- */

static choir_status plan(struct ch_channel *channel, struct ch_run *run, const struct ch_op *op,
                         size_t longest, bool uneven)
{
    /* Whoever asks for an algorithm does not mean the agreement before it. */
    const char *algo = run->some ? ch_rooted_algo : run->phase == CH_RUN_RUNNING ? op->algo : NULL;
    choir_status rc = ch_plan_find(channel, op, algo, longest, uneven, &run->plan);

    if (rc != CHOIR_OK)
        return rc;
    run->op = op;
    run->offset = run->step = 0;
    run->round = channel->round;
    run->rounds_left = run->plan->nrounds;
    run->turn_at = ch_place_turn(run->plan, run->round);
    return CHOIR_OK;
}

/* A failure after we have entered. What all ranks refuse alike (an algorithm that cannot do it) is nobody's
 * fault; all else is ours alone, and the others would wait for us. */
static choir_status give_up(struct ch_channel *channel, choir_status rc)
{
    if (rc == CHOIR_ERR_INVALID || rc == CHOIR_ERR_UNSUPPORTED)
        return rc;
    return ch_poison_last_error(channel);
}

static choir_status start_schedule(struct ch_channel *channel, struct ch_run *run,
                                   const struct ch_op *op, size_t longest, bool uneven)
{
    choir_status rc = plan(channel, run, op, longest, uneven);

    return CH_LIKELY(rc == CHOIR_OK) ? rc : give_up(channel, rc);
}

/* Programs repeat themselves: what came after a barrier will come after the next one. All ranks have the same calls
 * behind them, and so the same expectation. */
static void learn_who_leads(struct ch_channel *channel, const struct ch_op *op)
{
    if (channel->after_barrier) {
        channel->led = op->coll == CH_BROADCAST || op->coll == CH_SCATTER;
        channel->leader = channel->led ? op->root : 0;
    }
    channel->after_barrier = op->coll == CH_BARRIER;
}

/* Whether the next call may be described: all are through with the one that its slot described before. That is
 * asked for half of the slots at a time. */
static bool slot_is_free(struct ch_channel *channel)
{
    if (CH_LIKELY(channel->ncalls % (CH_CALLS_KEPT / 2) != 0))
        return true;
    if (!ch_all_are_through(channel, channel->half_ended))
        return false;
    channel->half_ended = channel->round - 1; /* of those before this half, which come next */
    return true;
}

static void enter_unplanned(struct ch_channel *channel, const struct ch_op *op)
{
    ch_call_say(channel, op, &channel->unplanned);
    ch_call_enter(channel, op, &channel->unplanned);
}

/* An operation about whose lengths the ranks have to agree first. */
static choir_status enter_agreement(struct ch_channel *channel, struct ch_run *run,
                                    const struct ch_op *op)
{
    const struct ch_op *first;
    choir_status rc;

    enter_unplanned(channel, op);
    rc = ch_agree_prepare(channel, op, &first);
    if (rc != CHOIR_OK)
        return give_up(channel, rc);
    run->phase = CH_RUN_AGREEING;
    return start_schedule(channel, run, first, first->longest, first->uneven);
}

/* A gather or scatter with blocks that are too long for its first round. */
static choir_status enter_head(struct ch_channel *channel, struct ch_run *run,
                               const struct ch_op *op)
{
    const struct ch_op *head;
    choir_status rc;

    enter_unplanned(channel, op);
    run->pairs = op;
    rc = ch_rooted_head(channel, op, &head);
    if (rc != CHOIR_OK)
        return give_up(channel, rc);
    run->phase = CH_RUN_HEADING;
    return start_schedule(channel, run, head, head->longest, true);
}

/* The plan comes first: what is said of calls is kept with it. One that cannot be planned is entered all the same, as
 * the others do who refuse it alike. */
static choir_status enter(struct ch_channel *channel, struct ch_run *run, const struct ch_op *op)
{
    bool by_pair = ch_rooted_is(channel, op);
    struct ch_said *said;
    choir_status rc;

    if (!slot_is_free(channel)) {
        run->waits_for = CH_FOR_ALL;
        return CHOIR_IN_PROGRESS;
    }
    learn_who_leads(channel, op);
    if (CH_UNLIKELY(by_pair && ch_rooted_is_long(channel, op, op->longest)))
        return enter_head(channel, run, op);
    if (!by_pair && ch_agree_is_needed(channel, op))
        return enter_agreement(channel, run, op);
    run->phase = CH_RUN_RUNNING;
    rc = plan(channel, run, op, op->longest, by_pair ? op->differ : op->uneven);
    if (CH_UNLIKELY(rc != CHOIR_OK)) {
        enter_unplanned(channel, op);
        return give_up(channel, rc);
    }
    said = &channel->last_plan->said; /* which is the run's */
    if (CH_UNLIKELY(!ch_call_is_said(said, op)))
        ch_call_say(channel, op, said);
    ch_call_enter(channel, op, said);
    if (by_pair)
        run->pairs = op;
    return CHOIR_OK;
}

static choir_status conclude_agreement(struct ch_channel *channel, const struct ch_op *op,
                                       struct ch_run *run)
{
    size_t longest;
    bool uneven;
    choir_status rc = ch_agree_conclude(channel, op, &longest, &uneven);

    run->phase = CH_RUN_RUNNING;
    return rc == CHOIR_OK ? start_schedule(channel, run, op, longest, uneven) : rc;
}

/* The short blocks are where they belong. */
static choir_status hear_root(struct ch_channel *channel, const struct ch_op *op,
                              struct ch_run *run)
{
    const struct ch_op *word = ch_rooted_word(channel, op);

    run->phase = CH_RUN_HEARING;
    run->pairs = NULL;
    run->some = true;
    return start_schedule(channel, run, word, word->longest, true);
}

static choir_status run_rest(struct ch_channel *channel, const struct ch_op *op, struct ch_run *run)
{
    struct ch_rooted_rest rest = ch_rooted_rest(channel, op);

    run->phase = CH_RUN_RUNNING;
    run->some = rest.some;
    return start_schedule(channel, run, rest.op, rest.longest, rest.uneven);
}

/* A phase is over, and there is another. */
static choir_status next_phase(struct ch_channel *channel, const struct ch_op *op,
                               struct ch_run *run)
{
    switch (run->phase) {
    case CH_RUN_AGREEING:
        return conclude_agreement(channel, op, run);
    case CH_RUN_HEADING:
        return hear_root(channel, op, run);
    case CH_RUN_HEARING:
        return run_rest(channel, op, run);
    case CH_RUN_ENTERING:
    case CH_RUN_RUNNING:
        break;
    }
    return CHOIR_OK;
}

static choir_status advance(struct ch_channel *channel, const struct ch_op *op, struct ch_run *run)
{
    choir_status rc = CHOIR_OK;

    if (run->phase == CH_RUN_ENTERING)
        rc = enter(channel, run, op);
    if (rc == CHOIR_OK)
        rc = run_schedule(channel, run);
    while (rc == CHOIR_OK && run->phase != CH_RUN_RUNNING) {
        rc = next_phase(channel, op, run);
        if (rc == CHOIR_OK)
            rc = run_schedule(channel, run);
    }
    return rc;
}

choir_status ch_run_begin(struct ch_channel *channel, const struct ch_op *op, struct ch_run *run)
{
    (void)op;
    run->phase = CH_RUN_ENTERING;
    run->round = run->step = 0;
    run->pairs = NULL;
    run->vigil = (struct ch_vigil){ .begun = false };
    run->moving = run->got_on = run->lingers = run->some = false;
    channel->copied = NULL; /* should the one before have ended early */
    return ch_poisoned(channel);
}

choir_status ch_run_step(struct ch_channel *channel, struct ch_op *op, struct ch_run *run)
{
    uint64_t round = run->round;
    uint32_t step = run->step;
    choir_status rc = advance(channel, op, run);

    if (rc != CHOIR_IN_PROGRESS) {
        ch_vigil_end(&run->vigil, channel);
        return rc;
    }
    if (round != run->round || step != run->step || run->got_on)
        op->moves++;
    run->got_on = false;
    /* No watch is kept yet: a second step comes soon, whoever runs it. direct.c makes it, a wait looks more than once,
     * and the service thread looks again when it has sat down, or is rung by the end of the operation before. */
    if (!run->lingers || op->attended) {
        run->lingers = true;
        return rc;
    }
    if (round != run->round || step != run->step)
        ch_vigil_end(&run->vigil, channel); /* it got on: this is another wait */
    /* Who cannot enter yet waits for those who are still in an operation long ago: they have not entered the
     * last one either. */
    return ch_vigil_keep(&run->vigil, channel, op, run->waits_for, true);
}

void ch_run_end(struct ch_channel *channel, struct ch_run *run)
{
    if (run->moving && !is_done(&run->in))
        ch_p2p_cancel(channel->rank->p2p, &run->in, CHOIR_ERR_INTERRUPTED);
    if (run->moving && !is_done(&run->out))
        ch_p2p_cancel(channel->rank->p2p, &run->out, CHOIR_ERR_INTERRUPTED);
    run->moving = false;
    ch_vigil_end(&run->vigil, channel);
}
