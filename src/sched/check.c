/*
 * check.c - the entries of the checker, and what a refusal says.
 */
#include "sched/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sched/blocks.h"
#include "sched/check_impl.h"
#include "sched/valid.h"

/* Of one block. Shares that divide each other badly could ask for any number. */
enum { CELLS_MAX = 1 << 20 };

/* --- refusals ----------------------------------------------------------------------------------- */

void ch_trace_line(struct ch_checker *c, const char *fmt, ...)
{
    size_t room = CH_CHECK_TRACE_MAX - c->trace_used;
    va_list args;
    int n;

    if (c->trace == NULL || room < 2)
        return;
    va_start(args, fmt);
    n = vsnprintf(c->trace + c->trace_used, room - 1, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    c->trace_used += (size_t)n < room - 1 ? (size_t)n : room - 2;
    c->trace[c->trace_used++] = '\n';
    c->trace[c->trace_used] = '\0';
}

static void trace_site(struct ch_checker *c, const struct ch_site *site)
{
    const struct ch_sched *s = ch_checker_sched(c, site->round, site->rank);
    char text[512];

    ch_trace_line(c, "  rank %u round %u step %u: %s", site->rank, site->round, site->step,
                  site->step < s->nsteps ? ch_step_text(s, site->step, text, sizeof(text))
                                         : "(its end)");
}

choir_status ch_refuse(struct ch_checker *c, const struct ch_site *a, const struct ch_site *b,
                       const char *fmt, ...)
{
    const struct ch_sched *s = ch_checker_sched(c, a->round, a->rank);
    char reason[1400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(reason, sizeof(reason), fmt, args);
    va_end(args);
    ch_trace_line(c, "%s %s, %u ranks, rank %u: %s", ch_coll_name(s->coll), s->algo, s->nranks,
                  a->rank, reason);
    /* The earlier one first, as far as the order of execution tells. */
    if (b != NULL)
        trace_site(c, b);
    trace_site(c, a);
    return ch_fail(CHOIR_ERR_INVALID, "%s %s, %u ranks: rank %u round %u step %u: %s",
                   ch_coll_name(s->coll), s->algo, s->nranks, a->rank, a->round, a->step, reason);
}

choir_status ch_refuse_last(struct ch_checker *c, const struct ch_site *a, choir_status rc)
{
    choir_error last;

    if (rc != CHOIR_ERR_INVALID)
        return rc;
    ch_error_save(&last);
    return ch_refuse(c, a, NULL, "%s", last.text);
}

/* --- grains ------------------------------------------------------------------------------------- */

static uint64_t common_multiple(uint32_t a, uint32_t b)
{
    uint32_t x = a, y = b;

    while (y != 0) {
        uint32_t rest = x % y;

        x = y;
        y = rest;
    }
    return (uint64_t)a / x * b;
}

static choir_status grain_refine(struct ch_grain *g, const struct ch_sched *s)
{
    for (uint32_t i = 0; i < s->nranges; i++) {
        uint32_t *cells = &g->cells[s->ranges[i].block];
        uint64_t finer;

        if (*cells % s->ranges[i].nshares == 0)
            continue;
        finer = common_multiple(*cells, s->ranges[i].nshares);
        if (finer > CELLS_MAX)
            return ch_fail(CHOIR_ERR_INVALID,
                           "%s %s: shares of block %u that need more than %d cells",
                           ch_coll_name(s->coll), s->algo, s->ranges[i].block, (int)CELLS_MAX);
        *cells = (uint32_t)finer;
    }
    return CHOIR_OK;
}

static choir_status grain_make(struct ch_grain *g, struct ch_sched *const *scheds, uint32_t nranks)
{
    uint64_t nblocks = ch_coll_nblocks(scheds[0]->coll, nranks);
    choir_status rc = CHOIR_OK;

    g->cells = ch_alloc_array(nblocks > 0 ? nblocks : 1, sizeof(*g->cells));
    if (g->cells == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %llu blocks", (unsigned long long)nblocks);
    g->nblocks = (uint32_t)nblocks;
    for (uint64_t b = 0; b < nblocks; b++)
        g->cells[b] = 1;
    for (uint32_t r = 0; rc == CHOIR_OK && r < nranks; r++)
        rc = grain_refine(g, scheds[r]);
    return rc;
}

/* --- one round's schedules, each by itself and beside each other -------------------------------- */

static choir_status check_fits(const struct ch_sched *s, const struct ch_sched *first,
                               uint32_t rank, uint32_t nranks)
{
    choir_status rc = ch_sched_validate(s);

    if (rc != CHOIR_OK) {
        ch_error_prefix("%s %s, rank %u: ", ch_coll_name(s->coll), s->algo, rank);
        return rc;
    }
    if (s->rank != rank || s->nranks != nranks)
        return ch_fail(CHOIR_ERR_INVALID, "%s %s: rank %u of %u where rank %u of %u is expected",
                       ch_coll_name(s->coll), s->algo, s->rank, s->nranks, rank, nranks);
    if (s->coll != first->coll || s->root != first->root || strcmp(s->algo, first->algo) != 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "rank %u does %s %s with root %u, rank 0 does %s %s with root %u", rank,
                       ch_coll_name(s->coll), s->algo, s->root, ch_coll_name(first->coll),
                       first->algo, first->root);
    if (s->nflags != first->nflags || s->stage_slots != first->stage_slots ||
        s->line_slots != first->line_slots)
        return ch_fail(CHOIR_ERR_INVALID,
                       "%s %s: rank %u has %u flags, %u slots of stage, %u of line; rank 0 has %u, "
                       "%u, %u",
                       ch_coll_name(s->coll), s->algo, rank, s->nflags, s->stage_slots,
                       s->line_slots, first->nflags, first->stage_slots, first->line_slots);
    return CHOIR_OK;
}

static choir_status prepare_round(struct ch_checker *c, uint32_t round)
{
    struct ch_sched *const *scheds = c->rounds[round];
    choir_status rc = CHOIR_OK;

    for (uint32_t r = 0; rc == CHOIR_OK && r < c->nranks; r++)
        rc = check_fits(scheds[r], scheds[0], r, c->nranks);
    return rc == CHOIR_OK ? grain_make(&c->grains[round], scheds, c->nranks) : rc;
}

/* --- the whole ---------------------------------------------------------------------------------- */

static void checker_free(struct ch_checker *c)
{
    ch_spaces_destroy(c);
    ch_exprs_destroy(c->exprs);
    ch_clocks_destroy(c->clocks);
    for (uint32_t i = 0; c->grains != NULL && i < c->nrounds; i++)
        ch_free(c->grains[i].cells);
    for (uint32_t i = 0; c->agreed != NULL && i < c->nrounds; i++)
        ch_free(c->agreed[i]);
    ch_free(c->grains);
    ch_free(c->agreed);
    ch_free(c->runners);
    ch_free(c->cells);
}

static choir_status checker_init(struct ch_checker *c)
{
    choir_status rc = CHOIR_OK;

    c->grains = ch_zalloc_array(c->nrounds, sizeof(*c->grains));
    c->agreed = ch_zalloc_array(c->nrounds, sizeof(*c->agreed));
    c->runners = ch_zalloc_array(c->nranks, sizeof(*c->runners));
    if (c->grains == NULL || c->agreed == NULL || c->runners == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to check %u rounds of %u ranks", c->nrounds,
                       c->nranks);
    for (uint32_t i = 0; rc == CHOIR_OK && i < c->nrounds; i++)
        rc = prepare_round(c, i);
    if (rc == CHOIR_OK)
        rc = ch_exprs_create(c->nranks, &c->exprs);
    if (rc == CHOIR_OK)
        rc = ch_clocks_create(c->rounds, c->nrounds, c->nranks, &c->clocks);
    if (rc == CHOIR_OK)
        rc = ch_spaces_create(c);
    return rc;
}

choir_status ch_check_gates(struct ch_sched *const *const *rounds, uint32_t nrounds,
                            uint32_t nranks, uint32_t gate_back, struct ch_check_facts *facts,
                            char *trace)
{
    struct ch_checker c = { .gate_back = gate_back,
                            .rounds = rounds,
                            .nrounds = nrounds,
                            .nranks = nranks,
                            .trace = trace };
    choir_status rc;

    if (trace != NULL)
        trace[0] = '\0';
    if (nrounds == 0 || nranks == 0)
        return ch_fail(CHOIR_ERR_INVALID, "%u rounds of %u ranks: nothing to check", nrounds,
                       nranks);
    c.facts.rank_order = true;
    rc = checker_init(&c);
    if (rc == CHOIR_OK)
        rc = ch_check_run(&c);
    if (rc == CHOIR_OK && facts != NULL)
        *facts = c.facts;
    checker_free(&c);
    return rc;
}

choir_status ch_check_sequence(struct ch_sched *const *const *rounds, uint32_t nrounds,
                               uint32_t nranks, struct ch_check_facts *facts, char *trace)
{
    return ch_check_gates(rounds, nrounds, nranks, 2, facts, trace);
}

choir_status ch_check(struct ch_sched *const *scheds, uint32_t nranks, uint32_t rounds, char *trace)
{
    struct ch_sched *const **list = ch_alloc_array(rounds > 0 ? rounds : 1, sizeof(*list));
    choir_status rc;

    if (list == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to check %u rounds", rounds);
    for (uint32_t i = 0; i < rounds; i++)
        list[i] = scheds;
    rc = ch_check_sequence(list, rounds, nranks, NULL, trace);
    ch_free(list);
    return rc;
}
