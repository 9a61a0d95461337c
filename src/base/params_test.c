/* params_test.c - numbers, sizes, choices, complaints, and the public view of the knobs. */
#include "choir_test.h"

#include <stdlib.h>
#include <string.h>

#include <choir/info.h>

#include "base/log.h"
#include "base/params.h"

static const struct {
    const char *text;
    bool fits;
    size_t value;
    const char *why;
} sizes[] = {
    { "0", true, 0, "zero" },
    { "123", true, 123, "plain bytes" },
    { "64K", true, 65536, "suffix" },
    { "64k", true, 65536, "suffix in lower case" },
    { "3M", true, 3u << 20, "mega" },
    { "1T", true, (size_t)1 << 40, "tera" },
    { "16777215T", true, (size_t)16777215 << 40, "the largest that fits" },
    { "16777216T", false, 0, "one more overflows" },
    { "99999999999999999999", false, 0, "too long for any number" },
    { "-1", false, 0, "negative" },
    { "", false, 0, "empty" },
    { "K", false, 0, "a suffix alone" },
    { "5 ", false, 0, "a blank behind" },
    { "5KB", false, 0, "more behind the suffix" },
    { "5X", false, 0, "no such suffix" },
};

CHOIR_TEST(sizes_have_suffixes_and_limits)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        size_t value = 77;

        CHOIR_ROW("\"%s\": %s", sizes[i].text, sizes[i].why);
        CHOIR_CHECK_EQ(ch_parse_size(sizes[i].text, &value), sizes[i].fits);
        CHOIR_CHECK_EQ(value, sizes[i].fits ? sizes[i].value : 77);
    }
}

static const struct {
    const char *text;
    bool fits;
    int64_t value;
} ints[] = {
    { "0", true, 0 },     { "-1", true, -1 }, { "9223372036854775807", true, INT64_MAX },
    { "", false, 0 },     { "1x", false, 0 }, { "9223372036854775808", false, 0 },
    { "0x10", false, 0 }, { " ", false, 0 },
};

CHOIR_TEST(ints_are_whole_and_decimal)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(ints); i++) {
        int64_t value = 77;

        CHOIR_ROW("\"%s\"", ints[i].text);
        CHOIR_CHECK_EQ(ch_parse_int(ints[i].text, &value), ints[i].fits);
        CHOIR_CHECK_EQ(value, ints[i].fits ? ints[i].value : 77);
    }
}

/* What the parser complained about, one line after the other. */
static char complaints[1024];
static char the_arg[] = "arg";

static void note(void *arg, const char *line)
{
    CHOIR_CHECK(arg == the_arg);
    strncat(complaints, line, sizeof(complaints) - strlen(complaints) - 2);
    strcat(complaints, "\n");
}

static struct ch_params parse(const char *entry)
{
    char copy[256];
    char *env[] = { copy, NULL };
    struct ch_params params;

    complaints[0] = '\0';
    snprintf(copy, sizeof(copy), "%s", entry);
    ch_params_parse(env, &params, note, the_arg);
    /* Strings point into `copy`, which ends here; callers look at numbers and complaints. */
    return params;
}

CHOIR_TEST(without_variables_the_defaults_hold)
{
    struct ch_params params;
    char *none[] = { NULL };

    complaints[0] = '\0';
    ch_params_parse(none, &params, note, the_arg);
    CHOIR_CHECK_STR(complaints, "");
    CHOIR_CHECK_STR(params.log, "warn");
    CHOIR_CHECK_STR(params.kernel, "auto");
    CHOIR_CHECK_EQ(params.spin_us, -1);
    ch_params_parse(NULL, &params, note, the_arg);
    CHOIR_CHECK_STR(params.clock, "auto");
}

