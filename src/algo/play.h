/*
 * play.h - one round of all ranks' schedules played through, to see who waits for whom.
 *
 * Time is counted in columns: a step takes one, and comes after what it waits for; copies in a row, and
 * awaits in a row, share one. Nothing is proven (that is sched/check.h's) and no machine is modelled; it is
 * for drawing and for counting waits.
 */
#ifndef CH_PLAY_H
#define CH_PLAY_H

#include <stdint.h>

#include "sched/sched.h"

#define CH_PLAY_NOBODY UINT32_MAX

struct ch_play_step {
    uint32_t column;
    uint32_t from_rank, from_step; /* whose post or send it waited for; CH_PLAY_NOBODY */
};

struct ch_play {
    uint32_t nranks, ncolumns;
    uint32_t depth;              /* waits in a row, on the longest way */
    struct ch_play_step **steps; /* of each rank */
};

/* CHOIR_ERR_INVALID if the ranks wait for each other for ever. *play_out ends with ch_play_destroy(). */
choir_status ch_play(struct ch_sched *const *scheds, uint32_t nranks, struct ch_play **play_out);
void ch_play_destroy(struct ch_play *play);

#endif
