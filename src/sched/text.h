/*
 * text.h - the words of the text form, shared by its two directions.
 */
#ifndef CH_TEXT_H
#define CH_TEXT_H

#include "sched/sched.h"

extern const char *const ch_region_names[CH_NREGIONS];
extern const char *const ch_step_names[CH_NSTEPS];

#endif
