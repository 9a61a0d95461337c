/*
 * check_memory.c - abstract memory: what each cell holds, who touched it when, and who may.
 *
 * IN holds the rank's contributions and needs no memory; in place it is looked up under OUT. OUT and
 * SCRATCH are private: one rank's steps are ordered anyway. STAGE and LINE are written by their owner only,
 * so two things can go wrong: a read that is not ordered after the write it sees, and a write that is not
 * ordered after the reads of what it replaces. The first is found by the write's clock in each cell, the
 * second by the list of reads in each cell.
 *
 * Between rounds, places are compared no finer than by owner, region and half: where a slot lies may
 * differ from operation to operation.
 *
 * A slot holds one block at a time: pieces of two blocks of different lengths may lie anywhere in it.
 */
#include "sched/check_impl.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sched/blocks.h"

struct cell {
    ch_expr expr;
    uint32_t clock, step; /* of the write */
    uint32_t reads;       /* since then: first of a chain in the pool, 0 for none */
};

struct read {
    uint32_t rank, clock, step, next;
};

struct slot {
    struct cell *cells; /* NULL: nothing is in it */
    uint32_t ncells, block;
};

/* The last time a rank read another's half. */
struct last_read {
    uint32_t clock, round, step;
};

struct half {
    uint32_t written; /* the last round that wrote to it, counted from 1; 0: none */
    uint32_t step;    /* that was the first to do so */
    struct slot *slots;
    uint32_t nslots;
    struct last_read *last; /* of each rank; NULL: nobody */
};

enum shared { STAGE, LINE, NSHARED };

struct space {
    struct half halves[NSHARED][2];
    struct slot *out, *scratch;
    uint32_t nout, nscratch;
};

struct ch_spaces {
    struct space *ranks;
    struct read *pool;
    uint32_t pool_used, pool_room, pool_free; /* chain of given back ones */
};

static choir_status no_memory(void)
{
    return ch_fail(CHOIR_ERR_NOMEM, "no memory for abstract memory");
}

/* --- making and ending -------------------------------------------------------------------------- */

choir_status ch_spaces_create(struct ch_checker *c)
{
    c->spaces = ch_zalloc(sizeof(*c->spaces));
    if (c->spaces == NULL)
        return no_memory();
    c->spaces->ranks = ch_zalloc_array(c->nranks, sizeof(*c->spaces->ranks));
    if (c->spaces->ranks == NULL)
        return no_memory();
    c->spaces->pool_used = 1; /* 0 means none */
    return CHOIR_OK;
}

static void slots_free(struct slot **slots, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++)
        ch_free((*slots)[i].cells);
    ch_free(*slots);
    *slots = NULL;
    *n = 0;
}

static choir_status slots_make(struct slot **slots, uint32_t *n, uint32_t want)
{
    slots_free(slots, n);
    if (want == 0)
        return CHOIR_OK;
    *slots = ch_zalloc_array(want, sizeof(**slots));
    if (*slots == NULL)
        return no_memory();
    *n = want;
    return CHOIR_OK;
}

static void space_free(struct space *s)
{
    slots_free(&s->out, &s->nout);
    slots_free(&s->scratch, &s->nscratch);
    for (int i = 0; i < NSHARED * 2; i++) {
        struct half *h = &s->halves[i / 2][i % 2];

        slots_free(&h->slots, &h->nslots);
        ch_free(h->last);
    }
}

void ch_spaces_destroy(struct ch_checker *c)
{
    if (c->spaces == NULL)
        return;
    for (uint32_t r = 0; c->spaces->ranks != NULL && r < c->nranks; r++)
        space_free(&c->spaces->ranks[r]);
    ch_free(c->spaces->ranks);
    ch_free(c->spaces->pool);
    ch_free(c->spaces);
}

/* Where OUT keeps a block that it holds: all of them, or every nranks-th, or just one. */
static uint32_t out_index(const struct ch_sched *s, uint32_t block)
{
    if (s->coll == CH_ALLTOALL)
        return block / s->nranks;
    return s->coll == CH_SCATTER || s->coll == CH_REDUCE_SCATTER ? 0 : block;
}

choir_status ch_space_enter(struct ch_checker *c, uint32_t rank, uint32_t round)
{
    const struct ch_sched *s = ch_checker_sched(c, round, rank);
    struct space *sp = &c->spaces->ranks[rank];
    uint64_t nblocks = ch_coll_nblocks(s->coll, s->nranks);
    choir_status rc;

    rc = slots_make(&sp->out, &sp->nout, nblocks > s->nranks ? s->nranks : (uint32_t)nblocks);
    if (rc == CHOIR_OK)
        rc = slots_make(&sp->scratch, &sp->nscratch, s->scratch_slots);
    return rc;
}

/* --- places ------------------------------------------------------------------------------------- */