static const struct {
    const char *entry, *complaint, *why;
} entries[] = {
    { "CHOIR_SPIN_US=50", "", "right" },
    { "CHOIR_SPIN_US=soon", "CHOIR_SPIN_US: \"soon\" does not fit (microseconds); using -1",
      "not a number" },
    { "CHOIR_SPIN_US=-1", "", "the library's choice" },
    { "CHOIR_SPIN_US=-7", "does not fit", "less than nothing" },
    { "CHOIR_PROCESSORS=-1", "does not fit", "a count has no -1" },
    { "CHOIR_KERNEL=scalar", "", "a choice" },
    { "CHOIR_KERNEL=sca", "does not fit (auto|scalar|", "half a choice" },
    { "CHOIR_KERNEL=auto|scalar", "does not fit", "two choices" },
    { "CHOIR_KERNEL=", "does not fit", "no choice" },
    { "CHOIR_KERNLE=scalar", "CHOIR_KERNLE is not a variable of Choir; did you mean CHOIR_KERNEL?",
      "mistyped" },
    { "CHOIR_SPINUS=1", "did you mean CHOIR_SPIN_US?", "a letter short" },
    { "CHOIR_SOMETHING_ELSE=1", "CHOIR_SOMETHING_ELSE is not a variable of Choir\n",
      "near nothing" },
    { "CHOIR_LOG", "", "no equals sign: not an assignment" },
    { "CHOIR_TEST_LONG=1", "", "the tests' own" },
    { "CHOIRX=1", "", "not our prefix" },
    { "PATH=/bin", "", "somebody else's" },
    { "CHOIR_A_NAME_SO_LONG_THAT_NO_KNOB_WILL_EVER_HAVE_IT_BECAUSE_NOBODY_COULD_TYPE_IT=1",
      "is not a variable of Choir\n", "longer than any knob" },
};

CHOIR_TEST(what_does_not_fit_gives_one_complaint)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(entries); i++) {
        CHOIR_ROW("%s: %s", entries[i].entry, entries[i].why);
        parse(entries[i].entry);
        if (entries[i].complaint[0] == '\0')
            CHOIR_CHECK_STR(complaints, "");
        else
            CHOIR_CHECK_HAS(complaints, entries[i].complaint);
    }
    CHOIR_CHECK_EQ(parse("CHOIR_SPIN_US=50").spin_us, 50);
    CHOIR_CHECK_EQ(parse("CHOIR_SPIN_US=soon").spin_us, -1);
}

static void count_line(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    CHOIR_CHECK_EQ(level, CHOIR_LOG_WARN);
    CHOIR_CHECK_STR(subsystem, "base");
    CHOIR_CHECK_HAS(line, "CHOIR_KERNLE");
    ++*(int *)arg;
}

CHOIR_TEST(the_process_warns_once_and_reads_once)
{
    int lines = 0;

    choir_log_set_sink(count_line, &lines);
    setenv("CHOIR_KERNLE", "scalar", 1);
    setenv("CHOIR_SPIN_US", "11", 1);
    CHOIR_CHECK_EQ(ch_params()->spin_us, 11);
    setenv("CHOIR_SPIN_US", "12", 1);
    CHOIR_CHECK_EQ(ch_params()->spin_us, 11);
    CHOIR_CHECK_EQ(lines, 1);
    choir_log_set_sink(NULL, NULL);
}

CHOIR_TEST(the_log_level_is_obeyed_by_the_warnings_themselves)
{
    int lines = 0;

    choir_log_set_sink(count_line, &lines);
    setenv("CHOIR_KERNLE", "scalar", 1);
    setenv("CHOIR_LOG", "error", 1);
    CHOIR_CHECK_STR(ch_params()->log, "error");
    CHOIR_CHECK_EQ(lines, 0);
    choir_log_set_sink(NULL, NULL);
}

CHOIR_TEST(every_knob_can_be_listed)
{
    choir_param p;
    size_t n = 0;

    setenv("CHOIR_CLOCK", "vdso", 1);
    unsetenv("CHOIR_KERNEL");
    for (; choir_param_get(n, &p) == CHOIR_OK; n++) {
        CHOIR_ROW("%s", p.name);
        CHOIR_CHECK(strncmp(p.name, "CHOIR_", 6) == 0);
        CHOIR_CHECK(p.help[0] != '\0' && strchr(p.help, '\n') == NULL);
        CHOIR_CHECK(p.unit[0] != '\0' && p.fallback != NULL);
        CHOIR_CHECK_HAS("count auto size bool choice string", p.type);
        if (strcmp(p.name, "CHOIR_CLOCK") == 0)
            CHOIR_CHECK_STR(p.value, "vdso");
        if (strcmp(p.name, "CHOIR_KERNEL") == 0)
            CHOIR_CHECK(p.value == NULL);
    }
    CHOIR_CHECK_EQ(n, ch_param_count);
    CHOIR_CHECK_STATUS(choir_param_get(n, &p), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "knobs");
    CHOIR_CHECK_STATUS(choir_param_get(0, NULL), CHOIR_ERR_INVALID);
}
