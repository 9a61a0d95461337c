/* placing.c - memory for the buffers of a call, and what must be in it afterwards. */
#include "placing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 80, ALIGNMENTS = 64 };

static unsigned char canary(size_t i)
{
    return (unsigned char)(0xc5 ^ (i * 7));
}

/* --- where ---------------------------------------------------------------------------------------------- */

static size_t element_offset(const struct placed *p, size_t pos, size_t size)
{
    size_t inner;

    if (p->ndim == 0)
        return p->offset + pos * size;
    inner = (size_t)p->sizes[1];
    return p->offset +
           (pos / inner * (size_t)p->strides[0] + pos % inner * (size_t)p->strides[1]) * size;
}

/* Rows with a gap between them, or columns for rows. */
static size_t lay_out(struct placed *p, struct dice *dice, size_t size)
{
    size_t outer = 1 + roll(dice, 6), gap = roll(dice, 3);

    if (p->count == 0 || p->count % outer != 0 || !chance(dice, 20)) {
        p->ndim = 0;
        return p->count * size;
    }
    p->ndim = 2;
    p->sizes[0] = (int64_t)outer;
    p->sizes[1] = (int64_t)(p->count / outer);
    if (chance(dice, 50)) {
        p->strides[0] = p->sizes[1] + (int64_t)gap;
        p->strides[1] = 1;
    } else {
        p->strides[0] = 1;
        p->strides[1] = p->sizes[0] + (int64_t)gap;
    }
    return (size_t)((p->sizes[0] - 1) * p->strides[0] + (p->sizes[1] - 1) * p->strides[1] + 1) *
           size;
}

static void place(struct act *act, struct placed *p, size_t count, bool strided, struct dice *dice)
{
    size_t size = choir_type_size(act->call->type), nbytes;
    struct memory *m = &act->memories[act->nmemories];
    /* Most often as the type asks for; now and then as nothing asks for. */
    size_t shift = chance(dice, 70) ? roll(dice, ALIGNMENTS / size) * size : roll(dice, ALIGNMENTS);

    memset(p, 0, sizeof(*p));
    p->memory = act->nmemories++;
    p->count = count;
    nbytes = strided ? lay_out(p, dice, size) : count * size;
    m->nbytes = nbytes + 2 * CANARY;
    m->block = malloc(m->nbytes + 2 * ALIGNMENTS);
    m->image = malloc(m->nbytes);
    if (m->block == NULL || m->image == NULL)
        abort();
    m->bytes = m->block + (ALIGNMENTS - (uintptr_t)m->block % ALIGNMENTS + shift) % ALIGNMENTS +
               ALIGNMENTS - CANARY % ALIGNMENTS;
    p->offset = CANARY;
    for (size_t i = 0; i < m->nbytes; i++)
        m->image[i] = canary(i);
}

/* The part of `whole` that begins at element `first`. */
static void place_inside(const struct act *act, struct placed *p, const struct placed *whole,
                         size_t first, size_t count)
{
    *p = *whole;
    p->offset += first * choir_type_size(act->call->type);
    p->count = count;
}

static bool always_in_place(enum form form)
{
    return form == BROADCAST || form == ALLREDUCE_COALESCED;
}

static bool may_be_in_place(const struct act *act)
{
    const struct call *c = act->call;

    switch (c->form) {
    case ALLREDUCE:
    case ALLREDUCE_COALESCED:
    case BROADCAST:
    case REDUCE:
    case ALLGATHER:
    case ALLGATHER_INTO:
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_FROM:
        return true;
    case GATHER:
    case SCATTER:
        return act->rank == c->root;
    case ALLTOALL_BASE:
        return naive_in_count(c, act->rank, 0) == naive_out_count(c, act->rank, 0);
    default:
        return false;
    }
}

/* Input and output are the same memory: the whole of it, or the rank's own part. */
static void share_memory(struct act *act, struct dice *dice)
{
    const struct call *c = act->call;
    int r = act->rank;

    switch (c->form) {
    case ALLGATHER:
    case GATHER:
        act->ins[0] = act->outs[r];
        break;
    case ALLGATHER_INTO:
        place_inside(act, &act->ins[0], &act->outs[0], (size_t)r * c->lens[r][0], c->lens[r][0]);
        break;
    case SCATTER:
    case REDUCE_SCATTER:
        act->outs[0] = act->ins[r];
        break;
    case REDUCE_SCATTER_FROM:
        place_inside(act, &act->outs[0], &act->ins[0], (size_t)r * c->lens[r][0], c->lens[r][0]);
        break;
    default:
        for (int i = 0; i < act->nins; i++)
            act->ins[i] = act->outs[i];
        break;
    }
    (void)dice;
}

static void place_all(struct act *act, struct dice *dice)
{
    const struct call *c = act->call;
    bool outs_inside = act->in_place && (c->form == SCATTER || c->form == REDUCE_SCATTER ||
                                         c->form == REDUCE_SCATTER_FROM);
    bool ins_inside = act->in_place && !outs_inside;
    /* A part of a strided array is not one; and opts.input has no strides of its own. */
    bool whole = c->form == ALLGATHER_INTO || c->form == REDUCE_SCATTER_FROM;
    bool strided = act->in_place ? !whole : c->form != ALLREDUCE && c->form != REDUCE;

    for (int i = 0; i < act->nins && !ins_inside; i++)
        place(act, &act->ins[i], naive_in_count(c, act->rank, i), strided, dice);
    for (int i = 0; i < act->nouts && !outs_inside; i++)
        place(act, &act->outs[i], naive_out_count(c, act->rank, i), strided, dice);
    if (act->in_place)
        share_memory(act, dice);
}

