/*
 * trace.h - what happened: a record of the last operations of this process, always on.
 */
#ifndef CHOIR_TRACE_H
#define CHOIR_TRACE_H

#include <stdint.h>

#include <choir/export.h>
#include <choir/status.h>
#include <choir/store.h>
#include <choir/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a completion hook is told. Times are of the wall clock. */
typedef struct choir_work_info {
    choir_optype op;
    uint64_t sequence;
    uint64_t started_ns, finished_ns;
    double active_ms;
    choir_status status;
} choir_work_info;

typedef enum choir_trace_format {
    CHOIR_TRACE_JSON,  /* for people and `choir trace` */
    CHOIR_TRACE_PICKLE /* for PyTorch's analyser of flight records */
} choir_trace_format;

/* The last 2,000 operations (CHOIR_TRACE_OPERATIONS) of all groups of this process, oldest first, in the
 * fields that PyTorch's flight recorder has. *out is freed with choir_blob_free(). */
CHOIR_API choir_status choir_trace_dump(choir_trace_format format, choir_blob *out);

/* The same into a file, written whole or not at all. */
CHOIR_API choir_status choir_trace_dump_file(choir_trace_format format, const char *path);

/* Forget what is recorded. */
CHOIR_API void choir_trace_reset(void);

#ifdef __cplusplus
}
#endif
#endif
