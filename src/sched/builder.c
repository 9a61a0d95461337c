/*
 * builder.c - steps are appended one by one; the end checks them and packs them into one block.
 *
 * The first failure is kept and told at the end. Everything after it is dropped, so that an algorithm
 * that goes on does no harm.
 */
#include "sched/builder.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sched/blocks.h"
#include "sched/valid.h"

/* What an append may do next. */
enum open_step { NO_RANGES, RANGES, SENDRECV_RANGES, SENDRECV_TARGETS };

struct ch_builder {
    struct ch_sched sched; /* steps and ranges grow here */
    uint32_t steps_room, ranges_room;
    enum open_step open;
    choir_error failure; /* code CHOIR_OK: none yet */
    bool tallies;
    double widening;             /* of a tally, of ranges of SCRATCH */
    struct ch_tally_step *tally; /* as much room as for steps */
    uint32_t tally_room;
};

choir_status ch_builder_begin(enum ch_coll coll, const char *algo, uint32_t rank, uint32_t nranks,
                              uint32_t root, bool in_place, struct ch_builder **builder_out)
{
    struct ch_builder *b = ch_zalloc(sizeof(*b));

    if (b == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "schedule %s %s: no memory to build it", ch_coll_name(coll),
                       algo);
    b->sched.coll = coll;
    b->sched.algo = algo;
    b->sched.rank = rank;
    b->sched.nranks = nranks;
    b->sched.root = root;
    b->sched.in_place = in_place;
    if (ch_sched_validate_head(&b->sched) != CHOIR_OK)
        ch_error_save(&b->failure);
    *builder_out = b;
    return CHOIR_OK;
}

void ch_builder_drop(struct ch_builder *b)
{
    if (b == NULL)
        return;
    ch_free(b->sched.steps);
    ch_free(b->sched.ranges);
    ch_free(b->tally);
    ch_free(b);
}

choir_status ch_builder_begin_tally(enum ch_coll coll, const char *algo, uint32_t rank,
                                    uint32_t nranks, uint32_t root, uint32_t widening,
                                    struct ch_builder **builder_out)
{
    choir_status rc = ch_builder_begin(coll, algo, rank, nranks, root, false, builder_out);

    if (rc == CHOIR_OK) {
        (*builder_out)->tallies = true;
        (*builder_out)->widening = ch_coll_reduces(coll) ? widening : 1;
    }
    return rc;
}

/* --- appending ---------------------------------------------------------------------------------- */

static bool failed(const struct ch_builder *b)
{
    return b->failure.code != CHOIR_OK;
}

static void remember(struct ch_builder *b)
{
    ch_error_prefix("step %u: ", b->sched.nsteps);
    ch_error_save(&b->failure);
}

/* Make room for one more of *room elements, up to `most`. */
static bool grow(struct ch_builder *b, void **array, uint32_t *room, uint32_t used, size_t size,
                 uint32_t most)
{
    uint32_t next = *room == 0 ? 16 : *room * 2;
    void *p;

    if (used < *room)
        return true;
    if (used >= most) {
        ch_fail(CHOIR_ERR_INVALID, "more than %u of them", most);
        remember(b);
        return false;
    }
    p = ch_regrow(*array, next, size);
    if (p == NULL) {
        ch_fail(CHOIR_ERR_NOMEM, "no memory for %u of them", next);
        remember(b);
        return false;
    }
    *array = p;
    *room = next;
    return true;
}

/* The last step's place in the tally. */
static struct ch_tally_step *tally_step(struct ch_builder *b)
{
    uint32_t last = b->sched.nsteps - 1;
    void *tally = b->tally;

    if (!grow(b, &tally, &b->tally_room, last, sizeof(*b->tally), CH_SCHED_STEPS_MAX))
        return NULL;
    b->tally = tally;
    return &b->tally[last];
}

static void add_to_tally(struct ch_builder *b, const struct ch_range *range)
{
    struct ch_tally_step *t = &b->tally[b->sched.nsteps - 1];
    double amount = (range->region == CH_SCRATCH ? b->widening : 1) / range->nshares;
    bool comes = b->open == SENDRECV_TARGETS || t->kind == CH_RECV;

    *(comes ? &t->in : &t->out) += amount;
}

