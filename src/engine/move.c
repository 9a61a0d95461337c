/*
 * move.c - see move.h. The kernels do the work (kernel/kernel.h); here is which, with what.
 */
#include "engine/move.h"

#include "base/error.h"
#include "base/mem.h"
#include "engine/describe.h"
#include "engine/place.h"
#include "kernel/kernel.h"
#include "sched/blocks.h"

/* --- room ------------------------------------------------------------------------------------------ */

static choir_status grow_tables(struct ch_channel *channel, size_t count)
{
    struct iovec *iov;
    void **places;

    if (count <= channel->nplaces)
        return CHOIR_OK;
    iov = ch_regrow(channel->iov, count, sizeof(*iov));
    if (iov != NULL)
        channel->iov = iov;
    places = ch_regrow(channel->places, count, sizeof(*places));
    if (places != NULL)
        channel->places = places;
    if (iov == NULL || places == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for a step of %zu ranges",
                       channel->name, count);
    channel->nplaces = count;
    return CHOIR_OK;
}

static choir_status grow_scratch(struct ch_channel *channel, size_t nbytes)
{
    char *scratch;

    if (nbytes <= channel->scratch_nbytes)
        return CHOIR_OK;
    scratch = ch_zalloc_aligned(CH_CACHE_UNIT, nbytes);
    if (scratch == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for %zu bytes of scratch",
                       channel->name, nbytes);
    ch_free(channel->scratch);
    channel->scratch = scratch;
    channel->scratch_nbytes = nbytes;
    return CHOIR_OK;
}

/* Only its owner writes to a stage, and nobody reads what was not written: so its pages are there in time. */
static choir_status make_stage(struct ch_channel *channel)
{
    choir_status rc = ch_seg_fill(channel->rank->link.self.seg, channel->lot.stage_at,
                                  channel->lot.stage_nbytes);

    channel->has_stage = rc == CHOIR_OK;
    return rc;
}

choir_status ch_move_make_room(struct ch_channel *channel, const struct ch_plan *plan)
{
    /* No step has more ranges than the schedule. */
    choir_status rc = grow_tables(channel, plan->sched->nranges);

    if (rc == CHOIR_OK && plan->sched->stage_slots > 0 && CH_UNLIKELY(!channel->has_stage))
        rc = make_stage(channel);
    if (rc == CHOIR_OK)
        rc = grow_scratch(channel, plan->sched->scratch_slots * plan->scratch_slot);
    return rc;
}

/* --- copies ---------------------------------------------------------------------------------------- */

static const struct ch_range *ranges_of(const struct ch_run *run, const struct ch_step *step)
{
    return &run->plan->sched->ranges[step->first_range];
}

static bool is_widened(const struct ch_run *run, const struct ch_range *range)
{
    return range->region == CH_SCRATCH && run->plan->acc != run->op->dtype;
}

static float *floats(char *p)
{
    return (float *)(void *)p; /* scratch slots are whole cache lines, accumulators float */
}

/* A contribution on its way into partial sums, in which it could not be told from the others any more. */
static bool is_scaled_here(const struct ch_run *run, const struct ch_range *dst,
                           const struct ch_range *src)
{
    return dst->region == CH_SCRATCH && src->region == CH_IN && run->op->reduces &&
           run->op->redop == CHOIR_PREMUL_SUM;
}

static void scale(const struct ch_run *run, struct ch_place acc)
{
    struct ch_reduction r = { .type = run->plan->acc,
                              .op = CHOIR_PREMUL_SUM,
                              .factors = &run->op->factor };
    const void *src = acc.at;
    void *dst = acc.at;

    ch_reduce(&r, &dst, 1, &src, 1, acc.count);
}

/* Who is near and who is far differs from member to member, and a share or block in a stage is for the member of its
 * number (an all-to-all counts its blocks from one member to all, then from the next). The only block, in one piece, is for all:
 * that is known by itself; and our own block, of an all-gather, by our own number, which is nobody's else. */
static struct ch_copy_ways *ways_to_reader(const struct ch_channel *channel,
                                           const struct ch_run *run, const struct ch_range *dst)
{
    uint32_t number = dst->nshares > 1 ? dst->share : dst->block;

    if (dst->nshares <= 1 && ch_coll_nblocks(run->plan->key.coll, channel->nranks) == 1)
        return &channel->to_stage[channel->nranks];
    return &channel->to_stage[number % channel->nranks];
}

