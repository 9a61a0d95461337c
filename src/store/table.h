/*
 * table.h - the dictionary itself: values, queues, and who waits for which key.
 *
 * One thread at a time, no locks, no blocking: whoever owns a table sees to that. A wait is
 * registered and reported to its owner by a callback when its last key appears.
 *
 * Limits (struct ch_table_limits) hold for all that is stored, so that a peer cannot fill the memory of
 * whoever serves it; what would exceed them is refused with CHOIR_ERR_INVALID and changes nothing.
 */
#ifndef CH_TABLE_H
#define CH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/list.h"
#include "store/bytes.h"

struct ch_table;

struct ch_table_limits {
    size_t key_nbytes, value_nbytes; /* each */
    size_t total_nbytes;             /* keys and values together, bookkeeping included */
};

extern const struct ch_table_limits ch_table_default_limits;

choir_status ch_table_create(const struct ch_table_limits *limits, struct ch_table **table_out);

/* What it was created with. */
const struct ch_table_limits *ch_table_limits(const struct ch_table *table);

/* Waits still registered are forgotten without a call. Accepts NULL. */
void ch_table_destroy(struct ch_table *table);

/* --- values: what c10d's store calls of these names do, without the waiting ------------------------------ */

choir_status ch_table_set(struct ch_table *table, choir_bytes key, choir_bytes value);
choir_status ch_table_append(struct ch_table *table, choir_bytes key, choir_bytes more);
choir_status ch_table_add(struct ch_table *table, choir_bytes key, int64_t delta, int64_t *sum_out);

/* What ch_table_add() would make of the value, without doing it; also as text. */
enum { CH_TABLE_SUM_NBYTES = 24 };
choir_status ch_table_sum(const struct ch_table *table, choir_bytes key, int64_t delta,
                          int64_t *sum_out, char text_out[CH_TABLE_SUM_NBYTES]);

/* *value_out is borrowed: until the table changes, or one of the arguments. */
choir_status ch_table_compare_set(struct ch_table *table, choir_bytes key, choir_bytes expected,
                                  choir_bytes desired, choir_bytes *value_out);

/* False if there is no such value. *value_out is borrowed until the table changes. */
bool ch_table_get(const struct ch_table *table, choir_bytes key, choir_bytes *value_out);

bool ch_table_remove(struct ch_table *table, choir_bytes key);

/* A value, or a queue that is not empty. */
bool ch_table_exists(const struct ch_table *table, choir_bytes key);

/* How many values there are, and each of their keys in no order; `see` must not change the table. */
size_t ch_table_count(const struct ch_table *table);
void ch_table_each(const struct ch_table *table, void (*see)(void *arg, choir_bytes key),
                   void *arg);

/* All keys, for choir_blob_free_list(). */
choir_status ch_table_list(const struct ch_table *table, choir_blob **keys_out, size_t *count_out);

/* --- queues -------------------------------------------------------------------------------------- */

choir_status ch_table_queue_push(struct ch_table *table, choir_bytes key, choir_bytes value);

/* CHOIR_ERR_QUEUE_EMPTY if there is nothing in it. *value_out is the caller's. */
choir_status ch_table_queue_pop(struct ch_table *table, choir_bytes key, choir_blob *value_out);

/* The same in two steps, neither of which can fail: look, false if there is nothing, and take it out.
 * *value_out is borrowed until the table changes. */
bool ch_table_queue_front(const struct ch_table *table, choir_bytes key, choir_bytes *value_out);
void ch_table_queue_drop(struct ch_table *table, choir_bytes key);

/* Who was served with an element could not take it: serve the next who waits, as a push does. */
void ch_table_queue_serve(struct ch_table *table, choir_bytes key);

size_t ch_table_queue_length(const struct ch_table *table, choir_bytes key);

/* --- waits --------------------------------------------------------------------------------------- */

enum ch_table_awaits {
    CH_AWAITS_KEY,     /* a value, or a queue that is not empty */
    CH_AWAITS_TURN,    /* the same, but a push serves only the first of these whose wait it ends: as
                          PyTorch's server does, whose clients wait before they pop */
    CH_AWAITS_ELEMENT, /* a queue that is not empty; a push serves one. Who is served should pop in
                          done(), or somebody else may be faster */
};

/* Lives in its owner. */
struct ch_table_wait {
    /* All keys have appeared; the wait is no longer registered. May use the table, and may free
     * itself. */
    void (*done)(struct ch_table_wait *wait);
    enum ch_table_awaits awaits;
    size_t missing;            /* keys still to come, and one more until ch_table_wait_end() */
    struct ch_list registered; /* its entries, one for each key */
};

/* CHOIR_OK: all have come already, nothing is registered. CHOIR_IN_PROGRESS: done() will be called. Nothing is
 * checked twice: a key deleted again before the last one comes still counts, and a key named twice
 * counts twice. */
choir_status ch_table_wait_as(struct ch_table *table, struct ch_table_wait *wait,
                              enum ch_table_awaits awaits, const choir_bytes *keys, size_t count,
                              void (*done)(struct ch_table_wait *wait));

/* The same, for CH_AWAITS_TURN. */
choir_status ch_table_wait(struct ch_table *table, struct ch_table_wait *wait,
                           const choir_bytes *keys, size_t count,
                           void (*done)(struct ch_table_wait *wait));

/* The same for keys that come one after the other: begin (for CH_AWAITS_TURN unless wait->awaits is
 * then set otherwise), add each, end. Until the end done() is not
 * called; it returns what ch_table_wait() does. If adding fails, cancel the wait. */
void ch_table_wait_begin(struct ch_table_wait *wait, void (*done)(struct ch_table_wait *wait));
choir_status ch_table_wait_add(struct ch_table *table, struct ch_table_wait *wait, choir_bytes key);
choir_status ch_table_wait_end(struct ch_table_wait *wait);

/* One more arrives at a barrier of `nranks`: `key` counts them. CHOIR_OK: it is complete, and whoever
 * waits for the key is served. CHOIR_IN_PROGRESS: done() will be called, by the one who completes it
 * or by any other writing of the key. Arrivals are not taken back. */
choir_status ch_table_barrier(struct ch_table *table, struct ch_table_wait *wait, choir_bytes key,
                              int64_t nranks, void (*done)(struct ch_table_wait *wait));

/* Forget a wait. Ignores one that is zeroed, done or cancelled. */
void ch_table_wait_cancel(struct ch_table *table, struct ch_table_wait *wait);

#endif
