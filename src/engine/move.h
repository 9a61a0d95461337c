/*
 * move.h - what steps of a schedule do to bytes.
 */
#ifndef CH_MOVE_H
#define CH_MOVE_H

#include "engine/runner.h"

/* A step's ranges are: where to, then from where. */
void ch_move_copy(struct ch_channel *channel, const struct ch_run *run, const struct ch_step *step);
void ch_move_finish(struct ch_channel *channel, const struct ch_run *run,
                    const struct ch_step *step);
void ch_move_reduce(struct ch_channel *channel, const struct ch_run *run,
                    const struct ch_step *step);
void ch_move_combine(struct ch_channel *channel, const struct ch_run *run,
                     const struct ch_step *step);

/* Stage, scratch and tables for a plan; they only grow. */
choir_status ch_move_make_room(struct ch_channel *channel, const struct ch_plan *plan);

#endif
