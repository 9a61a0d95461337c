/*
 * trace_fuzz.c - any bytes as the flight records of a job, one file after the other with a NUL between.
 *
 * What is refused is refused in words; of what is taken there is a verdict, and a line for every rank.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/trace_job.h"
#include "../../tools/trace_verdict.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool add_all(struct job *job, const char *text, size_t nbytes, char *why, size_t why_size)
{
    static const char *const names[] = { "rank_0.json", "rank_1.json", "rank_2.json",
                                         "rank_3.json" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && nbytes > 0; i++) {
        const char *end = memchr(text, '\0', nbytes);
        size_t n = end != NULL ? (size_t)(end - text) : nbytes;

        if (!job_add(job, names[i], text, n, why, why_size))
            return false;
        text += end != NULL ? n + 1 : n;
        nbytes -= end != NULL ? n + 1 : n;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct job job = { 0 };
    struct verdict verdict = { 0 };
    char why[256] = "";

    if (!add_all(&job, (const char *)data, size, why, sizeof(why))) {
        check(why[0] != '\0');
    } else {
        job_arrange(&job);
        check(verdict_make(&job, &verdict) && verdict.nranks == job.nranks);
        for (size_t i = 0; i < verdict.nfindings; i++)
            check(verdict.findings[i].text != NULL && verdict.findings[i].text[0] != '\0');
    }
    verdict_free(&verdict);
    job_free(&job);
    return 0;
}
