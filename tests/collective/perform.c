/* perform.c - how a rank makes the calls of a case. */
#include "perform.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "placing.h"
#include "sparse_case.h"

/* --- groups ------------------------------------------------------------------------------------------ */

static bool split(choir_group *world, int rank, int nranks, enum group_slot slot,
                  enum group_slot other, struct choir_groups *out)
{
    struct members mine = { 0 }, others = { 0 };
    enum group_slot in = slot;
    bool member = false;
    choir_group *child;

    slot_members(nranks, slot, &mine);
    slot_members(nranks, other, &others);
    for (int i = 0; i < mine.nranks; i++)
        member = member || mine.ranks[i] == rank;
    if (!member && other != slot) {
        mine = others;
        in = other;
    } else if (!member) {
        mine.nranks = 0;
    }
    if (choir_group_split(world, mine.ranks, (size_t)mine.nranks, NULL, &child) != CHOIR_OK) {
        fprintf(stderr, "FAILED rank %d: split: %s\n", rank, choir_last_error());
        return false;
    }
    if ((child != NULL) != (mine.nranks > 0)) {
        fprintf(stderr, "FAILED rank %d: split of %d ranks gave %s\n", rank, mine.nranks,
                child == NULL ? "no group" : "a group");
        return false;
    }
    out->slots[in] = child;
    return true;
}

bool groups_make(choir_group *world, struct choir_groups *out)
{
    int rank = choir_group_rank(world), nranks = choir_group_size(world);

    memset(out, 0, sizeof(*out));
    out->rank = rank;
    out->nranks = nranks;
    out->slots[WORLD] = world;
    return split(world, rank, nranks, ALL_AGAIN, ALL_AGAIN, out) &&
           split(world, rank, nranks, EVENS, ODDS, out) &&
           split(world, rank, nranks, LOWER, LOWER, out);
}

void groups_destroy(struct choir_groups *groups)
{
    for (int slot = NSLOTS - 1; slot > WORLD; slot--)
        choir_group_destroy(groups->slots[slot]);
}

/* --- calls --------------------------------------------------------------------------------------------- */

static choir_work **next_work(struct act *act, bool sync)
{
    return sync ? NULL : &act->works[act->nworks++];
}

/* Receives are under way before anything is sent, so that nobody waits for itself. */
static choir_status issue_messages(choir_group *group, struct act *act, bool sync, bool batched)
{
    const struct call *c = act->call;
    int to = c->form == RECV_ANY ? c->root : (act->rank + c->shift) % c->nranks;
    int from = (act->rank + c->nranks - c->shift) % c->nranks;
    choir_status rc = CHOIR_OK;

    /* Every second rank by one call: the others cannot tell. */
    if (c->form == SEND_RECV && (c->seed + (uint64_t)act->rank) % 2 == 0)
        return choir_sendrecv(group, act->in_bufs[0], to, act->out_bufs[0], from, c->tag, NULL,
                              batched ? NULL : next_work(act, sync));
    for (int i = 0; i < act->nouts && rc == CHOIR_OK; i++) {
        if (c->form == RECV_ANY)
            rc = choir_recv_any(group, act->out_bufs[i], c->tag, &act->sources[i], NULL,
                                batched ? NULL : next_work(act, false));
        else
            rc = choir_recv(group, act->out_bufs[i], from, c->tag, NULL,
                            batched ? NULL : next_work(act, false));
    }
    if (rc == CHOIR_OK)
        rc = choir_send(group, act->in_bufs[0], to, c->tag, NULL,
                        batched ? NULL : next_work(act, sync));
    return rc;
}

