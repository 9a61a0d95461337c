/*
 * caller.h - calls back: users' functions, told that something is done.
 *
 * They run on a thread of their own, "choir-callbacks", one for each rank's context, started when the first
 * is asked for: they may take their time (a lock of Python's), which the service thread may not. A note is
 * one thing to tell; all that it needs is made when it is asked for, so that telling cannot fail.
 */
#ifndef CH_CALLER_H
#define CH_CALLER_H

#include <choir/trace.h>

#include "base/list.h"
#include "group/call.h"
#include "io/loop.h"

struct ch_context;
struct ch_caller;

struct ch_note {
    struct ch_task task;
    struct ch_list link; /* in a work's callbacks, until it is done */
    choir_group *group;  /* referenced */
    choir_work *work;    /* of a work's callback: referenced when it is posted */
    void (*done)(void *arg, choir_work *work);
    void (*hook)(void *arg, const choir_work_info *info);
    void *arg;
    choir_work_info info;
};

/* Make sure that the thread runs. */
choir_status ch_caller_need(struct ch_context *context);

/* End it: what was posted is told first. Waits, unless this is the thread itself. Accepts NULL. */
void ch_caller_end(struct ch_caller *caller);

/* Whether this is the thread that calls back. */
bool ch_caller_is_here(const struct ch_context *context);

/* A note for the group's hook, if it has one. */
choir_status ch_hook_note(choir_group *group, struct ch_note **note_out);

/* What a hook is told of a call that is over. Accepts NULL. */
void ch_note_fill(struct ch_note *note, const struct ch_call *call);

/* Have it told; counts as pending in the group until then. Takes the note over. */
void ch_caller_post(choir_group *group, struct ch_note *note);

/* Accepts NULL. */
void ch_note_destroy(struct ch_note *note);

#endif
