/*
 * table.c - a hash map from keys to entries; an entry has a value, a queue and waits, each possibly
 * none, and goes when it has none of them.
 */
#include "store/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sys.h"

const struct ch_table_limits ch_table_default_limits = {
    .key_nbytes = 8192,
    .value_nbytes = (size_t)1 << 30,
    .total_nbytes = (size_t)4 << 30,
};

enum {
    FIRST_BUCKETS = 64,
};

struct buffer {
    char *data;
    size_t nbytes, room;
};

struct queued {
    struct ch_list link;
    size_t nbytes;
    char data[];
};

/* One key of one wait, in the entry's list and in the wait's. */
struct awaited {
    struct ch_list in_entry, in_wait;
    struct ch_table_wait *wait;
    struct entry *entry; /* NULL once its key has come and it is about to be served */
};

struct entry {
    struct entry *next; /* in its bucket */
    uint64_t hash;
    bool has_value;
    struct buffer value;
    struct ch_list queue;
    size_t queue_length;
    struct ch_list waits;
    size_t key_nbytes;
    char key[];
};

struct ch_table {
    struct ch_table_limits limits;
    uint64_t seed[2]; /* keys come from strangers: they must not be able to choose collisions */
    struct entry **buckets;
    size_t nbuckets, nentries, nvalues;
    size_t used_nbytes;
};

/* --- hashing ------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Multiply and fold, eight bytes at a time, under a random seed. */
static uint64_t hash_of(const struct ch_table *table, choir_bytes key)
{
    const char *p = key.data;
    uint64_t hash = table->seed[0] ^ key.nbytes;

    for (size_t at = 0; at < key.nbytes; at += 8) {
        uint64_t word = 0;

        memcpy(&word, p + at, key.nbytes - at < 8 ? key.nbytes - at : 8);
        hash = mix(hash ^ word, table->seed[1]);
    }
    return mix(hash, table->seed[1] ^ 0x9e3779b97f4a7c15u);
}

static struct entry **place_of(const struct ch_table *table, choir_bytes key, uint64_t hash)
{
    struct entry **at = &table->buckets[hash & (table->nbuckets - 1)];

    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->hash == hash && (*at)->key_nbytes == key.nbytes &&
            (key.nbytes == 0 || memcmp((*at)->key, key.data, key.nbytes) == 0))
            break;
    }
    return at;
}

static struct entry *find(const struct ch_table *table, choir_bytes key)
{
    return *place_of(table, key, hash_of(table, key));
}

/* Best effort: a table that cannot grow is slower, not wrong. */
static void grow(struct ch_table *table)
{
    size_t nbuckets = table->nbuckets * 2;
    struct entry **buckets = ch_zalloc_array(nbuckets, sizeof(*buckets));

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < table->nbuckets; i++) {
        while (table->buckets[i] != NULL) {
            struct entry *entry = table->buckets[i];

            table->buckets[i] = entry->next;
            entry->next = buckets[entry->hash & (nbuckets - 1)];
            buckets[entry->hash & (nbuckets - 1)] = entry;
        }
    }
    ch_free(table->buckets);
    table->buckets = buckets;
    table->nbuckets = nbuckets;
}

/* --- room --------------------------------------------------------------------------------------- */

static choir_status take_room(struct ch_table *table, size_t nbytes)
{
    if (nbytes > table->limits.total_nbytes - table->used_nbytes)
        return ch_fail(CHOIR_ERR_INVALID,
                       "store: full: %zu bytes of at most %zu are in use, %zu more are wanted",
                       table->used_nbytes, table->limits.total_nbytes, nbytes);
    table->used_nbytes += nbytes;
    return CHOIR_OK;
}

static void give_room(struct ch_table *table, size_t nbytes)
{
    table->used_nbytes -= nbytes;
}

static choir_status no_memory(void)
{
    return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for another entry");
}

/* --- entries ------------------------------------------------------------------------------------ */

static choir_status make_entry(struct ch_table *table, choir_bytes key, uint64_t hash,
                               struct entry **entry_out)
{
    size_t nbytes = sizeof(struct entry) + key.nbytes;
    struct entry *entry;
    choir_status rc;

