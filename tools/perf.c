/*
 * perf.c - `choir perf`: measure an operation. Read perf.h first.
 *
 * Called by hand it hands over to `choir run`, which starts this command again as every rank; or makes
 * threads. As a rank it joins the group and goes through the sizes; rank 0 prints.
 */
#include "perf.h"
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    const struct perf_options *options;
    FILE *page;
    int processors;
    int code; /* written by rank 0 alone */
};

/* --- which algorithm --------------------------------------------------------------------------------- */

static const char *library_name(enum perf_op op)
{
    return op == PERF_REDUCESCATTER ? "reduce_scatter" : perf_op_name(op);
}

/* What choir explain says of it: the word behind "algorithm". */
static void take_algo(const char *text, char *out, size_t size)
{
    const char *at = strstr(text, "\nalgorithm");

    if (at == NULL)
        return;
    at += strlen("\nalgorithm");
    at += strspn(at, " ");
    snprintf(out, size, "%.*s", (int)strcspn(at, ":\n "), at);
}

/* The algorithm for this size; an error if the one that was asked for cannot do it. */
static choir_status find_algo(const struct job *job, int nranks, size_t nbytes, char *out,
                              size_t size)
{
    const struct perf_options *o = job->options;
    struct perf_shape shape = perf_shape_of(o->op, 0, nranks, o->root, nbytes,
                                            choir_type_size(o->type));
    choir_blob text = { 0 };
    choir_status rc;

    out[0] = '\0';
    if (o->op == PERF_SENDRECV) {
        snprintf(out, size, "messages");
        return CHOIR_OK;
    }
    rc = choir_explain(library_name(o->op), nranks, shape.count * choir_type_size(o->type),
                       CHOIR_OPTS(explain, .algo = o->algo, .type = o->type,
                                  .root = perf_op_has_root(o->op) ? o->root : 0,
                                  .in_place = o->in_place, .one_rank = true,
                                  .processors = job->processors),
                       &text);
    if (rc != CHOIR_OK)
        return o->algo != NULL && nranks <= 256
                   ? rc
                   : CHOIR_OK; /* it explains no more ranks than that */
    take_algo((const char *)text.data, out, size);
    choir_blob_free(&text);
    return CHOIR_OK;
}

/* --- a rank ------------------------------------------------------------------------------------------ */

static bool is_rank_0(choir_group *group)
{
    return choir_group_rank(group) == 0;
}

/* CPU time of all ranks on rank 0's host. Threads share theirs. */
static choir_status host_cpu(const struct job *job, choir_group *group, double *out)
{
    bool here = true;
    choir_peer self, first;

    if (choir_group_peer(group, choir_group_rank(group), &self) == CHOIR_OK &&
        choir_group_peer(group, 0, &first) == CHOIR_OK)
        here = self.host_index == first.host_index;
    if (job->options->threads)
        here = is_rank_0(group);
    *out = here ? choir_perf_own_cpu() : 0;
    return choir_allreduce(group, CHOIR_BUF(out, 1, CHOIR_F64), NULL, NULL);
}

static bool bind_rank(const struct job *job, choir_group *group)
{
    const struct perf_options *o = job->options;
    bool fits = choir_group_local_size(group) <= job->processors;

    if (o->bind == PERF_BIND_NONE || (o->bind == PERF_BIND_AUTO && !fits))
        return false;
    return perf_bind(choir_group_local_rank(group));
}

/* Where progress is shown: whoever started us knows a terminal, as our own standard error is a pipe; or that. */
static FILE *open_terminal(const char *path)
{
    int fd = -1;

    if (path != NULL)
        fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    else if (isatty(STDERR_FILENO))
        fd = dup(STDERR_FILENO);
    return fd >= 0 ? fdopen(fd, "w") : NULL;
}

static choir_status measure_size(const struct job *job, choir_group *group, size_t nbytes,
                                 struct perf_machine *machine, struct perf_report *report)
{
    struct perf_row row = { 0 };
    double own;
    choir_status rc = find_algo(job, report->nranks, nbytes, row.algo, sizeof(row.algo));

