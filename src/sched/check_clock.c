/*
 * check_clock.c - vector clocks, and the copies of them that posts and ends of rounds leave behind.
 *
 * An AWAIT takes over what its peer knew when it raised its flag to just that, not what the peer knows by
 * now: more is not certain.
 */
#include "sched/check_clock.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* What one rank leaves behind in one round. */
struct footprint {
    uint32_t entered; /* its clock then; 0: not yet */
    bool through;
    uint32_t nposts;
    uint32_t *flags;  /* of its posts, rising */
    uint32_t **posts; /* vectors; NULL: not yet */
};

struct round {
    struct footprint *ranks;
    uint32_t nthrough;
    uint32_t *end; /* what holds when all are through; NULL before the first is */
};

struct ch_clocks {
    uint32_t nranks, nrounds;
    uint32_t *vectors;         /* nranks of them */
    uint32_t *sent, *received; /* the same, for messages of the step under way */
    struct round *rounds;
};

static choir_status no_memory(void)
{
    return ch_fail(CHOIR_ERR_NOMEM, "no memory for clocks");
}

static void footprint_free(struct footprint *f)
{
    for (uint32_t i = 0; f->posts != NULL && i < f->nposts; i++)
        ch_free(f->posts[i]);
    ch_free(f->posts);
    ch_free(f->flags);
}

void ch_clocks_destroy(struct ch_clocks *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; c->rounds != NULL && i < c->nrounds; i++) {
        struct round *round = &c->rounds[i];

        for (uint32_t r = 0; round->ranks != NULL && r < c->nranks; r++)
            footprint_free(&round->ranks[r]);
        ch_free(round->ranks);
        ch_free(round->end);
    }
    ch_free(c->rounds);
    ch_free(c->vectors);
    ch_free(c->sent);
    ch_free(c->received);
    ch_free(c);
}

static choir_status footprint_init(struct footprint *f, const struct ch_sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nsteps; i++)
        n += s->steps[i].kind == CH_POST;
    if (n == 0)
        return CHOIR_OK;
    f->flags = ch_alloc_array(n, sizeof(*f->flags));
    f->posts = ch_zalloc_array(n, sizeof(*f->posts));
    if (f->flags == NULL || f->posts == NULL)
        return no_memory();
    for (uint32_t i = 0; i < s->nsteps; i++) {
        if (s->steps[i].kind == CH_POST)
            f->flags[f->nposts++] = s->steps[i].flag;
    }
    return CHOIR_OK;
}

static choir_status round_init(struct round *round, struct ch_sched *const *scheds, uint32_t nranks)
{
    choir_status rc = CHOIR_OK;

    round->ranks = ch_zalloc_array(nranks, sizeof(*round->ranks));
    if (round->ranks == NULL)
        return no_memory();
    for (uint32_t r = 0; rc == CHOIR_OK && r < nranks; r++)
        rc = footprint_init(&round->ranks[r], scheds[r]);
    return rc;
}

choir_status ch_clocks_create(struct ch_sched *const *const *rounds, uint32_t nrounds,
                              uint32_t nranks, struct ch_clocks **clocks_out)
{
    struct ch_clocks *c = ch_zalloc(sizeof(*c));
    choir_status rc = CHOIR_OK;

    if (c == NULL)
        return no_memory();
    c->nranks = nranks;
    c->nrounds = nrounds;
    c->vectors = ch_zalloc_array(nranks, nranks * sizeof(uint32_t));
    c->sent = ch_zalloc_array(nranks, nranks * sizeof(uint32_t));
    c->received = ch_zalloc_array(nranks, nranks * sizeof(uint32_t));
    c->rounds = ch_zalloc_array(nrounds, sizeof(*c->rounds));
    if (c->vectors == NULL || c->sent == NULL || c->received == NULL || c->rounds == NULL)
        rc = no_memory();
    for (uint32_t i = 0; rc == CHOIR_OK && i < nrounds; i++)
        rc = round_init(&c->rounds[i], rounds[i], nranks);
    if (rc != CHOIR_OK) {
        ch_clocks_destroy(c);
        return rc;
    }
    for (uint32_t r = 0; r < nranks; r++)
        c->vectors[r * (size_t)nranks + r] = 1;
    *clocks_out = c;
    return CHOIR_OK;
}

