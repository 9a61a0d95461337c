/*
 * simulate.h - play an algorithm's schedules under a cost model (choir/simulate.h).
 *
 * Where all ranks are alike one is played for all, with peers that do what it does at the same time. Where they differ,
 * all are, from tallies (sched/builder.h) of a few steps each. Never are P * P steps kept: an algorithm that would
 * need it is not played.
 */
#ifndef CH_SIMULATE_H
#define CH_SIMULATE_H

#include <choir/simulate.h>

#include "algo/algo.h"

struct ch_scene {
    const struct ch_algo *algo;
    const choir_machine *machine;
    uint32_t nranks, root;
    uint64_t nbytes;   /* of the operation */
    uint32_t widening; /* as in cost.h */
    uint64_t window;   /* bytes of a block in one round, where memory is shared; 0: all */
    bool in_place;     /* as in algo.h */
    bool all_ranks;    /* play all, even if they are alike: for tests */
};

/* CHOIR_ERR_UNSUPPORTED if there would be too many steps; *out has no objection then. */
choir_status ch_simulate(const struct ch_scene *scene, choir_simulated *out);

choir_simulate_bound ch_simulate_bound(enum ch_coll coll, uint32_t nranks, uint64_t nbytes,
                                       const choir_machine *machine);

#endif
