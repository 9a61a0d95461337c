/*
 * group.h - joining a job: who the other ranks are and where.
 *
 *   choir_group *group;
 *
 *   if (choir_init(&group, NULL) != CHOIR_OK)        // asks the environment of whoever started us
 *       fprintf(stderr, "%s\n", choir_last_error());
 *   printf("rank %d of %d\n", choir_group_rank(group), choir_group_size(group));
 *   choir_group_destroy(group);
 */
#ifndef CHOIR_GROUP_H
#define CHOIR_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/export.h>
#include <choir/opts.h>
#include <choir/status.h>
#include <choir/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks that joined together. */
typedef struct choir_group choir_group;

typedef struct choir_init_opts {
    size_t size;            /* filled in by CHOIR_OPTS */
    const char *url;        /* where to meet: env://, tcp://host:port, file:///path; NULL: env:// */
    int rank, nranks;       /* who we are; nranks 0: the environment or the URL tells both */
    int64_t timeout_ms;     /* for everything together; 0: five minutes, negative: none */
    choir_store *store;     /* meet in this one instead of a URL; borrowed for the call */
    const char *token_file; /* the job token; NULL: CHOIR_TOKEN_FD or CHOIR_TOKEN_FILE, or none */
    const char *name;       /* of the group, the same on all ranks; NULL: "world" */
    bool any_thread; /* where ranks are threads: this one does not end with the thread that joins */

    /* Meet through a word that the caller carries from rank 0 to the others, by whatever means they share already:
     * rank 0 makes it, serves, and is called with it; the others are called to fill it in (text, `room` bytes with
     * its NUL). Who sees the word may join. `url` then only tells how ranks reach each other, and may be NULL.
     * Called once, by the thread that called choir_init(); a failure it returns ends that call. */
    choir_status (*carry)(void *arg, char *word, size_t room, int64_t timeout_ms);
    void *carry_arg;
} choir_init_opts;

/*
 * Join the job: find out rank and size, meet the other ranks, exchange who and where we are and, with
 * those of this host, segments, doorbells and pidfds.
 * Blocks:  until all ranks have joined, or one has failed to.
 * Errors:  CHOIR_ERR_TIMEOUT names the ranks that are missing; CHOIR_ERR_INVALID two that claim the
 *          same rank or different sizes; CHOIR_ERR_PROTO different versions or byte orders. All
 *          ranks that wait are told, not only the one that found it.
 */
CHOIR_API choir_status choir_init(choir_group **group_out, const choir_init_opts *opts);

/* Leave. A program may go on and join again. Accepts NULL. */
CHOIR_API void choir_group_destroy(choir_group *group);

CHOIR_API int choir_group_rank(const choir_group *group);
CHOIR_API int choir_group_size(const choir_group *group);

/* What tells of one rank. Strings belong to the group. */
typedef struct choir_peer {
    int rank;
    int host_index;      /* ranks that share memory have the same; counted from 0 by lowest rank */
    bool shares_memory;  /* with us */
    int64_t pid;         /* in its own pid namespace */
    const char *host;    /* its host's name */
    const char *boot_id; /* of its host */
    const char *address; /* where others reach its host */
    const char *version; /* of its library */
    const char *build;   /* how that was built */
    const char *cpu;     /* the processor's model */
} choir_peer;

CHOIR_API choir_status choir_group_peer(const choir_group *group, int rank, choir_peer *out);

/* The ranks that share memory with us: how many, ourselves included, and which we are of them. */
CHOIR_API int choir_group_local_size(const choir_group *group);
CHOIR_API int choir_group_local_rank(const choir_group *group);

/* How many processors the ranks of this host had together when they met, the same on all of them: fewer than
 * ranks if these have to take turns. Algorithms and ways to wait are chosen by it. */
CHOIR_API int choir_group_processors(const choir_group *group);

/* Whether a rank of this host still runs, as the kernel says. */
CHOIR_API choir_status choir_group_alive(const choir_group *group, int rank, bool *alive_out);

/* How rank, size and meeting place were found, in a few words, for people. */
CHOIR_API const char *choir_group_origin(const choir_group *group);

/* The store in which the ranks met, for a group that was split off below its name; stays the group's. NULL if
 * there is none. Keys that start with "choir/" are ours. */
CHOIR_API choir_store *choir_group_store(const choir_group *group);

/* --- names, numbers, state -------------------------------------------------------------------------- */

