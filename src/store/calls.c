/*
 * calls.c - the calls on a handle: check the arguments, put the prefix in front of the keys, set the
 * deadline, let the kind do it, and put the call into the error's text.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/handle.h"

enum { KEYS_INLINE = 192 }; /* bytes of prefixed keys that need no allocation */

/* One call under way. */
struct call {
    const char *name;
    choir_store *store;
    const struct ch_store_ops *ops;
    void *self;
    const choir_bytes *keys; /* prefixed */
    size_t nkeys;
    struct ch_patience patience;
    choir_bytes one; /* where keys points for one key */
    void *heap;      /* where it points for more, and the bytes of long ones */
    char bytes[KEYS_INLINE];
};

/* --- keys ---------------------------------------------------------------------------------------- */

static choir_status check_bytes(const struct call *call, const choir_bytes *list, size_t count,
                                const char *what)
{
    if (list == NULL && count > 0)
        return ch_fail(CHOIR_ERR_INVALID, "store_%s: %zu %ss, but their list is NULL", call->name,
                       count, what);
    for (size_t i = 0; i < count; i++) {
        if (list[i].data == NULL && list[i].nbytes > 0)
            return ch_fail(CHOIR_ERR_INVALID, "store_%s: %s %zu is %zu bytes at NULL", call->name,
                           what, i, list[i].nbytes);
    }
    return CHOIR_OK;
}

/* How many bytes all keys need with their prefix; false if that is beyond counting. */
static bool prefixed_nbytes(const struct call *call, const choir_bytes *keys, size_t *nbytes_out)
{
    size_t nbytes = 0;

    for (size_t i = 0; i < call->nkeys; i++) {
        if (__builtin_add_overflow(nbytes, call->store->prefix_nbytes, &nbytes) ||
            __builtin_add_overflow(nbytes, keys[i].nbytes, &nbytes))
            return false;
    }
    *nbytes_out = nbytes;
    return true;
}

static choir_status no_memory_for_keys(const struct call *call)
{
    return ch_fail(CHOIR_ERR_NOMEM, "store_%s: no memory for %zu keys with their prefix",
                   call->name, call->nkeys);
}

static void write_prefixed(const choir_store *store, const choir_bytes *keys, size_t nkeys,
                           choir_bytes *list, char *bytes)
{
    for (size_t i = 0; i < nkeys; i++) {
        list[i] = (choir_bytes){ bytes, store->prefix_nbytes + keys[i].nbytes };
        memcpy(bytes, store->prefix, store->prefix_nbytes);
        if (keys[i].nbytes > 0)
            memcpy(bytes + store->prefix_nbytes, keys[i].data, keys[i].nbytes);
        bytes += list[i].nbytes;
    }
}

static choir_status prefix_keys(struct call *call, const choir_bytes *keys)
{
    size_t list_nbytes, nbytes, all;

    call->keys = keys;
    if (call->store->prefix_nbytes == 0 || call->nkeys == 0)
        return CHOIR_OK;
    if (!prefixed_nbytes(call, keys, &nbytes) ||
        __builtin_mul_overflow(call->nkeys, sizeof(choir_bytes), &list_nbytes) ||
        __builtin_add_overflow(list_nbytes, nbytes, &all))
        return no_memory_for_keys(call);
    if (call->nkeys == 1 && nbytes <= sizeof(call->bytes)) {
        write_prefixed(call->store, keys, 1, &call->one, call->bytes);
        call->keys = &call->one;
        return CHOIR_OK;
    }
    call->heap = ch_alloc(all);
    if (call->heap == NULL)
        return no_memory_for_keys(call);
    write_prefixed(call->store, keys, call->nkeys, call->heap, (char *)call->heap + list_nbytes);
    call->keys = call->heap;
    return CHOIR_OK;
}

/* --- begin and end ------------------------------------------------------------------------------- */

