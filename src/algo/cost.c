/*
 * cost.c - add up the bytes, messages and waits of a schedule.
 */
#include "algo/cost.h"

#include "sched/blocks.h"

static double nbytes_of(const struct ch_sched *s, const struct ch_range *r,
                        const struct ch_lengths *lengths)
{
    double nbytes = (double)lengths->block_nbytes / r->nshares;

    if (r->region == CH_SCRATCH && ch_coll_reduces(s->coll))
        nbytes *= lengths->widening;
    return nbytes;
}

static double sum(const struct ch_sched *s, const struct ch_step *st, uint32_t nranges,
                  const struct ch_lengths *lengths)
{
    double nbytes = 0;

    for (uint32_t i = 0; i < nranges; i++)
        nbytes += nbytes_of(s, &s->ranges[st->first_range + i], lengths);
    return nbytes;
}

/* Whether an earlier step awaits the same flag: of another rank, so at the same time. */
static bool awaited_before(const struct ch_sched *s, uint32_t step)
{
    for (uint32_t i = 0; i < step; i++) {
        if (s->steps[i].kind == CH_AWAIT && s->steps[i].flag == s->steps[step].flag)
            return true;
    }
    return false;
}

struct ch_cost ch_cost_of(const struct ch_sched *s, const struct ch_lengths *lengths)
{
    struct ch_cost cost = { 0 };

    for (uint32_t i = 0; i < s->nsteps; i++) {
        const struct ch_step *st = &s->steps[i];

        switch ((enum ch_step_kind)st->kind) {
        case CH_COPY:
        case CH_REDUCE_ALL:
        case CH_COMBINE:
        case CH_FINISH:
            cost.moved += sum(s, st, st->nranges, lengths);
            break;
        case CH_AWAIT:
            cost.waits += !awaited_before(s, i);
            break;
        case CH_SEND:
            cost.messages++;
            cost.sent += sum(s, st, st->nranges, lengths);
            break;
        case CH_RECV:
            cost.waits++;
            break;
        case CH_SENDRECV:
            cost.messages++;
            cost.waits++;
            cost.sent += sum(s, st, st->nsrcs, lengths);
            break;
        case CH_POST:
        case CH_GATE:
        case CH_NSTEPS:
            break;
        }
    }
    return cost;
}
