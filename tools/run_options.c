/*
 * run_options.c - the command line of `choir run`, from run_options.def to struct run_options.
 */
#include "run.h"
#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option {
#define RUN_OPTION(NAME, spelling, argument, help, expects) OPTION_##NAME,
#include "run_options.def"
#undef RUN_OPTION
    NOPTIONS
};

static const struct {
    const char *spelling, *argument, *help, *expects;
} options[NOPTIONS] = {
#define RUN_OPTION(NAME, spelling, argument, help, expects) { spelling, argument, help, expects },
#include "run_options.def"
#undef RUN_OPTION
};

void choir_run_help(void)
{
    printf("usage: choir run [options] [--] PROGRAM [ARGUMENTS]\n\n");
    for (int i = 0; i < NOPTIONS; i++) {
        char left[64];

        if (options[i].help == NULL)
            continue;
        snprintf(left, sizeof(left), "--%s%s%s", options[i].spelling,
                 options[i].argument != NULL ? " " : "",
                 options[i].argument != NULL ? options[i].argument : "");
        printf("  %-22s %s\n", left, options[i].help);
    }
    printf("\nThe exit code is that of the rank that failed first, 128+N if signal N killed it.\n"
           "man choir-run says more.\n");
}

/* --- values ----------------------------------------------------------------------------------------- */

static bool parse_int(const char *text, int low, int high, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return false;
    *out = (int)value;
    return true;
}

static bool parse_seconds(const char *text, bool zero, int64_t *ms_out)
{
    char *end;
    double value;

    value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= 1e9) || (!zero && value <= 0))
        return false;
    *ms_out = (int64_t)(value * 1000);
    if (value > 0 && *ms_out == 0)
        *ms_out = 1;
    return true;
}

static bool parse_range(char *text, int *first, int *last)
{
    char *dash = strchr(text, '-');

    if (dash != NULL)
        *dash++ = '\0';
    if (!parse_int(text, 0, INT_MAX, first))
        return false;
    *last = *first;
    return dash == NULL || parse_int(dash, *first, INT_MAX, last);
}

static bool parse_ranges(const char *text, struct run_ranges *out)
{
    enum { MOST = sizeof(out->of) / sizeof(out->of[0]) };
    char copy[1024], *rest = copy, *item;

    if (strlen(text) >= sizeof(copy))
        return false;
    strcpy(copy, text);
    out->count = 0;
    while ((item = strsep(&rest, ",")) != NULL) {
        if (out->count == MOST ||
            !parse_range(item, &out->of[out->count].first, &out->of[out->count].last))
            return false;
        out->count++;
    }
    return true;
}

bool choir_run_in(const struct run_ranges *ranges, int number)
{
    for (int i = 0; i < ranges->count; i++) {
        if (number >= ranges->of[i].first && number <= ranges->of[i].last)
            return true;
    }
    return ranges->count == 0;
}

/* "a:2,b" */
static bool parse_hosts(const char *text, struct run_options *out)
{
    char *copy = strdup(text), *rest = copy, *item;
    bool ok = copy != NULL && out->hosts == NULL;

    while (ok && (item = strsep(&rest, ",")) != NULL) {
        struct run_host *grown = realloc(out->hosts, ((size_t)out->nhosts + 1) * sizeof(*grown));
        char *colon = strrchr(item, ':');
        struct run_host host = { 0 };

        if (colon != NULL)
            *colon = '\0';
        ok = grown != NULL && item[0] != '\0' && item[0] != '-' &&
             (colon == NULL || parse_int(colon + 1, 1, RUN_RANKS_MAX, &host.nproc));
        if (grown != NULL)
            out->hosts = grown;
        host.name = ok ? strdup(item) : NULL;
        ok = host.name != NULL;
        if (ok)
            out->hosts[out->nhosts++] = host;
    }
    free(copy);
    return ok;
}

