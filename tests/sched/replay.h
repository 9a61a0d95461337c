/*
 * replay.h - plays the schedules of all ranks with real numbers, in a random order of steps and even of
 * elements within steps.
 *
 * It knows nothing of the checker and shares no code with it: what the checker lets pass must never fail
 * here. Only some of all orders are played, so the other way round proves nothing.
 *
 * Elements are 64-bit numbers. Adding and finishing are hashes, so that another order gives other bits.
 * Blocks differ in length. A message waits in a queue or for its receiver, as the dice fall.
 */
#ifndef CH_REPLAY_H
#define CH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "choir_test.h"
#include "sched/blocks.h"
#include "sched/sched.h"

enum { REPLAY_RANKS_MAX = 8, REPLAY_ROUNDS_MAX = 3, REPLAY_SLOTS_MAX = 24, REPLAY_CELLS_MAX = 512 };

struct replay_rank {
    uint32_t round, step;
    uint32_t done; /* elements of the step */
    bool sent;     /* SENDRECV, SEND: it is on its way */
    uint32_t flag[REPLAY_ROUNDS_MAX];
    uint64_t *in, *out; /* of this round: block after block; one memory in place */
    uint64_t *scratch, *shared[2];
};

/* The message on its way between two ranks: one at a time is enough of a queue. */
struct replay_message {
    uint64_t *elements;
    uint32_t n;
    bool there, taken;
};

struct replay {
    struct ch_sched *const *scheds;
    uint32_t n, nrounds, unit; /* elements of a block of length factor 1 */
    uint32_t slot_room;
    struct choir_test_random random;
    bool eager; /* messages are queued */
    struct replay_rank ranks[REPLAY_RANKS_MAX];
    struct replay_message messages[REPLAY_RANKS_MAX][REPLAY_RANKS_MAX];
    uint64_t result; /* of all outputs of all rounds */
};

static inline uint64_t replay_mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u + b;

    h ^= h >> 31;
    return h * 0x94d049bb133111ebu;
}

/* --- lengths and places --------------------------------------------------------------------------- */

static inline uint32_t replay_factor(const struct replay *p, uint32_t block)
{
    /* In place the two blocks that an all-to-all keeps in one place have one length. */
    if (p->scheds[0]->coll == CH_ALLTOALL)
        return 1 + (block / p->n + block % p->n) % 3;
    return 1 + block % 3;
}

static inline uint32_t replay_length(const struct replay *p, const struct ch_range *r)
{
    return p->unit * replay_factor(p, r->block) / r->nshares;
}

/* Blocks of IN and OUT lie at a distance of 3 units, by number; an all-to-all's by the peer's rank. */
static inline uint32_t replay_position(const struct replay *p, enum ch_region region,
                                       uint32_t block)
{
    if (p->scheds[0]->coll != CH_ALLTOALL)
        return block;
    return region == CH_IN ? block % p->n : block / p->n;
}

static inline uint64_t *replay_place(struct replay *p, uint32_t rank, const struct ch_range *r)
{
    struct replay_rank *me = &p->ranks[rank];
    uint32_t offset = r->share * replay_length(p, r);

    switch (r->region) {
    case CH_IN:
        return me->in + replay_position(p, CH_IN, r->block) * p->slot_room + offset;
    case CH_OUT:
        return me->out + replay_position(p, CH_OUT, r->block) * p->slot_room + offset;
    case CH_SCRATCH:
        return me->scratch + r->slot * p->slot_room + offset;
    default:
        break;
    }
    return p->ranks[r->rank].shared[me->round % 2] +
           ((r->region == CH_LINE ? REPLAY_SLOTS_MAX : 0) + r->slot) * p->slot_room + offset;
}

/* --- steps ---------------------------------------------------------------------------------------- */

static inline uint64_t replay_element(struct replay *p, uint32_t rank, const struct ch_step *st,
                                      const struct ch_range *r, uint32_t i)
{
    uint64_t sum = replay_place(p, rank, &r[1])[i];

    for (uint32_t k = 2; k < st->nranges; k++)
        sum = replay_mix(sum, replay_place(p, rank, &r[k])[i]);
    return st->kind == CH_REDUCE_ALL || st->kind == CH_FINISH ? replay_mix(sum, 77) : sum;
}

/* One element more of a step that moves or reduces. */
static inline bool replay_move(struct replay *p, uint32_t rank, const struct ch_step *st)
{
    const struct ch_range *r = p->scheds[rank]->ranges + st->first_range;
    struct replay_rank *me = &p->ranks[rank];

    replay_place(p, rank, &r[0])[me->done] = replay_element(p, rank, st, r, me->done);
    return ++me->done >= replay_length(p, &r[0]);
}

