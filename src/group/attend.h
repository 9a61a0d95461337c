/*
 * attend.h - the service thread looks after what runs by itself.
 *
 * A group is handed over with ch_attend_kick() when it has something under way that nobody waits for. As long
 * as there is such a group, the attendant has a seat at the rank's waiter (base/wait.h): whatever would wake a
 * sleeper wakes it, and it gives each of its groups a turn. A timer wakes it for deadlines. A group with
 * nothing left, or whose collectives somebody else runs now, is let go of.
 */
#ifndef CH_ATTEND_H
#define CH_ATTEND_H

#include <choir/group.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/wait.h"
#include "io/service.h"

struct ch_attendant {
    struct ch_service *service; /* NULL: nothing of this rank ever has to wait */
    struct ch_waiter *waiter;
    struct ch_lock lock;
    struct ch_list due; /* under lock: groups handed over, struct choir_group.attended */
    bool posted;        /* under lock: the task is on its way */
    struct ch_task task, stop_task;
    _Atomic uint64_t stopped; /* posted by stop_task */

    /* The service thread's: */
    struct ch_list groups;
    struct ch_watch watch; /* of `seat` */
    struct ch_timer timer;
    int seat; /* -1: not sitting */
};

/* `waiter` outlives it. `has_service` false: kicks do nothing. Half-built ones are fine for fini. */
choir_status ch_attend_init(struct ch_attendant *attendant, struct ch_waiter *waiter,
                            bool has_service);

/* Nothing may be under way. Waits until the service thread has let go. */
void ch_attend_fini(struct ch_attendant *attendant);

/* See above. Threads: any, with no lock of the group held. */
void ch_attend_kick(choir_group *group);

#endif
