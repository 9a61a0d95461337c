/*
 * pool.h - what a rank still has to give to channels: control blocks and stage.
 *
 * Stage comes in runs of CH_STAGE_UNIT bytes. The first channel, that of all ranks, gets the most; later ones
 * a part of what is left, so that a program with ten groups has decent stages for all of them and one with
 * two hundred still has some for each: a unit is kept back for every control block not yet given.
 *
 * One thread at a time: the rank's lock (rank.h).
 */
#ifndef CH_POOL_H
#define CH_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/layout.h"

enum {
    CH_STAGE_MOST = 1024 * 1024, /* of one channel */
    CH_STAGE_UNITS_MOST = CH_SEGMENT_MOST / CH_STAGE_UNIT,
};

struct ch_pool {
    bool slots[CH_SLOTS]; /* taken */
    bool units[CH_STAGE_UNITS_MOST];
    uint32_t slots_free, units_free, nunits;
    size_t stage_at;
};

/* A control block and some stage. */
struct ch_lot {
    uint32_t slot;
    size_t stage_at, stage_nbytes; /* in the rank's segment; 0 bytes if none was wanted */
};

void ch_pool_init(struct ch_pool *pool, const struct ch_layout *layout);

/* Errors: CHOIR_ERR_NOMEM, saying what ran out. */
choir_status ch_pool_take(struct ch_pool *pool, bool with_stage, struct ch_lot *lot_out);
void ch_pool_give(struct ch_pool *pool, const struct ch_lot *lot);

#endif
