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

/* Whether a rank of this host still runs, as the kernel says. */
CHOIR_API choir_status choir_group_alive(const choir_group *group, int rank, bool *alive_out);

/* How rank, size and meeting place were found, in a few words, for people. */
CHOIR_API const char *choir_group_origin(const choir_group *group);

/* The store in which the ranks met; stays the group's. Keys that start with "choir/" are ours. */
CHOIR_API choir_store *choir_group_store(const choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