    if (key.nbytes > table->limits.key_nbytes)
        return ch_fail(CHOIR_ERR_INVALID, "store: a key of %zu bytes, at most %zu are allowed",
                       key.nbytes, table->limits.key_nbytes);
    rc = take_room(table, nbytes);
    if (rc != CHOIR_OK)
        return rc;
    entry = ch_zalloc(nbytes);
    if (entry == NULL) {
        give_room(table, nbytes);
        return no_memory();
    }
    entry->hash = hash;
    entry->key_nbytes = key.nbytes;
    if (key.nbytes > 0)
        memcpy(entry->key, key.data, key.nbytes);
    ch_list_init(&entry->queue);
    ch_list_init(&entry->waits);
    if (table->nentries >= table->nbuckets)
        grow(table);
    entry->next = table->buckets[hash & (table->nbuckets - 1)];
    table->buckets[hash & (table->nbuckets - 1)] = entry;
    table->nentries++;
    *entry_out = entry;
    return CHOIR_OK;
}

static choir_status find_or_make(struct ch_table *table, choir_bytes key, struct entry **entry_out)
{
    uint64_t hash = hash_of(table, key);
    struct entry *entry = *place_of(table, key, hash);

    if (entry == NULL)
        return make_entry(table, key, hash, entry_out);
    *entry_out = entry;
    return CHOIR_OK;
}

/* Drop an entry that holds nothing any more. */
static void drop_if_idle(struct ch_table *table, struct entry *entry)
{
    struct entry **at = &table->buckets[entry->hash & (table->nbuckets - 1)];

    if (entry->has_value || entry->queue_length > 0 || !ch_list_empty(&entry->waits))
        return;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    table->nentries--;
    give_room(table, sizeof(*entry) + entry->key_nbytes);
    ch_free(entry);
}

/* Make entry->value `nbytes` long, keeping what is in it; room grows in doubles for appends. */
static choir_status resize_value(struct ch_table *table, struct entry *entry, size_t nbytes)
{
    struct buffer *value = &entry->value;
    size_t room = nbytes;
    choir_status rc;
    char *data;

    if (nbytes > table->limits.value_nbytes)
        return ch_fail(CHOIR_ERR_INVALID, "store: a value of %zu bytes, at most %zu are allowed",
                       nbytes, table->limits.value_nbytes);
    if (nbytes <= value->room) {
        value->nbytes = nbytes;
        return CHOIR_OK;
    }
    if (entry->has_value && room < 2 * value->room && 2 * value->room <= table->limits.value_nbytes)
        room = 2 * value->room;
    rc = take_room(table, room - value->room);
    if (rc != CHOIR_OK)
        return rc;
    data = ch_regrow(value->data, room, 1);
    if (data == NULL) {
        give_room(table, room - value->room);
        return no_memory();
    }
    *value = (struct buffer){ data, nbytes, room };
    return CHOIR_OK;
}

static void free_value(struct ch_table *table, struct entry *entry)
{
    ch_free(entry->value.data);
    give_room(table, entry->value.room);
    table->nvalues -= entry->has_value;
    entry->value = (struct buffer){ NULL, 0, 0 };
    entry->has_value = false;
}

static bool holds(const struct entry *entry)
{
    return entry != NULL && (entry->has_value || entry->queue_length > 0);
}

/* --- waits -------------------------------------------------------------------------------------- */

static void forget_awaited(struct ch_table *table, struct awaited *awaited)
{
    ch_list_remove(&awaited->in_entry);
    ch_list_remove(&awaited->in_wait);
    give_room(table, sizeof(*awaited));
    ch_free(awaited);
}

/* One awaited key has come. */
static void serve(struct ch_table *table, struct awaited *awaited)
{
    struct ch_table_wait *wait = awaited->wait;

    forget_awaited(table, awaited);
    if (--wait->missing == 0)
        wait->done(wait);
}

/* Those who are served may wait again at once, hence a list of its own; and may cancel others, which
 * takes those out of it. */
static void serve_list(struct ch_table *table, struct ch_list *now)
{
    while (!ch_list_empty(now))
        serve(table, CH_CONTAINER(now->next, struct awaited, in_entry));
}

static void move(struct awaited *awaited, struct ch_list *now)
{
    ch_list_remove(&awaited->in_entry);
    awaited->entry = NULL;
    ch_list_push_back(now, &awaited->in_entry);
}