/* --- what ------------------------------------------------------------------------------------------------ */

static unsigned char *image_at(const struct act *act, const struct placed *p, size_t pos)
{
    return act->memories[p->memory].image +
           element_offset(p, pos, choir_type_size(act->call->type));
}

static void draw_inputs(struct act *act)
{
    for (int i = 0; i < act->nins; i++) {
        for (size_t pos = 0; pos < act->ins[i].count; pos++)
            naive_element(act->call, act->rank, i, pos, image_at(act, &act->ins[i], pos));
    }
}

static void draw_source(struct act *act, const struct placed *out, size_t at,
                        const struct source *source)
{
    const struct call *c = act->call;
    char elements[RANKS_MAX][16];
    const void *pointers[RANKS_MAX];

    for (size_t pos = 0; pos < source->count; pos++) {
        unsigned char *where = image_at(act, out, at + pos);

        if (!source->reduced) {
            naive_element(c, source->rank, source->in, source->first + pos, where);
            continue;
        }
        for (int r = 0; r < c->nranks; r++) {
            naive_element(c, r, source->in, source->first + pos, elements[r]);
            pointers[r] = elements[r];
        }
        naive_reduce(c, pointers, where);
    }
}

static void draw_outputs(struct act *act)
{
    struct source list[RANKS_MAX];

    for (int o = 0; o < act->nouts; o++) {
        size_t at = 0;

        for (int i = 0, n = naive_sources(act->call, act->rank, o, list); i < n; i++) {
            draw_source(act, &act->outs[o], at, &list[i]);
            at += list[i].count;
        }
    }
}

void act_draw_received(struct act *act)
{
    for (int o = 0; o < act->nouts; o++) {
        int from = act->sources[o];
        struct source source = { false, from, 0, 0, act->outs[o].count };

        if (from >= 0 && from < act->call->nranks)
            draw_source(act, &act->outs[o], 0, &source);
    }
}

/* --- whole ------------------------------------------------------------------------------------------------ */

static choir_buf buf_of(const struct act *act, const struct placed *p)
{
    return (choir_buf){ .data = act->memories[p->memory].bytes + p->offset,
                        .count = p->count,
                        .type = act->call->type,
                        .ndim = p->ndim,
                        .sizes = p->ndim > 0 ? p->sizes : NULL,
                        .strides = p->ndim > 0 ? p->strides : NULL };
}

void act_prepare(struct act *act, const struct call *call, int rank, struct dice *dice)
{
    memset(act, 0, sizeof(*act));
    act->call = call;
    act->rank = rank;
    act->nins = naive_nins(call, rank);
    act->nouts = naive_nouts(call, rank);
    act->in_place = always_in_place(call->form) || (may_be_in_place(act) && chance(dice, 50));
    place_all(act, dice);
    draw_inputs(act);
    for (int i = 0; i < act->nmemories; i++)
        memcpy(act->memories[i].bytes, act->memories[i].image, act->memories[i].nbytes);
    draw_outputs(act);
    for (int i = 0; i < act->nins; i++)
        act->in_bufs[i] = buf_of(act, &act->ins[i]);
    for (int i = 0; i < act->nouts; i++)
        act->out_bufs[i] = buf_of(act, &act->outs[i]);
    for (int i = 0; i < call->nranks; i++) {
        act->in_splits[i] = call->lens[rank][i];
        act->out_splits[i] = call->lens[i][rank];
        act->sources[i] = -1;
    }
}

bool act_check(const struct act *act, const struct scenario *s)
{
    for (int i = 0; i < act->nmemories; i++) {
        const struct memory *m = &act->memories[i];
        size_t at = 0, size = choir_type_size(act->call->type), wrong = 0;

        if (memcmp(m->bytes, m->image, m->nbytes) == 0)
            continue;
        while (m->bytes[at] == m->image[at])
            at++;
        for (size_t b = 0; b < m->nbytes; b++)
            wrong += m->bytes[b] != m->image[b];
        fprintf(stderr,
                "FAILED seed %llu call %d (%s) rank %d of %d: memory %d of %d (%s), %zu bytes in "
                "front of which and behind which are canaries: byte %td (element %td) is 0x%02x, "
                "not 0x%02x; %zu bytes differ\n",
                (unsigned long long)s->seed, (int)(act->call - s->calls),
                form_names[act->call->form], act->rank, act->call->nranks, i, act->nmemories,
                act->in_place ? "in place" : "not in place", m->nbytes - 2 * CANARY,
                (ptrdiff_t)at - CANARY, ((ptrdiff_t)at - CANARY) / (ptrdiff_t)size, m->bytes[at],
                m->image[at], wrong);
        return false;
    }
    return true;
}

void act_free(struct act *act)
{
    for (int i = 0; i < act->nmemories; i++) {
        free(act->memories[i].block);
        free(act->memories[i].image);
    }
    act->nmemories = 0;
}
