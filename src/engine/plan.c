/*
 * plan.c - see plan.h. Which algorithm is taken is algo/select.h's to say, where things are place.h's.
 */
#include "engine/plan.h"

#include <string.h>

#include "algo/select.h"
#include "algo/tuned.h"
#include "base/error.h"
#include "base/mem.h"
#include "engine/channel.h"
#include "engine/fused.h"
#include "engine/move.h"
#include "engine/place.h"
#include "kernel/kernel.h"

/* Schedules with more ranges than this are not laid out beforehand: their steps are long. */
enum { SPOTS_MAX = 1024 };

/* From so many bytes of results on, of all ranks together, what was written first is out of the caches before the
 * last is there; and an ordinary store reads the line before it writes it. */
enum { PAST_CACHES_NBYTES = 16 * 1024 * 1024 };

/* --- the situation --------------------------------------------------------------------------------- */

/* The larger of a rank's input and output, if all blocks were as long as the longest. */
static uint64_t operation_nbytes(const struct ch_channel *channel, const struct ch_plan *plan)
{
    uint64_t block = (uint64_t)plan->key.longest * plan->size;

    switch ((enum ch_coll)plan->key.coll) {
    case CH_ALLREDUCE:
    case CH_BROADCAST:
    case CH_REDUCE:
        return block;
    case CH_ALLGATHER:
    case CH_REDUCE_SCATTER:
    case CH_GATHER:
    case CH_SCATTER:
    case CH_ALLTOALL:
        return block * channel->nranks;
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return 0;
}

static struct ch_situation situation_of(const struct ch_channel *channel,
                                        const struct ch_plan *plan)
{
    return (struct ch_situation){ .coll = plan->key.coll,
                                  .nranks = channel->nranks,
                                  .nbytes = operation_nbytes(channel, plan),
                                  .line_bytes = CH_LINE_NBYTES,
                                  .processors = channel->rank->processors,
                                  .shared = true,
                                  .uneven = plan->key.uneven,
                                  .led = plan->key.led };
}

/* --- the algorithm --------------------------------------------------------------------------------- */

static choir_status algo_by_name(const struct ch_plan *plan, const struct ch_situation *situation,
                                 const struct ch_algo **algo_out)
{
    enum ch_coll coll = plan->key.coll;
    const struct ch_algo *algo = ch_algo_find(coll, plan->key.algo);
    const char *objection;
    char names[256];

    if (algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: no algorithm \"%s\"; there are: %s",
                       ch_coll_name(coll), plan->key.algo,
                       ch_algo_names(coll, names, sizeof(names)));
    objection = ch_algo_objection(algo, situation);
    if (objection != NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "%s: not by \"%s\": %s", ch_coll_name(coll),
                       algo->name, objection);
    *algo_out = algo;
    return CHOIR_OK;
}

/* Played once for each operation of a channel, when it is first chosen for. */
static uint64_t measured_limit(struct ch_channel *channel, enum ch_coll coll)
{
    uint64_t *limit = &channel->one_shot_max[coll];

    if (*limit == 0 && channel->rank->measured)
        *limit = ch_tuned_one_shot(&channel->rank->machine, coll, channel->nranks);
    return *limit;
}

static choir_status algo_by_size(struct ch_channel *channel, const struct ch_situation *s,
                                 const struct ch_algo **algo_out)
{
    struct ch_choice choice;
    choir_status rc = ch_select_measured(s, &channel->rank->overrules,
                                         measured_limit(channel, s->coll), &choice);

    if (rc == CHOIR_OK)
        *algo_out = choice.algo;
    return rc;
}

/* --- the schedule ---------------------------------------------------------------------------------- */

static choir_status build(const struct ch_sched_key *key, struct ch_sched **sched_out)
{
    struct ch_shape shape = { .coll = key->coll,
                              .rank = key->rank,
                              .nranks = key->nranks,
                              .root = key->root,
                              .in_place = key->in_place };

    return ch_algo_build(key->algo, &shape, sched_out);
}

static choir_status get_schedule(struct ch_channel *channel, struct ch_plan *plan,
                                 const struct ch_algo *algo)
{
    struct ch_sched_key key = { .algo = algo,
                                .coll = plan->key.coll,
                                .rank = channel->me,
                                .nranks = channel->nranks,
                                .root = plan->key.root,
                                .in_place = plan->key.in_place };
    choir_status rc = ch_sched_cache_get(channel->schedules, &key, build, &plan->cached);

    if (rc == CHOIR_OK)
        plan->sched = plan->cached->sched;
    return rc;
}

/* All but the room. */
static void drop(struct ch_plan *plan)
{
    ch_sched_cache_put(plan->cached);
    *plan = (struct ch_plan){ .room = plan->room,
                              .room_for = plan->room_for,
                              .said = { .type = CHOIR_OP_UNKNOWN } };
}

/* Staged, but in so many rounds of so few bytes that messages are faster (16 ranks, blocks of 32 KiB in windows
 * of 64 bytes: 500 ms, by messages 17 ms; even at 1 KiB). Reductions stay: only in memory do all add up in the
 * ranks' order. */
static bool is_cramped(const struct ch_plan *plan)
{
    enum { FEW_BYTES = 512, MANY_ROUNDS = 8 };

    return !plan->key.reduces && plan->sched->stage_slots > 0 &&
           plan->window * plan->size < FEW_BYTES && plan->key.longest / MANY_ROUNDS > plan->window;
}

static bool fits(const struct ch_channel *channel, struct ch_plan *plan, bool may_use_messages)
{
    return ch_place_plan(channel, plan) && !(may_use_messages && is_cramped(plan));
}

static choir_status choose(struct ch_channel *channel, struct ch_plan *plan)
{
    bool by_name = plan->key.algo != NULL;
    struct ch_situation situation = situation_of(channel, plan);
    const struct ch_algo *algo = NULL;

    for (;;) {
        choir_status rc = by_name ? algo_by_name(plan, &situation, &algo)
                                  : algo_by_size(channel, &situation, &algo);

        if (rc == CHOIR_OK)
            rc = get_schedule(channel, plan, algo);
        if (rc != CHOIR_OK || fits(channel, plan, !by_name && situation.shared))
            return rc;
        ch_sched_cache_put(plan->cached);
        plan->cached = NULL;
        if (by_name || !situation.shared)
            return ch_fail(CHOIR_ERR_UNSUPPORTED,
                           "group %s: the stage, %zu bytes, is too small for %s of %u ranks",
                           channel->name, channel->stage_half, algo->name, channel->nranks);
        /* So many groups, or ranks, that there is next to no stage: messages. */
        situation.shared = false;
    }
}

/* --- places ---------------------------------------------------------------------------------------- */

static choir_status lay_out(struct ch_channel *channel, struct ch_plan *plan,
                            const struct ch_op *op)
{
    const struct ch_sched *s = plan->sched;

    if (plan->nrounds > 1 || plan->key.uneven || s->nranges > SPOTS_MAX || s->nranges == 0)
        return CHOIR_OK;
    if (s->nranges > plan->room_for) {
        struct ch_spot *more = ch_regrow(plan->room, s->nranges, sizeof(*more));

        if (more == NULL)
            return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for a plan of %u places",
                           channel->name, s->nranges);
        plan->room = more;
        plan->room_for = s->nranges;
    }
    plan->spots = plan->room;
    plan->plain = !plan->past_caches && s->scratch_slots == 0;
    for (uint32_t i = 0; i < s->nranges; i++)
        plan->spots[i] = ch_place_spot(channel, plan, op, &s->ranges[i]);
    plan->fused = channel->stepwise ? NULL : ch_fused_for(plan, channel->nranks);
    return CHOIR_OK;
}

