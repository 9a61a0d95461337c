/*
 * copy_over.c - see copy_over.h.
 */
#include "kernel/copy_over.h"

#include "base/clock.h"
#include "base/compiler.h"

enum {
    TIMED_IN = 8, /* one copy in so many */
    PATIENCE = 2,
    PATIENCE_MAX = 128,
    /* Faster than this (12.5 GB/s) nothing is in the stores' way that is worth going past the caches; far they take 130 to 250. */
    FAST_PS = 80,
    /* A copy that took longer than was known may have been held up by something else: it counts as this many times that at
     * most. */
    JUMP = 4,
};

/* --- the choice ------------------------------------------------------------------------------------- */

/* Ways that leave the bytes in a cache. Who changes must gain a quarter; who has changed stays until it is no gain. */
static enum ch_copy_how best_in_cache(const struct ch_copy_way *way)
{
    uint64_t stores = way->ps[CH_COPY_STORES], string = way->ps[CH_COPY_STRING];
    bool better = way->how == CH_COPY_STRING ? string < stores : 4 * string < 3 * stores;

    return string != 0 && better ? CH_COPY_STRING : CH_COPY_STORES;
}

/* Past the caches a reader gets the bytes from memory, which its writer does not see: so it must gain much. */
static bool is_better_past(const struct ch_copy_way *way, enum ch_copy_how in_cache)
{
    uint64_t ps = way->ps[in_cache], past = way->ps[CH_COPY_PAST];

    if (ps <= FAST_PS || past == 0)
        return false;
    return way->how == CH_COPY_PAST ? 2 * ps > 3 * past : ps > 2 * past;
}

static enum ch_copy_how best(const struct ch_copy_way *way)
{
    enum ch_copy_how in_cache = best_in_cache(way);

    return is_better_past(way, in_cache) ? CH_COPY_PAST : in_cache;
}

static bool is_worth_trying(const struct ch_copy_way *way, unsigned how, unsigned there)
{
    if (how == way->how || (there & 1u << how) == 0)
        return false;
    return how != CH_COPY_PAST || way->ps[way->how] > FAST_PS;
}

/* Another way, each in its turn; our own if there is none. */
static enum ch_copy_how another(const struct ch_copy_way *way, unsigned there)
{
    for (unsigned i = 1; i <= CH_COPY_HOWS; i++) {
        unsigned how = (way->other + i) % CH_COPY_HOWS;

        if (is_worth_trying(way, how, there))
            return (enum ch_copy_how)how;
    }
    return (enum ch_copy_how)way->how;
}

enum ch_copy_how ch_copy_way_next(struct ch_copy_way *way, unsigned there, bool *timed_out)
{
    enum ch_copy_how how = (enum ch_copy_how)way->how;

    *timed_out = way->turn++ % TIMED_IN == 0;
    if (CH_LIKELY(!*timed_out) || way->ps[how] == 0)
        return how;
    if (way->left > 0) {
        way->left--;
        return how;
    }
    way->left = way->patience;
    how = another(way, there);
    way->other = (uint8_t)how;
    return how;
}

/* --- what was seen ---------------------------------------------------------------------------------- */

/* What disturbs a copy makes it longer: a shorter one is believed at once, a longer one by and by. */
static uint32_t blend(uint32_t known, uint64_t seen)
{
    if (known != 0 && seen > known) {
        if (seen > (uint64_t)known * JUMP)
            seen = (uint64_t)known * JUMP;
        seen = (3 * (uint64_t)known + seen) / 4;
    }
    return seen < UINT32_MAX / JUMP ? (uint32_t)seen : UINT32_MAX / JUMP;
}

void ch_copy_way_took(struct ch_copy_way *way, enum ch_copy_how how, size_t nbytes, uint64_t ns)
{
    bool was_tried = how != way->how;
    enum ch_copy_how now;

    way->ps[how] = blend(way->ps[how], ns * 1000 / nbytes + 1);
    now = best(way);
    if (now != way->how) {
        way->how = (uint8_t)now;
        way->tried_ps = way->ps[now];
        way->patience = way->left = PATIENCE;
    } else if (was_tried) {
        way->tried_ps = way->ps[now];
        if (way->patience < PATIENCE_MAX)
            way->patience = way->patience < PATIENCE ? PATIENCE : way->patience * 2;
    } else if (way->ps[now] > 2 * (uint64_t)way->tried_ps) {
        way->left = way->patience = 0; /* not what it was when the others were no better */
    }
}

/* --- copies ----------------------------------------------------------------------------------------- */

static size_t class_of(size_t nbytes)
{
    size_t class = 0;

    while (class + 1 < CH_COPY_OVER_SIZES && nbytes >= (size_t)CH_COPY_OVER_FROM << (class + 1))
        class ++;
    return class;
}

enum ch_copy_how ch_copy_over_how(const struct ch_copy_ways *ways, size_t nbytes)
{
    if (nbytes < CH_COPY_OVER_FROM)
        return CH_COPY_STORES;
    return (enum ch_copy_how)ways->by_size[class_of(nbytes)].how;
}

/* Until all stores have arrived: they wait in a buffer for their lines, and what comes behind them waits as well. */
static CH_NOINLINE void copy_timed(struct ch_copy_way *way, enum ch_copy_how how, void *dst,
                                   const void *src, size_t nbytes)
{
    uint64_t began = ch_now_rough();

    ch_copy_by(how, dst, src, nbytes);
    CH_FULL_FENCE();
    ch_copy_way_took(way, how, nbytes, ch_now_rough() - began);
}

void ch_copy_over(struct ch_copy_ways *ways, void *dst, const void *src, size_t nbytes)
{
    unsigned there = ch_copy_there();
    struct ch_copy_way *way;
    enum ch_copy_how how;
    bool timed;

    if (nbytes < CH_COPY_OVER_FROM || there == 1u << CH_COPY_STORES) {
        ch_copy(dst, src, nbytes);
        return;
    }
    way = &ways->by_size[class_of(nbytes)];
    how = ch_copy_way_next(way, there, &timed);
    if (CH_UNLIKELY(timed))
        copy_timed(way, how, dst, src, nbytes);
    else
        ch_copy_by(how, dst, src, nbytes);
}