/* The value of `entry` was written. The entry may be gone afterwards. */
static void serve_value(struct ch_table *table, struct entry *entry)
{
    struct ch_list now = CH_LIST_INIT(now), *link = entry->waits.next, *next;

    for (; link != &entry->waits; link = next) {
        struct awaited *awaited = CH_CONTAINER(link, struct awaited, in_entry);

        next = link->next;
        if (awaited->wait->awaits != CH_AWAITS_ELEMENT)
            move(awaited, &now);
    }
    serve_list(table, &now);
}

/* An element was pushed: the key exists for all who wait for it, and of those who wait for their turn
 * the first whose wait it ends is served. The entry may be gone afterwards. */
static void serve_push(struct ch_table *table, struct entry *entry)
{
    struct ch_list now = CH_LIST_INIT(now), *link = entry->waits.next, *next;
    bool taken = false;

    for (; link != &entry->waits; link = next) {
        struct awaited *awaited = CH_CONTAINER(link, struct awaited, in_entry);
        struct ch_table_wait *wait = awaited->wait;

        next = link->next;
        if (wait->awaits == CH_AWAITS_KEY) {
            move(awaited, &now);
        } else if (!taken && wait->missing > 1) {
            wait->missing--;
            forget_awaited(table, awaited);
        } else if (!taken) {
            move(awaited, &now);
            taken = true;
        }
    }
    serve_list(table, &now);
}

static choir_status await(struct ch_table *table, struct ch_table_wait *wait, choir_bytes key)
{
    struct awaited *awaited;
    struct entry *entry;
    choir_status rc = take_room(table, sizeof(*awaited));

    if (rc != CHOIR_OK)
        return rc;
    awaited = ch_zalloc(sizeof(*awaited));
    rc = awaited == NULL ? no_memory() : find_or_make(table, key, &entry);
    if (rc != CHOIR_OK) {
        give_room(table, sizeof(*awaited));
        ch_free(awaited);
        return rc;
    }
    awaited->wait = wait;
    awaited->entry = entry;
    ch_list_push_back(&entry->waits, &awaited->in_entry);
    ch_list_push_back(&wait->registered, &awaited->in_wait);
    wait->missing++;
    return CHOIR_OK;
}

void ch_table_wait_begin(struct ch_table_wait *wait, void (*done)(struct ch_table_wait *wait))
{
    *wait = (struct ch_table_wait){ .done = done, .missing = 1, .awaits = CH_AWAITS_TURN };
    ch_list_init(&wait->registered);
}

choir_status ch_table_wait_add(struct ch_table *table, struct ch_table_wait *wait, choir_bytes key)
{
    const struct entry *entry = find(table, key);
    bool has_come = holds(entry);

    if (wait->awaits == CH_AWAITS_ELEMENT)
        has_come = entry != NULL && entry->queue_length > 0;
    return has_come ? CHOIR_OK : await(table, wait, key);
}

choir_status ch_table_wait_end(struct ch_table_wait *wait)
{
    return --wait->missing > 0 ? CHOIR_IN_PROGRESS : CHOIR_OK;
}

choir_status ch_table_wait_as(struct ch_table *table, struct ch_table_wait *wait,
                              enum ch_table_awaits awaits, const choir_bytes *keys, size_t count,
                              void (*done)(struct ch_table_wait *wait))
{
    ch_table_wait_begin(wait, done);
    wait->awaits = awaits;
    for (size_t i = 0; i < count; i++) {
        choir_status rc = ch_table_wait_add(table, wait, keys[i]);

        if (rc != CHOIR_OK) {
            ch_table_wait_cancel(table, wait);
            return rc;
        }
    }
    return ch_table_wait_end(wait);
}

choir_status ch_table_wait(struct ch_table *table, struct ch_table_wait *wait,
                           const choir_bytes *keys, size_t count,
                           void (*done)(struct ch_table_wait *wait))
{
    return ch_table_wait_as(table, wait, CH_AWAITS_TURN, keys, count, done);
}