static bool parse_color(const char *text, enum run_choice *out)
{
    static const char *const words[] = {
        [RUN_AUTO] = "auto", [RUN_YES] = "always", [RUN_NO] = "never"
    };

    for (int i = 0; i < 3; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = (enum run_choice)i;
            return true;
        }
    }
    return false;
}

static bool parse_bind(const char *text, enum run_bind *out)
{
    if (strcmp(text, "core") != 0 && strcmp(text, "none") != 0)
        return false;
    *out = strcmp(text, "core") == 0 ? RUN_BIND_CORE : RUN_BIND_NONE;
    return true;
}

static bool add_env(char *entry, struct run_options *out)
{
    char **grown = realloc(out->env, ((size_t)out->nenv + 1) * sizeof(*grown));

    if (grown == NULL)
        return false;
    out->env = grown;
    out->env[out->nenv++] = entry;
    return entry[0] != '=' && strchr(entry, '=') != NULL;
}

/* --- one option -------------------------------------------------------------------------------------- */

static bool take_value(enum option option, char *value, struct run_options *out)
{
    switch (option) {
    case OPTION_NPROC:
        return parse_int(value, 1, RUN_RANKS_MAX, &out->nproc);
    case OPTION_BIND:
        return parse_bind(value, &out->bind);
    case OPTION_TIMEOUT:
        return parse_seconds(value, false, &out->timeout_ms);
    case OPTION_GRACE:
        return parse_seconds(value, true, &out->grace_ms);
    case OPTION_RANKS:
        out->has_ranks = true;
        return parse_ranges(value, &out->shown);
    case OPTION_OUTPUT:
        out->output = value;
        return value[0] != '\0';
    case OPTION_COLOR:
        return parse_color(value, &out->color);
    case OPTION_ENV:
        return add_env(value, out);
    case OPTION_HOSTS:
        return parse_hosts(value, out);
    case OPTION_RSH:
        out->rsh = value;
        return value[0] != '\0';
    case OPTION_REMOTE_CHOIR:
        out->remote_choir = value;
        return value[0] != '\0';
    case OPTION_NNODES:
        return parse_int(value, 1, RUN_RANKS_MAX, &out->nnodes);
    case OPTION_NODE_RANK:
        return parse_int(value, 0, RUN_RANKS_MAX - 1, &out->node);
    case OPTION_RDZV:
        out->rdzv = value;
        return value[0] != '\0' && strlen(value) < RUN_ADDRESS_MAX - 32;
    case OPTION_TOKEN_FILE:
        out->token_file = value;
        return value[0] != '\0';
    case OPTION_NO_PREFIX:
    case OPTION_FOLD:
    case OPTION_NO_FOLD:
    case OPTION_NO_TORCH_STORE:
    case OPTION_VERBOSE:
    case OPTION_HELP:
    case OPTION_CONTROLLED:
    case NOPTIONS:
        break;
    }
    return false;
}

static void take_flag(enum option option, struct run_options *out)
{
    if (option == OPTION_NO_PREFIX)
        out->no_prefix = true;
    else if (option == OPTION_FOLD || option == OPTION_NO_FOLD)
        out->fold = option == OPTION_FOLD ? RUN_YES : RUN_NO;
    else if (option == OPTION_NO_TORCH_STORE)
        out->no_torch_store = true;
    else if (option == OPTION_VERBOSE)
        out->verbose = true;
    else if (option == OPTION_HELP)
        out->help = true;
    else if (option == OPTION_CONTROLLED)
        out->controlled = true;
}

/* "--name", "--name=value", "-n", "-n4"; *value_out is what is joined to it, or NULL. */
static enum option find_option(char *word, char **value_out)
{
    *value_out = NULL;
    if (word[1] == 'n') {
        *value_out = word[2] != '\0' ? word + 2 : NULL;
        return OPTION_NPROC;
    }
    if (strcmp(word, "-v") == 0)
        return OPTION_VERBOSE;
    if (strcmp(word, "-h") == 0)
        return OPTION_HELP;
    for (int i = 0; i < NOPTIONS && word[1] == '-'; i++) {
        size_t n = strlen(options[i].spelling);

        if (strncmp(word + 2, options[i].spelling, n) != 0)
            continue;
        if (word[2 + n] == '=')
            *value_out = word + 3 + n;
        if (word[2 + n] == '=' || word[2 + n] == '\0')
            return (enum option)i;
    }
    return NOPTIONS;
}