/* The cells of its block that a range covers. */
struct span {
    uint32_t first, end, of;
};

static struct span span_of(const struct ch_checker *c, uint32_t round, const struct ch_range *r)
{
    uint32_t of = c->grains[round].cells[r->block], width = of / r->nshares;

    return (struct span){ r->share * width, (r->share + 1) * width, of };
}

uint32_t ch_range_ncells(const struct ch_checker *c, uint32_t round, const struct ch_range *r)
{
    return c->grains[round].cells[r->block] / r->nshares;
}

static struct half *half_of(const struct ch_checker *c, uint32_t round, const struct ch_range *r)
{
    return &c->spaces->ranks[r->rank].halves[r->region == CH_LINE ? LINE : STAGE][round % 2];
}

/* In place: the block of OUT that lies where that block of IN does. */
static bool out_over_in(const struct ch_sched *s, uint32_t in_block, uint32_t *out_block)
{
    *out_block = in_block;
    if (!s->in_place)
        return false;
    if (s->coll == CH_ALLTOALL)
        *out_block = in_block % s->nranks * s->nranks + s->rank;
    return ch_coll_holds(s->coll, s->nranks, s->root, CH_OUT, s->rank, *out_block);
}

bool ch_ranges_overlap(const struct ch_checker *c, const struct ch_site *who,
                       const struct ch_range *a, const struct ch_range *b)
{
    const struct ch_sched *s = ch_checker_sched(c, who->round, who->rank);
    struct span sa = span_of(c, who->round, a), sb = span_of(c, who->round, b);
    uint32_t block;

    if (a->region == b->region) {
        if (a->rank != b->rank || a->slot != b->slot)
            return false;
        if (a->block != b->block) /* another place of IN or OUT; the same slot */
            return a->region != CH_IN && a->region != CH_OUT;
        return sa.first < sb.end && sb.first < sa.end;
    }
    if (a->region == CH_OUT && b->region == CH_IN)
        return ch_ranges_overlap(c, who, b, a);
    if (a->region != CH_IN || b->region != CH_OUT || !out_over_in(s, a->block, &block) ||
        block != b->block)
        return false;
    /* The two blocks may be cut differently: fractions are compared. */
    return (uint64_t)a->share * b->nshares < ((uint64_t)b->share + 1) * a->nshares &&
           (uint64_t)b->share * a->nshares < ((uint64_t)a->share + 1) * b->nshares;
}

/* --- private memory ----------------------------------------------------------------------------- */

static struct slot *private_slot(const struct ch_checker *c, const struct ch_site *who,
                                 const struct ch_range *r)
{
    struct space *sp = &c->spaces->ranks[who->rank];

    if (r->region == CH_SCRATCH)
        return &sp->scratch[r->slot];
    return &sp->out[out_index(ch_checker_sched(c, who->round, who->rank), r->block)];
}

/* In place, what IN holds where OUT was not written; else 0. */
static ch_expr under_out(const struct ch_sched *s, uint32_t block)
{
    uint64_t in_block;

    if (!s->in_place ||
        !ch_coll_in_under_out(s->coll, s->nranks, s->root, s->rank, block, &in_block))
        return 0;
    return ch_expr_leaf(s->rank, (uint32_t)in_block);
}

/* In place, a piece of IN that OUT has overwritten is gone. */
static choir_status check_in_is_whole(struct ch_checker *c, const struct ch_site *who,
                                      const struct ch_range *r)
{
    const struct ch_sched *s = ch_checker_sched(c, who->round, who->rank);
    const struct slot *slot;
    uint32_t block;

    if (!out_over_in(s, r->block, &block))
        return CHOIR_OK;
    slot = &c->spaces->ranks[who->rank].out[out_index(s, block)];
    for (uint32_t i = 0; slot->cells != NULL && i < slot->ncells; i++) {
        struct ch_range cell = ch_out(s->rank, block, i, slot->ncells);
        struct ch_site writer = { who->rank, who->round, slot->cells[i].step };

        if (slot->cells[i].expr != 0 && ch_ranges_overlap(c, who, r, &cell))
            return ch_refuse(c, who, &writer, "reads input that was overwritten in place");
    }
    return CHOIR_OK;
}

static choir_status read_in(struct ch_checker *c, const struct ch_site *who,
                            const struct ch_range *r, ch_expr *cells)
{
    uint32_t n = ch_range_ncells(c, who->round, r);
    choir_status rc = check_in_is_whole(c, who, r);

    for (uint32_t i = 0; i < n; i++)
        cells[i] = ch_expr_leaf(who->rank, r->block);
    return rc;
}