void ch_table_wait_cancel(struct ch_table *table, struct ch_table_wait *wait)
{
    if (wait->registered.next == NULL)
        return; /* zeroed: never used */
    while (!ch_list_empty(&wait->registered)) {
        struct awaited *awaited = CH_CONTAINER(wait->registered.next, struct awaited, in_wait);
        struct entry *entry = awaited->entry;

        forget_awaited(table, awaited);
        if (entry != NULL)
            drop_if_idle(table, entry);
    }
    wait->missing = 0;
}

/* --- values ------------------------------------------------------------------------------------- */

/* Write `value` behind the first `keep` bytes of what the key holds. Nobody is told. */
static choir_status write_quietly(struct ch_table *table, choir_bytes key, size_t keep,
                                  choir_bytes value, struct entry **entry_out)
{
    struct entry *entry;
    choir_status rc = find_or_make(table, key, &entry);
    size_t nbytes;

    if (rc != CHOIR_OK)
        return rc;
    if (keep > entry->value.nbytes)
        keep = entry->value.nbytes;
    if (__builtin_add_overflow(keep, value.nbytes, &nbytes))
        nbytes = SIZE_MAX; /* refused below as too large */
    rc = resize_value(table, entry, nbytes);
    if (rc != CHOIR_OK) {
        drop_if_idle(table, entry);
        return rc;
    }
    if (value.nbytes > 0)
        memcpy(entry->value.data + keep, value.data, value.nbytes);
    table->nvalues += !entry->has_value;
    entry->has_value = true;
    *entry_out = entry;
    return CHOIR_OK;
}

static choir_status write_value(struct ch_table *table, choir_bytes key, size_t keep,
                                choir_bytes value)
{
    struct entry *entry;
    choir_status rc = write_quietly(table, key, keep, value, &entry);

    if (rc == CHOIR_OK)
        serve_value(table, entry);
    return rc;
}

choir_status ch_table_set(struct ch_table *table, choir_bytes key, choir_bytes value)
{
    return write_value(table, key, 0, value);
}

choir_status ch_table_append(struct ch_table *table, choir_bytes key, choir_bytes more)
{
    return write_value(table, key, SIZE_MAX, more);
}

bool ch_table_get(const struct ch_table *table, choir_bytes key, choir_bytes *value_out)
{
    const struct entry *entry = find(table, key);

    if (entry == NULL || !entry->has_value)
        return false;
    *value_out = (choir_bytes){ entry->value.data, entry->value.nbytes };
    return true;
}

static choir_status not_a_number(choir_bytes text, const char *why)
{
    char shown[CH_BYTES_TEXT_MAX];

    return ch_fail(CHOIR_ERR_INVALID, "its value is \"%s\", %s", ch_bytes_text(text, shown), why);
}

/* Leading blanks, a sign, digits; what follows is ignored. Empty counts as 0. */
static choir_status parse_number(choir_bytes text, int64_t *number_out)
{
    const char *at = text.data, *last, *first;
    bool negative = false;
    int64_t number = 0;

    *number_out = 0;
    if (text.nbytes == 0)
        return CHOIR_OK;
    last = at + text.nbytes;
    while (at < last && isspace((unsigned char)*at))
        at++;
    if (at < last && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    /* Downwards, where there is one number more. */
    for (first = at; at < last && isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_sub_overflow(number, *at - '0', &number))
            return not_a_number(text, "beyond 64 bits");
    }
    if (at == first)
        return not_a_number(text, "not a number");
    if (!negative && number == INT64_MIN)
        return not_a_number(text, "beyond 64 bits");
    *number_out = negative ? number : -number;
    return CHOIR_OK;
}

choir_status ch_table_sum(const struct ch_table *table, choir_bytes key, int64_t delta,
                          int64_t *sum_out, char text_out[CH_TABLE_SUM_NBYTES])
{
    choir_bytes before = { NULL, 0 };
    choir_status rc;

    ch_table_get(table, key, &before);
    rc = parse_number(before, sum_out);
    if (rc != CHOIR_OK)
        return rc;
    *sum_out = (int64_t)((uint64_t)*sum_out + (uint64_t)delta);
    snprintf(text_out, CH_TABLE_SUM_NBYTES, "%lld", (long long)*sum_out);
    return CHOIR_OK;
}

