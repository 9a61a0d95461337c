/*
 * fault.c - the one fault plan of the process. See fault.h.
 */
#include "base/fault.h"

#include <errno.h>

_Atomic bool ch_fault_armed;

/* Written by ch_fault_arm() while unarmed, when a thread that saw the last plan may still be reading; `left` counts down in
 * whatever thread calls. */
static struct {
    _Atomic int point; /* enum ch_fault_point */
    _Atomic int err;
    _Atomic int64_t left;
    _Atomic int fired; /* the point that was made to fail, -1 for none */
} plan = { .fired = -1 };

void ch_fault_arm(enum ch_fault_point point, uint64_t k, int err)
{
    atomic_store(&plan.point, (int)point);
    atomic_store(&plan.err, err);
    atomic_store(&plan.left, (int64_t)k);
    atomic_store(&plan.fired, -1);
    /* seq_cst, this path is a test's: the plan above is whole before any thread sees it armed. */
    atomic_store(&ch_fault_armed, true);
}

bool ch_fault_disarm(void)
{
    atomic_store(&ch_fault_armed, false);
    return atomic_load(&plan.fired) >= 0;
}

bool ch_fault_hit_armed(enum ch_fault_point point, int usual_errno)
{
    /* seq_cst, pairs with ch_fault_arm(): the inline check was relaxed. */
    if (!atomic_load(&ch_fault_armed))
        return false;
    if (atomic_load(&plan.point) != (int)CH_FAULT_ANY && atomic_load(&plan.point) != (int)point)
        return false;
    if (atomic_fetch_sub(&plan.left, 1) != 1)
        return false;
    atomic_store(&plan.fired, (int)point);
    errno = atomic_load(&plan.err) != 0 ? atomic_load(&plan.err) : usual_errno;
    return true;
}

const char *ch_fault_last(void)
{
    int fired = atomic_load(&plan.fired);

    return fired < 0 ? "nothing" : ch_fault_name((enum ch_fault_point)fired);
}

const char *ch_fault_name(enum ch_fault_point point)
{
    static const char *const names[] = {
#define CH_SYS(ret, fail, err, name, params, args) #name,
#include "base/sys.def"
#undef CH_SYS
        "alloc", "any"
    };

    return names[point];
}
