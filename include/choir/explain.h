/*
 * explain.h - what the library would do for an operation: which algorithm, why, its steps, its cost.
 *
 * Nothing is moved and no group is needed; it is what `choir explain` prints.
 */
#ifndef CHOIR_EXPLAIN_H
#define CHOIR_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/export.h>
#include <choir/opts.h>
#include <choir/status.h>
#include <choir/store.h>
#include <choir/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_explain_opts {
    size_t size;      /* sizeof(choir_explain_opts); CHOIR_OPTS() fills it in */
    const char *algo; /* an algorithm by name; NULL: the one that would be chosen */
    choir_type type;  /* of the elements */
    int root;         /* of operations that have one */
    bool in_place;    /* input and output are one buffer */
    bool apart;       /* the ranks do not share memory: messages only */
    bool one_rank;    /* text: the steps of `rank` alone, not of all */
    int rank;
    int processors; /* that the ranks share; 0: as many as this process has (choir_processors()) */
} choir_explain_opts;

/*
 * Explain one operation ("allreduce") of `nranks` ranks. `nbytes` is the larger of a rank's input and output, as
 * nccl-tests count. CHOIR_ALGO is obeyed.
 * Ownership: *text_out, which ends with a NUL, is the caller's, for choir_blob_free().
 * Threads:   any number at once.
 * Errors:    CHOIR_ERR_INVALID names what is wrong, and for names what there is; CHOIR_ERR_UNSUPPORTED if no
 *            algorithm can do it.
 */
CHOIR_API choir_status choir_explain(const char *operation, int nranks, size_t nbytes,
                                     const choir_explain_opts *opts, choir_blob *text_out);

/* The same as a drawing: a lane for each rank, a box for each step, arrows from whom it waits for. */
CHOIR_API choir_status choir_explain_svg(const char *operation, int nranks, size_t nbytes,
                                         const choir_explain_opts *opts, choir_blob *svg_out);

#ifdef __cplusplus
}
#endif
#endif