/* `has_outputs`: no output pointer is NULL. end() takes a call also after this failed. */
static choir_status begin(struct call *call, const char *name, choir_store *store,
                          const choir_bytes *keys, size_t nkeys, int64_t timeout_ms,
                          bool has_outputs)
{
    choir_status rc;

    call->name = name;
    call->store = store;
    call->nkeys = nkeys;
    call->heap = NULL;
    if (store == NULL || !has_outputs)
        return ch_fail(CHOIR_ERR_INVALID, "store_%s: %s is NULL", name,
                       store == NULL ? "store" : "an output");
    rc = ch_forked();
    if (rc == CHOIR_OK)
        rc = check_bytes(call, keys, nkeys, "key");
    if (rc != CHOIR_OK)
        return rc;
    call->ops = store->shared->ops;
    call->self = store->shared->self;
    call->patience = ch_store_patience(store, timeout_ms);
    return prefix_keys(call, keys);
}

static void explain(const struct call *call)
{
    char key[CH_BYTES_TEXT_MAX] = "", more[32] = "";

    if (call->nkeys > 0)
        ch_bytes_text(call->keys[0], key);
    if (call->nkeys > 1)
        snprintf(more, sizeof(more), " and %zu more", call->nkeys - 1);
    ch_error_prefix("store %s: %s%s%s%s%s: ", call->store->shared->url, call->name,
                    call->nkeys > 0 ? " \"" : "", key, call->nkeys > 0 ? "\"" : "", more);
}

/* Ends what begin() prepared, after the kind has answered `rc`. */
static choir_status end(struct call *call, choir_status rc)
{
    if (rc != CHOIR_OK)
        explain(call);
    ch_free(call->heap);
    return rc;
}

/* The same when it never came to that. */
static choir_status refuse(struct call *call, choir_status rc)
{
    ch_free(call->heap);
    return rc;
}

static choir_status unsupported(void)
{
    return ch_fail(CHOIR_ERR_UNSUPPORTED, "this kind of store cannot do that");
}

/* Let the kind do it, if it can: DO(&call, set, key, value). */
#define DO(call, op, ...)                                                                          \
    ((call)->ops->op != NULL ? (call)->ops->op((call)->self, __VA_ARGS__, &(call)->patience)       \
                             : unsupported())

/* --- values -------------------------------------------------------------------------------------- */

choir_status choir_store_set(choir_store *store, choir_bytes key, choir_bytes value)
{
    struct call call;
    choir_status rc = begin(&call, "set", store, &key, 1, 0, true);

    if (rc == CHOIR_OK)
        rc = check_bytes(&call, &value, 1, "value");
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, set, call.keys[0], value));
}

choir_status choir_store_get(choir_store *store, choir_bytes key, int64_t timeout_ms,
                             choir_blob *value_out)
{
    struct call call;
    choir_status rc = begin(&call, "get", store, &key, 1, timeout_ms, value_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, get, call.keys[0], value_out));
}

choir_status choir_store_add(choir_store *store, choir_bytes key, int64_t delta, int64_t *sum_out)
{
    int64_t sum;
    struct call call;
    choir_status rc = begin(&call, "add", store, &key, 1, 0, true);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, add, call.keys[0], delta, sum_out != NULL ? sum_out : &sum));
}

choir_status choir_store_compare_set(choir_store *store, choir_bytes key, choir_bytes expected,
                                     choir_bytes desired, choir_blob *value_out)
{
    struct call call;
    choir_status rc = begin(&call, "compare_set", store, &key, 1, 0, value_out != NULL);

    if (rc == CHOIR_OK)
        rc = check_bytes(&call, &expected, 1, "expected value");
    if (rc == CHOIR_OK)
        rc = check_bytes(&call, &desired, 1, "desired value");
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, compare_set, call.keys[0], expected, desired, value_out));
}

choir_status choir_store_append(choir_store *store, choir_bytes key, choir_bytes more)
{
    struct call call;
    choir_status rc = begin(&call, "append", store, &key, 1, 0, true);

    if (rc == CHOIR_OK)
        rc = check_bytes(&call, &more, 1, "value");
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, append, call.keys[0], more));
}

