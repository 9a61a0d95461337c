/*
 * mutate.h - schedules with one thing wrong in them.
 *
 * Each way to be wrong is tried at every step of every rank where it applies. A change that changes nothing
 * (two steps swapped that do not depend on each other) is no mistake and is not made; what is told apart
 * here is told by looking at the two steps alone, without the checker.
 */
#ifndef CH_MUTATE_H
#define CH_MUTATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "choir_test.h"
#include "sched/blocks.h"
#include "sched/sched.h"

enum mutation {
    MUTATE_REMOVE,    /* the step is not there */
    MUTATE_SWAP,      /* the step comes after the next one */
    MUTATE_SHIFT,     /* one range is the next share or block */
    MUTATE_SHIFT_ALL, /* all ranges of the step are */
    MUTATE_WIDEN,     /* one range is the whole block, or, if it was, half of it */
    MUTATE_WIDEN_ALL, /* all ranges of the step are */
    MUTATE_SLOT,      /* one range is in the next slot */
    MUTATE_OWNER,     /* one range is in the next rank's memory */
    MUTATE_PEER,      /* await, send to, receive from the next rank */
    MUTATE_FLAG,      /* post the next flag, or await the one before */
    NMUTATIONS
};

static const char *const mutation_names[NMUTATIONS] = {
    "remove", "swap", "shift", "shift all", "widen", "widen all", "slot", "owner", "peer", "flag",
};

/* --- copies --------------------------------------------------------------------------------------- */

static inline struct ch_sched *mutate_clone(const struct ch_sched *s)
{
    struct ch_sched *m = malloc(sizeof(*m));

    CHOIR_CHECK(m != NULL);
    *m = *s;
    m->steps = malloc((s->nsteps + 1) * sizeof(*m->steps));
    m->ranges = malloc((s->nranges + 1) * sizeof(*m->ranges));
    CHOIR_CHECK(m->steps != NULL && m->ranges != NULL);
    memcpy(m->steps, s->steps, s->nsteps * sizeof(*m->steps));
    memcpy(m->ranges, s->ranges, s->nranges * sizeof(*m->ranges));
    return m;
}

static inline void mutate_free(struct ch_sched *m)
{
    free(m->steps);
    free(m->ranges);
    free(m);
}

/* --- steps that change places without a difference ------------------------------------------------ */

static inline bool mutate_moves(const struct ch_step *st)
{
    return st->kind == CH_COPY || st->kind == CH_REDUCE_ALL || st->kind == CH_COMBINE ||
           st->kind == CH_FINISH;
}

static inline bool mutate_waits(const struct ch_step *st)
{
    return st->kind == CH_AWAIT || st->kind == CH_GATE;
}

static inline bool mutate_is_message(const struct ch_step *st)
{
    return st->kind == CH_SEND || st->kind == CH_RECV || st->kind == CH_SENDRECV;
}

static inline bool mutate_is_shared(const struct ch_range *r)
{
    return r->region == CH_STAGE || r->region == CH_LINE;
}

static inline bool mutate_writes(const struct ch_step *st, uint32_t range)
{
    if (mutate_moves(st))
        return range == 0;
    return st->kind == CH_RECV || (st->kind == CH_SENDRECV && range >= st->nsrcs);
}

/* All it touches is private. */
static inline bool mutate_private(const struct ch_sched *s, const struct ch_step *st)
{
    for (uint32_t i = 0; i < st->nranges; i++) {
        if (mutate_is_shared(&s->ranges[st->first_range + i]))
            return false;
    }
    return true;
}

static inline bool mutate_writes_shared(const struct ch_sched *s, const struct ch_step *st)
{
    for (uint32_t i = 0; i < st->nranges; i++) {
        if (mutate_writes(st, i) && mutate_is_shared(&s->ranges[st->first_range + i]))
            return true;
    }
    return false;
}

/* Where in the user's buffer a block lies; an all-to-all's by the peer's rank. */
static inline uint32_t mutate_place(const struct ch_sched *s, const struct ch_range *r)
{
    if (s->coll != CH_ALLTOALL)
        return r->block;
    return r->region == CH_IN ? r->block % s->nranks : r->block / s->nranks;
}

static inline bool mutate_same_memory(const struct ch_sched *s, const struct ch_range *a,
                                      const struct ch_range *b)
{
    bool user_a = a->region <= CH_OUT, user_b = b->region <= CH_OUT;

    if (user_a && user_b) {
        uint32_t place_a = mutate_place(s, a), place_b = mutate_place(s, b);

        if ((a->region != b->region && !s->in_place) || place_a != place_b)
            return false;
    } else if (a->region != b->region || a->rank != b->rank || a->slot != b->slot) {
        return false;
    } else if (a->block != b->block) {
        return true;
    }
    return (uint64_t)a->share * b->nshares < ((uint64_t)b->share + 1) * a->nshares &&
           (uint64_t)b->share * a->nshares < ((uint64_t)a->share + 1) * b->nshares;
}

