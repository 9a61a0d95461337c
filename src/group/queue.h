/*
 * queue.h - who runs what when. See group.h for the picture.
 */
#ifndef CH_QUEUE_H
#define CH_QUEUE_H

#include "group/work.h"

/* Run a call on its caller's stack to its end, in its turn. Returns what it ended with, as this thread's last
 * error. Takes the call over. */
choir_status ch_queue_run(struct ch_call *call);

/* Have a work run by itself. On failure nothing has happened. */
choir_status ch_queue_submit(choir_work *work);

/* The same in two steps, for several: all are entered, and the transfers begun, before any is waited for. */
choir_status ch_queue_enter(choir_work *work);
void ch_queue_start(choir_work *work);

/* Step a send or receive, if nobody else does; all of a group. */
void ch_queue_step_transfer(choir_work *work);
void ch_queue_step_transfers(choir_group *group);

/* Go on with a work until it has to wait for others: for who asks and does not want to wait. */
void ch_queue_nudge(choir_work *work);

/* Give the token back, and see to it that nothing in the queue is forgotten. */
void ch_queue_leave(choir_group *group);

/* For who runs an operation: words for one that took too long, and the operation's name in a record without. */
choir_status ch_queue_timed_out(const choir_group *group, const struct ch_op *op, const char *name,
                                uint64_t issued, bool began);

/* The same for an interrupt of this rank's own (choir/interrupt.h): the others are told whose it was. */
choir_status ch_queue_interrupted(const choir_group *group, const struct ch_op *op,
                                  const char *name);
void ch_queue_name_operation(choir_error *error, choir_optype type);

/* End a call that waits in the queue or is under way with `why`; returns at once, the end may come later. */
void ch_queue_give_up(struct ch_call *call, const choir_error *why);

#endif
