/*
 * params.c - parse the environment against params.def.
 */
#include "base/params.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"

const struct ch_param_info ch_param_list[] = {
#define CH_PARAM(field, variable, type, def, unit, help)                                           \
    { variable, def, unit, help, CH_PARAM_##type, offsetof(struct ch_params, field) },
#include "base/params.def"
#undef CH_PARAM
};
const size_t ch_param_count = CH_ARRAY_LEN(ch_param_list);

bool ch_parse_int(const char *text, int64_t *out)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return false;
    *out = value;
    return true;
}

bool ch_parse_size(const char *text, size_t *out)
{
    static const char suffixes[] = "KMGT";
    const char *suffix;
    char *end;
    unsigned long long value;
    unsigned shift = 0;

    if (strchr(text, '-') != NULL)
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || end == text)
        return false;
    if (*end > ' ' && (suffix = strchr(suffixes, *end & ~0x20)) != NULL) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end++;
    }
    if (*end != '\0' || value > SIZE_MAX >> shift)
        return false;
    *out = (size_t)value << shift;
    return true;
}

static bool parse_int_from(int64_t least, const char *text, int64_t *out)
{
    int64_t value;

    if (!ch_parse_int(text, &value) || value < least)
        return false;
    *out = value;
    return true;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const words[] = { "0", "1", "no", "yes", "off", "on", "false", "true" };

    for (size_t i = 0; i < CH_ARRAY_LEN(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* Is `word` one of "a|b|c"? */
static bool is_choice(const char *choices, const char *word)
{
    size_t length = strlen(word);

    if (strchr(word, '|') != NULL)
        return false;
    for (const char *at = choices; length > 0 && (at = strstr(at, word)) != NULL; at += length) {
        if ((at == choices || at[-1] == '|') && (at[length] == '\0' || at[length] == '|'))
            return true;
    }
    return false;
}

static bool parse_into(const struct ch_param_info *info, const char *text, struct ch_params *out)
{
    void *field = (char *)out + info->offset;

    switch (info->type) {
    case CH_PARAM_COUNT:
        return parse_int_from(0, text, field);
    case CH_PARAM_AUTO:
        return parse_int_from(-1, text, field);
    case CH_PARAM_SIZE:
        return ch_parse_size(text, field);
    case CH_PARAM_BOOL:
        return parse_bool(text, field);
    case CH_PARAM_CHOICE:
        if (!is_choice(info->unit, text))
            return false;
        *(const char **)field = text;
        return true;
    case CH_PARAM_STRING:
        *(const char **)field = text;
        return true;
    }
    return false;
}

static const struct ch_param_info *find(const char *name, size_t length)
{
    for (size_t i = 0; i < ch_param_count; i++) {
        if (strlen(ch_param_list[i].variable) == length &&
            strncmp(ch_param_list[i].variable, name, length) == 0)
            return &ch_param_list[i];
    }
    return NULL;
}

enum { NAME_MAX_LENGTH = 63 };

/* Edit distance (insert, delete, replace), for names of at most NAME_MAX_LENGTH. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned row[NAME_MAX_LENGTH + 1];

    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

/* The knob whose name is nearest to a mistyped one, NULL if none is near. */
static const char *nearest(const char *name, size_t length)
{
    unsigned best = 4; /* more than three wrong letters is another word */
    const char *found = NULL;

    if (length > NAME_MAX_LENGTH)
        return NULL;
    for (size_t i = 0; i < ch_param_count; i++) {
        const char *candidate = ch_param_list[i].variable;
        unsigned d = distance(name, length, candidate, strlen(candidate));

        if (d < best) {
            best = d;
            found = candidate;
        }
    }
    return found;
}

static void complain_unknown(const char *name, size_t length, ch_params_complain complain,
                             void *arg)
{
    const char *near = nearest(name, length);
    char line[256];

    snprintf(line, sizeof(line), "%.*s is not a variable of Choir%s%s%s", (int)length, name,
             near != NULL ? "; did you mean " : "", near != NULL ? near : "",
             near != NULL ? "?" : "");
    complain(arg, line);
}

static void read_variable(const char *entry, struct ch_params *out, ch_params_complain complain,
                          void *arg)
{
    size_t length = strcspn(entry, "=");
    const struct ch_param_info *info;
    char line[256];

    if (strncmp(entry, "CHOIR_", 6) != 0 || entry[length] == '\0')
        return;
    if (strncmp(entry, "CHOIR_TEST_", 11) == 0) /* the tests' own, not ours to judge */
        return;
    info = find(entry, length);
    if (info == NULL) {
        complain_unknown(entry, length, complain, arg);
    } else if (!parse_into(info, entry + length + 1, out)) {
        snprintf(line, sizeof(line), "%s: \"%.64s\" does not fit (%s); using %s", info->variable,
                 entry + length + 1, info->unit, info->def);
        complain(arg, line);
    }
}

void ch_params_parse(char *const *env, struct ch_params *out, ch_params_complain complain,
                     void *arg)
{
    for (size_t i = 0; i < ch_param_count; i++)
        parse_into(&ch_param_list[i], ch_param_list[i].def, out);
    for (; env != NULL && *env != NULL; env++)
        read_variable(*env, out, complain, arg);
}

/* Written once, under `once`. */
static struct {
    pthread_once_t once;
    struct ch_params values;
} the_params = { .once = PTHREAD_ONCE_INIT };

static void say_nothing(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static void warn(void *arg, const char *line)
{
    (void)arg;
    ch_log_warn("%s", line);
}

/* Twice: complaints are log lines, and how much to log is itself a knob. */
static void load(void)
{
    ch_params_parse(environ, &the_params.values, say_nothing, NULL);
    ch_log_set_levels(the_params.values.log);
    ch_params_parse(environ, &the_params.values, warn, NULL);
}

const struct ch_params *ch_params(void)
{
    pthread_once(&the_params.once, load);
    return &the_params.values;
}
