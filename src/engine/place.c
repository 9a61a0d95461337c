/*
 * place.c - see place.h.
 */
#include "engine/place.h"

#include "kernel/kernel.h"

enum {
    /* Windows at least this long have shares of whole cache lines, so that two ranks never write to one. */
    LONG_WINDOW = 4096,
    /* Of schedules that need no stage: what a rank may have in scratch for all others together. */
    MESSAGE_WINDOWS = 4 * 1024 * 1024,
    /* Of a broadcast, where every rank has a processor. */
    BROADCAST_WINDOW = 128 * 1024,
    /* What is shorter stays where it is. */
    TURNS_FROM = 4096,
    /* Of each half of the stage, for all turns and slots together. */
    TURNS_NBYTES = 256 * 1024,
};

/* --- lengths --------------------------------------------------------------------------------------- */

static bool find_block(const struct ch_blocks *blocks, uint32_t block, uint32_t *index_out)
{
    uint32_t from_first = block - blocks->first; /* wraps if it is before: then it is too large */

    if (blocks->nblocks == 0 || block < blocks->first)
        return false;
    *index_out = blocks->step > 1 ? from_first / blocks->step : from_first;
    return *index_out < blocks->nblocks && (blocks->step <= 1 || from_first % blocks->step == 0);
}

static size_t count_of(const struct ch_blocks *blocks, uint32_t index)
{
    return blocks->pieces != NULL ? blocks->pieces[index].count : blocks->count;
}

/* Of a block that this rank moves: where lengths differ it has it in IN or OUT. */
static size_t block_length(const struct ch_run *run, uint32_t block)
{
    const struct ch_op *op = run->op;
    uint32_t index;

    if (CH_LIKELY(!run->plan->key.uneven))
        return run->plan->key.longest;
    if (find_block(&op->in, block, &index))
        return count_of(&op->in, index);
    if (find_block(&op->out, block, &index))
        return count_of(&op->out, index);
    return run->plan->key.longest;
}

static size_t window_of(const struct ch_run *run, uint32_t block)
{
    size_t length = block_length(run, block);
    size_t left = length > run->offset ? length - run->offset : 0;

    return left < run->plan->window ? left : run->plan->window;
}

/* Where share `i` of `k` begins. It depends on i/k alone, so equal fractions are equal places. */
static size_t share_start(size_t window, size_t size, uint32_t i, uint32_t k)
{
    size_t grain = window * size >= LONG_WINDOW ? CH_CACHE_LINE / size : 1;

    if (i == k)
        return window;
    return window / grain * i / k * grain;
}

/* The elements of a range in a window. */
struct extent {
    size_t first, count;
};

static struct extent extent_of(const struct ch_plan *plan, const struct ch_range *range,
                               size_t window)
{
    size_t first, end;

    if (range->nshares <= 1)
        return (struct extent){ 0, window };
    first = share_start(window, plan->size, range->share, range->nshares);
    end = share_start(window, plan->size, range->share + 1, range->nshares);
    return (struct extent){ first, end - first };
}

static size_t element_size(const struct ch_plan *plan, const struct ch_range *range)
{
    return range->region == CH_SCRATCH ? plan->acc_size : plan->size;
}

/* --- addresses ------------------------------------------------------------------------------------- */

static char *caller_memory(const struct ch_blocks *blocks, uint32_t block, size_t size)
{
    uint32_t index;

    return find_block(blocks, block, &index) ? ch_piece_start(blocks, index, size) : NULL;
}

static bool is_by_pair(const struct ch_plan *plan)
{
    return plan->key.coll == CH_GATHER || plan->key.coll == CH_SCATTER;
}

/* Blocks that differ go by a schedule that stages: but where the other rank may take them to be all alike, one that
 * then would be in LINE is. */
static bool is_in_line(const struct ch_run *run, uint32_t block)
{
    const struct ch_plan *plan = run->plan;

    return plan->key.uneven && is_by_pair(plan) &&
           block_length(run, block) * plan->size <= CH_LINE_NBYTES / plan->sched->stage_slots;
}

static size_t line_slot(const struct ch_plan *plan, uint32_t nslots)
{
    return is_by_pair(plan) ? CH_LINE_NBYTES / nslots : plan->key.longest * plan->size;
}

static char *in_line(const struct ch_member *member, size_t half, size_t offset)
{
    return (char *)member->control->units[half].line + offset;
}

static char *region_start(const struct ch_channel *channel, const struct ch_run *run,
                          const struct ch_range *r)
{
    const struct ch_member *member = &channel->members[r->rank];
    const struct ch_plan *plan = run->plan;
    size_t half = run->round % 2;

    switch ((enum ch_region)r->region) {
    case CH_IN:
        return caller_memory(&run->op->in, r->block, plan->size) + run->offset * plan->size;
    case CH_OUT:
        return caller_memory(&run->op->out, r->block, plan->size) + run->offset * plan->size;
    case CH_SCRATCH:
        return channel->scratch + r->slot * plan->scratch_slot;
    case CH_STAGE:
        if (CH_UNLIKELY(is_in_line(run, r->block)))
            return in_line(member, half, r->slot * line_slot(plan, plan->sched->stage_slots));
        return member->stage + half * channel->stage_half + r->slot * plan->stage_slot +
               run->turn_at;
    case CH_LINE:
        return in_line(member, half, r->slot * plan->line_slot);
    case CH_NREGIONS:
        break;
    }
    return NULL;
}

