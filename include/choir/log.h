/*
 * log.h - what the library says while it works, and where that goes.
 *
 * By default lines of level warn and above go to standard error, one write each. CHOIR_LOG sets the
 * levels ("info", "warn,io=debug"). A host program may take the stream over.
 */
#ifndef CHOIR_LOG_H
#define CHOIR_LOG_H

#include <choir/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_log_level {
    CHOIR_LOG_ERROR, /* for humans: something is wrong that no call could return */
    CHOIR_LOG_WARN,  /* for humans: it works, but not as they may think */
    CHOIR_LOG_INFO,  /* a few lines per group */
    CHOIR_LOG_DEBUG, /* a few lines per object */
    CHOIR_LOG_TRACE  /* a line per message; not in release builds */
} choir_log_level;

/* `line` has no newline and is valid for the call only. May be called from any thread, several at
 * once, the library's own included; must not call the library. */
typedef void (*choir_log_sink)(void *arg, choir_log_level level, const char *subsystem,
                               const char *line);

/* Send all lines to `sink` from now on; NULL restores standard error. A call of the old sink may
 * still be running in another thread when this returns. */
CHOIR_API void choir_log_set_sink(choir_log_sink sink, void *arg);

#ifdef __cplusplus
}
#endif
#endif
