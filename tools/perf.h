/*
 * perf.h - what the files of `choir perf` share.
 *
 *   perf.c            the command: starts ranks, or is one; goes through the sizes
 *   perf_options.c    the command line
 *   perf_case.c       one size: buffers, the call, the values, the rounds
 *   perf_machine.c    what else the machine did meanwhile
 *   perf_model.c      which algorithm it was, and what the cost model says of it
 *   perf_start.c      ranks of our own
 *   perf_output.c     tables, JSON, progress
 *   perf_page.c       the page of --html
 *   perf_file.c       files that are there when they are whole
 *
 * perf_shape.h, perf_values.h and perf_manner.h say what is measured and how; bench/peers measures others in the
 * same manner with the same headers.
 */
#ifndef CHOIR_PERF_H
#define CHOIR_PERF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <choir/choir.h>

#include "perf_manner.h"
#include "perf_shape.h"

/* --- options (perf_options.c) ---------------------------------------------------------------------- */

enum perf_binding { PERF_BIND_CORE, PERF_BIND_NONE };

struct perf_options {
    enum perf_op op;
    int nranks;         /* 0: as many as there are processors, or as the run has */
    size_t first, last; /* bytes */
    bool ends;          /* `last` was given */
    int factor;
    int iters; /* 0: by size */
    choir_type type;
    choir_redop redop;
    int root;
    const char *memory, *algo, *html;
    const char *terminal; /* where to show progress; NULL: standard error, if that is one */
    bool fresh, in_place, threads, check, json, help;
    bool explain_cost;
    const char *machine; /* whose model; NULL: the one that choir tune has left */
    enum perf_binding bind;
};

/* 0, or EXIT_USAGE after one line. Strings stay where they are in argv. */
int choir_perf_parse(int argc, char **argv, struct perf_options *out);
void choir_perf_help(void);

/* --- the machine (perf_machine.c) ------------------------------------------------------------------- */

/* Ticks of all processors since they started. */
struct perf_ticks {
    uint64_t busy, steal, all;
};

struct perf_machine {
    char cpu[128];
    int processors; /* that a rank may count on */
    double load;    /* of the last minute, when it began */
    double
        steal; /* percent of the machine's time that the hypervisor gave to others, since it began */
    double others; /* processors kept busy by others than the ranks, on average since it began */
    bool quiet;    /* neither is much */
    struct perf_ticks began;
    double own_began;
};

/* CPU time so far of all ranks on rank 0's host, in seconds. Threads share theirs. All ranks call it. */
choir_status choir_perf_host_cpu(choir_group *group, bool threads, double *out);

/* The processor's model, as the kernel says. */
void choir_perf_cpu(char *out, size_t size);

void choir_perf_machine_begin(struct perf_machine *machine, double own);
/* `own` is what choir_perf_host_cpu() says. */
void choir_perf_machine_look(struct perf_machine *machine, double own);
/* A loud word: it was not quiet. */
void choir_perf_put_noise(const char *command, const struct perf_machine *machine);

/* --- the model (perf_model.c) ------------------------------------------------------------------------ */

enum { PERF_ALGO_MAX = 32 };

/* Which algorithm the library takes at this size, empty if that is not known; an error if the one that was asked for
 * cannot do it. */
choir_status choir_perf_algo(const struct perf_options *options, int nranks, int processors,
                             size_t nbytes, char algo_out[PERF_ALGO_MAX]);

/* What it should cost on that machine, in microseconds; 0 if the model has no word on it. */
double choir_perf_model(const choir_machine *machine, const struct perf_options *options,
                        int nranks, size_t nbytes, const char *algo);

/* The machine in `path`, or the one that choir tune has left for this processor, or with a word to standard error one of no
 * particular figures. False after a line if it cannot be read. */
bool choir_perf_find_machine(const char *path, choir_machine *out);

/* --- starting ranks (perf_start.c) ------------------------------------------------------------------- */

/* Whether somebody has started us as a rank: as choir_init() would find out. */
bool choir_perf_is_rank(void);
/* Start `nranks` of this very command with its arguments through choir run; the exit code. */
int choir_perf_start(const char *command, int argc, char **argv, int nranks);

/* --- files (perf_file.c) ------------------------------------------------------------------------------ */

/* Links lead to the place, and stay; a pipe or a device is nothing to put another file in the place of, and is written to. So
 * is a file in a folder that takes no other beside it. Who may read and write a file that was there may do so afterwards. */
struct perf_file {
    const char *command, *name;
    char path[PATH_MAX], draft[PATH_MAX + 16];
    bool straight;  /* there is no draft */
    bool was_there; /* with this mode */
    mode_t mode;
    FILE *file;
};

/* Whether it can be written, which is better known before than after a measurement; false after a line. */
bool choir_perf_file_try(const char *command, const char *name);
/* NULL after a line. Strings are borrowed until the end. */
FILE *choir_perf_file_begin(struct perf_file *file, const char *command, const char *name);
/* False after a line; then what was there before is there still, if there was a draft. */
bool choir_perf_file_end(struct perf_file *file);

/* --- one size (perf_case.c) -------------------------------------------------------------------------- */

struct perf_row {
    size_t nbytes, count;     /* as asked for, and what it came to in elements */
    char algo[PERF_ALGO_MAX]; /* empty: not known */
    double model_us;          /* what the cost model says; 0: nothing */
    int rounds;
    struct perf_times us;
    double algbw, busbw; /* GB/s, from p50 */
    uint64_t wrong;
    struct perf_machine machine;
};

/* Measure one size; *row_out is the same on all ranks but for the machine. */
choir_status choir_perf_case(choir_group *group, const struct perf_options *options, size_t nbytes,
                             struct perf_row *row_out);

/* The library's words if it was the library that failed; what fails here lacks nothing but memory. */
const char *choir_perf_why(choir_status rc);

/* --- output, of rank 0 (perf_output.c, perf_page.c) --------------------------------------------------- */

struct perf_report {
    const struct perf_options *options;
    int nranks;
    bool bound;
    FILE *terminal; /* where progress is shown; NULL: nowhere */
    struct perf_row *rows;
    size_t nrows;
};

void choir_perf_put_head(const struct perf_report *report, const struct perf_machine *machine);
void choir_perf_put_row(const struct perf_report *report, const struct perf_row *row);
void choir_perf_put_end(const struct perf_report *report);
void choir_perf_progress(const struct perf_report *report, size_t nbytes); /* 0: wipe it away */
void choir_perf_put_page(const struct perf_report *report, FILE *page);

/* How far the model is from p50, in percent. */
double choir_perf_off(const struct perf_row *row);

/* "sum" where it counts, else "none". */
const char *choir_perf_redop(const struct perf_options *options);

#endif