static struct ch_step *append(struct ch_builder *b, enum ch_step_kind kind, enum open_step open)
{
    struct ch_sched *s = &b->sched;
    void *steps = s->steps;
    struct ch_step *st;

    if (failed(b) ||
        !grow(b, &steps, &b->steps_room, s->nsteps, sizeof(*s->steps), CH_SCHED_STEPS_MAX))
        return NULL;
    s->steps = steps;
    st = &s->steps[s->nsteps++];
    *st = (struct ch_step){ .kind = (uint8_t)kind, .first_range = s->nranges };
    b->open = open;
    if (b->tallies) {
        struct ch_tally_step *t = tally_step(b);

        if (t == NULL)
            return NULL;
        *t = (struct ch_tally_step){ .kind = (uint8_t)kind };
    }
    return st;
}

static void add_range(struct ch_builder *b, struct ch_range range)
{
    struct ch_sched *s = &b->sched;
    void *ranges = s->ranges;

    if (!failed(b) && b->tallies) {
        add_to_tally(b, &range);
        return;
    }
    if (failed(b) ||
        !grow(b, &ranges, &b->ranges_room, s->nranges, sizeof(*s->ranges), CH_SCHED_RANGES_MAX))
        return;
    s->ranges = ranges;
    s->ranges[s->nranges++] = range;
    s->steps[s->nsteps - 1].nranges++;
    /* Scratch is the rank's own business: nobody else has to agree on how much there is. */
    if (range.region == CH_SCRATCH && range.slot >= s->scratch_slots)
        s->scratch_slots = range.slot + 1u;
}

static void append_with(struct ch_builder *b, enum ch_step_kind kind, enum open_step open,
                        const struct ch_range *first, const struct ch_range *second)
{
    if (append(b, kind, open) == NULL)
        return;
    add_range(b, *first);
    if (second != NULL)
        add_range(b, *second);
}

static void append_peer(struct ch_builder *b, enum ch_step_kind kind, enum open_step open,
                        uint32_t peer, uint32_t flag)
{
    struct ch_step *st = append(b, kind, open);

    if (st != NULL) {
        st->peer = peer;
        st->flag = flag;
    }
}

void ch_build_copy(struct ch_builder *b, struct ch_range dst, struct ch_range src)
{
    append_with(b, CH_COPY, NO_RANGES, &dst, &src);
}

void ch_build_finish(struct ch_builder *b, struct ch_range dst, struct ch_range src)
{
    append_with(b, CH_FINISH, NO_RANGES, &dst, &src);
}

void ch_build_reduce(struct ch_builder *b, struct ch_range dst)
{
    append_with(b, CH_REDUCE_ALL, RANGES, &dst, NULL);
}

void ch_build_combine(struct ch_builder *b, struct ch_range dst)
{
    append_with(b, CH_COMBINE, RANGES, &dst, NULL);
}

void ch_build_post(struct ch_builder *b, uint32_t flag)
{
    append_peer(b, CH_POST, NO_RANGES, 0, flag);
}

void ch_build_await(struct ch_builder *b, uint32_t peer, uint32_t flag)
{
    append_peer(b, CH_AWAIT, NO_RANGES, peer, flag);
}

void ch_build_await_all(struct ch_builder *b, uint32_t flag)
{
    /* From the next rank on, so that not all look at rank 0's line at once. */
    for (uint32_t i = 1; i < b->sched.nranks; i++)
        ch_build_await(b, (b->sched.rank + i) % b->sched.nranks, flag);
}

void ch_build_gate(struct ch_builder *b)
{
    append_peer(b, CH_GATE, NO_RANGES, 0, 0);
}

void ch_build_send(struct ch_builder *b, uint32_t peer)
{
    append_peer(b, CH_SEND, RANGES, peer, 0);
}

void ch_build_recv(struct ch_builder *b, uint32_t peer)
{
    append_peer(b, CH_RECV, RANGES, peer, 0);
}

void ch_build_sendrecv(struct ch_builder *b, uint32_t to, uint32_t from)
{
    append_peer(b, CH_SENDRECV, SENDRECV_RANGES, to, from);
}

void ch_build_sendrecv_to(struct ch_builder *b)
{
    if (failed(b))
        return;
    if (b->open != SENDRECV_RANGES) {
        ch_fail(CHOIR_ERR_INVALID, "where to receive to, without a sendrecv before it");
        remember(b);
        return;
    }
    b->open = SENDRECV_TARGETS;
}