/* No memory that one writes is touched by the other. */
static inline bool mutate_apart(const struct ch_sched *s, const struct ch_step *a,
                                const struct ch_step *b)
{
    for (uint32_t i = 0; i < a->nranges; i++) {
        for (uint32_t k = 0; k < b->nranges; k++) {
            if ((mutate_writes(a, i) || mutate_writes(b, k)) &&
                mutate_same_memory(s, &s->ranges[a->first_range + i],
                                   &s->ranges[b->first_range + k]))
                return false;
        }
    }
    return true;
}

static inline bool mutate_is_awaited(struct ch_sched *const *all, uint32_t rank, uint32_t flag)
{
    for (uint32_t r = 0; r < all[rank]->nranks; r++) {
        for (uint32_t i = 0; i < all[r]->nsteps; i++) {
            const struct ch_step *st = &all[r]->steps[i];

            if (st->kind == CH_AWAIT && st->peer == rank && st->flag == flag)
                return true;
        }
    }
    return false;
}

/* Whether a rank raises its flag before it waits for anybody in this round. */
static inline bool mutate_posts_freely(const struct ch_sched *s, uint32_t flag)
{
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const struct ch_step *st = &s->steps[i];

        if (st->kind == CH_POST && st->flag == flag)
            return true;
        if (st->kind == CH_AWAIT || mutate_is_message(st))
            return false;
    }
    return false;
}

static inline bool mutate_commute(struct ch_sched *const *all, uint32_t rank, uint32_t step)
{
    const struct ch_sched *s = all[rank];
    const struct ch_step *a = &s->steps[step], *b = a + 1;

    if (a->kind == CH_POST && b->kind == CH_AWAIT)
        return mutate_posts_freely(all[b->peer],
                                   b->flag); /* who waits for nobody closes no circle */
    if ((a->kind == CH_POST && !mutate_is_awaited(all, rank, a->flag)) ||
        (b->kind == CH_POST && !mutate_is_awaited(all, rank, b->flag)))
        return true;
    if (mutate_waits(a) && mutate_waits(b))
        return true; /* both have to come, in any order */
    if (mutate_moves(a) && mutate_waits(b))
        return true; /* waiting earlier only orders more */
    if (mutate_waits(a) && mutate_moves(b))
        return mutate_private(s, b);
    if (a->kind == CH_POST && mutate_moves(b))
        return !mutate_writes_shared(s, b); /* posting later only orders more */
    if (mutate_moves(a) && b->kind == CH_POST)
        return mutate_private(s, a);
    if (mutate_moves(a) && mutate_moves(b))
        return mutate_apart(s, a, b);
    if (mutate_moves(a) && mutate_is_message(b))
        return mutate_private(s, a) && mutate_apart(s, a, b);
    if (mutate_is_message(a) && mutate_moves(b))
        return mutate_private(s, b) && mutate_apart(s, a, b);
    return false;
}

/* --- changes -------------------------------------------------------------------------------------- */

static inline void mutate_remove(struct ch_sched *m, uint32_t step)
{
    memmove(&m->steps[step], &m->steps[step + 1], (m->nsteps - step - 1) * sizeof(*m->steps));
    m->nsteps--;
}

static inline bool mutate_shift(const struct ch_sched *s, struct ch_range *r)
{
    uint64_t nblocks = ch_coll_nblocks(s->coll, s->nranks);

    if (r->nshares > 1)
        r->share = (r->share + 1) % r->nshares;
    else if (nblocks > 1)
        r->block = (uint32_t)((r->block + 1) % nblocks);
    else
        return false;
    return true;
}

static inline bool mutate_widen(struct ch_range *r)
{
    r->share = 0;
    r->nshares = r->nshares > 1 ? 1 : 2;
    return true;
}

static inline bool mutate_slot(const struct ch_sched *s, struct ch_range *r)
{
    uint32_t slots = r->region == CH_STAGE     ? s->stage_slots
                     : r->region == CH_LINE    ? s->line_slots
                     : r->region == CH_SCRATCH ? s->scratch_slots
                                               : 1;

    if (slots < 2)
        return false;
    r->slot = (uint16_t)((r->slot + 1) % slots);
    return true;
}

static inline bool mutate_owner(const struct ch_sched *s, struct ch_range *r)
{
    if (!mutate_is_shared(r))
        return false;
    r->rank = (r->rank + 1) % s->nranks;
    return true;
}

static inline bool mutate_range(struct ch_sched *m, enum mutation how, struct ch_range *r)
{
    switch (how) {
    case MUTATE_SHIFT:
    case MUTATE_SHIFT_ALL:
        return mutate_shift(m, r);
    case MUTATE_WIDEN:
    case MUTATE_WIDEN_ALL:
        return mutate_widen(r);
    case MUTATE_SLOT:
        return mutate_slot(m, r);
    default:
        return mutate_owner(m, r);
    }
}

