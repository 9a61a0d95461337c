/*
 * fused.h - schedules of next to no bytes, each written out as one function.
 *
 * What a schedule of 8 bytes costs is its steps: names looked up, one function for each. Such a function does what
 * the steps say, in their order, with the same flags; the schedule stays its specification, and a test runs both
 * (algo_run_test.c). It may stop wherever a step may, and goes on from run->step, which is its own to count.
 */
#ifndef CH_FUSED_H
#define CH_FUSED_H

#include "engine/plan.h"

/* The function for a plan that is laid out; NULL: its steps are run. */
ch_fused_fn ch_fused_for(const struct ch_plan *plan, uint32_t nranks);

#endif
