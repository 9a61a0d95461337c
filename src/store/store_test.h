/*
 * store_test.h - what the tests of all kinds of stores have in common: a scene, which is a fresh, empty store, and short words
 * for calls.
 *
 * A case is a function over a scene, played by for_all() for every line of store.def, bare and under a prefix. What
 * only some kinds can do is a column of their row.
 *   store_test.c          values, keys, prefixes
 *   store_wait_test.c     waiting, deadlines, interrupts, barriers
 *   store_queue_test.c    queues
 *   store_misuse_test.c   bad arguments, faults, forks, many threads
 */
#ifndef CH_STORE_TEST_H
#define CH_STORE_TEST_H

#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/handle.h"

/* --- fresh stores -------------------------------------------------------------------------------- */

struct scene {
    const struct row *row;
    bool prefixed;
    choir_store *store; /* the one to test, own time-out 10 s */
    choir_store *bare;  /* the same without prefix */
    choir_store_server *server;
    char url[256]; /* "" if a second one cannot be opened by its URL */
};

struct row {
    const char *name;
    choir_status (*open)(struct scene *scene, choir_store **store_out);
    size_t big;                /* a value as large as is worth trying */
    choir_status not_a_number; /* what adding to one gives; CHOIR_OK: not to be tried */
    bool own_queues; /* waits for a queue and for a value of the same name are told apart */
    bool polls;      /* what was there for a moment only may be missed by who waits for it */
};

static inline int64_t slow(int64_t ms)
{
    return ms * (int64_t)choir_test_slowness();
}

/* Long enough to be an error where it passes. */
static inline choir_status open_url(const char *url, choir_store **store_out)
{
    return choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = slow(10000)), store_out);
}

static inline choir_status open_hash(struct scene *scene, choir_store **store_out)
{
    scene->url[0] = '\0';
    return open_url("hash://", store_out);
}

static const struct row hash_row = { "hash", open_hash, 8 << 20, CHOIR_ERR_INVALID, true, false };

static inline choir_status open_tcp(struct scene *scene, choir_store **store_out)
{
    choir_status rc = choir_store_server_create(NULL, &scene->server);

    if (rc != CHOIR_OK)
        return rc;
    snprintf(scene->url, sizeof(scene->url), "tcp://%s", choir_store_server_address(scene->server));
    return open_url(scene->url, store_out);
}

static const struct row tcp_row = { "tcp", open_tcp, 32 << 20, CHOIR_ERR_INVALID, true, false };

/* A lasting file: it is opened again by its URL, and removed by close_scene(). */
static inline choir_status open_file(struct scene *scene, choir_store **store_out)
{
    const char *folder = getenv("TMPDIR");

    snprintf(scene->url, sizeof(scene->url), "file://%s/choir-store-test-%d",
             folder != NULL ? folder : "/tmp", (int)getpid());
    return open_url(scene->url, store_out);
}

static const struct row file_row = { "file", open_file, 8 << 20, CHOIR_ERR_INVALID, true, true };

static inline choir_status open_torch(struct scene *scene, choir_store **store_out)
{
    choir_status rc = choir_store_server_create(
        CHOIR_OPTS(store_server_create, .torch_bind = "127.0.0.1:0"), &scene->server);

    if (rc != CHOIR_OK)
        return rc;
    snprintf(scene->url, sizeof(scene->url), "tcp://%s?protocol=torch",
             choir_store_server_torch_address(scene->server));
    return open_url(scene->url, store_out);
}

/* A value of at most 8 MiB in a request; adding to what is no number, also to an empty value, ends the
 * connection (store_torch_test.c); who pops waits for the key first; who was woken looks whether the key
 * is there still. */
static const struct row torch_row = { "torch", open_torch, 8 << 20, CHOIR_OK, false, true };

static const struct row *const rows[] = {
#define CH_STORE(name) &name##_row,
#include "store/store.def"
#undef CH_STORE
};

static inline void open_scene(struct scene *scene, const struct row *row, bool prefixed)
{
    *scene = (struct scene){ .row = row, .prefixed = prefixed };
    CHOIR_ROW("%s%s", row->name, prefixed ? ", under a prefix" : "");
    CHOIR_CHECK_OK(row->open(scene, &scene->bare));
    if (prefixed)
        CHOIR_CHECK_OK(choir_store_prefix(scene->bare, choir_str("some/prefix"), &scene->store));
    else
        CHOIR_CHECK_OK(choir_store_clone(scene->bare, &scene->store));
}

/* Takes half-opened ones. */
static inline void close_scene(struct scene *scene)
{
    choir_store_close(scene->store);
    choir_store_close(scene->bare);
    if (scene->server != NULL)
        choir_store_server_destroy(scene->server);
    if (strncmp(scene->url, "file://", 7) == 0)
        (void)!unlink(scene->url + 7);
}

