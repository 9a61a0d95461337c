/*
 * simulate.h - what operations would cost on a machine that is described in figures, here or elsewhere.
 *
 * The schedules of an operation are played under a model: so long for a wait, so long for a byte. It is what
 * `choir simulate` prints, and what `choir perf --explain-cost` compares with the clock.
 */
#ifndef CHOIR_SIMULATE_H
#define CHOIR_SIMULATE_H

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

enum { CHOIR_MACHINE_POINTS = 32 };

/* What bytes cost in operations of some size: caches make it differ. Reads and writes are both counted. */
typedef struct choir_machine_point {
    double nbytes;     /* of an all-reduce, or of an operation whose buffers are as large as its */
    double copy_gbs;   /* by one rank */
    double reduce_gbs; /* the same for reductions */
} choir_machine_point;

typedef struct choir_machine {
    size_t size;        /* sizeof(choir_machine) */
    char cpu[128];      /* its model; empty: not said */
    int ranks_per_host; /* that share memory; 0: all of them */
    double call_us;     /* every operation, on every rank */
    double wait_us;     /* from raising a flag to a waiting rank's seeing it */
    double message_us;  /* every message, of the processor of its sender and of its receiver */
    double host_us, host_gbs; /* a message inside a host: on its way, and its bytes */
    double net_us, net_gbs;   /* the same between hosts */
    int npoints;
    choir_machine_point points[CHOIR_MACHINE_POINTS]; /* by rising size */
} choir_machine;

/* Figures of no machine in particular: a server of these years, one rank on each host, a network of 100 Gbit/s. */
CHOIR_API void choir_machine_init(choir_machine *machine);

/*
 * A description as text: lines of a name and a value, such as "wait_us 0.3", or "point 65536 10.5 8.1"; what it does not say is as
 * choir_machine_init() has it, and # starts a comment.
 * Errors: CHOIR_ERR_INVALID names the line; CHOIR_ERR_IO for a file that cannot be read.
 */
CHOIR_API choir_status choir_machine_parse(const char *text, choir_machine *out);
CHOIR_API choir_status choir_machine_load(const char *path, choir_machine *out);
/* Where the figures of this machine are, from which the library chooses algorithms if they are there: CHOIR_MACHINE says, or a
 * place by processor model below XDG_CONFIG_HOME or HOME. CHOIR_ERR_UNSUPPORTED if there is none, or none is wanted. */
CHOIR_API choir_status choir_machine_path(char *out, size_t size);
/* *text_out, which ends with a NUL, is the caller's, for choir_blob_free(). */
CHOIR_API choir_status choir_machine_print(const choir_machine *machine, choir_blob *text_out);

typedef struct choir_simulate_opts {
    size_t size;     /* filled in by CHOIR_OPTS */
    choir_type type; /* of the elements; sums of 16- and 8-bit floats travel as f32 */
    int root;        /* of operations that have one */
    bool in_place;   /* input and output are one buffer */
} choir_simulate_opts;

/* One algorithm. Messages and their bytes are those that the busiest rank sends, or receives, if these are more; bytes moved are
 * those of the rank that moves most. */
typedef struct choir_simulated {
    const char *algo;
    const char *objection; /* why it was not played; NULL: it was */
    const char *how;       /* "all ranks", or "one for all", where all ranks do the same */
    double us, messages, sent, moved;
} choir_simulated;

/* Below which nothing can be, with messages: the time of what must follow one another and must pass the busiest rank, and its bytes.
 * Messages are the rounds it takes at least in each of which a rank sends to one other and receives from one. */
typedef struct choir_simulate_bound {
    double us, messages, sent;
} choir_simulate_bound;

enum { CHOIR_SIMULATED_MOST = 16 };

/*
 * Play one operation ("allreduce") of `nranks` ranks, 2 to 65536, by every algorithm it has. `nbytes` is the larger of a rank's
 * input and output.
 * Threads: any number at once.
 * Errors:  CHOIR_ERR_INVALID names what is wrong.
 */
CHOIR_API choir_status choir_simulate(const char *operation, int nranks, size_t nbytes,
                                      const choir_machine *machine, const choir_simulate_opts *opts,
                                      choir_simulated rows_out[CHOIR_SIMULATED_MOST],
                                      size_t *nrows_out, choir_simulate_bound *bound_out);

#ifdef __cplusplus
}
#endif
#endif
