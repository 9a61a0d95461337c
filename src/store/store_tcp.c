/*
 * store_tcp.c - tcp://host:port: a store in a server (choir_store_server_create()), over Choir's own
 * protocol. What has no answer is not waited for. How requests travel is in link.h.
 */
#include "store/store.h"

#include "base/error.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/link.h"

/* A multi_set of more than this goes in several requests. */
static const size_t multi_set_nbytes = (size_t)64 << 20;

static choir_status tcp_open(void *self, const struct ch_store_place *place,
                             const struct ch_patience *patience)
{
    if (place->query[0] != '\0')
        return ch_fail(CHOIR_ERR_INVALID, "store %s: \"%s\" is not known here", place->url,
                       place->query);
    return ch_link_open(self, place->where, place->token, patience);
}

static void tcp_close(void *self)
{
    ch_link_close(self);
}

/* --- what the server would refuse ---------------------------------------------------------------- */

static choir_status check_keys(const struct ch_link *link, const choir_bytes *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].nbytes > link->limits.key_nbytes)
            return ch_fail(CHOIR_ERR_INVALID, "store: a key of %zu bytes, at most %llu are allowed",
                           keys[i].nbytes, (unsigned long long)link->limits.key_nbytes);
    }
    return CHOIR_OK;
}

static choir_status check_values(const struct ch_link *link, const choir_bytes *values,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i].nbytes > link->limits.value_nbytes)
            return ch_fail(CHOIR_ERR_INVALID,
                           "store: a value of %zu bytes, at most %llu are allowed",
                           values[i].nbytes, (unsigned long long)link->limits.value_nbytes);
    }
    return CHOIR_OK;
}

/* --- what replies say ---------------------------------------------------------------------------- */

static choir_status unexpected(const struct ch_message *reply)
{
    return ch_fail(CHOIR_ERR_PROTO, "the store's reply has %u items", reply->nitems);
}

static choir_status take_number(const struct ch_message *reply, void *out)
{
    *(int64_t *)out = (int64_t)reply->number;
    return CHOIR_OK;
}

static choir_status take_blob(const struct ch_message *reply, void *out)
{
    struct ch_items items = ch_items_of(reply);
    choir_bytes value;

    if (reply->nitems != 1)
        return unexpected(reply);
    value = ch_items_next(&items);
    return ch_blob_init(out, value.data, value.nbytes);
}

/* How many are expected, and where they go. */
struct blobs {
    choir_blob *list;
    size_t count;
};

/* All of them, or none. */
static choir_status take_blobs(const struct ch_message *reply, void *out)
{
    struct blobs *blobs = out;
    struct ch_items items = ch_items_of(reply);
    choir_status rc = CHOIR_OK;
    size_t done = 0;

    if (reply->nitems != blobs->count)
        return unexpected(reply);
    while (rc == CHOIR_OK && done < blobs->count) {
        choir_bytes item = ch_items_next(&items);

        rc = ch_blob_init(&blobs->list[done], item.data, item.nbytes);
        done += rc == CHOIR_OK;
    }
    while (rc != CHOIR_OK && done > 0)
        choir_blob_free(&blobs->list[--done]);
    return rc;
}

