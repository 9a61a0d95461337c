/*
 * batch.h - several operations that start together and end as one work.
 */
#ifndef CH_BATCH_H
#define CH_BATCH_H

#include "group/work.h"

struct ch_plain;

/* Whether this thread has one open on `group`. */
bool ch_batch_is_open(choir_group *group);

/* The same for a call that is about to put a work into it: what is in it so far becomes works too. */
bool ch_batch_takes_works(choir_group *group);

/* Where to put the next send or receive of this thread's batch, as what was asked for; NULL if there is none, or it has
 * works. */
struct ch_plain *ch_batch_place(choir_group *group);

/* For calls that cannot wait for the end of a batch: CHOIR_ERR_STATE if there is one. */
choir_status ch_batch_refuse(choir_group *group);

/* Put a work into this thread's batch, if there is one, and take it over. */
bool ch_batch_add(choir_work *work);

/* How many parts this thread's batch has; 0 if there is none. And back to as many as it had. */
size_t ch_batch_size(choir_group *group);
void ch_batch_cut(choir_group *group, size_t size);

/* Give up all its parts. */
void ch_batch_give_up(choir_work *parent, const choir_error *why);

/* Forget the batches that were never ended. */
void ch_batches_forget(choir_group *group);

#endif
