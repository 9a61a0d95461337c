/*
 * flightlog.h - what the flight record (trace/flight.h) is told of a group's operations.
 */
#ifndef CH_FLIGHTLOG_H
#define CH_FLIGHTLOG_H

#include "backend/backend.h"
#include "group/call.h"

/* A call is issued, with its number: under the group's lock, so that the record has the order of the numbers. */
void ch_flightlog_issued(struct ch_call *call);
void ch_flightlog_started(struct ch_call *call);
void ch_flightlog_done(struct ch_call *call);

/* The same for a collective without a call, which is started when it is issued (direct.h). */
uint64_t ch_flightlog_direct(choir_group *group, const struct ch_op *op, uint64_t now);
/* And for sends and receives, numbered from `seq` on; at most CH_PLAIN_MAX. `all_sent`: the sends among them are done already.
 * Returns the first's record, which those of the others follow; 0: nothing is recorded. When all are done, and went well,
 * they are done at once. */
uint64_t ch_flightlog_plain(choir_group *group, const struct ch_plain *parts, size_t count,
                            bool all_sent, uint64_t seq, uint64_t issued);
void ch_flightlog_plain_done(choir_group *group, uint64_t first, size_t count);
void ch_flightlog_direct_done(choir_group *group, uint64_t flight, uint64_t now,
                              choir_status status);

#endif