static inline void replay_send(struct replay *p, uint32_t rank, uint32_t to,
                               const struct ch_range *r, uint32_t n)
{
    struct replay_message *m = &p->messages[rank][to];

    m->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t length = replay_length(p, &r[i]);

        CHOIR_CHECK_LE(m->n + length, p->slot_room * REPLAY_SLOTS_MAX);
        memcpy(m->elements + m->n, replay_place(p, rank, &r[i]), length * sizeof(uint64_t));
        m->n += length;
    }
    m->there = true;
    m->taken = false;
}

static inline bool replay_receive(struct replay *p, uint32_t rank, uint32_t from,
                                  const struct ch_range *r, uint32_t n)
{
    struct replay_message *m = &p->messages[from][rank];
    uint32_t at = 0;

    if (!m->there || m->taken)
        return false;
    for (uint32_t i = 0; i < n && at < m->n; i++) {
        uint32_t length = replay_length(p, &r[i]);

        length = length < m->n - at ? length : m->n - at;
        memcpy(replay_place(p, rank, &r[i]), m->elements + at, length * sizeof(uint64_t));
        at += length;
    }
    m->taken = true;
    return true;
}

static inline bool replay_message(struct replay *p, uint32_t rank, const struct ch_step *st)
{
    const struct ch_range *r = p->scheds[rank]->ranges + st->first_range;
    struct replay_rank *me = &p->ranks[rank];
    uint32_t nsrcs = st->kind == CH_SEND ? st->nranges : st->kind == CH_RECV ? 0 : st->nsrcs;
    struct replay_message *m = &p->messages[rank][st->peer];

    if (st->kind != CH_RECV && !me->sent) {
        if (m->there && !m->taken)
            return false; /* the one before is still on its way */
        replay_send(p, rank, st->peer, r, nsrcs);
        me->sent = true;
    }
    if (st->kind == CH_SENDRECV && me->done == 0)
        me->done = replay_receive(p, rank, st->flag, r + nsrcs, st->nranges - nsrcs);
    if (st->kind == CH_RECV)
        return replay_receive(p, rank, st->peer, r, st->nranges);
    if (st->kind == CH_SENDRECV && me->done == 0)
        return false;
    return p->eager || m->taken;
}

static inline bool replay_gate(const struct replay *p, uint32_t round)
{
    for (uint32_t r = 0; r < p->n; r++) {
        if (round >= 2 && p->ranks[r].round <= round - 2)
            return false;
    }
    return true;
}

/* True if the step is over. *moved: something happened, if only one element. */
static inline bool replay_step(struct replay *p, uint32_t rank, const struct ch_step *st,
                               bool *moved)
{
    struct replay_rank *me = &p->ranks[rank];
    bool over;

    switch (st->kind) {
    case CH_POST:
        me->flag[me->round] = st->flag;
        over = true;
        break;
    case CH_AWAIT:
        over = p->ranks[st->peer].flag[me->round] >= st->flag;
        break;
    case CH_GATE:
        over = replay_gate(p, me->round);
        break;
    case CH_SEND:
    case CH_RECV:
    case CH_SENDRECV: {
        bool sent = me->sent;
        uint32_t done = me->done;

        over = replay_message(p, rank, st);
        *moved = over || sent != me->sent || done != me->done;
        return over;
    }
    default:
        *moved = true;
        return replay_move(p, rank, st);
    }
    *moved = over;
    return over;
}

/* --- rounds --------------------------------------------------------------------------------------- */

static inline void replay_enter(struct replay *p, uint32_t rank)
{
    struct replay_rank *me = &p->ranks[rank];
    uint32_t all = p->slot_room * REPLAY_RANKS_MAX;

    me->step = 0;
    for (uint32_t i = 0; i < all; i++)
        me->out[i] = 1; /* what is not written is not right */
    for (uint32_t i = 0; i < all; i++)
        me->in[i] = replay_mix(replay_mix(me->round + 5, rank), i);
    for (uint32_t i = 0; i < p->slot_room * REPLAY_SLOTS_MAX; i++)
        me->scratch[i] = 2;
}

static inline void replay_leave(struct replay *p, uint32_t rank)
{
    const struct ch_sched *s = p->scheds[rank];
    struct replay_rank *me = &p->ranks[rank];
    uint64_t nblocks = ch_coll_nblocks(s->coll, s->nranks);

    for (uint32_t b = 0; b < nblocks; b++) {
        struct ch_range r = ch_out(rank, b, 0, 1);
        uint64_t h = replay_mix(me->round, replay_mix(rank, b));

        if (!ch_coll_holds(s->coll, s->nranks, s->root, CH_OUT, rank, b))
            continue;
        for (uint32_t i = 0; i < replay_length(p, &r); i++)
            h = replay_mix(h, replay_place(p, rank, &r)[i]);
        p->result += h; /* ranks end in any order */
    }
    me->round++;
    if (me->round < p->nrounds)
        replay_enter(p, rank);
}

