/*
 * check_run.c - executes all ranks' steps over abstract memory, one rank after the other as far as each
 * gets.
 *
 * In which order the ranks are taken does not matter: what a step waits for is always one certain other
 * step, so the order between steps, the values, and who gets stuck are the same in every execution.
 */
#include "sched/check_impl.h"

#include "base/error.h"
#include "base/mem.h"
#include "sched/blocks.h"

/* What a rank's try to go on comes to. */
enum progress { STUCK, MOVED, DONE, REFUSED };

static struct ch_site site_of(const struct ch_checker *c, uint32_t rank)
{
    return (struct ch_site){ rank, c->runners[rank].round, c->runners[rank].step };
}

/* The step a rank is at; NULL behind the last one of its last round. */
static const struct ch_step *step_of(const struct ch_checker *c, uint32_t rank)
{
    const struct ch_runner *run = &c->runners[rank];
    const struct ch_sched *s;

    if (run->round >= c->nrounds)
        return NULL;
    s = ch_checker_sched(c, run->round, rank);
    return run->step < s->nsteps ? &s->steps[run->step] : NULL;
}

static const struct ch_range *ranges_of(const struct ch_checker *c, const struct ch_site *who,
                                        const struct ch_step *st)
{
    return ch_checker_sched(c, who->round, who->rank)->ranges + st->first_range;
}

