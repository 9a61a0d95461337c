/*
 * valid.c - the rules a schedule keeps by itself: places that exist, writes to what is its own, steps
 * with the ranges they need, flags that rise.
 */
#include "sched/valid.h"

#include <string.h>

#include "base/error.h"
#include "sched/blocks.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static choir_status validate_slots(const char *region, uint32_t slots)
{
    if (slots > CH_SCHED_SLOTS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "%u slots of %s, at most %d are possible", slots, region,
                       (int)CH_SCHED_SLOTS_MAX);
    return CHOIR_OK;
}

choir_status ch_sched_validate_head(const struct ch_sched *s)
{
    choir_status rc;

    if ((unsigned)s->coll >= CH_NCOLLS)
        return ch_fail(CHOIR_ERR_INVALID, "operation %d, there are %d", (int)s->coll,
                       (int)CH_NCOLLS);
    if (s->algo[0] == '\0' || s->algo[strspn(s->algo, NAME_CHARS)] != '\0')
        return ch_fail(CHOIR_ERR_INVALID,
                       "an algorithm's name is of letters, digits, dots, dashes and underscores");
    if (s->nranks == 0 || s->nranks > CH_SCHED_RANKS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "%u ranks, possible are 1 to %d", s->nranks,
                       (int)CH_SCHED_RANKS_MAX);
    if (s->rank >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank %u of %u", s->rank, s->nranks);
    if (s->root >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "root %u of %u", s->root, s->nranks);
    rc = validate_slots("stage", s->stage_slots);
    if (rc == CHOIR_OK)
        rc = validate_slots("line", s->line_slots);
    if (rc == CHOIR_OK)
        rc = validate_slots("scratch", s->scratch_slots);
    return rc;
}

/* --- ranges ------------------------------------------------------------------------------------- */

static choir_status validate_slot(const struct ch_sched *s, const struct ch_range *r)
{
    static const char *const names[CH_NREGIONS] = { "in", "out", "scratch", "stage", "line" };
    const uint32_t slots[CH_NREGIONS] = {
        [CH_IN] = 1,
        [CH_OUT] = 1,
        [CH_SCRATCH] = s->scratch_slots,
        [CH_STAGE] = s->stage_slots,
        [CH_LINE] = s->line_slots,
    };

    if (r->slot >= slots[r->region])
        return ch_fail(CHOIR_ERR_INVALID, "slot %u of %s, which has %u", r->slot, names[r->region],
                       slots[r->region]);
    return CHOIR_OK;
}

static choir_status validate_block(const struct ch_sched *s, const struct ch_range *r)
{
    uint64_t nblocks = ch_coll_nblocks(s->coll, s->nranks);

    if (r->block >= nblocks)
        return ch_fail(CHOIR_ERR_INVALID, "block %u of %s, which has %llu", r->block,
                       ch_coll_name(s->coll), (unsigned long long)nblocks);
    if ((r->region == CH_IN || r->region == CH_OUT) &&
        !ch_coll_holds(s->coll, s->nranks, s->root, (enum ch_region)r->region, s->rank, r->block))
        return ch_fail(CHOIR_ERR_INVALID, "block %u is not in the %s of rank %u", r->block,
                       r->region == CH_IN ? "input" : "output", s->rank);
    return CHOIR_OK;
}

static choir_status validate_range(const struct ch_sched *s, const struct ch_range *r)
{
    choir_status rc;

    if (r->region >= CH_NREGIONS)
        return ch_fail(CHOIR_ERR_INVALID, "region %u, there are %d", r->region, (int)CH_NREGIONS);
    if (r->rank >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "memory of rank %u, there are %u", r->rank, s->nranks);
    if (r->region != CH_STAGE && r->region != CH_LINE && r->rank != s->rank)
        return ch_fail(CHOIR_ERR_INVALID, "private memory of rank %u in rank %u's schedule",
                       r->rank, s->rank);
    if (r->nshares == 0 || r->share >= r->nshares)
        return ch_fail(CHOIR_ERR_INVALID, "share %u of %u", r->share, r->nshares);
    rc = validate_slot(s, r);
    return rc == CHOIR_OK ? validate_block(s, r) : rc;
}

static choir_status validate_target(const struct ch_sched *s, const struct ch_range *r)
{
    if (r->region == CH_IN)
        return ch_fail(CHOIR_ERR_INVALID, "writes to the input");
    if (r->rank != s->rank)
        return ch_fail(CHOIR_ERR_INVALID, "rank %u writes to rank %u's memory", s->rank, r->rank);
    return CHOIR_OK;
}

/* What is copied or reduced has the same length on both sides only if it is the same piece. */
static choir_status validate_same_piece(const struct ch_range *a, const struct ch_range *b)
{
    if (a->block != b->block || a->share != b->share || a->nshares != b->nshares)
        return ch_fail(CHOIR_ERR_INVALID,
                       "block %u share %u/%u and block %u share %u/%u may differ in length",
                       a->block, a->share, a->nshares, b->block, b->share, b->nshares);
    return CHOIR_OK;
}

/* --- steps -------------------------------------------------------------------------------------- */

/* A draft without any range has no array of them either. */
static const struct ch_range *ranges_of(const struct ch_sched *s, const struct ch_step *st)
{
    return s->ranges != NULL ? s->ranges + st->first_range : NULL;
}

/* Steps with one target first and sources behind. */
static choir_status validate_target_and_sources(const struct ch_sched *s, const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(s, st);
    choir_status rc = validate_target(s, &r[0]);

    for (uint32_t i = 1; rc == CHOIR_OK && i < st->nranges; i++)
        rc = validate_same_piece(&r[0], &r[i]);
    return rc;
}

static choir_status need_sources(const struct ch_sched *s, const struct ch_step *st, uint32_t least,
                                 uint32_t most)
{
    if (st->nranges < least + 1 || st->nranges > (uint64_t)most + 1)
        return ch_fail(CHOIR_ERR_INVALID, "%u ranges, it takes a target and %u%s sources",
                       st->nranges, least, most > least ? " or more" : "");
    return validate_target_and_sources(s, st);
}

static choir_status validate_copy(const struct ch_sched *s, const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(s, st);
    choir_status rc = need_sources(s, st, 1, 1);

    if (rc == CHOIR_OK && r[0].region == CH_SCRATCH && r[1].region == CH_SCRATCH)
        return ch_fail(CHOIR_ERR_INVALID, "copies between accumulators");
    return rc;
}

/* The sources of a COMBINE are accumulators, of a FINISH too, of a REDUCE none is. */
static choir_status validate_kinds(const struct ch_sched *s, const struct ch_step *st,
                                   bool target_accumulates, bool sources_accumulate)
{
    const struct ch_range *r = ranges_of(s, st);

    for (uint32_t i = 0; i < st->nranges; i++) {
        bool want = i == 0 ? target_accumulates : sources_accumulate;

        if ((r[i].region == CH_SCRATCH) != want)
            return ch_fail(CHOIR_ERR_INVALID, "%s %s in scratch", i == 0 ? "target" : "source",
                           want ? "is not" : "is");
    }
    return CHOIR_OK;
}

static choir_status validate_reducing(const struct ch_sched *s, const struct ch_step *st)
{
    choir_status rc;

    if (!ch_coll_reduces(s->coll))
        return ch_fail(CHOIR_ERR_INVALID, "%s does not reduce", ch_coll_name(s->coll));
    switch (st->kind) {
    case CH_REDUCE_ALL:
        rc = need_sources(s, st, s->nranks, s->nranks);
        return rc == CHOIR_OK ? validate_kinds(s, st, false, false) : rc;
    case CH_COMBINE:
        rc = need_sources(s, st, 1, CH_SCHED_RANGES_MAX);
        return rc == CHOIR_OK ? validate_kinds(s, st, true, true) : rc;
    default:
        rc = need_sources(s, st, 1, 1);
        return rc == CHOIR_OK ? validate_kinds(s, st, false, true) : rc;
    }
}

static choir_status validate_peer(const struct ch_sched *s, uint32_t peer)
{
    if (peer >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank %u, there are %u", peer, s->nranks);
    if (peer == s->rank)
        return ch_fail(CHOIR_ERR_INVALID, "rank %u with itself", peer);
    return CHOIR_OK;
}

static choir_status validate_flag(const struct ch_sched *s, const struct ch_step *st)
{
    if (st->flag == 0 || st->flag > s->nflags)
        return ch_fail(CHOIR_ERR_INVALID, "flag %u, there are 1 to %u", st->flag, s->nflags);
    if (st->nranges != 0)
        return ch_fail(CHOIR_ERR_INVALID, "%u ranges, it takes none", st->nranges);
    return CHOIR_OK;
}

static choir_status validate_message(const struct ch_sched *s, const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(s, st);
    choir_status rc = validate_peer(s, st->peer);
    uint32_t nsrcs = st->kind == CH_SEND ? st->nranges : st->kind == CH_RECV ? 0 : st->nsrcs;

    if (rc == CHOIR_OK && st->kind == CH_SENDRECV)
        rc = validate_peer(s, st->flag);
    if (rc == CHOIR_OK && nsrcs > st->nranges)
        return ch_fail(CHOIR_ERR_INVALID, "sends %u of %u ranges", nsrcs, st->nranges);
    for (uint32_t i = nsrcs; rc == CHOIR_OK && i < st->nranges; i++)
        rc = validate_target(s, &r[i]);
    return rc;
}

static choir_status validate_step(const struct ch_sched *s, const struct ch_step *st)
{
    choir_status rc = CHOIR_OK;

    if (st->first_range > s->nranges || st->nranges > s->nranges - st->first_range)
        return ch_fail(CHOIR_ERR_INVALID, "ranges %u to %llu of %u", st->first_range,
                       (unsigned long long)st->first_range + st->nranges, s->nranges);
    for (uint32_t i = 0; rc == CHOIR_OK && i < st->nranges; i++)
        rc = validate_range(s, &s->ranges[st->first_range + i]);
    if (rc != CHOIR_OK)
        return rc;

    switch (st->kind) {
    case CH_COPY:
        return validate_copy(s, st);
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
        return validate_reducing(s, st);
    case CH_POST:
        return validate_flag(s, st);
    case CH_AWAIT:
        rc = validate_peer(s, st->peer);
        return rc == CHOIR_OK ? validate_flag(s, st) : rc;
    case CH_GATE:
        if (st->nranges != 0)
            return ch_fail(CHOIR_ERR_INVALID, "%u ranges, it takes none", st->nranges);
        return CHOIR_OK;
    case CH_SEND:
    case CH_RECV:
    case CH_SENDRECV:
        return validate_message(s, st);
    default:
        return ch_fail(CHOIR_ERR_INVALID, "kind %u, there are %d", st->kind, (int)CH_NSTEPS);
    }
}

/* Looks back to the last one only, so that all of a schedule's are compared in one go over it. */
static choir_status validate_rise(const struct ch_sched *s, uint32_t step)
{
    uint32_t flag = s->steps[step].flag;

    while (step > 0) {
        const struct ch_step *before = &s->steps[--step];

        if (before->kind != CH_POST)
            continue;
        if (before->flag >= flag)
            return ch_fail(CHOIR_ERR_INVALID, "flag %u after flag %u, they rise", flag,
                           before->flag);
        break;
    }
    return CHOIR_OK;
}

choir_status ch_sched_validate_step(const struct ch_sched *s, uint32_t step)
{
    choir_status rc = validate_step(s, &s->steps[step]);

    if (rc == CHOIR_OK && s->steps[step].kind == CH_POST)
        rc = validate_rise(s, step);
    return rc;
}

choir_status ch_sched_validate(const struct ch_sched *s)
{
    choir_status rc = ch_sched_validate_head(s);

    if (rc != CHOIR_OK)
        return rc;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        rc = ch_sched_validate_step(s, i);
        if (rc != CHOIR_OK) {
            ch_error_prefix("step %u: ", i);
            return rc;
        }
    }
    return CHOIR_OK;
}
