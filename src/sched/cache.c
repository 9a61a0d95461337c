/*
 * cache.c - a hash table of schedules, and a list of them in order of their last use.
 *
 * The first of that list is looked at first: a program that does the same operation over and over pays
 * for one comparison.
 */
#include "sched/cache.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/list.h"
#include "base/mem.h"

struct entry {
    struct ch_cached_sched cached; /* what users hold */
    struct ch_sched_cache *cache;
    struct ch_sched_key key;
    struct ch_sched *sched;
    uint32_t uses;         /* gets without their put */
    struct ch_list recent; /* of the cache's list, last used first */
    struct ch_list bucket;
};

struct ch_sched_cache {
    struct ch_list recent;
    struct ch_sched_cache_stats stats;
    uint32_t limit;
    uint32_t nbuckets; /* a power of two */
    struct ch_list buckets[];
};

choir_status ch_sched_cache_create(uint32_t limit, struct ch_sched_cache **cache_out)
{
    struct ch_sched_cache *cache;
    uint32_t nbuckets = 8;

    while (nbuckets < limit && nbuckets < 4096)
        nbuckets *= 2;
    cache = ch_zalloc(sizeof(*cache) + nbuckets * sizeof(cache->buckets[0]));
    if (cache == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a cache of %u schedules", limit);
    cache->limit = limit > 0 ? limit : 1;
    cache->nbuckets = nbuckets;
    ch_list_init(&cache->recent);
    for (uint32_t i = 0; i < nbuckets; i++)
        ch_list_init(&cache->buckets[i]);
    *cache_out = cache;
    return CHOIR_OK;
}

static void drop(struct entry *e)
{
    ch_list_remove(&e->recent);
    ch_list_remove(&e->bucket);
    e->cache->stats.kept--;
    ch_sched_destroy(e->sched);
    ch_free(e);
}

void ch_sched_cache_destroy(struct ch_sched_cache *cache)
{
    if (cache == NULL)
        return;
    CH_LIST_EACH (link, &cache->recent) {
        struct entry *e = CH_CONTAINER(link, struct entry, recent);

        ch_assert(e->uses == 0);
        drop(e);
    }
    ch_free(cache);
}

/* --- finding ------------------------------------------------------------------------------------ */

static bool same(const struct ch_sched_key *a, const struct ch_sched_key *b)
{
    return a->algo == b->algo && a->coll == b->coll && a->rank == b->rank &&
           a->nranks == b->nranks && a->root == b->root && a->in_place == b->in_place;
}

static struct ch_list *bucket_of(struct ch_sched_cache *cache, const struct ch_sched_key *key)
{
    uint64_t h = (uint64_t)(uintptr_t)key->algo;

    h = (h ^ key->coll ^ (uint64_t)key->root << 32 ^ (uint64_t)key->in_place << 20) *
        0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ key->rank ^ (uint64_t)key->nranks << 32) * 0x9e3779b97f4a7c15u;
    return &cache->buckets[(h >> 40) & (cache->nbuckets - 1)];
}

static struct entry *find(struct ch_sched_cache *cache, const struct ch_sched_key *key)
{
    CH_LIST_EACH (link, bucket_of(cache, key)) {
        struct entry *e = CH_CONTAINER(link, struct entry, bucket);

        if (same(&e->key, key))
            return e;
    }
    return NULL;
}

/* --- keeping to the limit ----------------------------------------------------------------------- */

/* Drop what was not used for longest and is not in use now, until no more than the limit are left. */
static void trim(struct ch_sched_cache *cache)
{
    struct ch_list *link = cache->recent.prev;

    while (cache->stats.kept > cache->limit && link != &cache->recent) {
        struct entry *e = CH_CONTAINER(link, struct entry, recent);

        link = link->prev;
        if (e->uses == 0)
            drop(e);
    }
}

static choir_status add(struct ch_sched_cache *cache, const struct ch_sched_key *key,
                        ch_sched_build_fn build, struct entry **entry_out)
{
    struct entry *e = ch_zalloc(sizeof(*e));
    choir_status rc;

    if (e == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to keep a schedule of %s",
                       ch_coll_name(key->coll));
    rc = build(key, &e->sched);
    if (rc != CHOIR_OK) {
        ch_free(e);
        return rc;
    }
    e->cached.sched = e->sched;
    e->cache = cache;
    e->key = *key;
    ch_list_push_front(&cache->recent, &e->recent);
    ch_list_push_front(bucket_of(cache, key), &e->bucket);
    cache->stats.kept++;
    cache->stats.builds++;
    *entry_out = e;
    return CHOIR_OK;
}

choir_status ch_sched_cache_get(struct ch_sched_cache *cache, const struct ch_sched_key *key,
                                ch_sched_build_fn build, struct ch_cached_sched **cached_out)
{
    struct entry *e = CH_CONTAINER(cache->recent.next, struct entry, recent);
    choir_status rc;

    cache->stats.gets++;
    if (CH_UNLIKELY(ch_list_empty(&cache->recent) || !same(&e->key, key))) {
        e = find(cache, key);
        if (e == NULL) {
            rc = add(cache, key, build, &e);
            if (rc != CHOIR_OK)
                return rc;
        } else {
            ch_list_remove(&e->recent);
            ch_list_push_front(&cache->recent, &e->recent);
        }
    }
    e->uses++;
    if (CH_UNLIKELY(cache->stats.kept > cache->limit))
        trim(cache);
    *cached_out = &e->cached;
    return CHOIR_OK;
}

void ch_sched_cache_put(struct ch_cached_sched *cached)
{
    struct entry *e;

    if (cached == NULL)
        return;
    e = CH_CONTAINER(cached, struct entry, cached);
    ch_assert(e->uses > 0);
    e->uses--;
    if (CH_UNLIKELY(e->cache->stats.kept > e->cache->limit))
        trim(e->cache);
}

struct ch_sched_cache_stats ch_sched_cache_stats(const struct ch_sched_cache *cache)
{
    return cache->stats;
}
