/*
 * group.h - the group object: what choir_init() leaves behind.
 */
#ifndef CH_GROUP_H
#define CH_GROUP_H

#include <choir/group.h>

#include "engine/hostlink.h"
#include "group/environ.h"
#include "group/meet.h"
#include "group/record.h"

struct choir_group {
    int rank, nranks;
    struct ch_hostlink link; /* this rank's segment and waiter, and its neighbours on this host */
    bool linked;             /* `link` was opened */
    struct ch_meeting_place place;
    choir_store *round;        /* this meeting's corner of place.store */
    struct ch_record *records; /* of all ranks */
    int *hosts;                /* of all ranks: which host, counted by lowest rank */
    char origin[512];
};

#endif
