/*
 * choose.h - which schedule a run gets.
 */
#ifndef CH_CHOOSE_H
#define CH_CHOOSE_H

#include "engine/runner.h"

/* Find algorithm and schedule for run->op, whose lengths are known, and plan its windows (place.h).
 * Errors: CHOIR_ERR_INVALID for an algorithm there is not, CHOIR_ERR_UNSUPPORTED for one that cannot; the
 * same on all ranks. */
choir_status ch_choose(struct ch_channel *channel, struct ch_run *run);

#endif
