/*
 * valid.h - what one schedule must keep to by itself, whatever the other ranks do.
 *
 * The builder refuses a schedule that does not, so that nobody ever holds one; the checker asks again,
 * because its schedules may come from elsewhere. What holds only between ranks is check.h's.
 */
#ifndef CH_VALID_H
#define CH_VALID_H

#include "sched/sched.h"

enum {
    CH_SCHED_RANKS_MAX = 65536, /* N * N blocks are numbered in 32 bits */
    CH_SCHED_SLOTS_MAX = 65535, /* of a region: slots 0 to 65534 */
    CH_SCHED_STEPS_MAX = 1 << 22,
    CH_SCHED_RANGES_MAX = 1 << 22,
};

/* Operation, ranks, root, and the numbers that are the same for all ranks. */
choir_status ch_sched_validate_head(const struct ch_sched *sched);

/* One step, whose head was validated. */
choir_status ch_sched_validate_step(const struct ch_sched *sched, uint32_t step);

/* All of it. CHOIR_ERR_INVALID names the step and what is wrong with it. */
choir_status ch_sched_validate(const struct ch_sched *sched);

#endif
