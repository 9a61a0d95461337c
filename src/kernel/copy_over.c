/*
 * copy_over.c - see copy_over.h.
 */
#include "kernel/copy_over.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "kernel/kernel.h"

enum {
    TIMED_IN = 8, /* one copy in so many */
    PATIENCE = 2,
    PATIENCE_MAX = 128,
    /* Faster than this (12.5 GB/s) ordinary stores meet nothing in their way; far they take 130 to 250. */
    FAST_PS = 80,
    /* A copy that took longer than was known may have been held up by something else: it counts as this many times that at
     * most. */
    JUMP = 4,
};

/* Past the caches a reader gets the bytes from memory, which its writer does not see: so it must gain much. */
static bool is_better_past(const struct ch_copy_way *way)
{
    if (way->own_ps <= FAST_PS || way->past_ps == 0)
        return false;
    return way->past ? way->own_ps > way->past_ps + way->past_ps / 2
                     : way->own_ps > 2 * (uint64_t)way->past_ps;
}

/* Whether the other way is to be tried now. */
static bool is_curious(struct ch_copy_way *way)
{
    if (!way->past && way->own_ps <= FAST_PS)
        return false; /* not known yet, or as good as it gets */
    if (way->left > 0) {
        way->left--;
        return false;
    }
    way->left = way->patience;
    return true;
}

bool ch_copy_way_next(struct ch_copy_way *way, bool *timed_out)
{
    *timed_out = way->turn++ % TIMED_IN == 0;
    return *timed_out && is_curious(way) ? !way->past : way->past;
}

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

void ch_copy_way_took(struct ch_copy_way *way, bool past, size_t nbytes, uint64_t ns)
{
    uint32_t *known = past ? &way->past_ps : &way->own_ps;
    bool was_tried = past != way->past, better;

    *known = blend(*known, ns * 1000 / nbytes + 1);
    better = is_better_past(way);
    if (better != way->past) {
        way->past = better;
        way->patience = way->left = PATIENCE;
    } else if (was_tried) {
        way->tried_ps = way->own_ps;
        if (way->patience < PATIENCE_MAX)
            way->patience = way->patience < PATIENCE ? PATIENCE : way->patience * 2;
    } else if (!past && way->own_ps > 2 * (uint64_t)way->tried_ps) {
        way->left = way->patience = 0; /* not what it was when the other was no better */
    }
}

static size_t class_of(size_t nbytes)
{
    size_t class = 0;

    while (class + 1 < CH_COPY_OVER_SIZES && nbytes >= (size_t)CH_COPY_OVER_FROM << (class + 1))
        class ++;
    return class;
}

bool ch_copy_goes_past(const struct ch_copy_ways *ways, size_t nbytes)
{
    return nbytes >= CH_COPY_OVER_FROM && ways->by_size[class_of(nbytes)].past;
}

static void copy(bool past, void *dst, const void *src, size_t nbytes)
{
    if (past)
        ch_copy_nt(dst, src, nbytes);
    else
        ch_copy(dst, src, nbytes);
}

/* Until all stores have arrived: they wait in a buffer for their lines, and what comes behind them waits as well. */
static CH_NOINLINE void copy_timed(struct ch_copy_way *way, bool past, void *dst, const void *src,
                                   size_t nbytes)
{
    uint64_t began = ch_now_rough();

    copy(past, dst, src, nbytes);
    CH_FULL_FENCE();
    ch_copy_way_took(way, past, nbytes, ch_now_rough() - began);
}

void ch_copy_over(struct ch_copy_ways *ways, void *dst, const void *src, size_t nbytes)
{
    struct ch_copy_way *way;
    bool past, timed;

    if (nbytes < CH_COPY_OVER_FROM || !ch_copy_nt_differs()) {
        ch_copy(dst, src, nbytes);
        return;
    }
    way = &ways->by_size[class_of(nbytes)];
    past = ch_copy_way_next(way, &timed);
    if (CH_UNLIKELY(timed))
        copy_timed(way, past, dst, src, nbytes);
    else
        copy(past, dst, src, nbytes);
}
