/*
 * sched_names.c - what operations are called, in texts and in schedules.
 */
#include "sched/sched.h"

#include <string.h>

static const char *const coll_names[CH_NCOLLS] = {
    [CH_ALLREDUCE] = "allreduce",
    [CH_BROADCAST] = "broadcast",
    [CH_REDUCE] = "reduce",
    [CH_ALLGATHER] = "allgather",
    [CH_REDUCE_SCATTER] = "reduce_scatter",
    [CH_GATHER] = "gather",
    [CH_SCATTER] = "scatter",
    [CH_ALLTOALL] = "alltoall",
    [CH_BARRIER] = "barrier",
};

const char *ch_coll_name(enum ch_coll coll)
{
    return (unsigned)coll < CH_NCOLLS ? coll_names[coll] : "unknown";
}

bool ch_coll_find(const char *name, enum ch_coll *coll_out)
{
    for (unsigned i = 0; i < CH_NCOLLS; i++) {
        if (strcmp(name, coll_names[i]) == 0) {
            *coll_out = (enum ch_coll)i;
            return true;
        }
    }
    return false;
}