/* --- vectors ------------------------------------------------------------------------------------ */

static uint32_t *vector(const struct ch_clocks *c, uint32_t rank)
{
    return c->vectors + rank * (size_t)c->nranks;
}

const uint32_t *ch_clock_vector(const struct ch_clocks *c, uint32_t rank)
{
    return vector(c, rank);
}

uint32_t ch_clock_now(const struct ch_clocks *c, uint32_t rank)
{
    return vector(c, rank)[rank];
}

static void join(uint32_t *into, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        into[i] = into[i] > from[i] ? into[i] : from[i];
}

static void release(struct ch_clocks *c, uint32_t rank)
{
    vector(c, rank)[rank]++;
}

/* --- flags -------------------------------------------------------------------------------------- */

choir_status ch_clock_post(struct ch_clocks *c, uint32_t rank, uint32_t round, uint32_t nth)
{
    uint32_t *copy = ch_alloc_array(c->nranks, sizeof(*copy));

    if (copy == NULL)
        return no_memory();
    memcpy(copy, vector(c, rank), c->nranks * sizeof(*copy));
    c->rounds[round].ranks[rank].posts[nth] = copy;
    release(c, rank);
    return CHOIR_OK;
}

enum ch_awaited ch_clock_await(struct ch_clocks *c, uint32_t rank, uint32_t round, uint32_t peer,
                               uint32_t flag)
{
    const struct footprint *f = &c->rounds[round].ranks[peer];

    for (uint32_t i = 0; i < f->nposts; i++) {
        if (f->flags[i] != flag)
            continue;
        if (f->posts[i] == NULL)
            return CH_AWAITED_NOT_YET;
        join(vector(c, rank), f->posts[i], c->nranks);
        return CH_AWAITED;
    }
    return CH_AWAITED_NEVER;
}

/* --- rounds ------------------------------------------------------------------------------------- */

void ch_clock_enter(struct ch_clocks *c, uint32_t rank, uint32_t round)
{
    c->rounds[round].ranks[rank].entered = ch_clock_now(c, rank);
}

choir_status ch_clock_leave(struct ch_clocks *c, uint32_t rank, uint32_t round)
{
    struct round *r = &c->rounds[round];

    if (r->end == NULL) {
        r->end = ch_zalloc_array(c->nranks, sizeof(*r->end));
        if (r->end == NULL)
            return no_memory();
    }
    join(r->end, vector(c, rank), c->nranks);
    r->ranks[rank].through = true;
    r->nthrough++;
    release(c, rank);
    return CHOIR_OK;
}

bool ch_clock_gate(struct ch_clocks *c, uint32_t rank, uint32_t round, uint32_t back)
{
    const struct round *r;

    if (round < back)
        return true;
    r = &c->rounds[round - back];
    if (r->nthrough < c->nranks)
        return false;
    join(vector(c, rank), r->end, c->nranks);
    return true;
}

uint32_t ch_clock_first_inside(const struct ch_clocks *c, uint32_t round)
{
    uint32_t r = 0;

    while (r < c->nranks && c->rounds[round].ranks[r].through)
        r++;
    return r;
}

bool ch_clock_knows_entry(const struct ch_clocks *c, uint32_t rank, uint32_t other, uint32_t round)
{
    uint32_t entered = c->rounds[round].ranks[other].entered;

    return entered != 0 && vector(c, rank)[other] >= entered;
}

/* --- messages ----------------------------------------------------------------------------------- */

void ch_clock_send(struct ch_clocks *c, uint32_t from)
{
    memcpy(c->sent + from * (size_t)c->nranks, vector(c, from), c->nranks * sizeof(*c->sent));
    release(c, from);
}

void ch_clock_deliver(struct ch_clocks *c, uint32_t from, uint32_t to)
{
    join(c->received + to * (size_t)c->nranks, c->sent + from * (size_t)c->nranks, c->nranks);
}

void ch_clock_received(struct ch_clocks *c, uint32_t rank)
{
    uint32_t *received = c->received + rank * (size_t)c->nranks;

    join(vector(c, rank), received, c->nranks);
    memset(received, 0, c->nranks * sizeof(*received));
}
