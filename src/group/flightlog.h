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

/* The same for an operation without a call, which is started when it is issued (direct.h, plain_p2p.h). */
uint64_t ch_flightlog_direct(choir_group *group, const struct ch_op *op, bool is_p2p, uint64_t now);
/* And for sends and receives that are over now, well, numbered from `seq` on. At most CH_PLAIN_MAX. */
void ch_flightlog_short(choir_group *group, const struct ch_plain *parts, size_t count,
                        uint64_t seq, uint64_t issued);
void ch_flightlog_direct_done(choir_group *group, uint64_t flight, uint64_t now,
                              choir_status status);

#endif