/* Each window of the result was the input of the same round: its lines are in a cache still, and to go past it would take
 * them out (all-reduce of 8 MiB, 2 ranks, in place: 1.47 ms; 0.82 ms the ordinary way). */
static bool is_read_before(const struct ch_plan_key *key)
{
    return key->in_place && key->coll == CH_ALLREDUCE;
}

static choir_status make(struct ch_channel *channel, struct ch_plan *plan, const struct ch_op *op)
{
    choir_status rc;

    plan->size = ch_type_bytes[op->dtype];
    plan->acc = op->reduces ? ch_accumulator(op->dtype) : op->dtype;
    plan->acc_size = ch_type_bytes[plan->acc];
    rc = choose(channel, plan);
    if (rc != CHOIR_OK)
        return rc;
    plan->nrounds = plan->window > 0 ? (plan->key.longest + plan->window - 1) / plan->window : 1;
    if (plan->nrounds == 0)
        plan->nrounds = 1; /* nothing to move, but still to meet */
    plan->past_caches = operation_nbytes(channel, plan) >= PAST_CACHES_NBYTES / channel->nranks &&
                        !is_read_before(&plan->key);
    rc = ch_move_make_room(channel, plan);
    return rc == CHOIR_OK ? lay_out(channel, plan, op) : rc;
}