static choir_status read_private(struct ch_checker *c, const struct ch_site *who,
                                 const struct ch_range *r, ch_expr *cells)
{
    const struct ch_sched *s = ch_checker_sched(c, who->round, who->rank);
    const struct slot *slot = private_slot(c, who, r);
    struct span span = span_of(c, who->round, r);
    bool there = slot->cells != NULL && slot->block == r->block;

    for (uint32_t i = span.first; i < span.end; i++) {
        ch_expr e = there ? slot->cells[i].expr : 0;

        if (e == 0 && r->region == CH_OUT)
            e = under_out(s, r->block);
        if (e == 0)
            return ch_refuse(c, who, NULL, "reads what was not written in this round");
        cells[i - span.first] = e;
    }
    return CHOIR_OK;
}

/* --- shared memory ------------------------------------------------------------------------------ */

static choir_status note_read(struct ch_checker *c, const struct ch_site *who, struct cell *cell)
{
    struct ch_spaces *sp = c->spaces;
    uint32_t at = sp->pool_free, clock = ch_clock_now(c->clocks, who->rank);

    if (cell->reads != 0 && sp->pool[cell->reads].rank == who->rank &&
        sp->pool[cell->reads].clock == clock)
        return CHOIR_OK;
    if (at != 0) {
        sp->pool_free = sp->pool[at].next;
    } else {
        if (sp->pool_used >= sp->pool_room) {
            uint32_t room = sp->pool_room == 0 ? 1024 : sp->pool_room * 2;
            struct read *pool = ch_regrow(sp->pool, room, sizeof(*pool));

            if (pool == NULL)
                return no_memory();
            sp->pool = pool;
            sp->pool_room = room;
        }
        at = sp->pool_used++;
    }
    sp->pool[at] = (struct read){ who->rank, clock, who->step, cell->reads };
    cell->reads = at;
    return CHOIR_OK;
}

static void forget_reads(struct ch_spaces *sp, struct cell *cell)
{
    while (cell->reads != 0) {
        uint32_t at = cell->reads;

        cell->reads = sp->pool[at].next;
        sp->pool[at].next = sp->pool_free;
        sp->pool_free = at;
    }
}

/* Later than the half it wants to read? Then what it wants is gone, or not there yet. */
static choir_status check_round(struct ch_checker *c, const struct ch_site *who,
                                const struct ch_range *r, const struct half *h)
{
    struct ch_site writer = { r->rank, h->written - 1, h->step };

    if (h->written == 0 || h->written - 1 < who->round)
        return ch_refuse(c, who, NULL, "reads what was not written in this round");
    if (h->written - 1 > who->round)
        return ch_refuse(c, who, &writer,
                         "reads what may be overwritten by a later round: nothing orders the two");
    return CHOIR_OK;
}

static choir_status read_cell(struct ch_checker *c, const struct ch_site *who,
                              const struct ch_range *r, struct cell *cell, ch_expr *out)
{
    struct ch_site writer = { r->rank, who->round, cell->step };

    if (cell->expr == 0)
        return ch_refuse(c, who, NULL, "reads what was not written in this round");
    if (ch_clock_vector(c->clocks, who->rank)[r->rank] < cell->clock)
        return ch_refuse(c, who, &writer, "reads what another rank writes: nothing orders the two");
    *out = cell->expr;
    return who->rank == r->rank ? CHOIR_OK : note_read(c, who, cell);
}

static choir_status read_shared(struct ch_checker *c, const struct ch_site *who,
                                const struct ch_range *r, ch_expr *cells)
{
    struct half *h = half_of(c, who->round, r);
    struct span span = span_of(c, who->round, r);
    struct slot *slot;
    choir_status rc = check_round(c, who, r, h);

    if (rc != CHOIR_OK)
        return rc;
    slot = &h->slots[r->slot];
    if (slot->cells == NULL || slot->block != r->block)
        return ch_refuse(c, who, NULL, "reads what was not written in this round");
    for (uint32_t i = span.first; rc == CHOIR_OK && i < span.end; i++)
        rc = read_cell(c, who, r, &slot->cells[i], &cells[i - span.first]);
    if (rc != CHOIR_OK || who->rank == r->rank)
        return rc;
    if (h->last == NULL)
        h->last = ch_zalloc_array(c->nranks, sizeof(*h->last));
    if (h->last == NULL)
        return no_memory();
    h->last[who->rank] = (struct last_read){ ch_clock_now(c->clocks, who->rank), who->round,
                                             who->step };
    return CHOIR_OK;
}

