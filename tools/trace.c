/*
 * trace.c - `choir trace`: what the flight records of a job's ranks say, in words.
 */
#include "commands.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trace_job.h"
#include "trace_verdict.h"

static void help(void)
{
    printf(
        "usage: choir trace [--json] FILE...\n\n"
        "Tells from the flight records of a job's ranks what each was doing and where they differ;\n"
        "the first line is the verdict. FILEs are JSON, as choir_trace_dump_file() writes them, or the\n"
        "ranks themselves into the folder CHOIR_TRACE_DIR when a group fails.\n\n"
        "  --json           the same as one JSON object\n");
}

static bool is_wrong(const struct finding *f)
{
    return f->kind != FINDING_UNDER_WAY;
}

/* Why the records were written, each reason once: of what failed, the words of the error. */
static void print_reasons(const struct job *job)
{
    for (size_t i = 0; i < job->nranks; i++) {
        const char *why = job->ranks[i].why;
        size_t first = 0;

        if (why == NULL || *why == '\0')
            continue;
        while (job->ranks[first].why == NULL || strcmp(job->ranks[first].why, why) != 0)
            first++;
        if (first == i)
            printf("written because: %s\n", why);
    }
}

static void print_text(const struct job *job, const struct verdict *v)
{
    if (v->nfindings == 0 || !is_wrong(&v->findings[0]))
        printf("nothing wrong is to be seen: the calls of %zu rank%s agree\n", job->nranks,
               job->nranks == 1 ? "" : "s");
    for (size_t i = 0; i < v->nfindings; i++)
        printf("%s%s\n", i > 0 && is_wrong(&v->findings[i]) ? "also: " : "", v->findings[i].text);
    for (size_t i = 0; i < v->nranks; i++)
        printf("%s\n", v->ranks[i]);
    print_reasons(job);
}

static void print_ranks(const char *key, const int *ranks, size_t n)
{
    printf(", \"%s\": [", key);
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i > 0 ? ", " : "", ranks[i]);
    printf("]");
}

static void print_finding(const struct job *job, const struct finding *f)
{
    printf("{\"kind\": \"%s\", \"text\": ", finding_name(f->kind));
    choir_cmd_json(stdout, f->text);
    printf(", \"operation\": ");
    choir_cmd_json(stdout, f->op->name);
    printf(", \"number\": %lld, \"group\": ", (long long)f->op->number);
    choir_cmd_json(stdout, f->op->group->name);
    printf(", \"age_ms\": %lld", (long long)(op_age_ns(job, f->op) / 1000000));
    print_ranks("culprits", f->culprits, f->nculprits);
    print_ranks("others", f->others, f->nothers);
    printf("}");
}

static void print_json(const struct job *job, const struct verdict *v)
{
    bool wrong = v->nfindings > 0 && is_wrong(&v->findings[0]);

    printf("{\"wrong\": %s, \"findings\": [", wrong ? "true" : "false");
    for (size_t i = 0; i < v->nfindings; i++) {
        printf("%s", i > 0 ? ",\n  " : "\n  ");
        print_finding(job, &v->findings[i]);
    }
    printf("],\n\"ranks\": [");
    for (size_t i = 0; i < v->nranks; i++) {
        printf("%s{\"rank\": %d, \"operations\": %zu, \"text\": ", i > 0 ? ",\n  " : "\n  ",
               job->ranks[i].rank, job->ranks[i].nops);
        choir_cmd_json(stdout, v->ranks[i]);
        printf(", \"file\": ");
        choir_cmd_json(stdout, job->ranks[i].file);
        printf(", \"why\": ");
        choir_cmd_json(stdout, job->ranks[i].why);
        printf("}");
    }
    printf("]}\n");
}

static int trace(char *const *paths, size_t npaths, bool as_json)
{
    struct job job = { 0 };
    struct verdict verdict = { 0 };
    char why[512];
    int code = EXIT_FAILURE;

    if (!job_read(&job, paths, npaths, why, sizeof(why))) {
        fprintf(stderr, "choir trace: %s\n", why);
    } else if (!verdict_make(&job, &verdict)) {
        fprintf(stderr, "choir trace: no memory\n");
    } else {
        (as_json ? print_json : print_text)(&job, &verdict);
        code = EXIT_SUCCESS;
    }
    verdict_free(&verdict);
    job_free(&job);
    return code;
}

int choir_cmd_trace(int argc, char **argv)
{
    bool as_json = false;
    int i;

    for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return EXIT_SUCCESS;
        }
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--json") != 0)
            return choir_cmd_usage("trace", "there is no option \"%s\"", argv[i]);
        as_json = true;
    }
    if (i == argc)
        return choir_cmd_usage("trace", "a file is missing");
    return trace(argv + i, (size_t)(argc - i), as_json);
}
