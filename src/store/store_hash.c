/*
 * store_hash.c - hash://: a table inside this process, shared through clones; for tests, and for
 * threads that are ranks.
 *
 * One lock guards the table. Who has to wait leaves a note in the table and sleeps on its own bell,
 * without the lock; whoever brings what it waits for does the rest in its stead (fetches the value,
 * pops the element), so that nothing can come in between.
 */
#include "store/store.h"

#include <string.h>

#include "base/bell.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/table.h"

struct hash {
    struct ch_lock lock; /* guards the table */
    struct ch_table *table;
};

/* One waiting call. Everything but `done` is guarded by the lock. */
struct waiting {
    struct ch_table_wait wait; /* first: done() gets a pointer to it */
    struct ch_table *table;
    choir_bytes key;
    choir_status (*fetch)(struct waiting *waiting); /* NULL: there is nothing to fetch */
    choir_blob value;
    choir_status rc; /* of fetch() */
    choir_error error;
    const struct ch_bell *bell;
    _Atomic uint64_t done;
};

static choir_status hash_open(void *self, const struct ch_store_place *place,
                              const struct ch_patience *patience)
{
    struct hash *hash = self;

    (void)patience;
    ch_lock_init(&hash->lock, CH_LOCK_STORE);
    if (place->where[0] != '\0')
        return ch_fail(CHOIR_ERR_INVALID, "store %s: nothing may follow hash://", place->url);
    return ch_table_create(&ch_table_default_limits, &hash->table);
}

static void hash_close(void *self)
{
    struct hash *hash = self;

    ch_table_destroy(hash->table);
    ch_lock_fini(&hash->lock);
}

/* --- waiting ------------------------------------------------------------------------------------- */

/* A key that is only a queue has an empty value. */
static choir_status fetch_value(struct waiting *waiting)
{
    choir_bytes value = { NULL, 0 };

    (void)ch_table_get(waiting->table, waiting->key, &value);
    return ch_blob_init(&waiting->value, value.data, value.nbytes);
}

static choir_status fetch_element(struct waiting *waiting)
{
    return ch_table_queue_pop(waiting->table, waiting->key, &waiting->value);
}

/* Runs in the thread that brought it, with the lock held. */
static void has_come(struct ch_table_wait *wait)
{
    struct waiting *waiting = (struct waiting *)wait;

    if (waiting->fetch != NULL)
        waiting->rc = waiting->fetch(waiting);
    if (waiting->rc != CHOIR_OK) {
        ch_error_save(&waiting->error);
        ch_table_queue_serve(waiting->table, waiting->key); /* no memory for it: then another */
    }
    ch_post(waiting->bell, &waiting->done, 1);
}

static choir_status register_wait(struct hash *hash, struct waiting *waiting,
                                  enum ch_table_awaits what, const choir_bytes *keys, size_t count)
{
    choir_status rc;

    ch_lock(&hash->lock);
    rc = ch_table_wait_as(hash->table, &waiting->wait, what, keys, count, has_come);
    if (rc == CHOIR_OK && waiting->fetch != NULL)
        rc = waiting->fetch(waiting);
    ch_unlock(&hash->lock);
    return rc;
}

/* Wait for `keys`, then have fetched what waiting->fetch() fetches. */
static choir_status await(struct hash *hash, struct waiting *waiting, enum ch_table_awaits what,
                          const choir_bytes *keys, size_t count, const struct ch_patience *patience)
{
    struct ch_wait wait = { .waiter = patience->waiter,
                            .until = patience->until,
                            .poison = patience->poison,
                            .what = what == CH_AWAITS_ELEMENT ? "an element" : "the key" };
    choir_status rc;

    waiting->table = hash->table;
    waiting->key = keys[0];
    waiting->bell = &patience->waiter->bell;
    rc = register_wait(hash, waiting, what, keys, count);
    if (rc != CHOIR_IN_PROGRESS)
        return rc;
    rc = ch_wait_flag(&wait, &waiting->done, 1);
    /* With the lock: whoever rang has let go of our bell, and what came in the last moment counts. */
    ch_lock(&hash->lock);
    ch_table_wait_cancel(hash->table, &waiting->wait);
    ch_unlock(&hash->lock);
    if (!ch_flag_reached(&waiting->done, 1))
        return rc;
    return waiting->rc == CHOIR_OK ? CHOIR_OK : ch_error_load(&waiting->error);
}

static choir_status hash_wait(void *self, const choir_bytes *keys, size_t count,
                              const struct ch_patience *patience)
{
    struct waiting waiting = { .fetch = NULL };

    return await(self, &waiting, CH_AWAITS_KEY, keys, count, patience);
}