static choir_status reserve_cells(struct ch_checker *c, size_t n)
{
    ch_expr *cells;

    if (n <= c->cells_room)
        return CHOIR_OK;
    cells = ch_regrow(c->cells, n, sizeof(*cells));
    if (cells == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu cells", n);
    c->cells = cells;
    c->cells_room = n;
    return CHOIR_OK;
}

/* --- moving and reducing ------------------------------------------------------------------------ */

static bool accumulates(const struct ch_checker *c, const struct ch_site *who,
                        const struct ch_range *r)
{
    return r->region == CH_SCRATCH &&
           ch_coll_reduces(ch_checker_sched(c, who->round, who->rank)->coll);
}

static choir_status convert(struct ch_checker *c, const struct ch_site *who, uint32_t n,
                            choir_status (*how)(struct ch_exprs *, ch_expr, ch_expr *))
{
    for (uint32_t i = 0; i < n; i++) {
        choir_status rc = how(c->exprs, c->cells[i], &c->cells[i]);

        if (rc != CHOIR_OK)
            return ch_refuse_last(c, who, rc);
    }
    return CHOIR_OK;
}

static choir_status do_copy(struct ch_checker *c, const struct ch_site *who,
                            const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(c, who, st);
    uint32_t n = ch_range_ncells(c, who->round, &r[1]);
    choir_status rc = reserve_cells(c, n);

    if (rc == CHOIR_OK && ch_ranges_overlap(c, who, &r[0], &r[1]))
        return ch_refuse(c, who, NULL, "copies memory onto itself");
    if (rc == CHOIR_OK)
        rc = ch_space_read(c, who, &r[1], c->cells);
    if (rc == CHOIR_OK && st->kind == CH_FINISH)
        rc = convert(c, who, n, ch_expr_finish);
    else if (rc == CHOIR_OK && accumulates(c, who, &r[0]))
        rc = convert(c, who, n, ch_expr_widen);
    else if (rc == CHOIR_OK && accumulates(c, who, &r[1]))
        rc = convert(c, who, n, ch_expr_narrow);
    return rc == CHOIR_OK ? ch_space_write(c, who, &r[0], c->cells) : rc;
}

static choir_status check_contribution(struct ch_checker *c, const struct ch_site *who,
                                       uint32_t rank, uint32_t block, uint32_t n)
{
    ch_expr want = ch_expr_leaf(rank, block);
    char text[512];

    for (uint32_t i = 0; i < n; i++) {
        if (c->cells[i] != want)
            return ch_refuse(
                c, who, NULL, "source %u is not the contribution of rank %u to block %u but %s",
                rank, rank, block, ch_expr_text(c->exprs, c->cells[i], text, sizeof(text)));
    }
    return CHOIR_OK;
}

static choir_status do_reduce(struct ch_checker *c, const struct ch_site *who,
                              const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(c, who, st);
    uint32_t n = ch_range_ncells(c, who->round, &r[0]);
    choir_status rc = reserve_cells(c, n);

    for (uint32_t i = 0; rc == CHOIR_OK && i < c->nranks; i++) {
        rc = ch_space_read(c, who, &r[1 + i], c->cells);
        if (rc == CHOIR_OK)
            rc = check_contribution(c, who, i, r[0].block, n);
    }
    for (uint32_t i = 0; rc == CHOIR_OK && i < n; i++)
        c->cells[i] = ch_expr_total(r[0].block);
    return rc == CHOIR_OK ? ch_space_write(c, who, &r[0], c->cells) : rc;
}

/* Sources are read cell by cell behind each other, so that those of one cell lie together: source i of
 * cell k at k * nsrcs + i, and what comes of it at the end. */
static choir_status do_combine(struct ch_checker *c, const struct ch_site *who,
                               const struct ch_step *st)
{
    const struct ch_range *r = ranges_of(c, who, st);
    uint32_t n = ch_range_ncells(c, who->round, &r[0]), nsrcs = st->nranges - 1;
    size_t all = (size_t)n * nsrcs;
    choir_status rc = reserve_cells(c, all + n);

    for (uint32_t i = 0; rc == CHOIR_OK && i < nsrcs; i++) {
        rc = ch_space_read(c, who, &r[1 + i], c->cells + all);
        for (uint32_t k = 0; rc == CHOIR_OK && k < n; k++)
            c->cells[(size_t)k * nsrcs + i] = c->cells[all + k];
    }
    for (uint32_t k = 0; rc == CHOIR_OK && k < n; k++) {
        rc = ch_expr_combine(c->exprs, c->cells + (size_t)k * nsrcs, nsrcs, &c->cells[all + k]);
        if (rc != CHOIR_OK)
            return ch_refuse_last(c, who, rc);
    }
    c->facts.partial = true;
    return rc == CHOIR_OK ? ch_space_write(c, who, &r[0], c->cells + all) : rc;
}

/* --- messages ----------------------------------------------------------------------------------- */

/* One side of a message: its ranges, and how far they are used up. */
struct side {
    struct ch_site who;
    const struct ch_range *ranges;
    uint32_t nranges;
};

static bool sends_to(const struct ch_step *st, uint32_t peer)
{
    return st != NULL && (st->kind == CH_SEND || st->kind == CH_SENDRECV) && st->peer == peer;
}

static bool receives_from(const struct ch_step *st, uint32_t peer)
{
    return st != NULL && ((st->kind == CH_RECV && st->peer == peer) ||
                          (st->kind == CH_SENDRECV && st->flag == peer));
}

static struct side sending_side(const struct ch_checker *c, uint32_t rank)
{
    struct side side = { .who = site_of(c, rank) };
    const struct ch_step *st = step_of(c, rank);

    side.ranges = ranges_of(c, &side.who, st);
    side.nranges = st->kind == CH_SEND ? st->nranges : st->nsrcs;
    return side;
}

static struct side receiving_side(const struct ch_checker *c, uint32_t rank)
{
    struct side side = { .who = site_of(c, rank) };
    const struct ch_step *st = step_of(c, rank);
    uint32_t nsrcs = st->kind == CH_RECV ? 0 : st->nsrcs;

    side.ranges = ranges_of(c, &side.who, st) + nsrcs;
    side.nranges = st->nranges - nsrcs;
    return side;
}

/* Where cell `k` of all that a side moves lies in it: which range, and which cell of its block. */
struct place {
    uint32_t range, cell, left; /* how many more cells this range has, this one with it */
};

static void place_start(const struct ch_checker *c, const struct side *side, struct place *p)
{
    const struct ch_range *r;

    if (p->range >= side->nranges)
        return;
    r = &side->ranges[p->range];
    p->left = ch_range_ncells(c, side->who.round, r);
    p->cell = r->share * p->left;
}

static void place_next(const struct ch_checker *c, const struct side *side, struct place *p)
{
    p->cell++;
    if (--p->left > 0)
        return;
    p->range++;
    place_start(c, side, p);
}

/* Whether what comes has the shape of what is expected, piece by piece: only then have they the same number
 * of bytes whatever the lengths of blocks. */
static choir_status check_shapes(struct ch_checker *c, const struct side *from,
                                 const struct side *to)
{
    struct place a = { 0 }, b = { 0 };

    place_start(c, from, &a);
    place_start(c, to, &b);
    while (a.range < from->nranges && b.range < to->nranges) {
        const struct ch_range *ra = &from->ranges[a.range], *rb = &to->ranges[b.range];

        if (ra->block != rb->block || a.cell != b.cell)
            return ch_refuse(c, &to->who, &from->who,
                             "expects a piece of block %u where one of block %u comes: they may "
                             "differ in length",
                             rb->block, ra->block);
        if (accumulates(c, &from->who, ra) != accumulates(c, &to->who, rb))
            return ch_refuse(c, &to->who, &from->who,
                             "one side has accumulators, the other has elements");
        place_next(c, from, &a);
        place_next(c, to, &b);
    }
    if (a.range < from->nranges || b.range < to->nranges)
        return ch_refuse(c, &to->who, &from->who, "a message that is %s than expected",
                         a.range < from->nranges ? "longer" : "shorter");
    return CHOIR_OK;
}

static size_t side_ncells(const struct ch_checker *c, const struct side *side)
{
    size_t n = 0;

    for (uint32_t i = 0; i < side->nranges; i++)
        n += ch_range_ncells(c, side->who.round, &side->ranges[i]);
    return n;
}

static choir_status transfer(struct ch_checker *c, uint32_t from, uint32_t to)
{
    struct side src = sending_side(c, from), dst = receiving_side(c, to);
    choir_status rc;
    size_t at = 0;

    if (src.who.round != dst.who.round)
        return ch_refuse(c, &dst.who, &src.who, "a message of one round is received in another");
    rc = check_shapes(c, &src, &dst);
    if (rc == CHOIR_OK)
        rc = reserve_cells(c, side_ncells(c, &src));
    for (uint32_t i = 0; rc == CHOIR_OK && i < src.nranges; i++) {
        rc = ch_space_read(c, &src.who, &src.ranges[i], c->cells + at);
        at += ch_range_ncells(c, src.who.round, &src.ranges[i]);
    }
    at = 0;
    for (uint32_t i = 0; rc == CHOIR_OK && i < dst.nranges; i++) {
        rc = ch_space_write(c, &dst.who, &dst.ranges[i], c->cells + at);
        at += ch_range_ncells(c, dst.who.round, &dst.ranges[i]);
    }
    if (step_of(c, from)->kind == CH_SEND)
        ch_clock_send(c->clocks, from); /* what it has read for it is over for the receiver */
    ch_clock_deliver(c->clocks, from, to);
    c->moved = true;
    c->runners[from].sent = true;
    c->runners[to].received = true;
    return rc;
}

/* What is sent may not change under the receiver's hand, nor be what comes in. */
static choir_status check_halves(struct ch_checker *c, uint32_t rank)
{
    struct side out = sending_side(c, rank), in = receiving_side(c, rank);

    for (uint32_t i = 0; i < out.nranges; i++) {
        for (uint32_t k = 0; k < in.nranges; k++) {
            if (ch_ranges_overlap(c, &out.who, &out.ranges[i], &in.ranges[k]))
                return ch_refuse(c, &out.who, NULL, "receives into what it is sending");
        }
    }
    return CHOIR_OK;
}

static choir_status begin_message(struct ch_checker *c, uint32_t rank, const struct ch_step *st)
{
    struct ch_runner *run = &c->runners[rank];

    if (run->begun)
        return CHOIR_OK;
    run->begun = true;
    run->sent = st->kind == CH_RECV;
    run->received = st->kind == CH_SEND;
    if (st->kind != CH_SENDRECV)
        return CHOIR_OK;
    ch_clock_send(c->clocks, rank); /* before anything comes in */
    return check_halves(c, rank);
}

/* Both at their halves of a message, neither done: it goes over. */
static choir_status meet(struct ch_checker *c, uint32_t from, uint32_t to)
{
    const struct ch_runner *a = &c->runners[from], *b = &c->runners[to];

    if (!sends_to(step_of(c, from), to) || !receives_from(step_of(c, to), from))
        return CHOIR_OK;
    if (!a->begun || a->sent || !b->begun || b->received)
        return CHOIR_OK;
    return transfer(c, from, to);
}

static enum progress do_message(struct ch_checker *c, uint32_t rank, const struct ch_step *st,
                                choir_status *rc)
{
    struct ch_runner *run = &c->runners[rank];

    *rc = begin_message(c, rank, st);
    if (*rc == CHOIR_OK && !run->sent)
        *rc = meet(c, rank, st->peer);
    if (*rc == CHOIR_OK && !run->received)
        *rc = meet(c, st->kind == CH_RECV ? st->peer : st->flag, rank);
    if (*rc != CHOIR_OK)
        return REFUSED;
    if (!run->sent || !run->received)
        return STUCK;
    if (st->kind != CH_SEND)
        ch_clock_received(c->clocks, rank);
    run->begun = run->sent = run->received = false;
    return MOVED;
}

/* --- flags and gates ---------------------------------------------------------------------------- */

static enum progress do_await(struct ch_checker *c, const struct ch_site *who,
                              const struct ch_step *st, choir_status *rc)
{
    switch (ch_clock_await(c->clocks, who->rank, who->round, st->peer, st->flag)) {
    case CH_AWAITED:
        return MOVED;
    case CH_AWAITED_NOT_YET:
        return STUCK;
    default:
        *rc = ch_refuse(c, who, NULL, "waits for ever: rank %u never raises its flag to %u",
                        st->peer, st->flag);
        return REFUSED;
    }
}

static enum progress do_gate(struct ch_checker *c, const struct ch_site *who)
{
    if (!ch_clock_gate(c->clocks, who->rank, who->round, c->gate_back))
        return STUCK;
    c->runners[who->rank].gated = true;
    return MOVED;
}

/* --- ranks -------------------------------------------------------------------------------------- */

static choir_status enter(struct ch_checker *c, uint32_t rank)
{
    struct ch_runner *run = &c->runners[rank];

    run->step = 0;
    run->nposts = 0;
    run->gated = false;
    if (run->round >= c->nrounds)
        return CHOIR_OK;
    ch_clock_enter(c->clocks, rank, run->round);
    return ch_space_enter(c, rank, run->round);
}

static choir_status leave(struct ch_checker *c, uint32_t rank)
{
    struct ch_runner *run = &c->runners[rank];
    choir_status rc = ch_check_promise(c, rank, run->round);

    if (rc == CHOIR_OK)
        rc = ch_clock_leave(c->clocks, rank, run->round);
    if (rc != CHOIR_OK)
        return rc;
    run->round++;
    return enter(c, rank);
}

static enum progress try_step(struct ch_checker *c, uint32_t rank, const struct ch_step *st,
                              choir_status *rc)
{
    const struct ch_site who = site_of(c, rank);

    switch (st->kind) {
    case CH_COPY:
    case CH_FINISH:
        *rc = do_copy(c, &who, st);
        break;
    case CH_REDUCE_ALL:
        *rc = do_reduce(c, &who, st);
        break;
    case CH_COMBINE:
        *rc = do_combine(c, &who, st);
        break;
    case CH_POST:
        *rc = ch_clock_post(c->clocks, rank, who.round, c->runners[rank].nposts++);
        break;
    case CH_AWAIT:
        return do_await(c, &who, st, rc);
    case CH_GATE:
        return do_gate(c, &who);
    default:
        return do_message(c, rank, st, rc);
    }
    return *rc == CHOIR_OK ? MOVED : REFUSED;
}

static enum progress try_rank(struct ch_checker *c, uint32_t rank, choir_status *rc)
{
    const struct ch_step *st = step_of(c, rank);
    enum progress p;

    if (c->runners[rank].round >= c->nrounds)
        return DONE;
    if (st == NULL) {
        *rc = leave(c, rank);
        return *rc == CHOIR_OK ? MOVED : REFUSED;
    }
    p = try_step(c, rank, st, rc);
    if (p == MOVED)
        c->runners[rank].step++;
    return p;
}

/* --- who waits for whom ------------------------------------------------------------------------- */

static uint32_t waits_for(const struct ch_checker *c, uint32_t rank)
{
    const struct ch_runner *run = &c->runners[rank];
    const struct ch_step *st = step_of(c, rank);

    if (st->kind == CH_GATE)
        return ch_clock_first_inside(c->clocks, run->round - c->gate_back);
    return st->kind == CH_SENDRECV && run->sent ? st->flag : st->peer;
}

static choir_status refuse_stuck(struct ch_checker *c, uint32_t first)
{
    struct ch_site who = site_of(c, first);
    uint32_t rank = first;

    ch_refuse(c, &who, NULL, "waits for ever, for rank %u", waits_for(c, first));
    /* Around the circle, or up to who has finished; no more than a few lines of it. */
    for (int i = 0; i < 16; i++) {
        char text[160];

        rank = waits_for(c, rank);
        if (rank == first)
            break;
        if (c->runners[rank].round >= c->nrounds) {
            ch_trace_line(c, "  rank %u has finished", rank);
            break;
        }
        ch_trace_line(c, "  rank %u round %u step %u: %s, waits for rank %u", rank,
                      c->runners[rank].round, c->runners[rank].step,
                      ch_step_text(ch_checker_sched(c, c->runners[rank].round, rank),
                                   c->runners[rank].step, text, sizeof(text)),
                      waits_for(c, rank));
    }
    return CHOIR_ERR_INVALID;
}

choir_status ch_check_run(struct ch_checker *c)
{
    choir_status rc = CHOIR_OK;
    uint32_t stuck = 0;

    for (uint32_t r = 0; rc == CHOIR_OK && r < c->nranks; r++)
        rc = enter(c, r);
    for (c->moved = true; rc == CHOIR_OK && c->moved;) {
        c->moved = false;
        stuck = c->nranks;
        for (uint32_t r = 0; r < c->nranks; r++) {
            enum progress p = try_rank(c, r, &rc);

            while (p == MOVED) {
                c->moved = true;
                p = try_rank(c, r, &rc);
            }
            if (p == REFUSED)
                return rc;
            if (p == STUCK && stuck == c->nranks)
                stuck = r;
        }
    }
    if (rc == CHOIR_OK && stuck < c->nranks)
        return refuse_stuck(c, stuck);
    return rc;
}
