/*
 * check_promise.c - at the end of a round, whether a rank has what the operation promised it.
 */
#include "sched/check_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sched/blocks.h"

/* Who gives a block, in operations that move blocks as they are. */
static uint32_t giver(const struct ch_sched *s, uint32_t block)
{
    switch (s->coll) {
    case CH_ALLGATHER:
    case CH_GATHER:
        return block;
    case CH_ALLTOALL:
        return block / s->nranks;
    default: /* broadcast, scatter */
        return s->root;
    }
}

static choir_status refuse_out(struct ch_checker *c, uint32_t rank, uint32_t round, uint32_t block,
                               uint32_t cell, ch_expr got, const char *want)
{
    const struct ch_site end = { rank, round, ch_checker_sched(c, round, rank)->nsteps };
    char text[512];

    return ch_refuse(c, &end, NULL, "output block %u, cell %u of %u, is %s, promised is %s", block,
                     cell, c->grains[round].cells[block],
                     ch_expr_text(c->exprs, got, text, sizeof(text)), want);
}

static choir_status check_moved(struct ch_checker *c, uint32_t rank, uint32_t round, uint32_t block)
{
    ch_expr want = ch_expr_leaf(giver(ch_checker_sched(c, round, rank), block), block);
    char text[64];

    for (uint32_t i = 0; i < c->grains[round].cells[block]; i++) {
        ch_expr got = ch_space_out(c, rank, round, block, i);

        if (got != want)
            return refuse_out(c, rank, round, block, i, got,
                              ch_expr_text(c->exprs, want, text, sizeof(text)));
    }
    return CHOIR_OK;
}

/* All ranks have the same expression, whoever is first. Only in an allreduce do several have the result. */
static choir_status check_agreed(struct ch_checker *c, uint32_t rank, uint32_t round, uint32_t cell,
                                 ch_expr got)
{
    char text[512];

    if (c->agreed[round] == NULL)
        c->agreed[round] = ch_zalloc_array(c->grains[round].cells[0], sizeof(*c->agreed[round]));
    if (c->agreed[round] == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to compare results");
    if (c->agreed[round][cell] == 0)
        c->agreed[round][cell] = got;
    if (c->agreed[round][cell] == got)
        return CHOIR_OK;
    snprintf(text, sizeof(text), "what another rank has, ");
    ch_expr_text(c->exprs, c->agreed[round][cell], text + strlen(text),
                 sizeof(text) - strlen(text));
    return refuse_out(c, rank, round, 0, cell, got, text);
}

static choir_status check_reduced(struct ch_checker *c, uint32_t rank, uint32_t round,
                                  uint32_t block)
{
    choir_status rc = CHOIR_OK;

    for (uint32_t i = 0; rc == CHOIR_OK && i < c->grains[round].cells[block]; i++) {
        ch_expr got = ch_space_out(c, rank, round, block, i);

        if (!ch_expr_finished(c->exprs, got, block))
            return refuse_out(c, rank, round, block, i, got, "a finished sum of all ranks");
        if (got != ch_expr_total(block))
            c->facts.rank_order = false;
        if (ch_checker_sched(c, round, rank)->coll == CH_ALLREDUCE)
            rc = check_agreed(c, rank, round, i, got);
    }
    return rc;
}

static choir_status check_met(struct ch_checker *c, uint32_t rank, uint32_t round)
{
    const struct ch_site end = { rank, round, ch_checker_sched(c, round, rank)->nsteps };

    for (uint32_t r = 0; r < c->nranks; r++) {
        if (!ch_clock_knows_entry(c->clocks, rank, r, round))
            return ch_refuse(c, &end, NULL, "leaves the barrier, though rank %u may not have come",
                             r);
    }
    return CHOIR_OK;
}

choir_status ch_check_promise(struct ch_checker *c, uint32_t rank, uint32_t round)
{
    const struct ch_sched *s = ch_checker_sched(c, round, rank);
    uint64_t nblocks = ch_coll_nblocks(s->coll, s->nranks);
    uint32_t stride = s->coll == CH_ALLTOALL ? s->nranks : 1;
    choir_status rc = CHOIR_OK;

    if (s->coll == CH_BARRIER)
        return check_met(c, rank, round);
    /* An all-to-all has N * N of them, and each rank every N-th: the others are not worth a look. */
    for (uint64_t b = s->coll == CH_ALLTOALL ? rank : 0; rc == CHOIR_OK && b < nblocks;
         b += stride) {
        if (!ch_coll_holds(s->coll, s->nranks, s->root, CH_OUT, rank, b))
            continue;
        rc = ch_coll_reduces(s->coll) ? check_reduced(c, rank, round, (uint32_t)b)
                                      : check_moved(c, rank, round, (uint32_t)b);
    }
    return rc;
}
