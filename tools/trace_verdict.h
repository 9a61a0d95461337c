/*
 * trace_verdict.h - what is wrong in a job, as far as its flight records tell.
 *
 * All members of a group make the same collectives in the same order, under the same numbers. The first number at
 * which they differ is where it went wrong; what comes later follows from it. Sends and receives are looked at in
 * pairs. Of several findings the first is the one whose culprit is not itself held up by another.
 */
#ifndef CHOIR_TRACE_VERDICT_H
#define CHOIR_TRACE_VERDICT_H

#include <stddef.h>

#include "trace_job.h"

enum finding_kind {
    FINDING_SKIPPED,   /* the culprit left one out and went on to the next */
    FINDING_MISMATCH,  /* it called something else */
    FINDING_BEHIND,    /* it has not come yet */
    FINDING_UNMATCHED, /* a send without its receive, or the other way round */
    FINDING_NO_RECORD, /* others wait, and there is no record of it */
    FINDING_FAILED,    /* calls agree, but it failed */
    FINDING_UNDER_WAY, /* calls agree, all are in it */
};

struct finding {
    enum finding_kind kind;
    const struct job_op *op; /* what the others called */
    int *culprits, *others;
    size_t nculprits, nothers;
    bool held_up; /* the culprit itself waits in something else */
    char *text;   /* one line, without its end */
};

struct verdict {
    struct finding *findings; /* the most telling first */
    size_t nfindings;
    char **ranks; /* one line for each of job->ranks: what it was doing */
    size_t nranks;
};

/* False: no memory. End with verdict_free() either way. */
bool verdict_make(const struct job *job, struct verdict *verdict);
void verdict_free(struct verdict *verdict);

const char *finding_name(enum finding_kind kind);

/* Whether a rank had not left that operation when its record was written, and for how long, in ns. */
bool op_is_waiting(const struct job_op *op);
int64_t op_age_ns(const struct job *job, const struct job_op *op);

#endif
