/*
 * environ.h - what a process learns about its place in a job from arguments and environment.
 *
 * Asks, in this order: the caller's arguments, our own variables, torchrun's, Slurm's, Open MPI's and
 * MPICH's. The first that tells both rank and size wins; another that disagrees costs one warning.
 * Nothing here talks to anybody.
 */
#ifndef CH_ENVIRON_H
#define CH_ENVIRON_H

#include <choir/group.h>

enum { CH_URL_MAX = 1024 };

/* Where variables come from; getenv() but in tests. NULL for one that is not set. */
struct ch_environ {
    const char *(*get)(void *arg, const char *name);
    void *arg;
};

/* This process's. */
extern const struct ch_environ ch_environ_real;

/* How the ranks come together. */
enum ch_meeting {
    CH_MEET_ALONE,    /* there is one rank only */
    CH_MEET_STORE,    /* in the store at `url`, which somebody else keeps */
    CH_MEET_SERVE,    /* in a store that rank 0 serves at `url`, tcp://host:port */
    CH_MEET_AGENT,    /* torchrun's store, at `url`, tells where rank 0 serves ours */
    CH_MEET_LAUNCHER, /* the launcher's own key-value space tells it */
};

struct ch_whereabouts {
    int rank, nranks;
    int local_rank, local_nranks; /* hints, -1 if not told: hosts are told apart by what they are */
    const char *source; /* who told rank and size, for people: "torchrun (RANK, WORLD_SIZE)" */
    enum ch_meeting meeting;
    char url[CH_URL_MAX];
    const char *attempt;    /* which try of the launcher's this is, "0" if not told */
    const char *run_id;     /* NULL: not told */
    int token_fd;           /* -1: none */
    const char *token_file; /* NULL: none */
    const char *bind; /* where rank 0 is to serve, if not where the URL says; NULL: not told */
};

/* Strings in *out point into `opts` and the environment.
 * Errors: CHOIR_ERR_INVALID, naming the variable or part of the URL, what it is and what was
 *         expected. */
choir_status ch_whereabouts_find(const choir_init_opts *opts, const struct ch_environ *env,
                                 struct ch_whereabouts *out);

#endif
