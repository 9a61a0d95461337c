/*
 * flight_signal.h - SIGUSR2 has the flight record written, if CHOIR_FR_SIGNAL asks for it.
 *
 * A handler can do next to nothing: it makes descriptors readable, one for each rank that asked. Who watches it, the
 * service thread, calls ch_flight_signal_take() and leaves the record (flight_file.h).
 */
#ifndef CH_FLIGHT_SIGNAL_H
#define CH_FLIGHT_SIGNAL_H

#include <choir/status.h>

#include "trace/flight.h"

/*
 * *fd_out becomes readable with each SIGUSR2; -1 if nobody wants that. The first one installs the handler, the last
 * to close puts back what was there before, unless somebody else has replaced ours meanwhile.
 * Threads: any.
 */
choir_status ch_flight_signal_open(int *fd_out);
void ch_flight_signal_close(int fd); /* ignores -1; nobody watches it any more */

/* It is readable: make it unreadable, and leave the record of that rank. What goes wrong is logged. */
void ch_flight_signal_take(int fd, struct ch_flight *flight);

#endif