/* One try of one rank. */
static inline bool replay_try(struct replay *p, uint32_t rank)
{
    struct replay_rank *me = &p->ranks[rank];
    const struct ch_sched *s = p->scheds[rank];
    bool moved = false;

    if (me->round >= p->nrounds)
        return false;
    if (me->step >= s->nsteps) {
        replay_leave(p, rank);
        return true;
    }
    if (replay_step(p, rank, &s->steps[me->step], &moved)) {
        me->step++;
        me->done = 0;
        me->sent = false;
    }
    return moved;
}

/* A random rank does a random number of tries, again and again; when luck runs out, all are tried. */
static inline bool replay_run(struct replay *p)
{
    for (;;) {
        uint32_t burst = 1u << choir_test_random(&p->random) % 9;
        uint32_t rank = (uint32_t)(choir_test_random(&p->random) % p->n);
        bool moved = false, over = true;

        while (burst > 0 && replay_try(p, rank)) {
            moved = true;
            burst--;
        }
        for (uint32_t r = 0; !moved && r < p->n; r++)
            moved = replay_try(p, (rank + r) % p->n);
        for (uint32_t r = 0; r < p->n; r++)
            over = over && p->ranks[r].round >= p->nrounds;
        if (over || !moved)
            return over;
    }
}

/* --- making one ----------------------------------------------------------------------------------- */

/* So many elements that every share of every block is a whole number of them. */
static inline bool replay_measure(struct replay *p, struct ch_sched *const *scheds)
{
    for (uint32_t r = 0; r < p->n; r++) {
        const struct ch_sched *s = scheds[r];

        if (s->stage_slots > REPLAY_SLOTS_MAX || s->line_slots > REPLAY_SLOTS_MAX ||
            s->scratch_slots > REPLAY_SLOTS_MAX)
            return false;
        for (uint32_t i = 0; i < s->nranges; i++) {
            uint32_t k = s->ranges[i].nshares, unit = p->unit;

            while (unit % k != 0 && unit <= REPLAY_CELLS_MAX)
                unit += p->unit;
            p->unit = unit;
        }
    }
    p->slot_room = 3 * p->unit;
    return p->unit <= REPLAY_CELLS_MAX;
}

static inline uint64_t *replay_alloc(size_t n)
{
    uint64_t *p = calloc(n, sizeof(*p));

    CHOIR_CHECK(p != NULL);
    return p;
}

static inline void replay_open(struct replay *p)
{
    for (uint32_t r = 0; r < p->n; r++) {
        struct replay_rank *me = &p->ranks[r];

        me->in = replay_alloc((size_t)p->slot_room * REPLAY_RANKS_MAX);
        me->out = p->scheds[r]->in_place ? me->in
                                         : replay_alloc((size_t)p->slot_room * REPLAY_RANKS_MAX);
        me->scratch = replay_alloc((size_t)p->slot_room * REPLAY_SLOTS_MAX);
        for (int h = 0; h < 2; h++)
            me->shared[h] = replay_alloc((size_t)p->slot_room * REPLAY_SLOTS_MAX * 2);
        for (uint32_t q = 0; q < p->n; q++)
            p->messages[r][q].elements = replay_alloc((size_t)p->slot_room * REPLAY_SLOTS_MAX);
        replay_enter(p, r);
    }
}

static inline void replay_close(struct replay *p)
{
    for (uint32_t r = 0; r < p->n; r++) {
        struct replay_rank *me = &p->ranks[r];

        if (me->out != me->in)
            free(me->out);
        free(me->in);
        free(me->scratch);
        free(me->shared[0]);
        free(me->shared[1]);
        for (uint32_t q = 0; q < p->n; q++)
            free(p->messages[r][q].elements);
    }
}

/* Play once. False if it does not end; else a number that stands for all outputs: the same as that of `like`,
 * which has as many ranks, if all is well. */
static inline bool replay_once(struct ch_sched *const *scheds, struct ch_sched *const *like,
                               uint32_t n, uint32_t rounds, uint64_t seed, uint64_t *result_out)
{
    struct replay *p = calloc(1, sizeof(*p));
    bool over;

    CHOIR_CHECK(p != NULL);
    p->scheds = scheds;
    p->n = n;
    p->nrounds = rounds;
    p->random.state = seed * 2 + 1;
    p->eager = seed % 2 == 0;
    p->unit = 1;
    CHOIR_CHECK(replay_measure(p, scheds) && replay_measure(p, like));
    replay_open(p);
    over = replay_run(p);
    *result_out = p->result;
    replay_close(p);
    free(p);
    return over;
}

#endif
