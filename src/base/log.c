/*
 * log.c - format a line, hand it to the sink.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/forked.h"

enum { LINE_MAX_BYTES = 1024 };

_Atomic unsigned char ch_log_levels[CH_NSUBSYSTEMS] = {
#define DEFAULT_LEVEL(NAME, name) CHOIR_LOG_WARN,
    CH_SUBSYSTEMS(DEFAULT_LEVEL)
#undef DEFAULT_LEVEL
};

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };

const char *ch_subsystem_name(enum ch_subsystem sub)
{
    static const char *const names[] = {
#define SUB_NAME(NAME, name) name,
        CH_SUBSYSTEMS(SUB_NAME)
#undef SUB_NAME
    };

    return names[sub];
}

/* One write: lines of several processes on one terminal do not mix. */
static void to_stderr(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    char out[LINE_MAX_BYTES + 64];
    int n = snprintf(out, sizeof(out), "choir %s %s: %s\n", level_names[level], subsystem, line);
    ssize_t ignored;

    (void)arg;
    ignored = write(STDERR_FILENO, out, (size_t)n < sizeof(out) ? (size_t)n : sizeof(out) - 1);
    (void)ignored; /* nowhere left to complain */
}

/* Sink and argument belong together: a reader that meets a change reads again. A change waits for no
 * reader (choir/log.h says so), only for another change. */
struct sink {
    choir_log_sink fn;
    void *arg;
};

static struct {
    _Atomic(choir_log_sink) fn;
    _Atomic(void *) arg;
    _Atomic unsigned change; /* odd while a change is under way */
} the_sink;

void choir_log_set_sink(choir_log_sink sink, void *arg)
{
    bool held = ch_fork_hold(); /* one change at a time, and none half done in a forked child */

    /* seq_cst throughout: never hot. A reader that saw an odd or changed number reads again. */
    atomic_fetch_add(&the_sink.change, 1);
    atomic_store(&the_sink.fn, sink);
    atomic_store(&the_sink.arg, arg);
    atomic_fetch_add(&the_sink.change, 1);
    if (held)
        ch_fork_release();
}

static struct sink current_sink(void)
{
    struct sink s;
    unsigned before;

    do {
        before = atomic_load(&the_sink.change);
        s.fn = atomic_load(&the_sink.fn);
        s.arg = atomic_load(&the_sink.arg);
    } while (before % 2 != 0 || before != atomic_load(&the_sink.change));
    if (s.fn == NULL)
        s.fn = to_stderr;
    return s;
}

void ch_log_write(enum ch_subsystem sub, choir_log_level level, const char *fmt, ...)
{
    int keep = errno;
    struct sink sink = current_sink();
    char line[LINE_MAX_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    sink.fn(sink.arg, level, ch_subsystem_name(sub), line);
    errno = keep;
}

static bool same_word(const char *name, const char *word, size_t length)
{
    return strlen(name) == length && strncmp(name, word, length) == 0;
}

static int level_of(const char *word, size_t length)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(level_names); i++) {
        if (same_word(level_names[i], word, length))
            return (int)i;
    }
    return -1;
}

static void set_level(enum ch_subsystem sub, int level)
{
    atomic_store_explicit(&ch_log_levels[sub], (unsigned char)level, memory_order_relaxed);
}

/* One "level" or "subsystem=level". False if a word is unknown. */
static bool set_one(const char *word, size_t length)
{
    const char *equals = memchr(word, '=', length);
    const char *level_word = equals == NULL ? word : equals + 1;
    int level = level_of(level_word, (size_t)(word + length - level_word));
    bool known = false;

    if (level < 0)
        return false;
    for (int sub = 0; sub < CH_NSUBSYSTEMS; sub++) {
        if (equals == NULL || same_word(ch_subsystem_name(sub), word, (size_t)(equals - word))) {
            set_level(sub, level);
            known = true;
        }
    }
    return known;
}

void ch_log_set_levels(const char *spec)
{
    while (*spec != '\0') {
        size_t length = strcspn(spec, ",");

        if (length > 0 && !set_one(spec, length))
            ch_log_warn("CHOIR_LOG: \"%.*s\" is neither a level nor subsystem=level", (int)length,
                        spec);
        spec += length + (spec[length] == ',');
    }
}
