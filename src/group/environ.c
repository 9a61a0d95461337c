/*
 * environ.c - see environ.h. A launcher that is to be understood is one row in `sources`.
 */
#include "group/environ.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/params.h"

static const char *real_get(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

const struct ch_environ ch_environ_real = { real_get, NULL };

/* Who may have started us, in the order in which they are asked. */
static const struct source {
    const char *who;
    const char *rank, *nranks, *local_rank, *local_nranks;
    bool has_kvs; /* its ranks share a key-value space through which they can meet */
} sources[] = {
    { "choir run (CHOIR_RANK, CHOIR_SIZE)", "CHOIR_RANK", "CHOIR_SIZE", "CHOIR_LOCAL_RANK",
      "CHOIR_LOCAL_SIZE", false },
    { "torchrun (RANK, WORLD_SIZE)", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      false },
    { "Slurm (SLURM_PROCID, SLURM_NTASKS)", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL,
      true },
    { "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)", "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", true },
    { "MPICH (PMI_RANK, PMI_SIZE)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
      true },
};

/* --- reading variables -------------------------------------------------------------------------- */

/* An empty variable counts as one that is not set, as PyTorch has it. */
static const char *ask(const struct ch_environ *env, const char *name)
{
    const char *value = name != NULL ? env->get(env->arg, name) : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static choir_status parse_number(const char *name, const char *text, int least, int *out)
{
    int64_t value;

    if (!ch_parse_int(text, &value) || value < least || value > INT_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "%s is \"%.40s\", expected a whole number from %d", name,
                       text, least);
    *out = (int)value;
    return CHOIR_OK;
}

static choir_status check_rank(const char *who, int rank, int nranks)
{
    if (rank >= nranks)
        return ch_fail(CHOIR_ERR_INVALID, "%s: rank %d of %d ranks, expected 0 to %d", who, rank,
                       nranks, nranks - 1);
    return CHOIR_OK;
}

/* --- rank and size ------------------------------------------------------------------------------ */

static bool tells(const struct source *source, const struct ch_environ *env)
{
    return ask(env, source->rank) != NULL && ask(env, source->nranks) != NULL;
}

static choir_status read_source(const struct source *source, const struct ch_environ *env,
                                int *rank_out, int *nranks_out)
{
    choir_status rc = parse_number(source->rank, ask(env, source->rank), 0, rank_out);

    if (rc == CHOIR_OK)
        rc = parse_number(source->nranks, ask(env, source->nranks), 1, nranks_out);
    if (rc == CHOIR_OK)
        rc = check_rank(source->who, *rank_out, *nranks_out);
    return rc;
}

/* Local rank and size are hints: what does not parse is not told. */
static void read_local(const struct source *source, const struct ch_environ *env,
                       struct ch_whereabouts *out)
{
    const char *rank = ask(env, source->local_rank), *nranks = ask(env, source->local_nranks);
    int64_t value;

    if (rank != NULL && ch_parse_int(rank, &value) && value >= 0 && value < out->nranks)
        out->local_rank = (int)value;
    if (nranks != NULL && ch_parse_int(nranks, &value) && value >= 1 && value <= out->nranks)
        out->local_nranks = (int)value;
}

/* One of the pair without the other, and nobody who tells both: better an error than a guess. */
static choir_status refuse_half(const struct ch_environ *env)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sources); i++) {
        bool rank = ask(env, sources[i].rank) != NULL, size = ask(env, sources[i].nranks) != NULL;

        if (rank != size && !sources[i].has_kvs)
            return ch_fail(CHOIR_ERR_INVALID, "%s is set, %s expected, but not set",
                           rank ? sources[i].rank : sources[i].nranks,
                           rank ? sources[i].nranks : sources[i].rank);
    }
    return CHOIR_OK;
}

/* The first row that tells; NULL if none does. */
static const struct source *first_source(const struct ch_environ *env)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sources); i++) {
        if (tells(&sources[i], env))
            return &sources[i];
    }
    return NULL;
}

/* One warning, naming both, for the first that tells something else than what was chosen. */
static void warn_of_others(const struct ch_whereabouts *chosen, const struct ch_environ *env)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sources); i++) {
        int rank, nranks;

        if (!tells(&sources[i], env) || read_source(&sources[i], env, &rank, &nranks) != CHOIR_OK ||
            (rank == chosen->rank && nranks == chosen->nranks))
            continue;
        ch_log_warn("rank %d of %d by %s, but rank %d of %d by %s: the first is taken",
                    chosen->rank, chosen->nranks, chosen->source, rank, nranks, sources[i].who);
        return;
    }
}

/* --- the URL ------------------------------------------------------------------------------------ */

/* The value of `name` in "a=1&b=2": its length, and where it starts; NULL if it is not there. */
static const char *query_value(const char *query, const char *name, size_t *length_out)
{
    size_t length = strlen(name);

    while (*query != '\0') {
        size_t part = strcspn(query, "&");

        if (strncmp(query, name, length) == 0 && query[length] == '=') {
            *length_out = part - length - 1;
            return query + length + 1;
        }
        query += part + (query[part] == '&');
    }
    return NULL;
}