/* The same on every member, unique in this process; and free text for people. */
CHOIR_API const char *choir_group_name(const choir_group *group);
CHOIR_API const char *choir_group_description(const choir_group *group);

/* The group of that name in this process, borrowed. CHOIR_ERR_INVALID if no group ever had it,
 * CHOIR_ERR_STATE if it is destroyed. */
CHOIR_API choir_status choir_group_find(const char *name, choir_group **group_out);

/* Which rank of the first group (choir_init) a rank of this one is. */
CHOIR_API int choir_group_global_rank(const choir_group *group, int rank);

/* How many collectives, and sends and receives, were issued so far. Who calls a collective after it has seen another
 * thread's counted comes behind it. */
CHOIR_API uint64_t choir_group_collective_sequence(const choir_group *group);
CHOIR_API uint64_t choir_group_p2p_sequence(const choir_group *group);

/* How long an operation may take that is not told otherwise, 30 minutes at first; negative: for ever.
 * Those under way keep theirs. 0 is refused. */
CHOIR_API choir_status choir_group_set_timeout(choir_group *group, int64_t timeout_ms);
CHOIR_API int64_t choir_group_timeout(const choir_group *group);

/* CHOIR_OK, or what the group failed with first; the text is in *record_out, which may be NULL. A group
 * that failed stays so: every later call returns that failure at once. */
CHOIR_API choir_status choir_group_error(const choir_group *group, choir_error *record_out);

/* --- deriving and ending ---------------------------------------------------------------------------- */

typedef struct choir_group_split_opts {
    size_t size;             /* filled in by CHOIR_OPTS */
    const char *name;        /* NULL: "<parent>:split:[0, 2]" */
    const char *description; /* NULL: "<parent's>:split:<n>" */
    int64_t timeout_ms;      /* of the new group's operations; 0: the parent's */
} choir_group_split_opts;

/*
 * A group of some of the ranks: `ranks` are of `group`, rising, without repetition. Collective over `group`:
 * all of its ranks call it, each with the list it belongs to, or with an empty one; who is in no list gets
 * NULL. Lists of different callers either are the same or have no rank in common.
 */
CHOIR_API choir_status choir_group_split(choir_group *group, const int *ranks, size_t nranks,
                                         const choir_group_split_opts *opts,
                                         choir_group **child_out);

/* A group without peers, for tracing and for checking arguments: every operation is done at once. */
typedef struct choir_group_create_fake_opts {
    size_t size;              /* filled in by CHOIR_OPTS */
    bool error_on_collective; /* every collective fails */
} choir_group_create_fake_opts;

CHOIR_API choir_status choir_group_create_fake(int rank, int nranks,
                                               const choir_group_create_fake_opts *opts,
                                               choir_group **group_out);

/* End at once, from any thread, without agreement: everything pending and to come fails, here and, as soon as
 * they are told, on the other members. The group stays to be destroyed. */
CHOIR_API void choir_group_abort(choir_group *group);

/* Wait until everything issued is done and its callbacks and hooks have run; then, for shutdown, refuse what comes.
 * `timeout_ms`: how long at most; 0 or negative: as long as the operations' own deadlines allow. CHOIR_ERR_STATE in
 * a callback, which would wait for itself. */
CHOIR_API choir_status choir_group_wait_pending(choir_group *group, int64_t timeout_ms);
CHOIR_API choir_status choir_group_shutdown(choir_group *group, int64_t timeout_ms);

/* --- hooks ------------------------------------------------------------------------------------------ */

struct choir_work_info; /* choir/trace.h */

/* Have `done` called for every work of the group that is done, on a thread of the library's. One hook at a
 * time: CHOIR_ERR_STATE if there is one. NULL takes it away. */
CHOIR_API choir_status choir_group_on_done(
    choir_group *group, void (*done)(void *arg, const struct choir_work_info *info), void *arg);

/* --- ranks as threads --------------------------------------------------------------------------------- */

/* Run `main_` as `nranks` threads of this process, each a rank with its own group, which is destroyed for it; returns
 * when all have returned: the first failure, or CHOIR_OK. For tests, and for programs that want ranks without
 * processes. Where ranks are threads, one that ends with a group open has died, as a process would have: the
 * other members' calls fail with CHOIR_ERR_DEAD. */
CHOIR_API choir_status choir_run_threads(int nranks,
                                         choir_status (*main_)(choir_group *group, void *arg),
                                         void *arg);

#ifdef __cplusplus
}
#endif
#endif
