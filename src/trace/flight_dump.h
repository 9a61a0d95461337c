/*
 * flight_dump.h - reading the flight record: of one rank, or of all that this process has.
 *
 * The document has the keys that PyTorch's flight recorder has (version 2.10), so that its analyser reads the
 * pickle, and one of ours, "choir": which ranks and groups these are, and when this was written. Names in a pickle
 * begin with "gloo:", which that analyser knows; those in JSON with "choir:".
 */
#ifndef CH_FLIGHT_DUMP_H
#define CH_FLIGHT_DUMP_H

#include <choir/store.h>
#include <choir/trace.h>

#include "trace/flight.h"

/* The next flight record of the process after the one of this number, 0 for the first; 0 if there is none. It may
 * end any time: that is why they are named by number. */
uint64_t ch_flight_next(uint64_t after, int *rank_out);

/* `which` 0: all of the process. `why` is told to the reader: "asked for". One that has ended is empty.
 * Ownership: *out is the caller's, for choir_blob_free().
 * Threads:   any; writers are not held up. */
choir_status ch_flight_dump(uint64_t which, choir_trace_format format, const char *why,
                            choir_blob *out);

/* Show nothing any more of what was recorded so far. */
void ch_flight_forget(void);

#endif
