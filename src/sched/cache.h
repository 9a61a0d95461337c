/*
 * cache.h - schedules that were built before, found again in a few nanoseconds.
 *
 * A schedule does not depend on sizes, so that a group needs few of them; the least recently used ones
 * beyond the cache's limit are dropped. One in use is never dropped: the limit is passed for as long as
 * more are in use at once.
 *
 *   rc = ch_sched_cache_get(cache, &key, build, &cached);
 *   ... cached->sched ...
 *   ch_sched_cache_put(cached);
 *
 * Threads: one at a time for each cache. A cache belongs to a group, whose token is enough.
 */
#ifndef CH_CACHE_H
#define CH_CACHE_H

#include "sched/sched.h"

struct ch_sched_cache;

/* What makes two schedules the same one. */
struct ch_sched_key {
    const void *algo; /* who builds it, told apart by address; this folder knows no algorithm */
    enum ch_coll coll;
    uint32_t rank, nranks, root;
    bool in_place;
};

/* A schedule in use; `sched` is the cache's and never changes. */
struct ch_cached_sched {
    const struct ch_sched *sched;
};

typedef choir_status (*ch_sched_build_fn)(const struct ch_sched_key *key,
                                          struct ch_sched **sched_out);

/* `limit`: how many schedules are kept, at least 1. */
choir_status ch_sched_cache_create(uint32_t limit, struct ch_sched_cache **cache_out);

/* None of its schedules may be in use. Accepts NULL. */
void ch_sched_cache_destroy(struct ch_sched_cache *cache);

/* The schedule of `key`, built by `build` if it is not there. Errors are those of `build`, or
 * CHOIR_ERR_NOMEM. *cached_out stays valid until its own ch_sched_cache_put(). */
choir_status ch_sched_cache_get(struct ch_sched_cache *cache, const struct ch_sched_key *key,
                                ch_sched_build_fn build, struct ch_cached_sched **cached_out);

/* Done with it. Accepts NULL. */
void ch_sched_cache_put(struct ch_cached_sched *cached);

/* For tests and reports: how often a schedule was asked for, and had to be built; how many there are. */
struct ch_sched_cache_stats {
    uint64_t gets, builds;
    uint32_t kept;
};
struct ch_sched_cache_stats ch_sched_cache_stats(const struct ch_sched_cache *cache);

#endif
