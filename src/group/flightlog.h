/*
 * flightlog.h - what the flight record (trace/flight.h) is told of a group's operations.
 */
#ifndef CH_FLIGHTLOG_H
#define CH_FLIGHTLOG_H

#include "group/call.h"

/* A call is issued, with its number: under the group's lock, so that the record has the order of the numbers. */
void ch_flightlog_issued(struct ch_call *call);
void ch_flightlog_started(struct ch_call *call);
void ch_flightlog_done(struct ch_call *call);

#endif