/* The first write of a round to a half: all that read it in earlier rounds must be over. */
static choir_status take_half(struct ch_checker *c, const struct ch_site *who,
                              const struct ch_range *r, struct half *h)
{
    const struct ch_sched *s = ch_checker_sched(c, who->round, who->rank);
    const uint32_t *known = ch_clock_vector(c->clocks, who->rank);

    for (uint32_t q = 0; h->last != NULL && q < c->nranks; q++) {
        struct ch_site reader = { q, h->last[q].round, h->last[q].step };

        if (known[q] < h->last[q].clock)
            return ch_refuse(
                c, who, &reader,
                "overwrites what was read in an earlier round: nothing orders the two");
    }
    for (uint32_t i = 0; i < h->nslots; i++) {
        for (uint32_t k = 0; h->slots[i].cells != NULL && k < h->slots[i].ncells; k++)
            forget_reads(c->spaces, &h->slots[i].cells[k]);
    }
    h->written = who->round + 1;
    h->step = who->step;
    return slots_make(&h->slots, &h->nslots, r->region == CH_LINE ? s->line_slots : s->stage_slots);
}

/* All reads of what a write replaces must be over. */
static choir_status check_reads_over(struct ch_checker *c, const struct ch_site *who,
                                     struct slot *slot, uint32_t first, uint32_t end)
{
    const uint32_t *known = ch_clock_vector(c->clocks, who->rank);

    for (uint32_t i = first; i < end; i++) {
        for (uint32_t at = slot->cells[i].reads; at != 0; at = c->spaces->pool[at].next) {
            const struct read *read = &c->spaces->pool[at];
            struct ch_site reader = { read->rank, who->round, read->step };

            if (known[read->rank] < read->clock)
                return ch_refuse(c, who, &reader,
                                 "overwrites what another rank reads: nothing orders the two");
        }
        forget_reads(c->spaces, &slot->cells[i]);
    }
    return CHOIR_OK;
}

static choir_status prepare_shared(struct ch_checker *c, const struct ch_site *who,
                                   const struct ch_range *r, struct slot **slot_out)
{
    struct half *h = half_of(c, who->round, r);
    struct span span = span_of(c, who->round, r);
    struct slot *slot;
    choir_status rc = CHOIR_OK;

    if (!c->runners[who->rank].gated)
        return ch_refuse(c, who, NULL, "writes to shared memory before the round's gate");
    if (h->written != who->round + 1)
        rc = take_half(c, who, r, h);
    if (rc != CHOIR_OK)
        return rc;
    slot = &h->slots[r->slot];
    if (slot->cells != NULL && slot->block != r->block)
        rc = check_reads_over(c, who, slot, 0, slot->ncells);
    else if (slot->cells != NULL)
        rc = check_reads_over(c, who, slot, span.first, span.end);
    *slot_out = slot;
    return rc;
}

/* --- both --------------------------------------------------------------------------------------- */

choir_status ch_space_read(struct ch_checker *c, const struct ch_site *who,
                           const struct ch_range *r, ch_expr *cells)
{
    switch (r->region) {
    case CH_IN:
        return read_in(c, who, r, cells);
    case CH_OUT:
    case CH_SCRATCH:
        return read_private(c, who, r, cells);
    default:
        return read_shared(c, who, r, cells);
    }
}

/* A slot that held another block holds nothing now. */
static choir_status slot_for_block(struct slot *slot, uint32_t block, uint32_t ncells)
{
    if (slot->cells != NULL && slot->block == block)
        return CHOIR_OK;
    if (slot->cells == NULL || slot->ncells != ncells) {
        ch_free(slot->cells);
        slot->cells = ch_alloc_array(ncells, sizeof(*slot->cells));
        if (slot->cells == NULL)
            return no_memory();
        slot->ncells = ncells;
    }
    memset(slot->cells, 0, ncells * sizeof(*slot->cells));
    slot->block = block;
    return CHOIR_OK;
}

choir_status ch_space_write(struct ch_checker *c, const struct ch_site *who,
                            const struct ch_range *r, const ch_expr *cells)
{
    struct span span = span_of(c, who->round, r);
    uint32_t clock = ch_clock_now(c->clocks, who->rank);
    struct slot *slot = NULL;
    choir_status rc = CHOIR_OK;

    if (r->region == CH_OUT || r->region == CH_SCRATCH)
        slot = private_slot(c, who, r);
    else
        rc = prepare_shared(c, who, r, &slot);
    if (rc == CHOIR_OK)
        rc = slot_for_block(slot, r->block, span.of);
    if (rc != CHOIR_OK)
        return rc;
    for (uint32_t i = span.first; i < span.end; i++) {
        slot->cells[i].expr = cells[i - span.first];
        slot->cells[i].clock = clock;
        slot->cells[i].step = who->step;
    }
    return CHOIR_OK;
}

ch_expr ch_space_out(const struct ch_checker *c, uint32_t rank, uint32_t round, uint32_t block,
                     uint32_t cell)
{
    const struct ch_sched *s = ch_checker_sched(c, round, rank);
    const struct slot *slot = &c->spaces->ranks[rank].out[out_index(s, block)];

    if (slot->cells != NULL && slot->cells[cell].expr != 0)
        return slot->cells[cell].expr;
    return under_out(s, block);
}
