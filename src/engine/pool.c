/*
 * pool.c - see pool.h.
 */
#include "engine/pool.h"

#include "base/assert.h"
#include "base/error.h"

void ch_pool_init(struct ch_pool *pool, const struct ch_layout *layout)
{
    size_t nunits = (layout->nbytes - layout->stage_at) / CH_STAGE_UNIT;

    *pool = (struct ch_pool){ .slots_free = CH_SLOTS, .stage_at = layout->stage_at };
    pool->nunits = nunits < CH_STAGE_UNITS_MOST ? (uint32_t)nunits : CH_STAGE_UNITS_MOST;
    pool->units_free = pool->nunits;
}

/* A power of two: half of what can be spared for the first, a quarter for others; at least one. */
static uint32_t fair_units(const struct ch_pool *pool)
{
    uint32_t kept = pool->slots_free - 1, part = pool->slots_free == CH_SLOTS ? 2 : 4, units = 1;
    uint32_t spare = pool->units_free > kept ? (pool->units_free - kept) / part : 0;

    while (units * 2 <= spare && units * 2 <= CH_STAGE_MOST / CH_STAGE_UNIT)
        units *= 2;
    return units;
}

/* The first run of that many free units, or false. */
static bool find_run(const struct ch_pool *pool, uint32_t units, uint32_t *first_out)
{
    for (uint32_t at = 0, run = 0; at < pool->nunits; at++) {
        run = pool->units[at] ? 0 : run + 1;
        if (run == units) {
            *first_out = at + 1 - units;
            return true;
        }
    }
    return false;
}

static void mark(struct ch_pool *pool, const struct ch_lot *lot, bool taken)
{
    uint32_t first = (uint32_t)((lot->stage_at - pool->stage_at) / CH_STAGE_UNIT);
    uint32_t units = (uint32_t)(lot->stage_nbytes / CH_STAGE_UNIT);

    for (uint32_t u = first; u < first + units; u++) {
        ch_assert(pool->units[u] != taken);
        pool->units[u] = taken;
    }
    pool->units_free += taken ? 0 - units : units;
}

static bool take_stage(struct ch_pool *pool, struct ch_lot *lot)
{
    uint32_t first;

    for (uint32_t units = fair_units(pool); units > 0; units /= 2) {
        if (!find_run(pool, units, &first))
            continue;
        lot->stage_at = pool->stage_at + (size_t)first * CH_STAGE_UNIT;
        lot->stage_nbytes = (size_t)units * CH_STAGE_UNIT;
        mark(pool, lot, true);
        return true;
    }
    return false;
}

choir_status ch_pool_take(struct ch_pool *pool, bool with_stage, struct ch_lot *lot_out)
{
    struct ch_lot lot = { .slot = 0, .stage_at = pool->stage_at };

    while (lot.slot < CH_SLOTS && pool->slots[lot.slot])
        lot.slot++;
    if (lot.slot == CH_SLOTS)
        return ch_fail(
            CHOIR_ERR_NOMEM,
            "no room for another group: %d are there already, or were destroyed here but "
            "not yet by all their ranks",
            CH_SLOTS);
    if (with_stage && !take_stage(pool, &lot))
        return ch_fail(CHOIR_ERR_NOMEM,
                       "no room for another group: all %u KiB for staging are in use by %u others",
                       pool->nunits * (CH_STAGE_UNIT / 1024), CH_SLOTS - pool->slots_free);
    pool->slots[lot.slot] = true;
    pool->slots_free--;
    *lot_out = lot;
    return CHOIR_OK;
}

void ch_pool_give(struct ch_pool *pool, const struct ch_lot *lot)
{
    ch_assert(pool->slots[lot->slot]);
    pool->slots[lot->slot] = false;
    pool->slots_free++;
    mark(pool, lot, false);
}