static choir_status query_number(const char *query, const char *name, int least, bool *there_out,
                                 int *out)
{
    char text[24], what[48];
    size_t length;
    const char *value = query_value(query, name, &length);

    *there_out = value != NULL;
    if (value == NULL)
        return CHOIR_OK;
    snprintf(text, sizeof(text), "%.*s", (int)(length < 23 ? length : 23), value);
    snprintf(what, sizeof(what), "%s in the URL's query", name);
    return parse_number(what, text, least, out);
}

/* Rank and size from the query; none if it names neither. */
static choir_status read_query(const char *query, const choir_init_opts *opts, bool *found_out,
                               struct ch_whereabouts *out)
{
    bool rank = false, size = false;
    choir_status rc = query_number(query, "rank", 0, &rank, &out->rank);

    if (rc == CHOIR_OK)
        rc = query_number(query, "world_size", 1, &size, &out->nranks);
    if (rc != CHOIR_OK)
        return rc;
    if ((rank || size) && opts->nranks > 0)
        return ch_fail(CHOIR_ERR_INVALID, "node-specific arguments: rank and size are given as "
                                          "arguments and in the URL");
    if (rank != size)
        return ch_fail(CHOIR_ERR_INVALID, "%s parameter missing in the URL",
                       rank ? "world size (world_size=N)" : "rank (rank=R)");
    *found_out = rank && size;
    return *found_out ? check_rank("the URL", out->rank, out->nranks) : CHOIR_OK;
}

static bool has_scheme(const char *url, const char *scheme)
{
    size_t length = strlen(scheme);

    return strncmp(url, scheme, length) == 0 && strncmp(url + length, "://", 3) == 0;
}

/* "host:port" with a port that can be. */
static choir_status check_port(const char *where, size_t length)
{
    const char *colon = NULL;
    int port = -1;
    char text[24];

    for (const char *p = where; p < where + length; p++) {
        if (*p == ':')
            colon = p;
        if (*p == ']')
            colon = NULL; /* those before belong to an IPv6 address */
    }
    if (colon == NULL || colon + 1 == where + length)
        return ch_fail(CHOIR_ERR_INVALID, "port number missing in \"%.*s\"", (int)length, where);
    snprintf(text, sizeof(text), "%.*s", (int)(where + length - colon - 1), colon + 1);
    if (parse_number("the port", text, 0, &port) != CHOIR_OK || port > 65535)
        return ch_fail(CHOIR_ERR_INVALID, "port \"%s\", expected a number from 0 to 65535", text);
    return CHOIR_OK;
}

static choir_status keep_url(struct ch_whereabouts *out, enum ch_meeting meeting, const char *fmt,
                             ...) CH_PRINTF(3, 4);

static choir_status keep_url(struct ch_whereabouts *out, enum ch_meeting meeting, const char *fmt,
                             ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(out->url, sizeof(out->url), fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof(out->url))
        return ch_fail(CHOIR_ERR_INVALID, "a URL of %d characters, at most %d are allowed", length,
                       CH_URL_MAX - 1);
    out->meeting = meeting;
    return CHOIR_OK;
}

/* A URL that names a place, which env:// does not. */
static choir_status place_of_url(const char *url, struct ch_whereabouts *out)
{
    const char *where = strstr(url, "://") + 3, *query = strchr(url, '?');
    size_t length = query != NULL ? (size_t)(query - where) : strlen(where), protocol;
    choir_status rc;

    if (has_scheme(url, "file")) {
        if (length == 0 || where[0] != '/')
            return ch_fail(CHOIR_ERR_INVALID, "path missing in \"%s\": expected file:///path", url);
        return keep_url(out, CH_MEET_STORE, "file://%.*s", (int)length, where);
    }
    rc = check_port(where, length);
    if (rc != CHOIR_OK)
        return rc;
    if (query != NULL && query_value(query + 1, "protocol", &protocol) != NULL)
        return keep_url(out, CH_MEET_STORE, "tcp://%.*s?protocol=%.*s", (int)length, where,
                        (int)protocol, query_value(query + 1, "protocol", &protocol));
    return keep_url(out, CH_MEET_SERVE, "tcp://%.*s", (int)length, where);
}

static choir_status check_scheme(const char *url)
{
    if (has_scheme(url, "env") || has_scheme(url, "tcp") || has_scheme(url, "file"))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID,
                   "\"%.80s\" is not a place to meet: expected env://, tcp://host:port or "
                   "file:///path",
                   url);
}

/* --- where to meet, if no URL says so ------------------------------------------------------------ */

static choir_status place_of_master(const struct ch_environ *env, struct ch_whereabouts *out)
{
    const char *host = ask(env, "MASTER_ADDR"), *port = ask(env, "MASTER_PORT");
    const char *agent = ask(env, "TORCHELASTIC_USE_AGENT_STORE");
    bool v6 = strchr(host, ':') != NULL && host[0] != '[';
    bool served = agent != NULL && strcmp(agent, "True") == 0;
    int number = -1;

    if (parse_number("MASTER_PORT", port, 0, &number) != CHOIR_OK || number > 65535)
        return ch_fail(CHOIR_ERR_INVALID,
                       "MASTER_PORT is \"%.40s\", expected a number from 0 to 65535", port);
    return keep_url(out, served ? CH_MEET_AGENT : CH_MEET_SERVE, "tcp://%s%s%s:%d%s", v6 ? "[" : "",
                    host, v6 ? "]" : "", number, served ? "?protocol=torch" : "");
}

