/*
 * place.c - see place.h.
 */
#include "engine/place.h"

#include "kernel/kernel.h"

enum {
    LINE = 64,
    /* Windows at least this long have shares of whole cache lines, so that two ranks never write to one. */
    LONG_WINDOW = 4096,
    /* Of schedules that need no stage: what a rank may have in scratch for all others together. */
    MESSAGE_WINDOWS = 4 * 1024 * 1024,
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

    if (CH_LIKELY(!run->uneven))
        return run->longest;
    if (find_block(&op->in, block, &index))
        return count_of(&op->in, index);
    if (find_block(&op->out, block, &index))
        return count_of(&op->out, index);
    return run->longest;
}

static size_t window_of(const struct ch_run *run, uint32_t block)
{
    size_t length = block_length(run, block);
    size_t left = length > run->offset ? length - run->offset : 0;

    return left < run->window ? left : run->window;
}

/* Where share `i` of `k` begins. It depends on i/k alone, so equal fractions are equal places. */
static size_t share_start(size_t window, size_t size, uint32_t i, uint32_t k)
{
    size_t grain = window * size >= LONG_WINDOW ? LINE / size : 1;

    if (i == k)
        return window;
    return window / grain * i / k * grain;
}

/* --- addresses ------------------------------------------------------------------------------------- */

static char *caller_memory(const struct ch_blocks *blocks, uint32_t block, size_t size)
{
    uint32_t index;

    if (!find_block(blocks, block, &index))
        return NULL;
    if (blocks->pieces != NULL)
        return blocks->pieces[index].data;
    return blocks->base + index * blocks->count * size;
}

static char *region_start(const struct ch_channel *channel, const struct ch_run *run,
                          const struct ch_range *r)
{
    const struct ch_member *member = &channel->members[r->rank];
    size_t half = run->round % 2;

    switch ((enum ch_region)r->region) {
    case CH_IN:
        return caller_memory(&run->op->in, r->block, run->size) + run->offset * run->size;
    case CH_OUT:
        return caller_memory(&run->op->out, r->block, run->size) + run->offset * run->size;
    case CH_SCRATCH:
        return channel->scratch + r->slot * run->scratch_slot;
    case CH_STAGE:
        return member->stage + half * channel->stage_half + r->slot * run->stage_slot;
    case CH_LINE:
        return (char *)member->control->units[half].line + r->slot * run->line_slot;
    case CH_NREGIONS:
        break;
    }
    return NULL;
}

size_t ch_place_size(const struct ch_run *run, const struct ch_range *range)
{
    return range->region == CH_SCRATCH ? run->acc_size : run->size;
}

struct ch_place ch_place_of(const struct ch_channel *channel, const struct ch_run *run,
                            const struct ch_range *range)
{
    size_t window = window_of(run, range->block), first = 0, end = window;

    if (range->nshares > 1) {
        first = share_start(window, run->size, range->share, range->nshares);
        end = share_start(window, run->size, range->share + 1, range->nshares);
    }
    if (first == end)
        return (struct ch_place){ .at = NULL, .count = 0 };
    return (struct ch_place){ .at = region_start(channel, run, range) +
                                    first * ch_place_size(run, range),
                              .count = end - first };
}

/* --- planning ------------------------------------------------------------------------------------- */

/* Whole cache lines if there is one. */
static size_t whole_lines(size_t nbytes)
{
    return nbytes >= LINE ? nbytes / LINE * LINE : nbytes;
}

bool ch_place_plan(const struct ch_channel *channel, struct ch_run *run)
{
    const struct ch_sched *s = run->sched;
    size_t nbytes = MESSAGE_WINDOWS / channel->nranks;

    if (s->line_slots > 0) {
        run->window = run->longest;
        run->line_slot = run->longest * run->size;
        return run->longest == 0 || s->line_slots <= CH_LINE_NBYTES / run->line_slot;
    }
    if (s->stage_slots > 0)
        nbytes = channel->stage_half / s->stage_slots;
    run->window = whole_lines(nbytes) / run->size;
    run->stage_slot = whole_lines(nbytes);
    if (run->window == 0)
        return false;
    if (run->longest < run->window)
        run->window = run->longest;
    run->scratch_slot = (run->window * run->acc_size + LINE - 1) / LINE * LINE;
    return true;
}
