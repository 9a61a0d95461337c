/* log_test.c - levels, sinks, and what a line costs its caller: nothing, not even errno. */
#include "choir_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

struct seen {
    int lines;
    choir_log_level level;
    char subsystem[16], line[2048];
};

static void keep(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    struct seen *seen = arg;

    seen->lines++;
    seen->level = level;
    snprintf(seen->subsystem, sizeof(seen->subsystem), "%s", subsystem);
    snprintf(seen->line, sizeof(seen->line), "%s", line);
    errno = EBADF; /* a sink may do what it likes to errno */
}

CHOIR_TEST(a_sink_gets_the_line_and_errno_survives)
{
    struct seen seen = { 0 };

    choir_log_set_sink(keep, &seen);
    errno = ENOENT;
    ch_log_warn("rank %d peer %d", 3, 5);
    CHOIR_CHECK_EQ(errno, ENOENT);
    CHOIR_CHECK_EQ(seen.lines, 1);
    CHOIR_CHECK_EQ(seen.level, CHOIR_LOG_WARN);
    CHOIR_CHECK_STR(seen.subsystem, "test");
    CHOIR_CHECK_STR(seen.line, "rank 3 peer 5");
}

static const struct {
    const char *spec;
    bool base_info, test_info, test_error;
    const char *warning, *why;
} specs[] = {
    { "warn", false, false, true, "", "the default" },
    { "info", true, true, true, "", "for all" },
    { "warn,test=debug", false, true, true, "", "one subsystem louder" },
    { "debug,test=error", true, false, true, "", "one subsystem quieter" },
    { "test=info,base=info", true, true, true, "", "two of them" },
    { "", false, false, true, "", "nothing said" },
    { ",,info,", true, true, true, "", "empty words" },
    { "loud", false, false, true, "\"loud\" is neither", "no such level" },
    { "nosuch=info", false, false, true, "\"nosuch=info\" is neither", "no such subsystem" },
    { "test=", false, false, true, "\"test=\" is neither", "no level" },
    { "=info", false, false, true, "\"=info\" is neither", "no subsystem" },
    { "inf", false, false, true, "\"inf\" is neither", "half a level" },
};

CHOIR_TEST(levels_are_set_by_name)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(specs); i++) {
        struct seen seen = { 0 };

        CHOIR_ROW("\"%s\": %s", specs[i].spec, specs[i].why);
        choir_log_set_sink(keep, &seen);
        ch_log_set_levels("warn");
        ch_log_set_levels(specs[i].spec);
        CHOIR_CHECK_EQ(ch_log_enabled(CH_SUB_BASE, CHOIR_LOG_INFO), specs[i].base_info);
        CHOIR_CHECK_EQ(ch_log_enabled(CH_SUB_TEST, CHOIR_LOG_INFO), specs[i].test_info);
        CHOIR_CHECK_EQ(ch_log_enabled(CH_SUB_TEST, CHOIR_LOG_ERROR), specs[i].test_error);
        CHOIR_CHECK_EQ(seen.lines, specs[i].warning[0] != '\0');
        CHOIR_CHECK_HAS(seen.line, specs[i].warning);
    }
}

static int must_not_run(void)
{
    CHOIR_FAIL("the argument of a line that is off was evaluated");
}

CHOIR_TEST(a_line_that_is_off_costs_no_arguments)
{
    struct seen seen = { 0 };

    choir_log_set_sink(keep, &seen);
    ch_log_set_levels("warn");
    ch_log_debug("%d", must_not_run());
    CHOIR_CHECK_EQ(seen.lines, 0);
}

CHOIR_TEST(a_line_too_long_is_cut)
{
    struct seen seen = { 0 };
    char longer[4096];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    choir_log_set_sink(keep, &seen);
    ch_log_error("%s", longer);
    CHOIR_CHECK_EQ(strlen(seen.line), (size_t)1023);
}

/* Standard error as a pipe: one line, one write, one newline. */
CHOIR_TEST(without_a_sink_lines_go_to_standard_error)
{
    int ends[2], old = dup(STDERR_FILENO);
    char text[256];
    ssize_t n;

    CHOIR_CHECK_EQ(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    choir_log_set_sink(NULL, NULL);
    ch_log_error("count %d", 7);
    dup2(old, STDERR_FILENO);
    close(old);
    close(ends[1]);
    n = read(ends[0], text, sizeof(text) - 1);
    CHOIR_CHECK_LT(0, n);
    text[n] = '\0';
    CHOIR_CHECK_STR(text, "choir error test: count 7\n");
    close(ends[0]);
}

/* Two sinks, each with its own argument, exchanged while lines are written: a sink never meets the
 * other's argument. */
struct pair {
    const char *name;
    _Atomic int lines;
    _Atomic bool mixed;
};
static struct pair pair_a = { .name = "a" }, pair_b = { .name = "b" };
static _Atomic bool stop;

static void sink_a(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)level, (void)subsystem, (void)line;
    pair_a.lines++;
    if (arg != &pair_a)
        pair_a.mixed = true;
}

static void sink_b(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)level, (void)subsystem, (void)line;
    pair_b.lines++;
    if (arg != &pair_b)
        pair_b.mixed = true;
}

static void *write_lines(void *arg)
{
    while (!stop)
        ch_log_error("line");
    return arg;
}

static void *change_sinks(void *arg)
{
    for (int i = 0; i < 20000; i++) {
        choir_log_set_sink(sink_a, &pair_a);
        choir_log_set_sink(sink_b, &pair_b);
    }
    return arg;
}

CHOIR_TEST(sink_and_argument_change_together)
{
    pthread_t writer, changers[2];

    choir_log_set_sink(sink_a, &pair_a);
    CHOIR_CHECK_EQ(pthread_create(&writer, NULL, write_lines, NULL), 0);
    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_EQ(pthread_create(&changers[i], NULL, change_sinks, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(changers[i], NULL);
    while (pair_a.lines + pair_b.lines == 0)
        sched_yield();
    stop = true;
    pthread_join(writer, NULL);
    CHOIR_CHECK(!pair_a.mixed && !pair_b.mixed);
}
