/*
 * suspect.h - who waits for long looks around: is there a reason why what it waits for will never come?
 *
 *   mismatch   a member has entered this operation and calls it something else     error, at the first look
 *   left       a member has left the channel and never entered this operation      error, at the first look
 *   frozen     the process it waits for is stopped (a signal, a debugger)           a warning after 1 s,
 *                                                                                   an error after CHOIR_FROZEN_S
 *   behind     members have not entered this operation                             a warning after CHOIR_BEHIND_S
 *   too late   the operation's deadline has passed                                 error, naming who is missing
 *
 * Death is not looked for here: the service thread sees it, and poisons (watch.h).
 */
#ifndef CH_SUSPECT_H
#define CH_SUSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include <choir/status.h>

#include "engine/channel.h"
#include "engine/op.h"

enum { CH_FOR_ALL = -1, CH_FOR_ANY = -2 };

/* One wait, from its first look in vain to its end. In the operation's own storage, zeroed. */
struct ch_vigil {
    bool begun;
    bool told_behind;
    uint32_t ticks; /* the rank's, at the last look around */
    uint64_t since, looked, next_frozen;
    uint64_t frozen_since; /* when one of those waited for was first seen stopped; 0: none is */
    bool saw_frozen;       /* at any time */
};

/* Called at every look in vain. `whom` is the member waited for, or CH_FOR_ALL, CH_FOR_ANY. `collective`: the
 * operation is the one channel->ncalls counts. CHOIR_IN_PROGRESS to wait on, or a failure: the operation is
 * over. */
choir_status ch_vigil_keep(struct ch_vigil *vigil, struct ch_channel *channel,
                           const struct ch_op *op, int whom, bool collective);

/* It has come, or is given up. */
void ch_vigil_end(struct ch_vigil *vigil, struct ch_channel *channel);

#endif