choir_status ch_table_add(struct ch_table *table, choir_bytes key, int64_t delta, int64_t *sum_out)
{
    char text[CH_TABLE_SUM_NBYTES];
    int64_t sum;
    choir_status rc = ch_table_sum(table, key, delta, &sum, text);

    if (rc == CHOIR_OK)
        rc = ch_table_set(table, key, choir_str(text));
    if (rc == CHOIR_OK)
        *sum_out = sum;
    return rc;
}

choir_status ch_table_barrier(struct ch_table *table, struct ch_table_wait *wait, choir_bytes key,
                              int64_t nranks, void (*done)(struct ch_table_wait *wait))
{
    char text[CH_TABLE_SUM_NBYTES];
    struct entry *entry;
    int64_t arrived;
    choir_status rc = ch_table_sum(table, key, 1, &arrived, text);

    if (rc != CHOIR_OK)
        return rc;
    ch_table_wait_begin(wait, done);
    if (arrived >= nranks)
        return ch_table_set(table, key, choir_str(text));
    /* Who waits for the key is to be told when the barrier is complete, not that it has begun. */
    rc = await(table, wait, key);
    if (rc == CHOIR_OK)
        rc = write_quietly(table, key, 0, choir_str(text), &entry);
    if (rc != CHOIR_OK) {
        ch_table_wait_cancel(table, wait);
        return rc;
    }
    return ch_table_wait_end(wait);
}

static bool equal(choir_bytes a, choir_bytes b)
{
    return a.nbytes == b.nbytes && (a.nbytes == 0 || memcmp(a.data, b.data, a.nbytes) == 0);
}

choir_status ch_table_compare_set(struct ch_table *table, choir_bytes key, choir_bytes expected,
                                  choir_bytes desired, choir_bytes *value_out)
{
    choir_bytes current;
    choir_status rc;

    if (!ch_table_get(table, key, &current)) {
        if (expected.nbytes > 0) {
            *value_out = expected;
            return CHOIR_OK;
        }
    } else if (!equal(current, expected)) {
        *value_out = current;
        return CHOIR_OK;
    }
    rc = ch_table_set(table, key, desired);
    if (rc == CHOIR_OK)
        *value_out = desired;
    return rc;
}

bool ch_table_remove(struct ch_table *table, choir_bytes key)
{
    struct entry *entry = find(table, key);

    if (entry == NULL || !entry->has_value)
        return false;
    free_value(table, entry);
    drop_if_idle(table, entry);
    return true;
}

bool ch_table_exists(const struct ch_table *table, choir_bytes key)
{
    return holds(find(table, key));
}

size_t ch_table_count(const struct ch_table *table)
{
    return table->nvalues;
}

void ch_table_each(const struct ch_table *table, void (*see)(void *arg, choir_bytes key), void *arg)
{
    for (size_t i = 0; i < table->nbuckets; i++) {
        for (const struct entry *entry = table->buckets[i]; entry != NULL; entry = entry->next) {
            if (entry->has_value)
                see(arg, (choir_bytes){ entry->key, entry->key_nbytes });
        }
    }
}

struct listing {
    choir_blob *keys;
    size_t count;
    choir_status rc;
};

static void list_one(void *arg, choir_bytes key)
{
    struct listing *listing = arg;

    if (listing->rc == CHOIR_OK)
        listing->rc = ch_blob_init(&listing->keys[listing->count], key.data, key.nbytes);
    if (listing->rc == CHOIR_OK)
        listing->count++;
}

