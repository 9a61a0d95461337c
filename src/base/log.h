/*
 * log.h - one line per event: "choir warn io: peer 10.0.0.2:4711 closed before its hello".
 *
 * Levels by volume: error and warn for humans, info per group, debug per object, trace per message
 * (not in release builds). An error that is returned is not also logged loudly. errno survives.
 */
#ifndef CH_LOG_H
#define CH_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include <choir/log.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "base/subsystem.h"

/* Written by ch_log_set_levels(), read by every line; relaxed, a late change costs a line. */
extern _Atomic unsigned char ch_log_levels[CH_NSUBSYSTEMS];

static inline bool ch_log_enabled(enum ch_subsystem sub, choir_log_level level)
{
    return level <= atomic_load_explicit(&ch_log_levels[sub], memory_order_relaxed);
}

void ch_log_write(enum ch_subsystem sub, choir_log_level level, const char *fmt, ...)
    CH_PRINTF(3, 4);

#define ch_log(level, ...)                                                                         \
    (ch_log_enabled(CH_SUBSYS, level) ? ch_log_write(CH_SUBSYS, level, __VA_ARGS__) : (void)0)

#define ch_log_error(...) ch_log(CHOIR_LOG_ERROR, __VA_ARGS__)
#define ch_log_warn(...)  ch_log(CHOIR_LOG_WARN, __VA_ARGS__)
#define ch_log_info(...)  ch_log(CHOIR_LOG_INFO, __VA_ARGS__)
#define ch_log_debug(...) ch_log(CHOIR_LOG_DEBUG, __VA_ARGS__)
#if CH_DEBUG
#define ch_log_trace(...) ch_log(CHOIR_LOG_TRACE, __VA_ARGS__)
#else
#define ch_log_trace(...) ((void)0)
#endif

/* Set levels from CHOIR_LOG's form, "warn,io=debug". Words it does not know get a warning and
 * change nothing. */
void ch_log_set_levels(const char *spec);

#endif