choir_status choir_store_delete(choir_store *store, choir_bytes key, bool *removed_out)
{
    struct call call;
    choir_status rc = begin(&call, "delete", store, &key, 1, 0, true);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, remove, call.keys[0], removed_out));
}

/* --- several keys -------------------------------------------------------------------------------- */

static choir_status get_one_by_one(struct call *call, choir_blob *values)
{
    for (size_t i = 0; i < call->nkeys; i++) {
        choir_status rc = DO(call, get, call->keys[i], &values[i]);

        if (rc == CHOIR_OK)
            continue;
        while (i-- > 0)
            choir_blob_free(&values[i]);
        return rc;
    }
    return CHOIR_OK;
}

choir_status choir_store_multi_get(choir_store *store, const choir_bytes *keys, size_t count,
                                   int64_t timeout_ms, choir_blob **values_out)
{
    choir_blob *values;
    struct call call;
    choir_status rc = begin(&call, "multi_get", store, keys, count, timeout_ms, values_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    values = ch_zalloc_array(count + 1, sizeof(*values));
    if (values == NULL)
        return refuse(&call,
                      ch_fail(CHOIR_ERR_NOMEM, "store_multi_get: no memory for %zu values", count));
    if (count > 0)
        rc = call.ops->multi_get != NULL ? DO(&call, multi_get, call.keys, count, values)
                                         : get_one_by_one(&call, values);
    if (rc == CHOIR_OK)
        *values_out = values;
    else
        ch_free(values);
    return end(&call, rc);
}

static choir_status set_one_by_one(struct call *call, const choir_bytes *values)
{
    choir_status rc = CHOIR_OK;

    for (size_t i = 0; i < call->nkeys && rc == CHOIR_OK; i++)
        rc = DO(call, set, call->keys[i], values[i]);
    return rc;
}

choir_status choir_store_multi_set(choir_store *store, const choir_bytes *keys,
                                   const choir_bytes *values, size_t count)
{
    struct call call;
    choir_status rc = begin(&call, "multi_set", store, keys, count, 0, true);

    if (rc == CHOIR_OK)
        rc = check_bytes(&call, values, count, "value");
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    if (count > 0)
        rc = call.ops->multi_set != NULL ? DO(&call, multi_set, call.keys, values, count)
                                         : set_one_by_one(&call, values);
    return end(&call, rc);
}

choir_status choir_store_check(choir_store *store, const choir_bytes *keys, size_t count,
                               bool *all_out)
{
    struct call call;
    choir_status rc = begin(&call, "check", store, keys, count, 0, all_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    if (count == 0)
        *all_out = true;
    else
        rc = DO(&call, check, call.keys, count, all_out);
    return end(&call, rc);
}

choir_status choir_store_wait(choir_store *store, const choir_bytes *keys, size_t count,
                              int64_t timeout_ms)
{
    struct call call;
    choir_status rc = begin(&call, "wait", store, keys, count, timeout_ms, true);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    if (count > 0)
        rc = DO(&call, wait, call.keys, count);
    return end(&call, rc);
}

/* --- all keys ------------------------------------------------------------------------------------ */

choir_status choir_store_count(choir_store *store, int64_t *count_out)
{
    struct call call;
    choir_status rc = begin(&call, "count", store, NULL, 0, 0, count_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, count, count_out));
}

/* Keep the keys below the prefix, without it, and say how many that were. */
static size_t keep_prefixed(const choir_store *store, choir_blob *keys, size_t count)
{
    size_t nbytes = store->prefix_nbytes, kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (keys[i].nbytes < nbytes || memcmp(keys[i].data, store->prefix, nbytes) != 0) {
            choir_blob_free(&keys[i]);
            continue;
        }
        keys[i].nbytes -= nbytes;
        memmove(keys[i].data, keys[i].data + nbytes, keys[i].nbytes + 1); /* with its NUL */
        keys[kept++] = keys[i];
    }
    return kept;
}