/* A case for every kind, bare and under a prefix. */
static inline void for_all(void (*fn)(struct scene *scene))
{
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        for (int prefixed = 0; prefixed < 2; prefixed++) {
            struct scene scene;

            open_scene(&scene, rows[i], prefixed);
            fn(&scene);
            close_scene(&scene);
        }
    }
}

/* Another client: of its own connection or file where there is such a thing. */
static inline choir_store *another(struct scene *scene)
{
    choir_store *bare, *store;

    if (scene->url[0] == '\0') {
        CHOIR_CHECK_OK(choir_store_clone(scene->store, &store));
        return store;
    }
    CHOIR_CHECK_OK(open_url(scene->url, &bare));
    if (!scene->prefixed)
        return bare;
    CHOIR_CHECK_OK(choir_store_prefix(bare, choir_str("some/prefix"), &store));
    choir_store_close(bare);
    return store;
}

/* --- shorthands ---------------------------------------------------------------------------------- */

#define K(text) choir_str(text)

static inline choir_bytes bytes(const void *data, size_t nbytes)
{
    return (choir_bytes){ data, nbytes };
}

static inline void set(choir_store *store, const char *key, const char *value)
{
    CHOIR_CHECK_OK(choir_store_set(store, K(key), K(value)));
}

static inline void check_blob(choir_blob blob, choir_bytes want)
{
    CHOIR_CHECK_EQ(blob.nbytes, want.nbytes);
    CHOIR_CHECK(want.nbytes == 0 || memcmp(blob.data, want.data, want.nbytes) == 0);
    CHOIR_CHECK_EQ(blob.data[blob.nbytes], '\0');
    choir_blob_free(&blob);
}

static inline void check_value(choir_store *store, choir_bytes key, choir_bytes want)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, key, 0, &value));
    check_blob(value, want);
}

static inline bool exists(choir_store *store, const char *key)
{
    choir_bytes one = K(key);
    bool all;

    CHOIR_CHECK_OK(choir_store_check(store, &one, 1, &all));
    return all;
}

static inline int64_t count(choir_store *store)
{
    int64_t n;

    CHOIR_CHECK_OK(choir_store_count(store, &n));
    return n;
}

static inline bool removed(choir_store *store, const char *key)
{
    bool was_there;

    CHOIR_CHECK_OK(choir_store_delete(store, K(key), &was_there));
    return was_there;
}

static inline void until_asleep(choir_store *store)
{
    while (atomic_load(&store->word.nasleep) == 0)
        sched_yield();
}

static inline pthread_t start(void *(*fn)(void *), void *arg)
{
    pthread_t thread;

    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    return thread;
}

/* The keys a handle lists, sorted, with a comma behind each. */
static inline void listed(choir_store *store, char *text, size_t room)
{
    choir_blob *keys;
    size_t n;

    CHOIR_CHECK_OK(choir_store_list(store, &keys, &n));
    text[0] = '\0';
    for (size_t left = n; left > 0; left--) {
        size_t least = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
            if (keys[i].data != NULL &&
                (least == SIZE_MAX || strcmp(keys[i].data, keys[least].data) < 0))
                least = i;
        }
        CHOIR_CHECK_EQ(strlen(keys[least].data), keys[least].nbytes);
        snprintf(text + strlen(text), room - strlen(text), "%s,", keys[least].data);
        choir_blob_free(&keys[least]);
    }
    choir_blob_free_list(keys, n);
}

/* --- calls that wait ------------------------------------------------------------------------------ */

/* A call that waits, in a thread of its own. */
struct waiting_call {
    choir_store *store;
    const char *key;
    choir_status rc;
    choir_blob value;
    char error[CHOIR_ERROR_TEXT_MAX];
};

static inline void *get_in_thread(void *arg)
{
    struct waiting_call *call = arg;

    call->rc = choir_store_get(call->store, K(call->key), 0, &call->value);
    if (call->rc != CHOIR_OK)
        snprintf(call->error, sizeof(call->error), "%s", choir_last_error());
    return NULL;
}

static inline void *pop_in_thread(void *arg)
{
    struct waiting_call *call = arg;

    call->rc = choir_store_queue_pop(call->store, K(call->key), 0, &call->value);
    return NULL;
}

static inline void *wait_in_thread(void *arg)
{
    struct waiting_call *call = arg;
    choir_bytes keys[] = { K(call->key), K("two"), K("three") };

    call->rc = choir_store_wait(call->store, keys, strcmp(call->key, "one") == 0 ? 3 : 1, 0);
    return NULL;
}

#endif
