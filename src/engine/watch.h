/*
 * watch.h - what the service thread does for a rank: see who dies, and keep those who wait from sleeping on.
 */
#ifndef CH_WATCH_H
#define CH_WATCH_H

#include "engine/rank.h"

/* Begin to watch the neighbours' pidfds. */
choir_status ch_watch_start(struct ch_rank *rank);

/* The service thread knows nothing of the rank any more. Blocks: until it has let go. On that thread itself no
 * task of the rank may be under way. Takes a rank whose watch was never started. */
void ch_watch_stop(struct ch_rank *rank);

#endif