choir_status ch_table_list(const struct ch_table *table, choir_blob **keys_out, size_t *count_out)
{
    struct listing listing = { .keys = ch_zalloc_array(table->nvalues + 1, sizeof(choir_blob)) };

    if (listing.keys == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a list of %zu keys", table->nvalues);
    ch_table_each(table, list_one, &listing);
    if (listing.rc != CHOIR_OK) {
        choir_blob_free_list(listing.keys, listing.count);
        return listing.rc;
    }
    *keys_out = listing.keys;
    *count_out = listing.count;
    return CHOIR_OK;
}

/* --- queues ------------------------------------------------------------------------------------- */

choir_status ch_table_queue_push(struct ch_table *table, choir_bytes key, choir_bytes value)
{
    struct queued *item;
    struct entry *entry;
    choir_status rc;

    if (value.nbytes > table->limits.value_nbytes)
        return ch_fail(CHOIR_ERR_INVALID, "store: a value of %zu bytes, at most %zu are allowed",
                       value.nbytes, table->limits.value_nbytes);
    rc = take_room(table, sizeof(*item) + value.nbytes);
    if (rc != CHOIR_OK)
        return rc;
    item = ch_alloc(sizeof(*item) + value.nbytes);
    rc = item == NULL ? no_memory() : find_or_make(table, key, &entry);
    if (rc != CHOIR_OK) {
        give_room(table, sizeof(*item) + value.nbytes);
        ch_free(item);
        return rc;
    }
    item->nbytes = value.nbytes;
    if (value.nbytes > 0)
        memcpy(item->data, value.data, value.nbytes);
    ch_list_push_back(&entry->queue, &item->link);
    entry->queue_length++;
    serve_push(table, entry);
    return CHOIR_OK;
}

static void free_queued(struct ch_table *table, struct entry *entry, struct queued *item)
{
    ch_list_remove(&item->link);
    entry->queue_length--;
    give_room(table, sizeof(*item) + item->nbytes);
    ch_free(item);
}

bool ch_table_queue_front(const struct ch_table *table, choir_bytes key, choir_bytes *value_out)
{
    const struct entry *entry = find(table, key);
    const struct queued *item;

    if (entry == NULL || entry->queue_length == 0)
        return false;
    item = CH_CONTAINER(entry->queue.next, const struct queued, link);
    *value_out = (choir_bytes){ item->data, item->nbytes };
    return true;
}

void ch_table_queue_drop(struct ch_table *table, choir_bytes key)
{
    struct entry *entry = find(table, key);

    if (entry == NULL || entry->queue_length == 0)
        return;
    free_queued(table, entry, CH_CONTAINER(entry->queue.next, struct queued, link));
    drop_if_idle(table, entry);
}

choir_status ch_table_queue_pop(struct ch_table *table, choir_bytes key, choir_blob *value_out)
{
    choir_bytes front;
    choir_status rc;

    if (!ch_table_queue_front(table, key, &front))
        return ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    rc = ch_blob_init(value_out, front.data, front.nbytes);
    if (rc == CHOIR_OK)
        ch_table_queue_drop(table, key);
    return rc;
}

void ch_table_queue_serve(struct ch_table *table, choir_bytes key)
{
    struct entry *entry = find(table, key);

    if (entry != NULL && entry->queue_length > 0)
        serve_push(table, entry);
}

size_t ch_table_queue_length(const struct ch_table *table, choir_bytes key)
{
    const struct entry *entry = find(table, key);

    return entry == NULL ? 0 : entry->queue_length;
}

/* --- a table's life ----------------------------------------------------------------------------- */

choir_status ch_table_create(const struct ch_table_limits *limits, struct ch_table **table_out)
{
    struct ch_table *table = ch_zalloc(sizeof(*table));

    if (table == NULL)
        return no_memory();
    table->limits = *limits;
    table->nbuckets = FIRST_BUCKETS;
    table->buckets = ch_zalloc_array(table->nbuckets, sizeof(struct entry *));
    if (table->buckets == NULL) {
        ch_table_destroy(table);
        return no_memory();
    }
    if (ch_sys_random(table->seed, sizeof(table->seed)) != 0) {
        choir_status rc = ch_fail_errno("store: random numbers for its table");

        ch_table_destroy(table);
        return rc;
    }
    table->seed[1] |= 1;
    *table_out = table;
    return CHOIR_OK;
}

const struct ch_table_limits *ch_table_limits(const struct ch_table *table)
{
    return &table->limits;
}

static void destroy_entry(struct ch_table *table, struct entry *entry)
{
    while (!ch_list_empty(&entry->waits))
        forget_awaited(table, CH_CONTAINER(entry->waits.next, struct awaited, in_entry));
    while (!ch_list_empty(&entry->queue))
        free_queued(table, entry, CH_CONTAINER(entry->queue.next, struct queued, link));
    free_value(table, entry);
    drop_if_idle(table, entry);
}

void ch_table_destroy(struct ch_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; table->buckets != NULL && i < table->nbuckets; i++) {
        while (table->buckets[i] != NULL)
            destroy_entry(table, table->buckets[i]);
    }
    ch_free(table->buckets);
    ch_free(table);
}