    if (rc != CHOIR_OK) {
        if (is_rank_0(group))
            fprintf(stderr, "choir perf: %zu bytes left out: %s\n", nbytes, choir_last_error());
        return CHOIR_OK;
    }
    if (is_rank_0(group))
        choir_perf_progress(report, nbytes);
    rc = choir_perf_case(group, job->options, nbytes, &row);
    if (rc == CHOIR_OK)
        rc = host_cpu(job, group, &own);
    if (rc != CHOIR_OK)
        return rc;
    choir_perf_machine_look(machine, own);
    row.machine = *machine;
    report->rows[report->nrows++] = row;
    if (is_rank_0(group)) {
        choir_perf_progress(report, 0);
        choir_perf_put_row(report, &row);
    }
    return CHOIR_OK;
}

static choir_status measure(const struct job *job, choir_group *group, struct perf_report *report)
{
    const struct perf_options *o = job->options;
    struct perf_machine machine;
    double own;
    choir_status rc = host_cpu(job, group, &own);

    if (rc != CHOIR_OK)
        return rc;
    choir_perf_machine_begin(&machine, own);
    machine.processors = job->processors;
    if (is_rank_0(group))
        choir_perf_put_head(report, &machine);
    for (size_t nbytes = o->first; rc == CHOIR_OK && nbytes <= o->last;) {
        rc = measure_size(job, group, nbytes, &machine, report);
        if (o->op == PERF_BARRIER || nbytes > o->last / (size_t)o->factor)
            break;
        nbytes *= (size_t)o->factor;
    }
    return rc;
}

static int code_of(const struct perf_report *report)
{
    for (size_t i = 0; i < report->nrows; i++) {
        if (report->rows[i].wrong > 0)
            return EXIT_FAILURE;
    }
    return report->nrows > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Rank 0's word counts: were another rank to end the run, what rank 0 prints might be lost. */
static void finish(struct job *job, const struct perf_report *report)
{
    job->code = code_of(report);
    choir_perf_put_end(report);
    if (job->page != NULL && choir_perf_write_page(report, job->page) != 0) {
        fprintf(stderr, "choir perf: %s: %s\n", job->options->html, strerror(errno));
        job->code = EXIT_FAILURE;
    }
}

/* What a rank of choir_run_threads() runs, and a process. */
static choir_status be_rank(choir_group *group, void *arg)
{
    struct job *job = arg;
    struct perf_report report = { .options = job->options, .nranks = choir_group_size(group) };
    choir_status rc = CHOIR_ERR_NOMEM;

    report.bound = bind_rank(job, group);
    if (is_rank_0(group))
        report.terminal = open_terminal(job->options->terminal);
    report.rows = calloc(64, sizeof(*report.rows)); /* sizes double at least */
    if (report.rows != NULL)
        rc = measure(job, group, &report);
    if (rc == CHOIR_OK && is_rank_0(group))
        finish(job, &report);
    if (report.terminal != NULL)
        fclose(report.terminal);
    free(report.rows);
    return rc;
}

/* --- ranks of a run ---------------------------------------------------------------------------------- */

/* Whether somebody has started us as a rank: as choir_init() would find out. */
static bool is_started_as_rank(void)
{
    static const char *const marks[] = { "CHOIR_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (getenv(marks[i]) != NULL)
            return true;
    }
    return getenv("RANK") != NULL && getenv("WORLD_SIZE") != NULL;
}

static int check_group(choir_group *group, const struct perf_options *o)
{
    int nranks = choir_group_size(group);
    bool wrong_n = o->nranks > 0 && o->nranks != nranks;

    if (!wrong_n && !(perf_op_has_root(o->op) && o->root >= nranks))
        return 0;
    if (is_rank_0(group) && wrong_n)
        choir_cmd_usage("perf", "-n %d: the run that this is part of has %d ranks", o->nranks,
                        nranks);
    else if (is_rank_0(group))
        choir_cmd_usage("perf", "--root %d: there are %d ranks", o->root, nranks);
    choir_barrier(group, NULL, NULL); /* who leaves first ends the run, and with it rank 0's word */
    return EXIT_USAGE;
}

static bool open_page(struct job *job)
{
    if (job->options->html == NULL)
        return true;
    job->page = fopen(job->options->html, "we");
    if (job->page == NULL)
        fprintf(stderr, "choir perf: %s: %s\n", job->options->html, strerror(errno));
    return job->page != NULL;
}

static int run_as_rank(struct job *job)
{
    choir_group *group;
    int code;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "choir perf: %s\n", choir_last_error());
        return EXIT_FAILURE;
    }
    code = check_group(group, job->options);
    if (code == 0 && is_rank_0(group) && !open_page(job))
        code = EXIT_FAILURE;
    if (code == 0 && be_rank(group, job) != CHOIR_OK) {
        fprintf(stderr, "choir perf: rank %d: %s\n", choir_group_rank(group), choir_last_error());
        code = EXIT_FAILURE;
    } else if (code == 0) {
        code = job->code;
    }
    choir_group_destroy(group);
    return code;
}