static choir_status take_list(const struct ch_message *reply, void *out)
{
    struct blobs *blobs = out;
    choir_status rc;

    blobs->count = reply->nitems;
    blobs->list = ch_zalloc_array(blobs->count > 0 ? blobs->count : 1, sizeof(*blobs->list));
    if (blobs->list == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a list of %zu keys", blobs->count);
    rc = take_blobs(reply, blobs);
    if (rc != CHOIR_OK)
        ch_free(blobs->list);
    return rc;
}

/* --- asking -------------------------------------------------------------------------------------- */

/* Something changes, and there is nothing to tell. */
static choir_status tell(struct ch_link *link, enum ch_op op, choir_bytes key, choir_bytes value,
                         const struct ch_patience *patience)
{
    struct ch_ask ask = { .op = op, .quiet = true, .items = &key, .nitems = 1, .values = &value };
    choir_status rc = check_keys(link, &key, 1);

    if (rc == CHOIR_OK)
        rc = check_values(link, &value, 1);
    return rc == CHOIR_OK ? ch_link_ask(link, &ask, patience) : rc;
}

static choir_status ask_number(struct ch_link *link, enum ch_op op, const choir_bytes *keys,
                               size_t nkeys, int64_t number, int64_t *number_out,
                               const struct ch_patience *patience)
{
    int64_t answer = 0;
    struct ch_ask ask = { .op = op,
                          .number = (uint64_t)number,
                          .items = keys,
                          .nitems = nkeys,
                          .take = take_number,
                          .out = &answer };
    choir_status rc = check_keys(link, keys, nkeys);

    if (rc == CHOIR_OK)
        rc = ch_link_ask(link, &ask, patience);
    if (rc == CHOIR_OK)
        *number_out = answer;
    return rc;
}

static choir_status ask_blob(struct ch_link *link, enum ch_op op, const choir_bytes *items,
                             size_t nitems, choir_blob *value_out,
                             const struct ch_patience *patience)
{
    struct ch_ask ask = {
        .op = op, .items = items, .nitems = nitems, .take = take_blob, .out = value_out
    };
    choir_status rc = check_keys(link, items, 1);

    if (rc == CHOIR_OK)
        rc = check_values(link, items + 1, nitems - 1);
    return rc == CHOIR_OK ? ch_link_ask(link, &ask, patience) : rc;
}

/* --- values -------------------------------------------------------------------------------------- */

static choir_status tcp_set(void *self, choir_bytes key, choir_bytes value,
                            const struct ch_patience *patience)
{
    return tell(self, CH_OP_SET, key, value, patience);
}

static choir_status tcp_append(void *self, choir_bytes key, choir_bytes more,
                               const struct ch_patience *patience)
{
    return tell(self, CH_OP_APPEND, key, more, patience);
}

static choir_status tcp_get(void *self, choir_bytes key, choir_blob *value_out,
                            const struct ch_patience *patience)
{
    return ask_blob(self, CH_OP_GET, &key, 1, value_out, patience);
}

static choir_status tcp_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                            const struct ch_patience *patience)
{
    return ask_number(self, CH_OP_ADD, &key, 1, delta, sum_out, patience);
}

static choir_status tcp_compare_set(void *self, choir_bytes key, choir_bytes expected,
                                    choir_bytes desired, choir_blob *value_out,
                                    const struct ch_patience *patience)
{
    choir_bytes items[] = { key, expected, desired };

    return ask_blob(self, CH_OP_COMPARE_SET, items, 3, value_out, patience);
}

static choir_status tcp_remove(void *self, choir_bytes key, bool *removed_out,
                               const struct ch_patience *patience)
{
    struct ch_ask quietly = { .op = CH_OP_REMOVE, .quiet = true, .items = &key, .nitems = 1 };
    int64_t number;
    choir_status rc;

    if (removed_out == NULL) {
        rc = check_keys(self, &key, 1);
        return rc == CHOIR_OK ? ch_link_ask(self, &quietly, patience) : rc;
    }
    rc = ask_number(self, CH_OP_REMOVE, &key, 1, 0, &number, patience);
    if (rc == CHOIR_OK)
        *removed_out = number != 0;
    return rc;
}

static choir_status tcp_multi_get(void *self, const choir_bytes *keys, size_t count,
                                  choir_blob *values_out, const struct ch_patience *patience)
{
    struct blobs blobs = { values_out, count };
    struct ch_ask ask = {
        .op = CH_OP_MULTI_GET, .items = keys, .nitems = count, .take = take_blobs, .out = &blobs
    };
    choir_status rc = check_keys(self, keys, count);

    return rc == CHOIR_OK ? ch_link_ask(self, &ask, patience) : rc;
}

/* How many of the pairs go into one request. */
static size_t one_requests_worth(const choir_bytes *keys, const choir_bytes *values, size_t count)
{
    size_t nbytes = 0, n = 0;

    while (n < count && (n == 0 || nbytes + keys[n].nbytes + values[n].nbytes < multi_set_nbytes)) {
        nbytes += keys[n].nbytes + values[n].nbytes;
        n++;
    }
    return n;
}