static void copy_bytes(struct ch_channel *channel, const struct ch_run *run,
                       const struct ch_range *dst, struct ch_place to, const char *from)
{
    enum { SHORT = 4096 };

    if (dst->region == CH_STAGE)
        ch_copy_over(ways_to_reader(channel, run, dst), to.at, from, to.nbytes);
    else if (dst->region == CH_OUT && run->plan->past_caches && to.nbytes > SHORT)
        ch_copy_nt(to.at, from, to.nbytes);
    else
        ch_copy(to.at, from, to.nbytes);
}

/* Perhaps from or to accumulators, or past the caches. Places are looked up again, so that who copies little keeps them in
 * registers. */
static CH_NOINLINE void copy_specially(struct ch_channel *channel, const struct ch_run *run,
                                       const struct ch_step *step)
{
    struct ch_place to = ch_place_of(channel, run, step->first_range);
    struct ch_place from = ch_place_of(channel, run, step->first_range + 1);
    const struct ch_range *dst = ranges_of(run, step), *src = dst + 1;
    choir_type type = run->op->dtype;

    if (is_widened(run, dst) == is_widened(run, src))
        copy_bytes(channel, run, dst, to, from.at);
    else if (is_widened(run, dst))
        ch_widen(type, floats(to.at), from.at, to.count);
    else
        ch_narrow(type, to.at, floats(from.at), to.count);
    if (CH_UNLIKELY(is_scaled_here(run, dst, src)))
        scale(run, to);
}

void ch_move_copy(struct ch_channel *channel, const struct ch_run *run, const struct ch_step *step)
{
    struct ch_place to = ch_place_of(channel, run, step->first_range);
    struct ch_place from = ch_place_of(channel, run, step->first_range + 1);

    if (to.nbytes == 0 || to.at == from.at)
        return;
    if (CH_UNLIKELY(step == channel->copied)) {
        channel->copied = NULL;
        return;
    }
    if (CH_LIKELY(run->plan->plain && to.nbytes < CH_COPY_OVER_FROM))
        ch_copy(to.at, from.at, to.nbytes);
    else
        copy_specially(channel, run, step);
}

/* --- reductions ------------------------------------------------------------------------------------ */

/* Divided, if it is an average, in the accumulator's type, then rounded once; `from` stays as it is. */
static void narrow_average(const struct ch_run *run, struct ch_place to, const float *from,
                           size_t divisor)
{
    struct ch_reduction r = { .type = CHOIR_F32, .op = CHOIR_AVG, .divisor = divisor };
    enum { PIECE = 256 };
    float piece[PIECE];
    void *dst = piece;

    for (size_t done = 0; done < to.count; done += PIECE) {
        size_t count = to.count - done < PIECE ? to.count - done : PIECE;
        const void *src = from + done;

        ch_reduce(&r, &dst, 1, &src, 1, count);
        ch_narrow(run->op->dtype, to.at + done * run->plan->size, piece, count);
    }
}

void ch_move_finish(struct ch_channel *channel, const struct ch_run *run,
                    const struct ch_step *step)
{
    struct ch_place to = ch_place_of(channel, run, step->first_range);
    struct ch_place from = ch_place_of(channel, run, step->first_range + 1);
    const struct ch_reduction r = { .type = run->op->dtype,
                                    .op = CHOIR_AVG,
                                    .divisor = channel->nranks };
    const void *sum = from.at;
    void *result = to.at;

    if (to.count == 0)
        return;
    if (run->op->redop != CHOIR_AVG)
        ch_move_copy(channel, run, step);
    else if (is_widened(run, ranges_of(run, step) + 1))
        narrow_average(run, to, floats(from.at), channel->nranks);
    else
        ch_reduce(&r, &result, 1, &sum, 1, to.count);
}

static const double *factors(struct ch_channel *channel)
{
    for (uint32_t who = 0; who < channel->nranks; who++)
        channel->factors[who] = ch_call_factor(channel, who);
    return channel->factors;
}

/* A rank that is alone, in place: its values are the result where they are. Not those that would be scaled, and of
 * booleans any value but 0 becomes 1. */
static bool is_there(const struct ch_reduction *r, const void *dst, const void *const *srcs,
                     uint32_t nsrcs)
{
    return nsrcs == 1 && srcs[0] == dst && r->op != CHOIR_PREMUL_SUM && r->type != CHOIR_BOOL &&
           (r->op != CHOIR_AVG || r->divisor == 1);
}

static bool is_same(const struct ch_range *a, const struct ch_range *b)
{
    return a->region == b->region && a->slot == b->slot && a->rank == b->rank &&
           a->block == b->block && a->share == b->share && a->nshares == b->nshares;
}

