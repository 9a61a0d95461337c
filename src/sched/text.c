/*
 * text.c - a schedule as text. The way back is parse.c; the form is in sched.h.
 */
#include "sched/text.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"

const char *const ch_region_names[CH_NREGIONS] = {
    [CH_IN] = "in",       [CH_OUT] = "out",   [CH_SCRATCH] = "scratch",
    [CH_STAGE] = "stage", [CH_LINE] = "line",
};

const char *const ch_step_names[CH_NSTEPS] = {
    [CH_COPY] = "copy",         [CH_REDUCE_ALL] = "reduce", [CH_COMBINE] = "combine",
    [CH_FINISH] = "finish",     [CH_POST] = "post",         [CH_AWAIT] = "await",
    [CH_GATE] = "gate",         [CH_SEND] = "send",         [CH_RECV] = "recv",
    [CH_SENDRECV] = "sendrecv",
};

/* A page to write on: what does not fit is counted and cut, so that one run measures and one writes. */
struct page {
    char *buf;
    size_t size, used; /* used may pass size */
};

static CH_PRINTF(2, 3) void put(struct page *page, const char *fmt, ...)
{
    size_t room = page->used < page->size ? page->size - page->used : 0;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(room > 0 ? page->buf + page->used : NULL, room, fmt, args);
    va_end(args);
    if (n > 0)
        page->used += (size_t)n;
}

static void put_range(struct page *page, const struct ch_range *r)
{
    put(page, "%s", r->region < CH_NREGIONS ? ch_region_names[r->region] : "nowhere");
    if (r->region == CH_STAGE || r->region == CH_LINE)
        put(page, "[%u]", r->rank);
    if (r->region != CH_IN && r->region != CH_OUT)
        put(page, ".%u", r->slot);
    put(page, " b%u %u/%u", r->block, r->share, r->nshares);
}

static void put_ranges(struct page *page, const struct ch_range *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put(page, i == 0 ? " " : ", ");
        put_range(page, &r[i]);
    }
}

static void put_target_and_sources(struct page *page, const struct ch_range *r, uint32_t n)
{
    put_ranges(page, r, n > 0 ? 1 : 0);
    put(page, " <-");
    if (n > 1)
        put_ranges(page, r + 1, n - 1);
}

static void put_step(struct page *page, const struct ch_sched *s, const struct ch_step *st)
{
    const struct ch_range *r = s->ranges + st->first_range;

    put(page, "%s", st->kind < CH_NSTEPS ? ch_step_names[st->kind] : "unknown");
    switch (st->kind) {
    case CH_COPY:
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
        put_target_and_sources(page, r, st->nranges);
        break;
    case CH_POST:
        put(page, " %u", st->flag);
        break;
    case CH_AWAIT:
        put(page, " %u %u", st->peer, st->flag);
        break;
    case CH_SEND:
    case CH_RECV:
        put(page, " %u:", st->peer);
        put_ranges(page, r, st->nranges);
        break;
    case CH_SENDRECV:
        put(page, " %u:", st->peer);
        put_ranges(page, r, st->nsrcs);
        put(page, "; %u:", st->flag);
        put_ranges(page, r + st->nsrcs, st->nranges - st->nsrcs);
        break;
    default:
        break;
    }
}

static void put_sched(struct page *page, const struct ch_sched *s)
{
    put(page, "schedule %s %s rank %u of %u root %u flags %u stage %u line %u scratch %u%s\n",
        ch_coll_name(s->coll), s->algo, s->rank, s->nranks, s->root, s->nflags, s->stage_slots,
        s->line_slots, s->scratch_slots, s->in_place ? " in-place" : "");
    for (uint32_t i = 0; i < s->nsteps; i++) {
        put_step(page, s, &s->steps[i]);
        put(page, "\n");
    }
}

choir_status ch_sched_print(const struct ch_sched *s, char **text_out)
{
    struct page page = { NULL, 0, 0 };

    put_sched(&page, s);
    page.size = page.used + 1;
    page.used = 0;
    page.buf = ch_alloc(page.size);
    if (page.buf == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "schedule %s %s: no memory for its text of %zu bytes",
                       ch_coll_name(s->coll), s->algo, page.size);
    put_sched(&page, s);
    *text_out = page.buf;
    return CHOIR_OK;
}

const char *ch_step_text(const struct ch_sched *s, uint32_t step, char *buf, size_t size)
{
    struct page page = { buf, size, 0 };

    if (size > 0)
        buf[0] = '\0';
    put_step(&page, s, &s->steps[step]);
    return buf;
}
