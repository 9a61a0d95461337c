/*
 * info.h - what this build is and what it chose on this machine, for `choir info` and for bug reports.
 */
#ifndef CHOIR_INFO_H
#define CHOIR_INFO_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/export.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which copy and reduce kernels are in use ("avx2"), and why in a few words. */
CHOIR_API const char *choir_kernel_name(void);
CHOIR_API const char *choir_kernel_reason(void);

/* How time is read on the hot path ("tsc", "vdso"), and why. */
CHOIR_API const char *choir_clock_name(void);
CHOIR_API const char *choir_clock_reason(void);

/* How many processors this process may count on: affinity mask, cgroup quota, CHOIR_PROCESSORS. */
CHOIR_API int choir_processors(void);

/* One knob: an environment variable the library reads. Strings are the library's, for good. */
typedef struct choir_param {
    const char *name; /* "CHOIR_LOG" */
    const char *type; /* "count" (from 0), "auto" (-1 too), "size", "bool", "choice", "string" */
    const char *unit; /* the unit, or the choices between bars */
    const char *fallback; /* the default, as text */
    const char *help;     /* one line */
    const char *value;    /* what the environment says now, NULL when it says nothing */
} choir_param;

/* The knobs, by index from 0. CHOIR_ERR_INVALID past the last one. */
CHOIR_API choir_status choir_param_get(size_t index, choir_param *out);

#ifdef __cplusplus
}
#endif
#endif