static choir_status issue(choir_group *group, struct act *act, bool sync, bool batched)
{
    const struct call *c = act->call;
    choir_coll_opts opts = { .size = sizeof(opts),
                             .op = c->op,
                             .factor = c->factors[act->rank],
                             .root = c->root,
                             .algo = c->algo,
                             .timeout_ms = 0 };
    choir_buf *in = act->in_bufs, *out = act->out_bufs;
    choir_work **work;
    size_t k = (size_t)c->k;

    if (c->form == SEND_RECV || c->form == RECV_ANY)
        return issue_messages(group, act, sync, batched);
    if ((c->form == ALLREDUCE || c->form == REDUCE) && !act->in_place)
        opts.input = in[0].data;
    work = next_work(act, sync || batched || c->form == MONITORED_BARRIER);
    switch (c->form) {
    case ALLREDUCE:
        return choir_allreduce(group, out[0], &opts, work);
    case ALLREDUCE_COALESCED:
        return choir_allreduce_coalesced(group, out, k, &opts, work);
    case BROADCAST:
        return choir_broadcast(group, out[0], &opts, work);
    case REDUCE:
        return choir_reduce(group, out[0], &opts, work);
    case ALLGATHER:
        return choir_allgather(group, in[0], out, &opts, work);
    case ALLGATHER_INTO:
        return choir_allgather_into(group, in[0], out[0], &opts, work);
    case ALLGATHER_COALESCED:
        return choir_allgather_coalesced(group, in, out, k, &opts, work);
    case ALLGATHER_INTO_COALESCED:
        return choir_allgather_into_coalesced(group, in, out, k, &opts, work);
    case GATHER:
        return choir_gather(group, in[0], act->nouts > 0 ? out : NULL, &opts, work);
    case SCATTER:
        return choir_scatter(group, act->nins > 0 ? in : NULL, out[0], &opts, work);
    case REDUCE_SCATTER:
        return choir_reduce_scatter(group, in, out[0], &opts, work);
    case REDUCE_SCATTER_FROM:
        return choir_reduce_scatter_from(group, in[0], out[0], &opts, work);
    case REDUCE_SCATTER_COALESCED:
        return choir_reduce_scatter_coalesced(group, in, out, k, &opts, work);
    case ALLTOALL:
        return choir_alltoall(group, in, out, &opts, work);
    case ALLTOALL_BASE:
        return choir_alltoall_base(group, in[0], act->in_splits, out[0], act->out_splits, &opts,
                                   work);
    case BARRIER:
        return choir_barrier(group, &opts, work);
    case MONITORED_BARRIER:
        return choir_monitored_barrier(group, c->seed % 2 == 0, NULL);
    case ALLREDUCE_SPARSE:
    case SEND_RECV:
    case RECV_ANY:
    case NFORMS:
        break;
    }
    return CHOIR_ERR_UNSUPPORTED;
}

static bool complain(const struct scenario *s, const struct act *act, const char *what,
                     const char *text)
{
    fprintf(stderr, "FAILED seed %llu call %d (%s) rank %d of %d: %s: %s\n",
            (unsigned long long)s->seed, (int)(act->call - s->calls), form_names[act->call->form],
            act->rank, act->call->nranks, what, text);
    return false;
}

/* Wait in one of the ways there are. */
static bool finish(const struct scenario *s, struct act *act, struct dice *dice)
{
    choir_status rc = CHOIR_OK;
    double ms = -1;

    for (int i = 0; i < act->nworks && rc == CHOIR_OK; i++) {
        choir_work *work = act->works[i];

        if (chance(dice, 20)) {
            while ((rc = choir_work_test(work)) == CHOIR_IN_PROGRESS)
                sched_yield();
        } else {
            rc = choir_work_wait(work, chance(dice, 30) ? 100000 : 0);
        }
        if (rc != CHOIR_OK)
            return complain(s, act, choir_status_name(rc), choir_work_error(work));
        if (choir_work_test(work) != CHOIR_OK || choir_work_duration_ms(work, &ms) != CHOIR_OK ||
            ms < 0)
            return complain(s, act, "a work that is done",
                            "does not say so, or not how long it took");
    }
    return true;
}

static bool sources_are_all(const struct scenario *s, const struct act *act)
{
    bool seen[RANKS_MAX] = { false };

    for (int i = 0; i < act->nouts; i++) {
        int from = act->sources[i];

        if (from < 0 || from >= act->call->nranks || seen[from])
            return complain(s, act, "recv_any", "a source came twice, or is none");
        seen[from] = true;
    }
    return true;
}

static bool look(const struct scenario *s, struct act *act)
{
    if (act->call->form == RECV_ANY) {
        if (!sources_are_all(s, act))
            return false;
        act_draw_received(act);
    }
    return act_check(act, s);
}

/* --- cases ---------------------------------------------------------------------------------------------- */

struct plan {
    int ncalls, calls[CALLS_MAX]; /* those of this rank, in its own order */
    struct act acts[CALLS_MAX];   /* of calls[i] */
};

static int rank_in(const struct scenario *s, int group, int rank)
{
    struct members members;

    slot_members(s->nranks, (enum group_slot)group, &members);
    for (int i = 0; i < members.nranks; i++) {
        if (members.ranks[i] == rank)
            return i;
    }
    return -1;
}

/* Swapping neighbours of different groups keeps the order inside each. */
static void shuffle(const struct scenario *s, struct plan *plan, struct dice *dice)
{
    for (int swaps = 0; swaps < 20 && plan->ncalls > 1; swaps++) {
        int *a = &plan->calls[roll(dice, (uint64_t)plan->ncalls - 1)], *b = a + 1, kept = *a;

        if (s->calls[*a].group == s->calls[*b].group)
            continue;
        *a = *b;
        *b = kept;
    }
}