static choir_status no_place(const struct ch_environ *env, bool asked_for)
{
    const char *addr = ask(env, "MASTER_ADDR"), *port = ask(env, "MASTER_PORT");

    if (asked_for || addr != NULL || port != NULL)
        return ch_fail(CHOIR_ERR_INVALID, "env://: %s expected, but not set",
                       addr == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    return ch_fail(CHOIR_ERR_INVALID, "the ranks have no place to meet: start them with choir run, "
                                      "torchrun, mpirun or srun, or give a URL (tcp://host:port, "
                                      "file:///path), or set MASTER_ADDR and MASTER_PORT");
}

static choir_status place_of_environment(const struct ch_environ *env, const struct source *source,
                                         bool asked_for, struct ch_whereabouts *out)
{
    const char *store = ask(env, "CHOIR_STORE");

    if (store != NULL && !has_scheme(store, "tcp") && !has_scheme(store, "file"))
        return ch_fail(CHOIR_ERR_INVALID,
                       "CHOIR_STORE is \"%.80s\", expected tcp://host:port or file:///path", store);
    if (store != NULL)
        return keep_url(out, CH_MEET_STORE, "%s", store);
    if (ask(env, "MASTER_ADDR") != NULL && ask(env, "MASTER_PORT") != NULL)
        return place_of_master(env, out);
    if (out->nranks == 1)
        return keep_url(out, CH_MEET_ALONE, "hash://");
    if (source != NULL && source->has_kvs)
        return keep_url(out, CH_MEET_LAUNCHER, "%s", "");
    return no_place(env, asked_for);
}

/* --- all of it ---------------------------------------------------------------------------------- */

static choir_status find_rank(const choir_init_opts *opts, const char *query,
                              const struct ch_environ *env, const struct source **source_out,
                              struct ch_whereabouts *out)
{
    const struct source *source = first_source(env);
    bool in_query = false;
    choir_status rc = read_query(query, opts, &in_query, out);

    if (rc != CHOIR_OK)
        return rc;
    *source_out = source;
    if (in_query) {
        out->source = "the URL";
    } else if (opts->nranks > 0) {
        out->rank = opts->rank;
        out->nranks = opts->nranks;
        out->source = "the caller's arguments";
        rc = opts->rank < 0
                 ? ch_fail(CHOIR_ERR_INVALID, "argument rank is %d, expected 0 or more", opts->rank)
                 : check_rank(out->source, opts->rank, opts->nranks);
    } else if (source != NULL) {
        out->source = source->who;
        rc = read_source(source, env, &out->rank, &out->nranks);
    } else {
        out->rank = 0;
        out->nranks = 1;
        out->source = "no launcher";
        rc = refuse_half(env);
    }
    return rc;
}

static void read_rest(const choir_init_opts *opts, const struct ch_environ *env,
                      struct ch_whereabouts *out)
{
    const char *fd = ask(env, "CHOIR_TOKEN_FD");
    const char *attempt = ask(env, "TORCHELASTIC_RESTART_COUNT");
    int64_t number;

    out->attempt = attempt != NULL ? attempt : "0";
    out->run_id = ask(env, "TORCHELASTIC_RUN_ID");
    out->bind = ask(env, "CHOIR_STORE_BIND");
    out->token_file = opts->token_file != NULL ? opts->token_file : ask(env, "CHOIR_TOKEN_FILE");
    if (opts->token_file == NULL && fd != NULL && ch_parse_int(fd, &number) && number >= 0 &&
        number <= INT_MAX)
        out->token_fd = (int)number;
}

choir_status ch_whereabouts_find(const choir_init_opts *opts, const struct ch_environ *env,
                                 struct ch_whereabouts *out)
{
    const char *url = opts->url != NULL ? opts->url : "env://";
    const char *query = strchr(url, '?');
    const struct source *source;
    choir_status rc;

    *out = (struct ch_whereabouts){ .local_rank = -1, .local_nranks = -1, .token_fd = -1 };
    rc = check_scheme(url);
    if (rc == CHOIR_OK)
        rc = find_rank(opts, query != NULL ? query + 1 : "", env, &source, out);
    if (rc == CHOIR_OK && !has_scheme(url, "env") && strcmp(out->source, "no launcher") == 0)
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "rank parameter missing: \"%s\" tells where to meet, and "
                     "neither arguments nor environment which rank this is",
                     url);
    if (rc != CHOIR_OK)
        return rc;
    read_rest(opts, env, out);
    if (source != NULL)
        read_local(source, env, out);
    warn_of_others(out, env);
    if (has_scheme(url, "env"))
        return place_of_environment(env, source, opts->url != NULL, out);
    return place_of_url(url, out);
}