/* Takes argv[*i] and what belongs to it; *i is at the last word taken. */
static int take(int argc, char **argv, int *i, struct run_options *out)
{
    char *word = argv[*i], *value;
    enum option option = find_option(word, &value);

    if (option == NOPTIONS)
        return choir_cmd_usage("run", "there is no option \"%s\"", word);
    if (options[option].argument == NULL) {
        if (value != NULL)
            return choir_cmd_usage("run", "--%s takes no value", options[option].spelling);
        take_flag(option, out);
        return 0;
    }
    if (value == NULL && *i + 1 >= argc)
        return choir_cmd_usage("run", "%s needs a value: %s", word, options[option].expects);
    if (value == NULL)
        value = argv[++*i];
    if (!take_value(option, value, out))
        return choir_cmd_usage("run", "--%s: \"%s\" is not %s", options[option].spelling, value,
                               options[option].expects);
    return 0;
}

/* --- all together ------------------------------------------------------------------------------------- */

static int check_nodes(const struct run_options *o)
{
    if (o->hosts != NULL && (o->nnodes > 0 || o->node >= 0))
        return choir_cmd_usage("run",
                               "--hosts starts all launchers itself: no --nnodes, --node-rank");
    if (o->hosts == NULL && (o->rsh != NULL || o->remote_choir != NULL))
        return choir_cmd_usage("run", "%s needs --hosts",
                               o->rsh != NULL ? "--rsh" : "--remote-choir");
    if (o->node >= 0 && o->nnodes == 0)
        return choir_cmd_usage("run", "--node-rank needs --nnodes");
    if (o->nnodes > 1 && o->node < 0)
        return choir_cmd_usage("run", "--nnodes %d needs --node-rank", o->nnodes);
    if (o->nnodes > 0 && o->node >= o->nnodes)
        return choir_cmd_usage("run", "--node-rank %d is not below --nnodes %d", o->node,
                               o->nnodes);
    if (o->controlled)
        return 0;
    if (o->nnodes > 1 && o->rdzv == NULL)
        return choir_cmd_usage("run", "--nnodes %d needs --rdzv HOST:PORT", o->nnodes);
    if (o->nnodes > 1 && o->token_file == NULL)
        return choir_cmd_usage("run", "--nnodes %d needs --token-file", o->nnodes);
    if (o->nnodes > 1 && strchr(o->rdzv, ':') == NULL)
        return choir_cmd_usage("run", "--rdzv: \"%s\" has no port", o->rdzv);
    if (o->nnodes <= 1 && o->hosts == NULL && o->rdzv != NULL)
        return choir_cmd_usage("run", "--rdzv needs --nnodes or --hosts");
    return 0;
}

int choir_run_parse(int argc, char **argv, bool controlled, struct run_options *out)
{
    int i, rc;

    *out = (struct run_options){
        .nproc = 1, .grace_ms = 5000, .node = -1, .controlled = controlled
    };
    for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        rc = take(argc, argv, &i, out);
        if (rc != 0)
            return rc;
        if (out->help)
            return 0;
    }
    out->program = argv + i;
    if (out->controlled && !controlled)
        return argc > i ? choir_cmd_usage("run", "--controlled takes no program") : 0;
    rc = check_nodes(out);
    if (rc == 0 && i == argc)
        rc = choir_cmd_usage("run", "a program is missing");
    return rc;
}

void choir_run_options_fini(struct run_options *o)
{
    for (int i = 0; i < o->nhosts; i++)
        free(o->hosts[i].name);
    free(o->hosts);
    free(o->env);
}
