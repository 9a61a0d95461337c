/*
 * trace_job.h - the flight records of a job's ranks, put together from their dumps.
 *
 * Ranks are those of the first group everywhere here. Of records that PyTorch wrote the rank is the number at the
 * end of the file's name.
 */
#ifndef CHOIR_TRACE_JOB_H
#define CHOIR_TRACE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_group {
    const char *name;
    int *ranks, nranks;
    int64_t *last; /* of each member: the number of its last collective; -1 none, JOB_UNKNOWN */
};

#define JOB_UNKNOWN INT64_MIN

enum job_state { JOB_SCHEDULED, JOB_STARTED, JOB_COMPLETED };

struct job_op {
    int rank;
    struct job_group *group;
    bool is_p2p;
    int64_t number;        /* of the group's collectives, or of its sends and receives */
    const char *name;      /* "all_reduce" */
    const char *what;      /* "1024 Float"; "" if it moves nothing */
    const char *agreement; /* what all members must have called: "all_reduce (1024 Float, sum)" */
    int peer;              /* of sends and receives; -1 any */
    int64_t tag;
    bool is_send;
    enum job_state state;
    const char *error;            /* what it failed with; NULL: it did not, or not yet */
    int64_t created_ns, ended_ns; /* wall clock; ended 0: not known */
    size_t order;                 /* in which it was read */
};

struct job_rank {
    int rank;
    const char *file, *why;
    int64_t time_ns; /* of the dump; 0: not known */
    size_t first_op, nops;
};

struct job {
    struct job_rank *ranks; /* rising */
    size_t nranks;
    struct job_group **groups;
    size_t ngroups;
    struct job_op *ops; /* those of a rank together, oldest first */
    size_t nops;

    struct json_file **files; /* in which most strings are */
    size_t nfiles;
    char **strings;
    size_t nstrings;
};

/* False, with one line in `why`, if a file cannot be read or makes no sense. End with job_free() either way. */
bool job_read(struct job *job, char *const *paths, size_t npaths, char *why, size_t why_size);

/* The same from memory, one file after the other; `name` is borrowed. Then job_arrange(). */
bool job_add(struct job *job, const char *name, const char *text, size_t nbytes, char *why,
             size_t why_size);
void job_arrange(struct job *job);

void job_free(struct job *job);

/* NULL if there is no dump of that rank. */
const struct job_rank *job_find_rank(const struct job *job, int rank);

/* Whether a rank is a member; its place, or -1. */
int job_member(const struct job_group *group, int rank);

#endif
