/*
 * play.c - every rank goes on as far as it can, in turn, until all are through.
 */
#include "algo/play.h"

#include "base/error.h"
#include "base/mem.h"

/* Something a rank has done that others may wait for: a post, or a message. */
struct event {
    uint32_t step, column, depth;
    uint32_t value; /* POST: the flag; SEND: to whom */
    bool taken;     /* a message that was received */
};

struct player {
    const struct ch_sched *sched;
    uint32_t step, column, depth; /* the next step, its earliest column, waits so far */
    bool sent;                    /* the next step is a SENDRECV, half done */
    struct event *events;         /* room for every step */
    uint32_t nevents;
};

struct game {
    struct player *players;
    uint32_t nranks;
    struct ch_play *play;
};

static void tell(struct player *p, uint32_t value)
{
    p->events[p->nevents++] = (struct event){
        .step = p->step, .column = p->column, .depth = p->depth, .value = value
    };
}

static struct event *find_post(struct player *p, uint32_t flag)
{
    for (uint32_t i = 0; i < p->nevents; i++) {
        if (p->sched->steps[p->events[i].step].kind == CH_POST && p->events[i].value >= flag)
            return &p->events[i];
    }
    return NULL;
}

static struct event *find_message(struct player *p, uint32_t to)
{
    for (uint32_t i = 0; i < p->nevents; i++) {
        struct event *e = &p->events[i];

        if (p->sched->steps[e->step].kind != CH_POST && e->value == to && !e->taken)
            return e;
    }
    return NULL;
}

/* `rank` has waited for `e` of rank `from`: its step cannot be earlier than `column`. */
static void waited(struct game *g, uint32_t rank, uint32_t from, const struct event *e,
                   uint32_t column)
{
    struct player *p = &g->players[rank];
    struct ch_play_step *out = &g->play->steps[rank][p->step];

    out->from_rank = from;
    out->from_step = e->step;
    if (p->column < column)
        p->column = column;
    if (p->depth < e->depth + 1)
        p->depth = e->depth + 1;
}

static bool receive(struct game *g, uint32_t rank, uint32_t from, uint32_t lag)
{
    struct event *e = find_message(&g->players[from], rank);

    if (e == NULL)
        return false;
    e->taken = true;
    waited(g, rank, from, e, e->column + lag);
    return true;
}

/* Do the step if it need not wait. */
static bool try_step(struct game *g, uint32_t rank)
{
    struct player *p = &g->players[rank];
    const struct ch_step *st = &p->sched->steps[p->step];
    struct event *e;

    switch ((enum ch_step_kind)st->kind) {
    case CH_POST:
        tell(p, st->flag);
        return true;
    case CH_SEND:
        tell(p, st->peer);
        return true;
    case CH_AWAIT:
        e = find_post(&g->players[st->peer], st->flag);
        if (e != NULL)
            waited(g, rank, st->peer, e, e->column + 1);
        return e != NULL;
    case CH_RECV:
        return receive(g, rank, st->peer, 1);
    case CH_SENDRECV:
        if (!p->sent)
            tell(p, st->peer);
        p->sent = true;
        return receive(g, rank, st->flag, 0); /* both ends of an exchange are at one time */
    case CH_COPY:
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
    case CH_GATE:
    case CH_NSTEPS:
        break;
    }
    return true;
}

/* Whether the next step goes on with what the one at hand does, in the same column. */
static bool goes_on(const struct player *p)
{
    const struct ch_step *st = &p->sched->steps[p->step];

    return (st->kind == CH_COPY || st->kind == CH_AWAIT) && p->step + 1 < p->sched->nsteps &&
           st[1].kind == st->kind;
}

static bool go_on(struct game *g, uint32_t rank)
{
    struct player *p = &g->players[rank];
    bool moved = false;

    while (p->step < p->sched->nsteps && try_step(g, rank)) {
        g->play->steps[rank][p->step].column = p->column;
        p->column += !goes_on(p);
        p->step++;
        p->sent = false;
        moved = true;
    }
    return moved;
}

static choir_status play_all(struct game *g)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < g->nranks; r++)
            moved = go_on(g, r) || moved;
    }
    for (uint32_t r = 0; r < g->nranks; r++) {
        const struct player *p = &g->players[r];

        if (p->step < p->sched->nsteps)
            return ch_fail(CHOIR_ERR_INVALID, "rank %u waits for ever in step %u", r, p->step);
        if (g->play->ncolumns < p->column)
            g->play->ncolumns = p->column;
        if (g->play->depth < p->depth)
            g->play->depth = p->depth;
    }
    return CHOIR_OK;
}

/* --- memory ----------------------------------------------------------------------------------------- */

static choir_status no_memory(uint32_t nranks)
{
    return ch_fail(CHOIR_ERR_NOMEM, "no memory to play the schedules of %u ranks", nranks);
}

static choir_status make_players(struct game *g, struct ch_sched *const *scheds)
{
    g->players = ch_zalloc_array(g->nranks, sizeof(*g->players));
    g->play->steps = ch_zalloc_array(g->nranks, sizeof(*g->play->steps));
    if (g->players == NULL || g->play->steps == NULL)
        return no_memory(g->nranks);
    for (uint32_t r = 0; r < g->nranks; r++) {
        struct player *p = &g->players[r];
        uint32_t nsteps = scheds[r]->nsteps;

        p->sched = scheds[r];
        p->events = ch_zalloc_array(nsteps + 1, sizeof(*p->events));
        g->play->steps[r] = ch_zalloc_array(nsteps + 1, sizeof(**g->play->steps));
        if (p->events == NULL || g->play->steps[r] == NULL)
            return no_memory(g->nranks);
        for (uint32_t i = 0; i < nsteps; i++)
            g->play->steps[r][i].from_rank = g->play->steps[r][i].from_step = CH_PLAY_NOBODY;
    }
    return CHOIR_OK;
}

void ch_play_destroy(struct ch_play *play)
{
    if (play == NULL)
        return;
    for (uint32_t r = 0; play->steps != NULL && r < play->nranks; r++)
        ch_free(play->steps[r]);
    ch_free(play->steps);
    ch_free(play);
}

choir_status ch_play(struct ch_sched *const *scheds, uint32_t nranks, struct ch_play **play_out)
{
    struct game g = { .nranks = nranks, .play = ch_zalloc(sizeof(*g.play)) };
    choir_status rc;

    if (g.play == NULL)
        return no_memory(nranks);
    g.play->nranks = nranks;
    rc = make_players(&g, scheds);
    if (rc == CHOIR_OK)
        rc = play_all(&g);
    for (uint32_t r = 0; g.players != NULL && r < nranks; r++)
        ch_free(g.players[r].events);
    ch_free(g.players);
    if (rc == CHOIR_OK)
        *play_out = g.play;
    else
        ch_play_destroy(g.play);
    return rc;
}
