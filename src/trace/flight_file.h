/*
 * flight_file.h - leaving the flight record in files.
 *
 *   CHOIR_TRACE_DIR              a folder: rank_N.json, for people and `choir trace`
 *   TORCH_FR_DUMP_TEMP_FILE      the beginning of a name, the rank behind it: a pickle, for PyTorch's analyser
 *                                (TORCH_NCCL_DEBUG_INFO_TEMP_FILE is the older name)
 *
 * A file is whole or not there at all: it is written beside and renamed.
 */
#ifndef CH_FLIGHT_FILE_H
#define CH_FLIGHT_FILE_H

#include <choir/store.h>
#include <choir/trace.h>

#include "trace/flight.h"

choir_status ch_flight_write_file(const char *path, const choir_blob *blob);

/* One rank's record to wherever it is asked for. CHOIR_OK also if nowhere.
 * Threads: any; not with a lock held.
 * Blocks:  while it writes. */
choir_status ch_flight_leave(struct ch_flight *flight, const char *why);

/* Each rank's of this process. */
choir_status ch_flight_leave_all(const char *why);

#endif