/* The step that copies what `step` puts into the stage to where it is wanted here; NULL: it does not come next. */
static const struct ch_step *copy_of_result(const struct ch_run *run, const struct ch_step *step)
{
    const struct ch_sched *s = run->plan->sched;
    const struct ch_step *next = step + 1;

    while (next < s->steps + s->nsteps && next->kind == CH_POST)
        next++;
    if (next == s->steps + s->nsteps || next->kind != CH_COPY ||
        ranges_of(run, next)->region != CH_OUT ||
        !is_same(ranges_of(run, step), ranges_of(run, next) + 1))
        return NULL;
    return next;
}

/* Into the stage other than by the kernels' own stores, by pieces that stay in the nearest cache. What would be copied back
 * from there is copied on the way. */
static CH_NOINLINE void reduce_over(struct ch_channel *channel, const struct ch_run *run,
                                    const struct ch_reduction *r, const struct ch_step *step,
                                    struct ch_place to, enum ch_copy_how how)
{
    enum { PIECE = 4096 };
    _Alignas(CH_CACHE_LINE) char piece[PIECE];
    const struct ch_step *copied = copy_of_result(run, step);
    char *out = copied != NULL ? ch_place_of(channel, run, copied->first_range).at : NULL;
    bool at_once = out != NULL && !run->plan->past_caches;
    const size_t size = ch_type_bytes[r->type], most = PIECE / size;
    char **srcs = (char **)channel->places;

    for (size_t done = 0; done < to.count; done += most) {
        size_t count = to.count - done < most ? to.count - done : most;
        void *dst = at_once ? out + done * size : piece;

        ch_reduce(r, &dst, 1, (const void *const *)srcs, step->nranges - 1, count);
        ch_copy_by(how, to.at + done * size, dst, count * size);
        if (out != NULL && !at_once)
            ch_copy_nt(out + done * size, piece, count * size);
        for (uint32_t i = 0; i + 1 < step->nranges; i++)
            srcs[i] += count * size;
    }
    channel->copied = copied;
}

/* What is reduced into the stage is read by all: one who is far is enough. */
static enum ch_copy_how how_into_stage(const struct ch_channel *channel, const struct ch_run *run,
                                       const struct ch_step *step, struct ch_place to)
{
    enum ch_copy_how how = CH_COPY_STORES;

    if (ranges_of(run, step)->region != CH_STAGE)
        return how;
    for (uint32_t reader = 0; reader < channel->nranks; reader++) {
        enum ch_copy_how one = ch_copy_over_how(&channel->to_stage[reader], to.nbytes);

        if (one > how)
            how = one;
    }
    return how;
}

static void reduce(struct ch_channel *channel, const struct ch_run *run,
                   const struct ch_reduction *r, const struct ch_step *step)
{
    struct ch_place to = ch_place_of(channel, run, step->first_range);
    enum ch_copy_how how = CH_COPY_STORES;
    uint32_t nsrcs = step->nranges - 1;
    void *dst = to.at;

    if (to.count == 0)
        return;
    for (uint32_t i = 0; i < nsrcs; i++)
        channel->places[i] = ch_place_of(channel, run, step->first_range + 1 + i).at;
    if (is_there(r, dst, (const void *const *)channel->places, nsrcs))
        return;
    if (to.nbytes >= CH_COPY_OVER_FROM)
        how = how_into_stage(channel, run, step, to);
    if (how != CH_COPY_STORES)
        reduce_over(channel, run, r, step, to, how);
    else
        ch_reduce(r, &dst, 1, (const void *const *)channel->places, nsrcs, to.count);
}

void ch_move_reduce(struct ch_channel *channel, const struct ch_run *run,
                    const struct ch_step *step)
{
    struct ch_reduction r = { .type = run->op->dtype,
                              .op = run->op->redop,
                              .divisor = channel->nranks };

    if (r.op == CHOIR_PREMUL_SUM)
        r.factors = factors(channel);
    reduce(channel, run, &r, step);
}

void ch_move_combine(struct ch_channel *channel, const struct ch_run *run,
                     const struct ch_step *step)
{
    struct ch_reduction r = { .type = run->plan->acc, .op = run->op->redop };

    if (r.op == CHOIR_AVG || r.op == CHOIR_PREMUL_SUM)
        r.op = CHOIR_SUM; /* divided when it is finished; scaled when it came */
    reduce(channel, run, &r, step);
}
