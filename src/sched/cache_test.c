/*
 * cache_test.c - schedules found again, dropped in order, never while they are in use.
 */
#include "sched/cache.h"

#include "base/error.h"
#include "base/mem.h"
#include "choir_test.h"

static choir_status build(const struct ch_sched_key *key, struct ch_sched **sched_out)
{
    struct ch_builder *b = NULL;
    choir_status rc = ch_builder_begin(key->coll, "test", key->rank, key->nranks, key->root,
                                       key->in_place, &b);

    if (rc != CHOIR_OK)
        return rc;
    ch_build_gate(b);
    return ch_builder_end(b, 0, 0, 0, sched_out);
}

static struct ch_sched_key root_key(uint32_t root)
{
    return (struct ch_sched_key){
        .algo = &build, .coll = CH_BROADCAST, .rank = 1, .nranks = 64, .root = root
    };
}

static const struct ch_sched *touch(struct ch_sched_cache *cache, struct ch_sched_key key)
{
    struct ch_cached_sched *cached = NULL;

    CHOIR_CHECK_OK(ch_sched_cache_get(cache, &key, build, &cached));
    ch_sched_cache_put(cached);
    return cached->sched;
}

CHOIR_TEST(the_same_key_is_built_once)
{
    struct ch_sched_cache *cache = NULL;
    const struct ch_sched *first;

    CHOIR_CHECK_OK(ch_sched_cache_create(4, &cache));
    first = touch(cache, root_key(3));
    CHOIR_CHECK_EQ(first->root, 3u);
    CHOIR_CHECK_EQ(touch(cache, root_key(3)), first);
    CHOIR_CHECK_EQ(touch(cache, root_key(2))->root, 2u);
    CHOIR_CHECK_EQ(touch(cache, root_key(3)), first);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, 2u);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).gets, 4u);
    ch_sched_cache_destroy(cache);
}

/* Every part of the key tells schedules apart. */
CHOIR_TEST(keys_differ_in_every_part)
{
    struct ch_sched_key key = root_key(0), keys[7];
    struct ch_sched_cache *cache = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(keys); i++)
        keys[i] = key;
    keys[1].algo = &key;
    keys[2].coll = CH_SCATTER;
    keys[3].rank = 2;
    keys[4].nranks = 65;
    keys[5].root = 1;
    keys[6].in_place = true;
    CHOIR_CHECK_OK(ch_sched_cache_create(16, &cache));
    for (size_t i = 0; i < CH_ARRAY_LEN(keys); i++)
        touch(cache, keys[i]);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, CH_ARRAY_LEN(keys));
    for (size_t i = 0; i < CH_ARRAY_LEN(keys); i++)
        touch(cache, keys[i]);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, CH_ARRAY_LEN(keys));
    ch_sched_cache_destroy(cache);
}

CHOIR_TEST(the_least_recently_used_goes_first)
{
    struct ch_sched_cache *cache = NULL;

    CHOIR_CHECK_OK(ch_sched_cache_create(3, &cache));
    for (uint32_t root = 0; root < 3; root++)
        touch(cache, root_key(root));
    touch(cache, root_key(0));
    touch(cache, root_key(3)); /* 1 goes */
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).kept, 3u);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, 4u);
    touch(cache, root_key(0));
    touch(cache, root_key(2));
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, 4u);
    touch(cache, root_key(1));
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).builds, 5u);
    ch_sched_cache_destroy(cache);
}

/* Used ones stay, though the limit is passed; they go when they are given back. */
CHOIR_TEST(what_is_in_use_stays)
{
    struct ch_cached_sched *held[5], *again;
    struct ch_sched_cache *cache = NULL;

    CHOIR_CHECK_OK(ch_sched_cache_create(2, &cache));
    for (uint32_t root = 0; root < 5; root++) {
        struct ch_sched_key key = root_key(root);

        CHOIR_CHECK_OK(ch_sched_cache_get(cache, &key, build, &held[root]));
    }
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).kept, 5u);
    for (uint32_t root = 0; root < 5; root++)
        CHOIR_CHECK_EQ(held[root]->sched->root, root);

    {
        struct ch_sched_key key = root_key(4);

        CHOIR_CHECK_OK(ch_sched_cache_get(cache, &key, build, &again));
        CHOIR_CHECK_EQ(again, held[4]);
    }
    for (uint32_t root = 0; root < 5; root++)
        ch_sched_cache_put(held[root]);
    CHOIR_CHECK_EQ(again->sched->root, 4u); /* still held once */
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).kept, 2u);
    ch_sched_cache_put(again);
    ch_sched_cache_destroy(cache);
}

static choir_status refuse(const struct ch_sched_key *key, struct ch_sched **sched_out)
{
    (void)key;
    (void)sched_out;
    return ch_fail(CHOIR_ERR_INVALID, "not this one");
}

CHOIR_TEST(a_failed_build_leaves_nothing)
{
    struct ch_sched_key key = root_key(0);
    struct ch_cached_sched *cached = NULL;
    struct ch_sched_cache *cache = NULL;

    CHOIR_CHECK_OK(ch_sched_cache_create(1, &cache));
    CHOIR_CHECK_STATUS(ch_sched_cache_get(cache, &key, refuse, &cached), CHOIR_ERR_INVALID);
    CHOIR_CHECK(cached == NULL);
    CHOIR_CHECK_EQ(ch_sched_cache_stats(cache).kept, 0u);
    ch_sched_cache_put(NULL);
    ch_sched_cache_destroy(cache);
    ch_sched_cache_destroy(NULL);
}

static choir_status scenario(void *arg)
{
    struct ch_sched_cache *cache = NULL;
    choir_status rc = ch_sched_cache_create(2, &cache);

    (void)arg;
    for (uint32_t root = 0; rc == CHOIR_OK && root < 4; root++) {
        struct ch_sched_key key = root_key(root);
        struct ch_cached_sched *cached = NULL;

        rc = ch_sched_cache_get(cache, &key, build, &cached);
        ch_sched_cache_put(cached);
    }
    ch_sched_cache_destroy(cache);
    return rc;
}

CHOIR_TEST(faults)
{
    choir_test_all_faults(scenario, NULL);
}