/* --- what was planned before ------------------------------------------------------------------------ */

static bool is_planned(const struct ch_plan *plan, const struct ch_plan_key *key)
{
    return plan->cached != NULL && plan->key.longest == key->longest &&
           plan->key.algo == key->algo && plan->key.kind == key->kind;
}

static struct ch_plan *set_of(struct ch_channel *channel, const struct ch_plan_key *key)
{
    uint64_t h = key->longest * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    uint64_t set = (h ^ key->coll ^ key->root) % (CH_PLANS_KEPT / CH_PLANS_IN_SET);

    return &channel->plans[set * CH_PLANS_IN_SET];
}

/* The plan for `key`, or the one to make room for it. */
static struct ch_plan *place_for(struct ch_channel *channel, const struct ch_plan_key *key)
{
    struct ch_plan *set = set_of(channel, key), *oldest = set;

    for (size_t i = 0; i < CH_PLANS_IN_SET; i++) {
        if (is_planned(&set[i], key))
            return &set[i];
        if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    return oldest;
}

#define KIND_UNEVEN (UINT64_C(1) << 58)
#define KIND_LED    (UINT64_C(1) << 59)

/* In registers: a word that is put together in memory has to be waited for. */
static uint64_t kind_of(const struct ch_op *op, uint32_t root, bool uneven, bool led)
{
    return root | (uint64_t)op->coll << 32 | (uint64_t)op->dtype << 40 | (uint64_t)op->redop << 48 |
           (uint64_t)op->reduces << 56 | (uint64_t)op->in_place << 57 | (uneven ? KIND_UNEVEN : 0) |
           (led ? KIND_LED : 0);
}

/* It is not that of the last operation. */
static CH_NOINLINE choir_status find_or_make(struct ch_channel *channel, const struct ch_op *op,
                                             const char *algo, size_t longest, uint64_t kind)
{
    struct ch_plan_key key = { .longest = longest,
                               .algo = algo,
                               .root = (uint32_t)kind,
                               .coll = (uint8_t)op->coll,
                               .dtype = (uint8_t)op->dtype,
                               .redop = (uint8_t)op->redop,
                               .reduces = op->reduces,
                               .in_place = op->in_place,
                               .uneven = (kind & KIND_UNEVEN) != 0,
                               .led = (kind & KIND_LED) != 0,
                               .kind = kind };
    struct ch_plan *plan = place_for(channel, &key);
    choir_status rc;

    channel->last_plan = plan;
    plan->used = channel->ncalls + 1;
    if (is_planned(plan, &key))
        return CHOIR_OK;
    drop(plan);
    plan->key = key;
    plan->used = channel->ncalls + 1;
    rc = make(channel, plan, op);
    if (rc != CHOIR_OK)
        drop(plan);
    return rc;
}

choir_status ch_plan_find(struct ch_channel *channel, const struct ch_op *op, const char *algo,
                          size_t longest, bool uneven, const struct ch_plan **plan_out)
{
    bool led = op->coll == CH_BARRIER && channel->led;
    uint64_t kind = kind_of(op, led ? channel->leader : op->root, uneven, led);
    struct ch_plan *last = channel->last_plan;
    choir_status rc = CHOIR_OK;

    if (CH_LIKELY(last != NULL && last->key.kind == kind && last->key.longest == longest &&
                  last->key.algo == algo && last->cached != NULL))
        last->used = channel->ncalls + 1;
    else
        rc = find_or_make(channel, op, algo, longest, kind);
    *plan_out = channel->last_plan;
    return rc;
}

void ch_plans_drop(struct ch_channel *channel)
{
    for (size_t i = 0; i < CH_PLANS_KEPT; i++) {
        drop(&channel->plans[i]);
        ch_free(channel->plans[i].room);
    }
}