static choir_status tcp_multi_set(void *self, const choir_bytes *keys, const choir_bytes *values,
                                  size_t count, const struct ch_patience *patience)
{
    choir_status rc = check_keys(self, keys, count);

    if (rc == CHOIR_OK)
        rc = check_values(self, values, count);
    for (size_t at = 0; rc == CHOIR_OK && at < count;) {
        size_t n = one_requests_worth(keys + at, values + at, count - at);
        struct ch_ask ask = { .op = CH_OP_MULTI_SET,
                              .quiet = true,
                              .items = keys + at,
                              .nitems = n,
                              .values = values + at };

        rc = ch_link_ask(self, &ask, patience);
        at += n;
    }
    return rc;
}

static choir_status tcp_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                              const struct ch_patience *patience)
{
    int64_t number;
    choir_status rc = ask_number(self, CH_OP_CHECK, keys, count, 0, &number, patience);

    if (rc == CHOIR_OK)
        *all_out = number != 0;
    return rc;
}

static choir_status tcp_wait(void *self, const choir_bytes *keys, size_t count,
                             const struct ch_patience *patience)
{
    int64_t unused;

    return ask_number(self, CH_OP_WAIT, keys, count, 0, &unused, patience);
}

static choir_status tcp_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    return ask_number(self, CH_OP_COUNT, NULL, 0, 0, count_out, patience);
}

static choir_status tcp_list(void *self, choir_blob **keys_out, size_t *count_out,
                             const struct ch_patience *patience)
{
    struct blobs blobs = { NULL, 0 };
    struct ch_ask ask = { .op = CH_OP_LIST, .take = take_list, .out = &blobs };
    choir_status rc = ch_link_ask(self, &ask, patience);

    if (rc != CHOIR_OK)
        return rc;
    *keys_out = blobs.list;
    *count_out = blobs.count;
    return CHOIR_OK;
}

/* --- queues -------------------------------------------------------------------------------------- */

static choir_status tcp_queue_push(void *self, choir_bytes key, choir_bytes value,
                                   const struct ch_patience *patience)
{
    return tell(self, CH_OP_PUSH, key, value, patience);
}

static choir_status tcp_queue_pop(void *self, choir_bytes key, choir_blob *value_out,
                                  const struct ch_patience *patience)
{
    return ask_blob(self, CH_OP_POP, &key, 1, value_out, patience);
}

static choir_status tcp_queue_try_pop(void *self, choir_bytes key, choir_blob *value_out,
                                      const struct ch_patience *patience)
{
    return ask_blob(self, CH_OP_TRY_POP, &key, 1, value_out, patience);
}

static choir_status tcp_queue_length(void *self, choir_bytes key, int64_t *length_out,
                                     const struct ch_patience *patience)
{
    return ask_number(self, CH_OP_LENGTH, &key, 1, 0, length_out, patience);
}

static choir_status tcp_barrier(void *self, choir_bytes key, int64_t nranks,
                                const struct ch_patience *patience)
{
    int64_t unused;

    return ask_number(self, CH_OP_BARRIER, &key, 1, nranks, &unused, patience);
}

const struct ch_store_ops ch_store_tcp = {
    .scheme = "tcp",
    .help = "a server over TCP, with a job token",
    .self_size = sizeof(struct ch_link),
    .open = tcp_open,
    .close = tcp_close,
    .set = tcp_set,
    .get = tcp_get,
    .add = tcp_add,
    .compare_set = tcp_compare_set,
    .append = tcp_append,
    .remove = tcp_remove,
    .multi_get = tcp_multi_get,
    .multi_set = tcp_multi_set,
    .check = tcp_check,
    .wait = tcp_wait,
    .count = tcp_count,
    .list = tcp_list,
    .queue_push = tcp_queue_push,
    .queue_pop = tcp_queue_pop,
    .queue_try_pop = tcp_queue_try_pop,
    .queue_length = tcp_queue_length,
    .barrier = tcp_barrier,
};