static choir_status hash_get(void *self, choir_bytes key, choir_blob *value_out,
                             const struct ch_patience *patience)
{
    struct waiting waiting = { .fetch = fetch_value };
    choir_status rc = await(self, &waiting, CH_AWAITS_KEY, &key, 1, patience);

    if (rc == CHOIR_OK)
        *value_out = waiting.value;
    return rc;
}

static choir_status hash_queue_pop(void *self, choir_bytes key, choir_blob *value_out,
                                   const struct ch_patience *patience)
{
    struct waiting waiting = { .fetch = fetch_element };
    choir_status rc = await(self, &waiting, CH_AWAITS_ELEMENT, &key, 1, patience);

    if (rc == CHOIR_OK)
        *value_out = waiting.value;
    return rc;
}

/* --- what does not wait -------------------------------------------------------------------------- */

static choir_status hash_set(void *self, choir_bytes key, choir_bytes value,
                             const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_set(hash->table, key, value);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                             const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_add(hash->table, key, delta, sum_out);
    ch_unlock(&hash->lock);
    return rc;
}

/* The copy comes first: a change that cannot be reported must not be made. */
static choir_status compare_set_locked(struct hash *hash, choir_bytes key, choir_bytes expected,
                                       choir_bytes desired, choir_blob *value_out)
{
    choir_blob copy;
    choir_bytes value;
    choir_status rc = ch_blob_init(&copy, desired.data, desired.nbytes);

    ch_lock_assert_held(&hash->lock);
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_compare_set(hash->table, key, expected, desired, &value);
    if (rc == CHOIR_OK && value.data == desired.data) {
        *value_out = copy;
        return CHOIR_OK;
    }
    choir_blob_free(&copy);
    return rc == CHOIR_OK ? ch_blob_init(value_out, value.data, value.nbytes) : rc;
}

static choir_status hash_compare_set(void *self, choir_bytes key, choir_bytes expected,
                                     choir_bytes desired, choir_blob *value_out,
                                     const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = compare_set_locked(hash, key, expected, desired, value_out);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_append(void *self, choir_bytes key, choir_bytes more,
                                const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_append(hash->table, key, more);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_remove(void *self, choir_bytes key, bool *removed_out,
                                const struct ch_patience *patience)
{
    struct hash *hash = self;
    bool removed;

    (void)patience;
    ch_lock(&hash->lock);
    removed = ch_table_remove(hash->table, key);
    ch_unlock(&hash->lock);
    if (removed_out != NULL)
        *removed_out = removed;
    return CHOIR_OK;
}

static choir_status hash_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                               const struct ch_patience *patience)
{
    struct hash *hash = self;
    bool all = true;

    (void)patience;
    ch_lock(&hash->lock);
    for (size_t i = 0; i < count && all; i++)
        all = ch_table_exists(hash->table, keys[i]);
    ch_unlock(&hash->lock);
    *all_out = all;
    return CHOIR_OK;
}

static choir_status hash_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    struct hash *hash = self;

    (void)patience;
    ch_lock(&hash->lock);
    *count_out = (int64_t)ch_table_count(hash->table);
    ch_unlock(&hash->lock);
    return CHOIR_OK;
}

static choir_status hash_list(void *self, choir_blob **keys_out, size_t *count_out,
                              const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_list(hash->table, keys_out, count_out);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_queue_push(void *self, choir_bytes key, choir_bytes value,
                                    const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_queue_push(hash->table, key, value);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_queue_try_pop(void *self, choir_bytes key, choir_blob *value_out,
                                       const struct ch_patience *patience)
{
    struct hash *hash = self;
    choir_status rc;

    (void)patience;
    ch_lock(&hash->lock);
    rc = ch_table_queue_pop(hash->table, key, value_out);
    ch_unlock(&hash->lock);
    return rc;
}

static choir_status hash_queue_length(void *self, choir_bytes key, int64_t *length_out,
                                      const struct ch_patience *patience)
{
    struct hash *hash = self;

    (void)patience;
    ch_lock(&hash->lock);
    *length_out = (int64_t)ch_table_queue_length(hash->table, key);
    ch_unlock(&hash->lock);
    return CHOIR_OK;
}

const struct ch_store_ops ch_store_hash = {
    .scheme = "hash",
    .help = "inside this process",
    .self_size = sizeof(struct hash),
    .open = hash_open,
    .close = hash_close,
    .set = hash_set,
    .get = hash_get,
    .add = hash_add,
    .compare_set = hash_compare_set,
    .append = hash_append,
    .remove = hash_remove,
    .check = hash_check,
    .wait = hash_wait,
    .count = hash_count,
    .list = hash_list,
    .queue_push = hash_queue_push,
    .queue_pop = hash_queue_pop,
    .queue_try_pop = hash_queue_try_pop,
    .queue_length = hash_queue_length,
};