static bool make_calls(const struct scenario *s, struct choir_groups *groups, struct plan *plan,
                       struct dice *dice)
{
    for (int i = 0; i < plan->ncalls; i++) {
        struct act *act = &plan->acts[i];
        choir_group *group = groups->slots[act->call->group];
        /* Shuffled, only the last may keep its caller: others may wait for what is not issued yet. */
        bool sync = s->manner == SHUFFLED ? i == plan->ncalls - 1 && chance(dice, 50)
                                          : chance(dice, 50);

        if (act->call->form == ALLREDUCE_SPARSE) {
            if (!sparse_perform(s, act->call, group, act->rank, sync))
                return false;
        } else if (issue(group, act, sync, false) != CHOIR_OK) {
            return complain(s, act, "call", choir_last_error());
        }
    }
    for (int i = 0; i < plan->ncalls; i++) {
        struct act *act = &plan->acts[chance(dice, 50) ? i : plan->ncalls - 1 - i];

        if (!finish(s, act, dice))
            return false;
    }
    for (int i = 0; i < plan->ncalls; i++) {
        if (!finish(s, &plan->acts[i], dice))
            return false;
    }
    return true;
}

static bool make_batch(const struct scenario *s, struct choir_groups *groups, struct plan *plan,
                       struct dice *dice)
{
    choir_group *group = groups->slots[plan->acts[0].call->group];
    choir_work *work = NULL;
    bool sync = chance(dice, 50);
    choir_status rc = choir_batch_begin(group);

    for (int i = 0; i < plan->ncalls && rc == CHOIR_OK; i++)
        rc = issue(group, &plan->acts[i], false, true);
    if (rc == CHOIR_OK)
        rc = choir_batch_end(group, sync ? NULL : &work);
    if (rc == CHOIR_OK && !sync)
        rc = choir_work_wait(work, 0);
    choir_work_unref(work);
    return rc == CHOIR_OK || complain(s, &plan->acts[0], "batch", choir_last_error());
}

static bool carry_out(const struct scenario *s, struct choir_groups *groups, struct plan *plan,
                      struct dice *dice)
{
    bool good = true;

    for (int i = 0; i < plan->ncalls; i++) {
        const struct call *c = &s->calls[plan->calls[i]];

        act_prepare(&plan->acts[i], c, rank_in(s, c->group, groups->rank), dice);
    }
    if (plan->ncalls > 0)
        good = s->manner == BATCHED ? make_batch(s, groups, plan, dice)
                                    : make_calls(s, groups, plan, dice);
    for (int i = 0; i < plan->ncalls && good; i++)
        good = look(s, &plan->acts[i]);
    if (!good)
        return false; /* what is under way may still write: nothing is freed */
    for (int i = 0; i < plan->ncalls; i++) {
        for (int w = 0; w < plan->acts[i].nworks; w++)
            choir_work_unref(plan->acts[i].works[w]);
        act_free(&plan->acts[i]);
    }
    return true;
}

bool perform(const struct scenario *s, struct choir_groups *groups)
{
    struct dice dice = { .state = s->seed * 1000 + (uint64_t)groups->rank };
    struct plan *plan = calloc(1, sizeof(*plan));
    bool good;

    if (plan == NULL)
        abort();
    for (int i = 0; i < s->ncalls; i++) {
        if (rank_in(s, s->calls[i].group, groups->rank) >= 0)
            plan->calls[plan->ncalls++] = i;
    }
    if (s->manner == SHUFFLED)
        shuffle(s, plan, &dice);
    good = carry_out(s, groups, plan, &dice);
    if (good)
        free(plan);
    return good;
}

_Atomic uint64_t perform_current;

enum { CASE_SECONDS = 120 }; /* also under sanitizers */

bool perform_row(choir_group *world, uint64_t seed, int ncases)
{
    struct scenario *s = malloc(sizeof(*s));
    struct choir_groups groups;
    char text[2000];
    bool good = s != NULL && groups_make(world, &groups);

    for (int i = 0; i < ncases && good; i++) {
        scenario_make(seed + (uint64_t)i * RANKS_MAX, s);
        perform_current = s->seed;
        alarm(CASE_SECONDS);
        good = perform(s, &groups);
        if (!good)
            fprintf(
                stderr,
                "%srepeat: build/bin/tests/random_collective --seed %llu, or with those before it: --seed %llu "
                "--cases %d; as processes: choir run -n %d build/bin/tests/random_collective --join ...\n",
                scenario_text(s, text, sizeof(text)), (unsigned long long)s->seed,
                (unsigned long long)seed, i + 1, s->nranks);
    }
    alarm(0);
    if (good)
        groups_destroy(&groups);
    free(s);
    return good;
}
