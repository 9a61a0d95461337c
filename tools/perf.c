/*
 * perf.c - `choir perf`: measure an operation. Read perf.h first.
 *
 * Called by hand it hands over to `choir run`, which starts this command again as every rank; or makes
 * threads. As a rank it joins the group and goes through the sizes; rank 0 prints.
 */
#include "perf.h"
#include "commands.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    const struct perf_options *options;
    choir_machine machine; /* --explain-cost: its model */
    int processors;
    int code; /* written by rank 0 alone */
};

/* --- a rank ------------------------------------------------------------------------------------------ */

static bool is_rank_0(choir_group *group)
{
    return choir_group_rank(group) == 0;
}

static bool bind_rank(const struct job *job, choir_group *group)
{
    return job->options->bind == PERF_BIND_CORE && perf_bind(choir_group_local_rank(group));
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
    choir_status rc = choir_perf_algo(job->options, report->nranks, job->processors, nbytes,
                                      row.algo);

    if (rc != CHOIR_OK) {
        if (is_rank_0(group))
            fprintf(stderr, "choir perf: %zu bytes left out: %s\n", nbytes, choir_last_error());
        return CHOIR_OK;
    }
    if (is_rank_0(group))
        choir_perf_progress(report, nbytes);
    rc = choir_perf_case(group, job->options, nbytes, &row);
    if (rc == CHOIR_OK)
        rc = choir_perf_host_cpu(group, job->options->threads, &own);
    if (rc != CHOIR_OK)
        return rc;
    choir_perf_machine_look(machine, own);
    row.machine = *machine;
    row.model_us = choir_perf_model(&job->machine, job->options, report->nranks, nbytes, row.algo);
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
    choir_status rc = choir_perf_host_cpu(group, job->options->threads, &own);

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

static bool write_page(const struct perf_report *report)
{
    struct perf_file file;

    if (choir_perf_file_begin(&file, "perf", report->options->html) == NULL)
        return false;
    choir_perf_put_page(report, file.file);
    return choir_perf_file_end(&file);
}

/* Rank 0's word counts: were another rank to end the run, what rank 0 prints might be lost. */
static void finish(struct job *job, const struct perf_report *report)
{
    job->code = code_of(report);
    choir_perf_put_end(report);
    if (job->options->html != NULL && !write_page(report))
        job->code = EXIT_FAILURE;
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

/* What can be said when it is known how many ranks there are. 0, or EXIT_USAGE after a line, if it `speaks`. */
static int check_ranks(const struct job *job, int nranks, bool speaks)
{
    const struct perf_options *o = job->options;
    char algo[PERF_ALGO_MAX], line[512] = "";

    if (o->nranks > 0 && o->nranks != nranks)
        snprintf(line, sizeof(line), "-n %d: the run that this is part of has %d ranks", o->nranks,
                 nranks);
    else if (perf_op_has_root(o->op) && o->root >= nranks)
        snprintf(line, sizeof(line), "--root %d: there are %d ranks", o->root, nranks);
    else if (o->algo != NULL &&
             choir_perf_algo(o, nranks, job->processors, o->first, algo) != CHOIR_OK &&
             choir_perf_algo(o, nranks, job->processors, o->last, algo) != CHOIR_OK)
        snprintf(line, sizeof(line), "--algo %s: %s", o->algo, choir_last_error());
    if (line[0] == '\0')
        return 0;
    return speaks ? choir_cmd_usage("perf", "%s", line) : EXIT_USAGE;
}

static int check_group(const struct job *job, choir_group *group)
{
    int code = check_ranks(job, choir_group_size(group), is_rank_0(group));
    choir_status rc = CHOIR_OK;

    if (code == 0 && job->options->html != NULL && is_rank_0(group) &&
        !choir_perf_file_try("perf", job->options->html))
        code = EXIT_FAILURE;
    /* Only rank 0 has looked. */
    if (job->options->html != NULL)
        rc = choir_allreduce(group, CHOIR_BUF(&code, 1, CHOIR_I32),
                             CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL);
    if (rc != CHOIR_OK) {
        fprintf(stderr, "choir perf: rank %d: %s\n", choir_group_rank(group), choir_perf_why(rc));
        code = EXIT_FAILURE;
    }
    if (code != 0)
        choir_barrier(group, NULL, NULL); /* who leaves first ends the run, and rank 0's word */
    return code;
}

static int run_as_rank(struct job *job)
{
    choir_group *group;
    int code;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "choir perf: %s\n", choir_last_error());
        return EXIT_FAILURE;
    }
    job->processors = choir_group_processors(group); /* our own may be one, to which we are bound */
    code = check_group(job, group);
    if (code == 0) {
        choir_status rc = be_rank(group, job);

        code = rc == CHOIR_OK ? job->code : EXIT_FAILURE;
        if (rc != CHOIR_OK)
            fprintf(stderr, "choir perf: rank %d: %s\n", choir_group_rank(group),
                    choir_perf_why(rc));
    }
    choir_group_destroy(group);
    return code;
}

/* --- starting them ------------------------------------------------------------------------------------ */

static int run_threads(struct job *job, int nranks)
{
    choir_status rc = choir_run_threads(nranks, be_rank, job);

    if (rc != CHOIR_OK)
        fprintf(stderr, "choir perf: %s\n", choir_perf_why(rc));
    return rc == CHOIR_OK ? job->code : EXIT_FAILURE;
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
    if (options.explain_cost && !choir_perf_find_machine(options.machine, &job.machine))
        return EXIT_FAILURE;
    if (choir_perf_is_rank() && !options.threads)
        return run_as_rank(&job);
    nranks = options.nranks > 0 ? options.nranks : job.processors > 1 ? job.processors : 2;
    code = check_ranks(&job, nranks, true);
    if (code != 0)
        return code;
    if (options.html != NULL && !choir_perf_file_try("perf", options.html))
        return EXIT_FAILURE;
    return options.threads ? run_threads(&job, nranks)
                           : choir_perf_start("perf", argc, argv, nranks);
}
