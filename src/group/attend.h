/*
 * attend.h - the service thread looks after what runs by itself.
 *
 * A group is handed over with ch_attend_kick() when it has something under way that nobody waits for. Most of that
 * is waited for a moment later, by a thread that then runs it itself: to wake another would only be in its way.
 * So whoever kicks sets an alarm, and goes on; what is done when it rings, or younger than CH_ATTEND_AFTER_NS, is
 * let be.
 *
 * As long as a group has something older, the attendant has a seat at the rank's waiter (base/wait.h): whatever would
 * wake a sleeper wakes it, and it gives each of its groups a turn. A timer wakes it for deadlines, which is all
 * that it does for a group whose collectives somebody else runs now. A group with nothing left is let go of.
 */
#ifndef CH_ATTEND_H
#define CH_ATTEND_H

#include <choir/group.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/wait.h"
#include "io/service.h"

/* Longer than from an asynchronous call to the wait right behind it; short against a wake-up (50 us) and an operation
 * that is worth hiding behind computation. */
enum { CH_ATTEND_AFTER_NS = 100 * CH_US };

/* What a turn (ch_group_turn()) leaves of a group. */
enum ch_turn {
    CH_TURN_NOTHING,
    CH_TURN_TAKEN, /* somebody else runs it; what is behind that has deadlines, for us to look at */
    CH_TURN_YOUNG, /* for whoever issued it, or to be looked at later */
    CH_TURN_WAITS, /* for others: look again when this rank is rung */
};

struct ch_attendant {
    struct ch_service *service; /* NULL: nothing of this rank ever has to wait */
    struct ch_waiter *waiter;
    struct ch_lock lock;
    struct ch_list due; /* under lock: groups handed over, struct choir_group.attended */
    uint64_t nkicks;    /* under lock: ever */
    bool coming;        /* under lock: the service thread looks, soon and by itself */
    bool posted;        /* under lock: the task is on its way */
    int alarm; /* under lock: a timerfd, made when it was first looked; -1: there is none */
    struct ch_task task, stop_task;
    _Atomic uint64_t stopped; /* posted by stop_task */

    /* The service thread's: */
    struct ch_list groups;
    struct ch_watch watch, alarm_watch; /* of `seat`, of `alarm` */
    struct ch_timer timer;
    int seat; /* -1: not sitting */
};

/* `waiter` outlives it. `has_service` false: kicks do nothing. Half-built ones are fine for fini. */
choir_status ch_attend_init(struct ch_attendant *attendant, struct ch_waiter *waiter,
                            bool has_service);

/* Nothing may be under way. Waits until the service thread has let go. */
void ch_attend_fini(struct ch_attendant *attendant);

/* See above. `attendant` is that of the group's context, which stays: the group itself may be gone but for its
 * shell. Threads: any, with no lock of the group held. */
void ch_attend_kick(struct ch_attendant *attendant, choir_group *group);

#endif
