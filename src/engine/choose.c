/*
 * choose.c - see choose.h.
 *
 * The choice is algo/select.h's. What it said is remembered by operation and size, since most programs do the
 * same few over and over.
 */
#include "engine/choose.h"

#include "algo/select.h"
#include "algo/tuned.h"
#include "base/error.h"
#include "base/processors.h"
#include "engine/describe.h"
#include "engine/place.h"

/* --- the situation --------------------------------------------------------------------------------- */

/* The larger of a rank's input and output, if all blocks were as long as the longest. */
static uint64_t operation_nbytes(const struct ch_channel *channel, const struct ch_run *run)
{
    uint64_t block = (uint64_t)run->longest * run->size;

    switch (run->op->coll) {
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

static struct ch_situation situation_of(const struct ch_channel *channel, const struct ch_run *run)
{
    return (struct ch_situation){ .coll = run->op->coll,
                                  .nranks = channel->nranks,
                                  .nbytes = operation_nbytes(channel, run),
                                  .line_bytes = CH_LINE_NBYTES,
                                  .processors = channel->rank->processors,
                                  .shared = true,
                                  .uneven = run->uneven };
}

/* --- the algorithm --------------------------------------------------------------------------------- */

static choir_status algo_by_name(const struct ch_run *run, const struct ch_situation *situation,
                                 const struct ch_algo **algo_out)
{
    const struct ch_algo *algo = ch_algo_find(run->op->coll, run->op->algo);
    const char *objection;
    char names[256];

    if (algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: no algorithm \"%s\"; there are: %s",
                       ch_coll_name(run->op->coll), run->op->algo,
                       ch_algo_names(run->op->coll, names, sizeof(names)));
    objection = ch_algo_objection(algo, situation);
    if (objection != NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "%s: not by \"%s\": %s", ch_coll_name(run->op->coll),
                       algo->name, objection);
    *algo_out = algo;
    return CHOIR_OK;
}

static struct ch_chosen *remembered(struct ch_channel *channel, const struct ch_situation *s)
{
    uint64_t h = s->nbytes * UINT64_C(0x9e3779b97f4a7c15) >> 32;

    return &channel->chosen[(h ^ s->coll * 7u ^ !s->shared * 16u) % CH_ARRAY_LEN(channel->chosen)];
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
    struct ch_chosen *c = remembered(channel, s);
    uint8_t flags = (uint8_t)(s->uneven | s->shared << 1);
    struct ch_choice choice;
    choir_status rc;

    if (CH_LIKELY(c->algo != NULL && c->nbytes == s->nbytes && c->coll == s->coll &&
                  c->flags == flags)) {
        *algo_out = c->algo;
        return CHOIR_OK;
    }
    rc = ch_select_measured(s, &channel->rank->overrules, measured_limit(channel, s->coll),
                            &choice);
    if (rc != CHOIR_OK)
        return rc;
    *c = (struct ch_chosen){ choice.algo, s->nbytes, (uint8_t)s->coll, flags };
    *algo_out = choice.algo;
    return CHOIR_OK;
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

static choir_status get_schedule(struct ch_channel *channel, struct ch_run *run,
                                 const struct ch_algo *algo)
{
    struct ch_sched_key key = { .algo = algo,
                                .coll = run->op->coll,
                                .rank = channel->me,
                                .nranks = channel->nranks,
                                .root = run->op->root,
                                .in_place = run->op->in_place };
    choir_status rc = ch_sched_cache_get(channel->schedules, &key, build, &run->cached);

    if (rc == CHOIR_OK)
        run->sched = run->cached->sched;
    return rc;
}

/* Staged, but in so many rounds of so few bytes that messages are faster (16 ranks, blocks of 32 KiB in windows
 * of 64 bytes: 500 ms, by messages 17 ms; even at 1 KiB). Reductions stay: only in memory do all add up in the
 * ranks' order. */
static bool is_cramped(const struct ch_run *run)
{
    enum { FEW_BYTES = 512, MANY_ROUNDS = 8 };

    return !run->op->reduces && run->sched->stage_slots > 0 &&
           run->window * run->size < FEW_BYTES && run->longest / MANY_ROUNDS > run->window;
}

static bool plan(const struct ch_channel *channel, struct ch_run *run, bool may_use_messages)
{
    return ch_place_plan(channel, run) && !(may_use_messages && is_cramped(run));
}

choir_status ch_choose(struct ch_channel *channel, struct ch_run *run)
{
    bool by_name = run->op->algo != NULL && run->phase == CH_RUN_RUNNING;
    struct ch_situation situation = situation_of(channel, run);
    const struct ch_algo *algo = NULL;

    for (;;) {
        choir_status rc = by_name ? algo_by_name(run, &situation, &algo)
                                  : algo_by_size(channel, &situation, &algo);

        if (rc == CHOIR_OK)
            rc = get_schedule(channel, run, algo);
        if (rc != CHOIR_OK || plan(channel, run, !by_name && situation.shared))
            return rc;
        ch_sched_cache_put(run->cached);
        run->cached = NULL;
        if (by_name || !situation.shared)
            return ch_fail(CHOIR_ERR_UNSUPPORTED,
                           "group %s: the stage, %zu bytes, is too small for %s of %u ranks",
                           channel->name, channel->stage_half, algo->name, channel->nranks);
        /* So many groups, or ranks, that there is next to no stage: messages. */
        situation.shared = false;
    }
}