void ch_build_range(struct ch_builder *b, struct ch_range range)
{
    if (failed(b))
        return;
    if (b->open == NO_RANGES) {
        ch_fail(CHOIR_ERR_INVALID, "a range, without a step before it that takes more of them");
        remember(b);
        return;
    }
    add_range(b, range);
    if (!failed(b) && b->open == SENDRECV_RANGES)
        b->sched.steps[b->sched.nsteps - 1].nsrcs++;
}

/* --- the end ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct ch_sched) % _Alignof(struct ch_step) == 0,
               "steps follow the schedule");
_Static_assert(sizeof(struct ch_step) % _Alignof(struct ch_range) == 0, "ranges follow the steps");

/* One block: schedule, steps, ranges, name. What the engine walks through lies together. */
static struct ch_sched *pack(const struct ch_sched *from)
{
    size_t steps = from->nsteps * sizeof(*from->steps);
    size_t ranges = from->nranges * sizeof(*from->ranges);
    size_t name = strlen(from->algo) + 1;
    char *block = ch_alloc(sizeof(*from) + steps + ranges + name);
    struct ch_sched *s = (void *)block;

    if (block == NULL)
        return NULL;
    *s = *from;
    block += sizeof(*s);
    s->steps = (void *)block;
    s->ranges = (void *)(block + steps);
    s->algo = block + steps + ranges;
    if (steps > 0)
        memcpy(block, from->steps, steps);
    if (ranges > 0)
        memcpy(block + steps, from->ranges, ranges);
    memcpy(block + steps + ranges, from->algo, name);
    return s;
}

void ch_builder_promise(struct ch_builder *b, uint32_t nflags, uint32_t stage_slots,
                        uint32_t line_slots)
{
    b->sched.nflags = nflags;
    b->sched.stage_slots = stage_slots;
    b->sched.line_slots = line_slots;
}

choir_status ch_builder_validate_last(const struct ch_builder *b)
{
    choir_status rc;

    if (failed(b))
        return ch_error_load(&b->failure);
    rc = ch_sched_validate_head(&b->sched);
    if (rc == CHOIR_OK && b->sched.nsteps > 0)
        rc = ch_sched_validate_step(&b->sched, b->sched.nsteps - 1);
    return rc;
}

static choir_status finish(struct ch_builder *b, struct ch_sched **sched_out)
{
    choir_status rc;

    if (failed(b))
        return ch_error_load(&b->failure);
    rc = ch_sched_validate(&b->sched);
    if (rc != CHOIR_OK)
        return rc;
    *sched_out = pack(&b->sched);
    if (*sched_out == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %u steps", b->sched.nsteps);
    return CHOIR_OK;
}

choir_status ch_builder_end(struct ch_builder *b, uint32_t nflags, uint32_t stage_slots,
                            uint32_t line_slots, struct ch_sched **sched_out)
{
    struct ch_sched *sched = NULL;
    choir_status rc;

    ch_builder_promise(b, nflags, stage_slots, line_slots);
    rc = finish(b, &sched);
    if (rc != CHOIR_OK)
        ch_error_prefix("schedule %s %s rank %u of %u: ", ch_coll_name(b->sched.coll),
                        b->sched.algo, b->sched.rank, b->sched.nranks);
    else
        *sched_out = sched;
    ch_builder_drop(b);
    return rc;
}

choir_status ch_builder_end_tally(struct ch_builder *b, struct ch_tally *tally_out)
{
    choir_status rc = failed(b) ? ch_error_load(&b->failure) : CHOIR_OK;

    for (uint32_t i = 0; rc == CHOIR_OK && i < b->sched.nsteps; i++) {
        b->tally[i].peer = b->sched.steps[i].peer;
        b->tally[i].flag = b->sched.steps[i].flag;
    }
    if (rc == CHOIR_OK) {
        *tally_out = (struct ch_tally){ b->sched.nsteps, b->tally };
        b->tally = NULL;
    }
    ch_builder_drop(b);
    return rc;
}

void ch_sched_destroy(struct ch_sched *sched)
{
    ch_free(sched); /* one block, see pack() */
}
