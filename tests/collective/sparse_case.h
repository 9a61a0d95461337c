/* sparse_case.h - sparse all-reduce: entries made from the call's seed, the sum checked entry by entry. */
#ifndef SPARSE_CASE_H
#define SPARSE_CASE_H

#include "scenario.h"

/* False, and said on stderr, if it fails or the sum is not right. */
bool sparse_perform(const struct scenario *s, const struct call *c, choir_group *group, int rank,
                    bool sync);

#endif