choir_status choir_store_list(choir_store *store, choir_blob **keys_out, size_t *count_out)
{
    choir_blob *keys;
    size_t count;
    struct call call;
    choir_status rc = begin(&call, "list", store, NULL, 0, 0,
                            keys_out != NULL && count_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    rc = DO(&call, list, &keys, &count);
    if (rc == CHOIR_OK) {
        *count_out = keep_prefixed(store, keys, count);
        *keys_out = keys;
    }
    return end(&call, rc);
}

/* --- queues -------------------------------------------------------------------------------------- */

choir_status choir_store_queue_push(choir_store *store, choir_bytes key, choir_bytes value)
{
    struct call call;
    choir_status rc = begin(&call, "queue_push", store, &key, 1, 0, true);

    if (rc == CHOIR_OK)
        rc = check_bytes(&call, &value, 1, "value");
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, queue_push, call.keys[0], value));
}

choir_status choir_store_queue_pop(choir_store *store, choir_bytes key, int64_t timeout_ms,
                                   choir_blob *value_out)
{
    struct call call;
    choir_status rc = begin(&call, "queue_pop", store, &key, 1, timeout_ms, value_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, queue_pop, call.keys[0], value_out));
}

choir_status choir_store_queue_try_pop(choir_store *store, choir_bytes key, choir_blob *value_out)
{
    struct call call;
    choir_status rc = begin(&call, "queue_try_pop", store, &key, 1, 0, value_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, queue_try_pop, call.keys[0], value_out));
}

choir_status choir_store_queue_length(choir_store *store, choir_bytes key, int64_t *length_out)
{
    struct call call;
    choir_status rc = begin(&call, "queue_length", store, &key, 1, 0, length_out != NULL);

    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    return end(&call, DO(&call, queue_length, call.keys[0], length_out));
}

/* --- all together -------------------------------------------------------------------------------- */

/* "<key>/num_members" counts, who completes it sets "<key>/last_member", which all wait for: as
 * PyTorch's stores do, so that both can meet. */
static choir_status count_and_wait(struct call *call, int64_t nranks)
{
    choir_bytes key = call->keys[0], members, last;
    char *names = ch_alloc_array(key.nbytes + 16, 2);
    int64_t sum;
    choir_status rc;

    if (names == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for its keys");
    members = (choir_bytes){ names, key.nbytes + 12 };
    last = (choir_bytes){ names + key.nbytes + 16, key.nbytes + 12 };
    if (key.nbytes > 0) {
        memcpy(names, key.data, key.nbytes);
        memcpy(names + key.nbytes + 16, key.data, key.nbytes);
    }
    memcpy(names + key.nbytes, "/num_members", 12);
    memcpy(names + key.nbytes + 16 + key.nbytes, "/last_member", 12);
    rc = DO(call, add, members, 1, &sum);
    if (rc == CHOIR_OK && sum == nranks)
        rc = DO(call, set, last, choir_str("1"));
    if (rc == CHOIR_OK)
        rc = DO(call, wait, &last, 1);
    ch_free(names);
    return rc;
}

choir_status choir_store_barrier(choir_store *store, choir_bytes key, int64_t nranks,
                                 int64_t timeout_ms)
{
    struct call call;
    choir_status rc = begin(&call, "barrier", store, &key, 1, timeout_ms, true);

    if (rc == CHOIR_OK && nranks < 1)
        rc = ch_fail(CHOIR_ERR_INVALID, "store_barrier: of %lld ranks", (long long)nranks);
    if (rc != CHOIR_OK)
        return refuse(&call, rc);
    if (call.ops->barrier != NULL && store->prefix_nbytes == 0)
        rc = DO(&call, barrier, call.keys[0], nranks);
    else
        rc = count_and_wait(&call, nranks);
    return end(&call, rc);
}
