/*
 * fault.h - make the k-th allocation or system call fail, so that tests can walk every error path.
 *
 *   for (k = 1;; k++) {
 *       ch_fault_arm(CH_FAULT_ANY, k, 0);
 *       status = scenario();
 *       if (!ch_fault_disarm())
 *           break;                          // the scenario makes fewer than k calls: all were tried
 *       ... status is a clear error, or the scenario had a way round; nothing leaked ...
 *   }
 *
 * Unarmed, a point costs one relaxed load next to a system call; there is no other build for tests.
 */
#ifndef CH_FAULT_H
#define CH_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum ch_fault_point {
#define CH_SYS(ret, fail, err, name, params, args) CH_FAULT_##name,
#include "base/sys.def"
#undef CH_SYS
    CH_FAULT_alloc,
    CH_NFAULTS,
    CH_FAULT_ANY = CH_NFAULTS
};

/* Make call number k (from 1) of `point` fail, counted over all threads from now on. `err` is the
 * errno it fails with, 0 for the point's usual one. One plan at a time, process-wide. */
void ch_fault_arm(enum ch_fault_point point, uint64_t k, int err);

/* End the plan. True if its call was reached, that is, if something was made to fail. */
bool ch_fault_disarm(void);

/* The name of the point that fired last ("mmap", "alloc"), for a test's message. */
const char *ch_fault_last(void);
const char *ch_fault_name(enum ch_fault_point point);

extern _Atomic bool ch_fault_armed;
bool ch_fault_hit_armed(enum ch_fault_point point, int usual_errno);

/* Ask at the top of a fallible call. True: fail now; errno is set. */
static inline bool ch_fault_hit(enum ch_fault_point point, int usual_errno)
{
    /* Relaxed: tests arm before they start the threads they want to see fail. */
    if (CH_LIKELY(!atomic_load_explicit(&ch_fault_armed, memory_order_relaxed)))
        return false;
    return ch_fault_hit_armed(point, usual_errno);
}

#endif