/* --- starting them ------------------------------------------------------------------------------------ */

static int run_threads(struct job *job, int nranks)
{
    if (!open_page(job))
        return EXIT_FAILURE;
    if (choir_run_threads(nranks, be_rank, job) != CHOIR_OK) {
        fprintf(stderr, "choir perf: %s\n", choir_last_error());
        return EXIT_FAILURE;
    }
    return job->code;
}

/* As if by hand: choir run -n N --no-prefix --no-fold --bind none -- choir perf ... The first word is our own: the
 * keeper of the ranks writes its name there. */
static int run_processes(int argc, char **argv, int nranks)
{
    char exe[PATH_MAX], number[16], terminal[PATH_MAX] = "";
    const char *head[] = { argv[0], "--no-prefix", "--no-fold", "--bind", "none",       "-n",
                           number,  "--",          exe,         "perf",   "--terminal", terminal };
    size_t nhead = sizeof(head) / sizeof(head[0]);
    char **words = calloc(nhead + (size_t)argc + 1, sizeof(*words));
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    int code;

    if (words == NULL || n < 0) {
        perror("choir perf: cannot start ranks");
        free(words);
        return EXIT_FAILURE;
    }
    exe[n] = '\0';
    snprintf(number, sizeof(number), "%d", nranks);
    if (!isatty(STDERR_FILENO) || ttyname_r(STDERR_FILENO, terminal, sizeof(terminal)) != 0)
        nhead -= 2;
    memcpy(words, head, nhead * sizeof(*head));
    memcpy(words + nhead, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
    code = choir_cmd_run((int)nhead + argc - 1, words);
    free(words);
    return code;
}

int choir_cmd_perf(int argc, char **argv)
{
    struct perf_options options;
    struct job job = { .options = &options, .code = EXIT_SUCCESS };
    int code = choir_perf_parse(argc, argv, &options), nranks;

    if (code != 0)
        return code;
    if (options.help) {
        choir_perf_help();
        return EXIT_SUCCESS;
    }
    job.processors = choir_processors();
    if (is_started_as_rank() && !options.threads)
        return run_as_rank(&job);
    nranks = options.nranks > 0 ? options.nranks : job.processors > 1 ? job.processors : 2;
    if (perf_op_has_root(options.op) && options.root >= nranks)
        return choir_cmd_usage("perf", "--root %d: there are %d ranks", options.root, nranks);
    if (options.algo != NULL) {
        char algo[32];

        if (find_algo(&job, nranks, options.first, algo, sizeof(algo)) != CHOIR_OK &&
            find_algo(&job, nranks, options.last, algo, sizeof(algo)) != CHOIR_OK)
            return choir_cmd_usage("perf", "--algo %s: %s", options.algo, choir_last_error());
    }
    return options.threads ? run_threads(&job, nranks) : run_processes(argc, argv, nranks);
}
