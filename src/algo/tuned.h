/*
 * tuned.h - what measured figures (choir/simulate.h) say about the limits in select.c.
 */
#ifndef CH_TUNED_H
#define CH_TUNED_H

#include <choir/simulate.h>

#include "sched/sched.h"

/* Up to how many bytes, a power of two, the operation takes no longer in one shot than in two, where ranks share memory;
 * 0 if it has not both, or with more ranks than it would be played for in a moment. */
uint64_t ch_tuned_one_shot(const choir_machine *machine, enum ch_coll coll, uint32_t nranks);

#endif