static inline bool mutate_peer(struct ch_sched *m, struct ch_step *st)
{
    uint32_t peer = st->peer;

    if (st->kind != CH_AWAIT && !mutate_is_message(st))
        return false;
    do
        peer = (peer + 1) % m->nranks;
    while (peer == m->rank);
    if (peer == st->peer)
        return false;
    st->peer = peer;
    return true;
}

static inline bool mutate_flag(struct ch_sched *m, struct ch_step *st)
{
    if ((st->kind != CH_POST && st->kind != CH_AWAIT) || m->nflags < 2)
        return false;
    /* To await a later flag of the same rank would only order more. */
    if (st->kind == CH_AWAIT)
        return st->flag > 1 && st->flag-- > 0;
    st->flag = st->flag % m->nflags + 1;
    return true;
}

/* --- what may be harmless all the same -------------------------------------------------------------- */

/*
 * Changes that are no mistake in some places, and which of the two they are cannot be told from the step
 * alone. One of these that is not refused counts as harmless if it also plays well; anything else that is
 * not refused has been missed.
 */
enum excuse {
    EXCUSE_NONE,
    EXCUSE_MESSAGES, /* two messages change places: other partners, no common memory, no circle */
    EXCUSE_SURPLUS,  /* more is copied than anybody reads before it is overwritten */
    EXCUSE_ELSEWHERE, /* the same bytes are taken from another rank that has them too, and was awaited */
    EXCUSE_PAIR,      /* two ranks, nothing but meeting: each still awaits the other */
    NEXCUSES
};

static const char *const excuse_words[NEXCUSES] = {
    "",
    "two messages swapped, with different partners and no memory in common, and no circle of waiting",
    "a copy widened to the whole block: the surplus is the right data of its place, overwritten or never read",
    "taken from another rank, which has the same bytes and was awaited already",
    "posted before the other one is awaited, in a barrier of two: each still awaits the other",
};

static inline enum excuse mutate_excuse(const struct ch_sched *s, uint32_t step, enum mutation how,
                                        uint32_t which)
{
    const struct ch_step *st = &s->steps[step];

    if (how == MUTATE_SWAP && mutate_is_message(st) && mutate_is_message(st + 1) &&
        st->peer != st[1].peer && mutate_apart(s, st, st + 1))
        return EXCUSE_MESSAGES;
    if (how == MUTATE_WIDEN_ALL && st->kind == CH_COPY)
        return EXCUSE_SURPLUS;
    if (how == MUTATE_OWNER && st->kind == CH_COPY && which == 1 && !ch_coll_reduces(s->coll))
        return EXCUSE_ELSEWHERE;
    if (how == MUTATE_SWAP && s->coll == CH_BARRIER && s->nranks == 2 && st->kind == CH_AWAIT &&
        st[1].kind == CH_POST)
        return EXCUSE_PAIR;
    return EXCUSE_NONE;
}

/* How many mutants of this kind a step has. */
static inline uint32_t mutate_count(const struct ch_sched *s, uint32_t step, enum mutation how)
{
    switch (how) {
    case MUTATE_SHIFT:
    case MUTATE_WIDEN:
    case MUTATE_SLOT:
    case MUTATE_OWNER:
        return s->steps[step].nranges;
    case MUTATE_SHIFT_ALL:
    case MUTATE_WIDEN_ALL:
        return s->steps[step].nranges > 1;
    default:
        return 1;
    }
}

/* The `which`-th of them, to end with mutate_free(); NULL if that change does not apply or changes nothing. */
static inline struct ch_sched *mutate(struct ch_sched *const *all, uint32_t rank, uint32_t step,
                                      enum mutation how, uint32_t which)
{
    const struct ch_sched *s = all[rank];
    struct ch_sched *m;
    struct ch_step *st;
    bool done = true;

    if (how == MUTATE_SWAP && (step + 1 >= s->nsteps || mutate_commute(all, rank, step)))
        return NULL;
    if (s->steps[step].kind == CH_POST && !mutate_is_awaited(all, rank, s->steps[step].flag))
        return NULL; /* it does nothing anyway */
    m = mutate_clone(s);
    st = &m->steps[step];
    if (how == MUTATE_REMOVE) {
        mutate_remove(m, step);
    } else if (how == MUTATE_SWAP) {
        struct ch_step first = st[0];

        st[0] = st[1];
        st[1] = first;
    } else if (how == MUTATE_PEER) {
        done = mutate_peer(m, st);
    } else if (how == MUTATE_FLAG) {
        done = mutate_flag(m, st);
    } else if (how == MUTATE_SHIFT_ALL || how == MUTATE_WIDEN_ALL) {
        for (uint32_t i = 0; done && i < st->nranges; i++)
            done = mutate_range(m, how, &m->ranges[st->first_range + i]);
    } else {
        done = mutate_range(m, how, &m->ranges[st->first_range + which]);
    }
    if (!done) {
        mutate_free(m);
        return NULL;
    }
    return m;
}

#endif
