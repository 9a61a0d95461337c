/*
 * stopped.h - whether a neighbour's process is stopped, as /proc says.
 */
#ifndef CH_STOPPED_H
#define CH_STOPPED_H

#include <stdbool.h>

#include "engine/hostlink.h"

/* False also if it cannot be known. Makes a few system calls. */
bool ch_neighbour_is_stopped(const struct ch_neighbour *neighbour);

#endif