/* --- laid out beforehand --------------------------------------------------------------------------- */

struct ch_spot ch_place_spot(const struct ch_channel *channel, const struct ch_plan *plan,
                             const struct ch_op *op, const struct ch_range *range)
{
    struct ch_run even = { .op = op, .plan = plan }, odd = { .op = op, .plan = plan, .round = 1 };
    struct extent extent = extent_of(plan, range, plan->key.longest);
    struct ch_spot spot = { .region = range->region,
                            .offset = extent.first * element_size(plan, range),
                            .count = extent.count,
                            .nbytes = extent.count * element_size(plan, range) };

    switch ((enum ch_region)range->region) {
    case CH_IN:
        (void)find_block(&op->in, range->block, &spot.index);
        break;
    case CH_OUT:
        (void)find_block(&op->out, range->block, &spot.index);
        break;
    case CH_SCRATCH:
        spot.offset += range->slot * plan->scratch_slot;
        break;
    case CH_STAGE:
    case CH_LINE:
        spot.at = region_start(channel, &even, range);
        spot.stride = (size_t)(region_start(channel, &odd, range) - spot.at);
        break;
    case CH_NREGIONS:
        break;
    }
    return spot;
}

struct ch_place ch_place_in_round(const struct ch_channel *channel, const struct ch_run *run,
                                  uint32_t number)
{
    const struct ch_plan *plan = run->plan;
    const struct ch_range *range = &plan->sched->ranges[number];
    struct extent extent = extent_of(plan, range, window_of(run, range->block));

    if (extent.count == 0)
        return (struct ch_place){ .at = NULL, .count = 0 };
    return (struct ch_place){ .at = region_start(channel, run, range) +
                                    extent.first * element_size(plan, range),
                              .count = extent.count,
                              .nbytes = extent.count * element_size(plan, range) };
}

/* --- planning ------------------------------------------------------------------------------------- */

/* Whole cache lines if there is one. */
static size_t whole_lines(size_t nbytes)
{
    return nbytes >= CH_CACHE_LINE ? nbytes / CH_CACHE_LINE * CH_CACHE_LINE : nbytes;
}

/* The ranks of a gather or scatter may know different lengths: there a slot is used from its beginning. */
static void plan_turns(struct ch_plan *plan)
{
    size_t nbytes = plan->window * plan->size, turns = 1;

    plan->turn_nbytes = (nbytes + CH_CACHE_UNIT - 1) / CH_CACHE_UNIT * CH_CACHE_UNIT;
    if (nbytes >= TURNS_FROM && !is_by_pair(plan)) {
        while (2 * turns * plan->turn_nbytes <= plan->stage_slot &&
               2 * turns * plan->turn_nbytes * plan->sched->stage_slots <= TURNS_NBYTES)
            turns *= 2;
    }
    plan->turn_mask = (uint32_t)(turns - 1);
}

/* The root of a broadcast is up to two rounds ahead of its readers: with short windows they work at the same time, where
 * each has a processor. Elsewhere a round may be a turn of the processor. */
static size_t window_nbytes(const struct ch_channel *channel, const struct ch_plan *plan)
{
    bool overlaps = plan->key.coll == CH_BROADCAST && plan->sched->stage_slots > 0 &&
                    channel->nranks <= channel->rank->processors;

    return overlaps && plan->stage_slot > BROADCAST_WINDOW ? BROADCAST_WINDOW : plan->stage_slot;
}

bool ch_place_plan(const struct ch_channel *channel, struct ch_plan *plan)
{
    const struct ch_sched *s = plan->sched;
    size_t nbytes = MESSAGE_WINDOWS / channel->nranks, block = plan->key.longest * plan->size;

    if (s->line_slots > 0) {
        plan->window = plan->key.longest;
        plan->line_slot = line_slot(plan, s->line_slots);
        plan->line_goes_on = offsetof(struct ch_unit, line) +
                                 (s->line_slots - 1) * plan->line_slot + block >
                             CH_CACHE_LINE;
        return block == 0 || s->line_slots <= CH_LINE_NBYTES / block;
    }
    if (s->stage_slots > 0)
        nbytes = channel->stage_half / s->stage_slots;
    plan->stage_slot = whole_lines(nbytes);
    plan->window = window_nbytes(channel, plan) / plan->size;
    if (plan->window == 0)
        return false;
    if (plan->key.longest < plan->window)
        plan->window = plan->key.longest;
    plan_turns(plan);
    plan->scratch_slot = (plan->window * plan->acc_size + CH_CACHE_LINE - 1) / CH_CACHE_LINE *
                         CH_CACHE_LINE;
    return true;
}
