/*
 * perform.h - make the calls of a case on this rank, and look at every byte afterwards.
 *
 * A buffer lies at any alignment, in place or not, dense or strided, with canaries around it and in its gaps.
 * Next to each piece of memory is an image of what it must be in the end: outputs as naive.h says,
 * inputs and canaries as before.
 */
#ifndef PERFORM_H
#define PERFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "scenario.h"

struct choir_groups {
    int rank, nranks;
    choir_group *slots[NSLOTS]; /* NULL: this rank is not in it */
};

/* Split what a case may use from `world`. False, and said on stderr, if that fails. */
bool groups_make(choir_group *world, struct choir_groups *out);
void groups_destroy(struct choir_groups *groups);

/* One case. False, and said on stderr with the seed, if anything is not as it must be. */
bool perform(const struct scenario *s, struct choir_groups *groups);

/* Cases seed, seed + 17, ... on `world`. Stops at the first that fails. alarm() is set for each. */
extern _Atomic uint64_t perform_current; /* the seed of the case under way */
bool perform_row(choir_group *world, uint64_t seed, int ncases);

#endif
