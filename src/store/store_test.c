/*
 * store_test.c - what every kind of store promises (choir/store.h), for every line of store.def, bare
 * and under a prefix.
 *
 * A case is a function over a `scene`: a fresh, empty store. What only some kinds can do is a column
 * of their row.
 */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/log.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
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

static int64_t slow(int64_t ms)
{
    return ms * (int64_t)choir_test_slowness();
}

/* Long enough to be an error where it passes. */
static choir_status open_url(const char *url, choir_store **store_out)
{
    return choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = slow(10000)), store_out);
}

static choir_status open_hash(struct scene *scene, choir_store **store_out)
{
    scene->url[0] = '\0';
    return open_url("hash://", store_out);
}

static const struct row hash_row = { "hash", open_hash, 8 << 20, CHOIR_ERR_INVALID, true, false };

static choir_status open_tcp(struct scene *scene, choir_store **store_out)
{
    choir_status rc = choir_store_server_create(NULL, &scene->server);

    if (rc != CHOIR_OK)
        return rc;
    snprintf(scene->url, sizeof(scene->url), "tcp://%s", choir_store_server_address(scene->server));
    return open_url(scene->url, store_out);
}

static const struct row tcp_row = { "tcp", open_tcp, 32 << 20, CHOIR_ERR_INVALID, true, false };

/* A lasting file: it is opened again by its URL, and removed by close_scene(). */
static choir_status open_file(struct scene *scene, choir_store **store_out)
{
    const char *folder = getenv("TMPDIR");

    snprintf(scene->url, sizeof(scene->url), "file://%s/choir-store-test-%d",
             folder != NULL ? folder : "/tmp", (int)getpid());
    return open_url(scene->url, store_out);
}

static const struct row file_row = { "file", open_file, 8 << 20, CHOIR_ERR_INVALID, true, true };

static choir_status open_torch(struct scene *scene, choir_store **store_out)
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

static void open_scene(struct scene *scene, const struct row *row, bool prefixed)
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
static void close_scene(struct scene *scene)
{
    choir_store_close(scene->store);
    choir_store_close(scene->bare);
    if (scene->server != NULL)
        choir_store_server_destroy(scene->server);
    if (strncmp(scene->url, "file://", 7) == 0)
        (void)!unlink(scene->url + 7);
}

/* A case for every kind, bare and under a prefix. */
static void for_all(void (*fn)(struct scene *scene))
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
static choir_store *another(struct scene *scene)
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

static choir_bytes bytes(const void *data, size_t nbytes)
{
    return (choir_bytes){ data, nbytes };
}

static void set(choir_store *store, const char *key, const char *value)
{
    CHOIR_CHECK_OK(choir_store_set(store, K(key), K(value)));
}

static void check_blob(choir_blob blob, choir_bytes want)
{
    CHOIR_CHECK_EQ(blob.nbytes, want.nbytes);
    CHOIR_CHECK(want.nbytes == 0 || memcmp(blob.data, want.data, want.nbytes) == 0);
    CHOIR_CHECK_EQ(blob.data[blob.nbytes], '\0');
    choir_blob_free(&blob);
}

static void check_value(choir_store *store, choir_bytes key, choir_bytes want)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, key, 0, &value));
    check_blob(value, want);
}

static bool exists(choir_store *store, const char *key)
{
    choir_bytes one = K(key);
    bool all;

    CHOIR_CHECK_OK(choir_store_check(store, &one, 1, &all));
    return all;
}

static int64_t count(choir_store *store)
{
    int64_t n;

    CHOIR_CHECK_OK(choir_store_count(store, &n));
    return n;
}

static bool removed(choir_store *store, const char *key)
{
    bool was_there;

    CHOIR_CHECK_OK(choir_store_delete(store, K(key), &was_there));
    return was_there;
}

static void until_asleep(choir_store *store)
{
    while (atomic_load(&store->word.nasleep) == 0)
        sched_yield();
}

static pthread_t start(void *(*fn)(void *), void *arg)
{
    pthread_t thread;

    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    return thread;
}

/* --- values -------------------------------------------------------------------------------------- */

static void values_come_and_go(struct scene *scene)
{
    choir_store *store = scene->store;

    CHOIR_CHECK(!exists(store, "k"));
    CHOIR_CHECK(!removed(store, "k"));
    set(store, "k", "v");
    CHOIR_CHECK(exists(store, "k"));
    check_value(store, K("k"), K("v"));
    set(store, "k", "another, longer");
    check_value(store, K("k"), K("another, longer"));
    CHOIR_CHECK_EQ(count(store), 1);
    CHOIR_CHECK(removed(store, "k"));
    CHOIR_CHECK(!exists(store, "k"));
    CHOIR_CHECK_OK(choir_store_delete(store, K("k"), NULL));
    CHOIR_CHECK_EQ(count(store), 0);
}

CHOIR_TEST(values_come_and_go)
{
    for_all(values_come_and_go);
}

static void any_bytes_do(struct scene *scene)
{
    const struct {
        choir_bytes key, value;
        const char *why;
    } pairs[] = {
        { { NULL, 0 }, { "v", 1 }, "the empty key" },
        { { "k", 1 }, { NULL, 0 }, "the empty value" },
        { { "\0", 1 }, { "\0\0", 2 }, "NUL bytes" },
        { { "\0\0", 2 }, { "x\0y", 3 }, "more of them" },
        { { "/", 1 }, { "/", 1 }, "a slash" },
        { { "\xff\xfe\n\"%s", 6 }, { "\xc3\x28\r\n%n", 6 }, "neither text nor a format" },
    };

    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < CH_ARRAY_LEN(pairs); i++) {
            CHOIR_ROW("%s: %s", scene->row->name, pairs[i].why);
            if (round == 0)
                CHOIR_CHECK_OK(choir_store_set(scene->store, pairs[i].key, pairs[i].value));
            else
                check_value(scene->store, pairs[i].key, pairs[i].value);
        }
    }
    CHOIR_CHECK_EQ(count(scene->store), (int64_t)CH_ARRAY_LEN(pairs));
}

CHOIR_TEST(any_bytes_do)
{
    for_all(any_bytes_do);
}

static void big_values(struct scene *scene)
{
    size_t nbytes = scene->row->big / choir_test_slowness();
    char *data = malloc(nbytes);
    choir_store *other = another(scene);

    CHOIR_CHECK(data != NULL);
    for (size_t i = 0; i < nbytes; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    CHOIR_CHECK_OK(choir_store_set(scene->store, K("big"), bytes(data, nbytes)));
    check_value(other, K("big"), bytes(data, nbytes));
    CHOIR_CHECK_OK(choir_store_set(scene->store, K("big"), bytes(data, nbytes - 1)));
    check_value(scene->store, K("big"), bytes(data, nbytes - 1));
    choir_store_close(other);
    free(data);
}

CHOIR_TEST(big_values)
{
    for_all(big_values);
}

static void numbers(struct scene *scene)
{
    static const struct {
        const char *before;
        int64_t delta, sum;
        const char *why;
    } sums[] = {
        { NULL, 5, 5, "a missing value counts as 0" },
        { "7", -9, -2, "below zero" },
        { " \t+12 monkeys", 1, 13, "blanks and a sign before, anything behind" },
        { "-3", 0, -3, "0 reads" },
        { "9223372036854775807", 1, INT64_MIN, "the sum wraps" },
    };
    int64_t sum;

    for (size_t i = 0; i < CH_ARRAY_LEN(sums); i++) {
        CHOIR_ROW("%s: %s", scene->row->name, sums[i].why);
        removed(scene->store, "n");
        if (sums[i].before != NULL)
            set(scene->store, "n", sums[i].before);
        CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), sums[i].delta, &sum));
        CHOIR_CHECK_EQ(sum, sums[i].sum);
    }
    check_value(scene->store, K("n"), K("-9223372036854775808"));
    CHOIR_CHECK_OK(choir_store_add(scene->store, K("touched"), 0, NULL));
    CHOIR_CHECK(exists(scene->store, "touched"));
    if (scene->row->not_a_number == CHOIR_OK)
        return;
    set(scene->store, "n", "");
    CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), 1, &sum));
    CHOIR_CHECK_EQ(sum, 1);
    for (int i = 0; i < 2; i++) {
        set(scene->store, "n", i == 0 ? "x1" : "9223372036854775808");
        CHOIR_CHECK_STATUS(choir_store_add(scene->store, K("n"), 1, &sum),
                           scene->row->not_a_number);
        CHOIR_CHECK_HAS(choir_last_error(), i == 0 ? "x1" : "9223372036854775808");
    }
}

CHOIR_TEST(numbers)
{
    for_all(numbers);
}

static void compare_set(struct scene *scene)
{
    static const struct {
        const char *before, *expected, *desired, *returned, *after, *why;
    } turns[] = {
        { NULL, "", "d", "d", "d", "missing, expected empty" },
        { NULL, "e", "d", "e", NULL, "missing, expected something: nothing is stored" },
        { "e", "e", "d", "d", "d", "as expected" },
        { "c", "e", "d", "c", "c", "not as expected" },
        { "", "", "d", "d", "d", "an empty value equals an empty expected" },
        { "c", "", "d", "c", "c", "there, expected empty" },
        { "c", "c", "", "", "", "to empty" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(turns); i++) {
        choir_blob value;

        CHOIR_ROW("%s: %s", scene->row->name, turns[i].why);
        removed(scene->store, "k");
        if (turns[i].before != NULL)
            set(scene->store, "k", turns[i].before);
        CHOIR_CHECK_OK(choir_store_compare_set(scene->store, K("k"), K(turns[i].expected),
                                               K(turns[i].desired), &value));
        check_blob(value, K(turns[i].returned));
        CHOIR_CHECK_EQ(exists(scene->store, "k"), turns[i].after != NULL);
        if (turns[i].after != NULL)
            check_value(scene->store, K("k"), K(turns[i].after));
    }
}

CHOIR_TEST(compare_set)
{
    for_all(compare_set);
}

static void append(struct scene *scene)
{
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("")));
    CHOIR_CHECK(exists(scene->store, "a"));
    check_value(scene->store, K("a"), K(""));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("one ")));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("two")));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), bytes("\0", 1)));
    check_value(scene->store, K("a"), bytes("one two\0", 8));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("b"), K("first")));
    check_value(scene->store, K("b"), K("first"));
}

CHOIR_TEST(append)
{
    for_all(append);
}

static void several_keys_at_once(struct scene *scene)
{
    choir_bytes keys[] = { K("a"), K("b"), K(""), K("a") };
    choir_bytes values[] = { K("1"), K(""), K("3"), K("4") };
    choir_blob *got;
    bool all;

    CHOIR_CHECK_OK(choir_store_check(scene->store, NULL, 0, &all));
    CHOIR_CHECK(all);
    CHOIR_CHECK_OK(choir_store_wait(scene->store, NULL, 0, 1));
    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, NULL, NULL, 0));
    CHOIR_CHECK_OK(choir_store_multi_get(scene->store, NULL, 0, 1, &got));
    choir_blob_free_list(got, 0);

    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, keys, values, 2));
    CHOIR_CHECK_OK(choir_store_check(scene->store, keys, 2, &all));
    CHOIR_CHECK(all);
    CHOIR_CHECK_OK(choir_store_check(scene->store, keys, 3, &all));
    CHOIR_CHECK(!all);
    CHOIR_CHECK_STATUS(choir_store_multi_get(scene->store, keys, 3, 20, &got), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, keys, values, 4));
    CHOIR_CHECK_OK(choir_store_wait(scene->store, keys, 4, 0));
    CHOIR_CHECK_OK(choir_store_multi_get(scene->store, keys, 4, 0, &got));
    for (int i = 0; i < 4; i++) {
        check_blob(got[i], i == 0 ? values[3] : values[i]);
        got[i] = (choir_blob){ NULL, 0 };
    }
    choir_blob_free_list(got, 4);
}

CHOIR_TEST(several_keys_at_once)
{
    for_all(several_keys_at_once);
}

/* --- keys and prefixes --------------------------------------------------------------------------- */

/* The keys a handle lists, sorted, with a comma behind each. */
static void listed(choir_store *store, char *text, size_t room)
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

static void keys_are_listed(struct scene *scene)
{
    char text[256];

    listed(scene->store, text, sizeof(text));
    CHOIR_CHECK_STR(text, "");
    set(scene->store, "one", "1");
    set(scene->store, "two", "2");
    set(scene->store, "", "empty");
    listed(scene->store, text, sizeof(text));
    CHOIR_CHECK_STR(text, ",one,two,");
}

CHOIR_TEST(keys_are_listed)
{
    for_all(keys_are_listed);
}

static void prefixes_nest(struct scene *scene)
{
    choir_store *p, *pq, *bare;
    char text[256];

    CHOIR_CHECK_OK(choir_store_prefix(scene->store, K("P"), &p));
    CHOIR_CHECK_OK(choir_store_prefix(p, K("Q"), &pq));
    set(pq, "k", "deep");
    set(p, "k", "shallow");
    set(scene->store, "Px", "not below P");
    set(scene->store, "PQ/k", "neither");
    set(scene->store, "P", "nor this");
    check_value(scene->store, K("P/Q/k"), K("deep"));
    check_value(p, K("k"), K("shallow"));
    listed(p, text, sizeof(text));
    CHOIR_CHECK_STR(text, "Q/k,k,");
    listed(pq, text, sizeof(text));
    CHOIR_CHECK_STR(text, "k,");
    CHOIR_CHECK_EQ(count(pq), 5); /* of all */

    CHOIR_CHECK_OK(choir_store_unprefixed(pq, &bare));
    check_value(bare, scene->prefixed ? K("some/prefix/P/Q/k") : K("P/Q/k"), K("deep"));
    choir_store_close(bare);
    choir_store_close(p); /* before the one made from it */
    check_value(pq, K("k"), K("deep"));
    choir_store_close(pq);
}

CHOIR_TEST(prefixes_nest)
{
    for_all(prefixes_nest);
}

/* Longer than what fits without an allocation, with NUL bytes, empty, and many keys at once. */
static void prefixes_are_bytes(struct scene *scene)
{
    char prefix[300], key[300];
    choir_bytes keys[3] = { bytes(key, sizeof(key)), K(""), K("x") };
    choir_store *p, *empty;
    bool all;

    memset(prefix, 0, sizeof(prefix));
    memset(key, '/', sizeof(key));
    CHOIR_CHECK_OK(choir_store_prefix(scene->store, bytes(prefix, sizeof(prefix)), &p));
    CHOIR_CHECK_OK(choir_store_prefix(scene->store, K(""), &empty));
    CHOIR_CHECK_OK(choir_store_multi_set(p, keys, keys, 3));
    CHOIR_CHECK_OK(choir_store_check(p, keys, 3, &all));
    CHOIR_CHECK(all);
    check_value(p, keys[0], keys[0]);
    set(empty, "k", "v");
    check_value(scene->store, K("/k"), K("v"));
    choir_store_close(p);
    choir_store_close(empty);
}

CHOIR_TEST(prefixes_are_bytes)
{
    for_all(prefixes_are_bytes);
}

/* --- waiting ------------------------------------------------------------------------------------- */

/* A call that waits, in a thread of its own. */
struct waiting_call {
    choir_store *store;
    const char *key;
    choir_status rc;
    choir_blob value;
    char error[CHOIR_ERROR_TEXT_MAX];
};

static void *get_in_thread(void *arg)
{
    struct waiting_call *call = arg;

    call->rc = choir_store_get(call->store, K(call->key), 0, &call->value);
    if (call->rc != CHOIR_OK)
        snprintf(call->error, sizeof(call->error), "%s", choir_last_error());
    return NULL;
}

static void *pop_in_thread(void *arg)
{
    struct waiting_call *call = arg;

    call->rc = choir_store_queue_pop(call->store, K(call->key), 0, &call->value);
    return NULL;
}

static void *wait_in_thread(void *arg)
{
    struct waiting_call *call = arg;
    choir_bytes keys[] = { K(call->key), K("two"), K("three") };

    call->rc = choir_store_wait(call->store, keys, strcmp(call->key, "one") == 0 ? 3 : 1, 0);
    return NULL;
}

/* The same handle: one thread waits, another goes on. */
static void a_waiting_get_holds_nobody_up(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "late" };
    pthread_t thread = start(get_in_thread, &call);
    int64_t sum = 0;

    until_asleep(scene->store);
    for (int i = 1; i <= 20; i++) {
        set(scene->store, "other", "x");
        check_value(scene->store, K("other"), K("x"));
        CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), 1, &sum));
        CHOIR_CHECK_EQ(sum, i);
    }
    set(scene->store, "late", "at last");
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    check_blob(call.value, K("at last"));
}

CHOIR_TEST(a_waiting_get_holds_nobody_up)
{
    for_all(a_waiting_get_holds_nobody_up);
}

/* Whatever touches a key wakes who waits for it. */
static void every_writing_call_wakes(struct scene *scene)
{
    choir_store *other = another(scene);
    choir_bytes key = K("k");
    choir_blob value;

    for (int how = 0; how < 6; how++) {
        struct waiting_call call = { .store = scene->store, .key = "k" };
        pthread_t thread = start(get_in_thread, &call);

        CHOIR_ROW("%s%s: writing call %d", scene->row->name, scene->prefixed ? " prefix" : "", how);
        until_asleep(scene->store);
        if (how == 0)
            CHOIR_CHECK_OK(choir_store_set(other, key, key));
        else if (how == 1)
            CHOIR_CHECK_OK(choir_store_add(other, key, 0, NULL));
        else if (how == 2)
            CHOIR_CHECK_OK(choir_store_append(other, key, K("")));
        else if (how == 3)
            CHOIR_CHECK_OK(choir_store_multi_set(other, &key, &key, 1));
        else if (how == 4)
            CHOIR_CHECK_OK(choir_store_queue_push(other, key, key));
        else
            CHOIR_CHECK_OK(choir_store_compare_set(other, key, K(""), key, &value));
        pthread_join(thread, NULL);
        CHOIR_CHECK_OK(call.rc);
        check_blob(call.value, how == 1 ? K("0") : how == 2 || how == 4 ? K("") : key);
        if (how == 4) {
            CHOIR_CHECK_OK(choir_store_queue_try_pop(other, key, &value));
            choir_blob_free(&value);
        } else {
            CHOIR_CHECK(removed(other, "k"));
        }
        if (how == 5)
            choir_blob_free(&value);
    }
    choir_store_close(other);
}

CHOIR_TEST(every_writing_call_wakes)
{
    for_all(every_writing_call_wakes);
}

static void a_wait_ends_with_its_last_key(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "one" };
    choir_store *other = another(scene);
    pthread_t thread;

    set(scene->store, "two", "there before");
    thread = start(wait_in_thread, &call);
    until_asleep(scene->store);
    set(other, "three", "");
    CHOIR_CHECK_OK(choir_store_add(other, K("one"), 1, NULL));
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    CHOIR_CHECK(exists(scene->store, "three"));
    choir_store_close(other);
}

CHOIR_TEST(a_wait_ends_with_its_last_key)
{
    for_all(a_wait_ends_with_its_last_key);
}

enum { TURNS = 30 };

static void *answer_every_turn(void *arg)
{
    choir_store *store = arg;

    for (int i = 0; i < TURNS; i++) {
        char ping[16], pong[16];

        snprintf(ping, sizeof(ping), "ping%d", i);
        snprintf(pong, sizeof(pong), "pong%d", i);
        check_value(store, K(ping), K("?"));
        set(store, pong, "!");
    }
    return NULL;
}

/* Nobody is woken by his time-out: thirty turns of two waits each, in much less than one of them. */
static void waking_takes_no_time(struct scene *scene)
{
    choir_store *other = another(scene);
    pthread_t thread = start(answer_every_turn, other);
    uint64_t began = ch_now();

    for (int i = 0; i < TURNS; i++) {
        char ping[16], pong[16];

        snprintf(ping, sizeof(ping), "ping%d", i);
        snprintf(pong, sizeof(pong), "pong%d", i);
        set(scene->store, ping, "?");
        check_value(scene->store, K(pong), K("!"));
    }
    pthread_join(thread, NULL);
    CHOIR_CHECK_LT((int64_t)((ch_now() - began) / CH_MS), slow(5000));
    choir_store_close(other);
}

CHOIR_TEST(waking_takes_no_time)
{
    for_all(waking_takes_no_time);
}

/* --- deadlines and interrupts -------------------------------------------------------------------- */

enum { PATIENCE_MS = 60 };

static void in_time(uint64_t began, choir_status rc, const char *call)
{
    uint64_t ms = (ch_now() - began) / CH_MS;

    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), call);
    CHOIR_CHECK_LE(PATIENCE_MS, ms);
    CHOIR_CHECK_LT(ms, (uint64_t)slow(3000));
}

static void deadlines_hold(struct scene *scene)
{
    choir_bytes keys[] = { K("there"), K("not") };
    choir_blob value, *values;
    uint64_t began;

    set(scene->store, "there", "");
    began = ch_now();
    in_time(began, choir_store_get(scene->store, K("not"), PATIENCE_MS, &value), "get \"");
    CHOIR_CHECK_HAS(choir_last_error(), scene->prefixed ? "\"some/prefix/not\"" : "\"not\"");
    began = ch_now();
    in_time(began, choir_store_wait(scene->store, keys, 2, PATIENCE_MS), " and 1 more");
    began = ch_now();
    in_time(began, choir_store_multi_get(scene->store, keys, 2, PATIENCE_MS, &values), "multi_get");
    began = ch_now();
    in_time(began, choir_store_queue_pop(scene->store, K("not"), PATIENCE_MS, &value), "queue_pop");
    began = ch_now();
    in_time(began, choir_store_barrier(scene->store, K("b"), 2, PATIENCE_MS), "barrier");
    /* The handle's own, and that nothing is left of all that. */
    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, PATIENCE_MS));
    CHOIR_CHECK_EQ(choir_store_timeout(scene->store), PATIENCE_MS);
    began = ch_now();
    in_time(began, choir_store_get(scene->store, K("not"), 0, &value), "get");
    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, -1)); /* too short for a busy machine */
    set(scene->store, "not", "now");
    check_value(scene->store, K("not"), K("now"));
    CHOIR_CHECK_STATUS(choir_store_set_timeout(scene->store, 0), CHOIR_ERR_INVALID);
}

CHOIR_TEST(deadlines_hold)
{
    for_all(deadlines_hold);
}

static void an_interrupt_reaches_one_handle(struct scene *scene)
{
    struct waiting_call first = { .key = "k" }, second = { .key = "k" };
    pthread_t threads[2];
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_clone(scene->store, &second.store));
    first.store = scene->store;
    threads[0] = start(get_in_thread, &first);
    threads[1] = start(get_in_thread, &second);
    until_asleep(first.store);
    until_asleep(second.store);
    choir_store_interrupt(first.store);
    pthread_join(threads[0], NULL);
    CHOIR_CHECK_STATUS(first.rc, CHOIR_ERR_INTERRUPTED);
    CHOIR_CHECK_HAS(first.error, "get");
    /* The next wait as well, but not what need not wait. */
    CHOIR_CHECK_STATUS(choir_store_queue_pop(first.store, K("q"), 0, &value),
                       CHOIR_ERR_INTERRUPTED);
    choir_store_resume(first.store);
    set(first.store, "k", "v");
    check_value(first.store, K("k"), K("v"));
    pthread_join(threads[1], NULL);
    CHOIR_CHECK_OK(second.rc);
    check_blob(second.value, K("v"));
    choir_store_close(second.store);
}

CHOIR_TEST(an_interrupt_reaches_one_handle)
{
    for_all(an_interrupt_reaches_one_handle);
}

struct nuisance {
    choir_store *store;
    _Atomic bool stop;
};

static void *interrupt_again_and_again(void *arg)
{
    struct nuisance *nuisance = arg;

    while (!nuisance->stop) {
        choir_store_interrupt(nuisance->store);
        usleep(50);
        choir_store_resume(nuisance->store);
        usleep(50);
    }
    return NULL;
}

/* Who is interrupted has either taken an element, and then gets it, or it is still there. */
static void an_interrupt_loses_no_element(struct scene *scene)
{
    enum { PUSHED = 200 };
    struct nuisance nuisance = { .store = scene->store };
    int64_t left, popped = 0;
    pthread_t thread;
    choir_blob value;

    for (int i = 0; i < PUSHED; i++)
        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("element")));
    thread = start(interrupt_again_and_again, &nuisance);
    for (int i = 0; i < PUSHED; i++) {
        choir_status rc = i % 2 == 0 ? choir_store_queue_try_pop(scene->store, K("q"), &value)
                                     : choir_store_queue_pop(scene->store, K("q"), 0, &value);

        popped += rc == CHOIR_OK;
        if (rc == CHOIR_OK)
            choir_blob_free(&value);
        else
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INTERRUPTED);
    }
    nuisance.stop = true;
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(choir_store_queue_length(scene->store, K("q"), &left));
    CHOIR_CHECK_EQ(popped + left, PUSHED);
}

CHOIR_TEST(an_interrupt_loses_no_element)
{
    for_all(an_interrupt_loses_no_element);
}

static void clones_are_independent(struct scene *scene)
{
    choir_store *clone;

    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, 12345));
    CHOIR_CHECK_OK(choir_store_clone(scene->store, &clone));
    CHOIR_CHECK_EQ(choir_store_timeout(clone), 12345);
    CHOIR_CHECK_OK(choir_store_set_timeout(clone, -1));
    CHOIR_CHECK_EQ(choir_store_timeout(scene->store), 12345);
    set(scene->store, "k", "v");
    choir_store_close(scene->store);
    check_value(clone, K("k"), K("v"));
    scene->store = clone;
}

CHOIR_TEST(clones_are_independent)
{
    for_all(clones_are_independent);
}

/* --- queues -------------------------------------------------------------------------------------- */

static int64_t length(choir_store *store, const char *key)
{
    int64_t n;

    CHOIR_CHECK_OK(choir_store_queue_length(store, K(key), &n));
    return n;
}

static void queues(struct scene *scene)
{
    choir_store *store = scene->store;
    choir_blob value;
    char text[64];

    CHOIR_CHECK_EQ(length(store, "q"), 0);
    CHOIR_CHECK_STATUS(choir_store_queue_try_pop(store, K("q"), &value), CHOIR_ERR_QUEUE_EMPTY);
    CHOIR_CHECK_HAS(choir_last_error(), "queue is empty");
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("first")));
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("")));
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), bytes("\0third", 6)));
    CHOIR_CHECK_EQ(length(store, "q"), 3);
    /* A name space of its own; but it exists. */
    CHOIR_CHECK(exists(store, "q"));
    CHOIR_CHECK_EQ(count(store), 0);
    listed(store, text, sizeof(text));
    CHOIR_CHECK_STR(text, "");
    CHOIR_CHECK(!removed(store, "q"));
    check_value(store, K("q"), K(""));
    set(store, "q", "a value");
    CHOIR_CHECK(removed(store, "q"));
    CHOIR_CHECK_EQ(length(store, "q"), 3);

    CHOIR_CHECK_OK(choir_store_queue_pop(store, K("q"), 0, &value));
    check_blob(value, K("first"));
    CHOIR_CHECK_OK(choir_store_queue_try_pop(store, K("q"), &value));
    check_blob(value, K(""));
    CHOIR_CHECK_OK(choir_store_queue_pop(store, K("q"), 0, &value));
    check_blob(value, bytes("\0third", 6));
    CHOIR_CHECK(!exists(store, "q"));
}

CHOIR_TEST(queues)
{
    for_all(queues);
}

/* A value of the same name must neither end a pop nor keep it busy. */
static void a_pop_waits_for_an_element(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "q" };
    pthread_t thread;

    if (!scene->row->own_queues)
        return;
    set(scene->store, "q", "a value");
    thread = start(pop_in_thread, &call);
    until_asleep(scene->store);
    set(scene->store, "q", "another");
    CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("an element")));
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    check_blob(call.value, K("an element"));
}

CHOIR_TEST(a_pop_waits_for_an_element)
{
    for_all(a_pop_waits_for_an_element);
}

enum { POPPERS = 6 };

/* As many elements as poppers: each of them gets one, none is lost, none comes twice. */
static void every_popper_gets_one(struct scene *scene)
{
    struct waiting_call calls[POPPERS];
    pthread_t threads[POPPERS];
    choir_store *other = another(scene);
    bool seen[POPPERS] = { false };

    for (int i = 0; i < POPPERS; i++) {
        calls[i] = (struct waiting_call){ .store = i % 2 == 0 ? scene->store : other, .key = "q" };
        threads[i] = start(pop_in_thread, &calls[i]);
    }
    until_asleep(scene->store);
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)i;

        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), bytes(&element, 1)));
    }
    for (int i = 0; i < POPPERS; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        CHOIR_CHECK_EQ(calls[i].value.nbytes, 1);
        CHOIR_CHECK(!seen[(int)calls[i].value.data[0]]);
        seen[(int)calls[i].value.data[0]] = true;
        choir_blob_free(&calls[i].value);
    }
    CHOIR_CHECK_EQ(length(scene->store, "q"), 0);
    choir_store_close(other);
}

CHOIR_TEST(every_popper_gets_one)
{
    for_all(every_popper_gets_one);
}

/* Of those who wait, the one who has waited longest is served. */
static void poppers_are_served_in_turn(struct scene *scene)
{
    struct waiting_call calls[POPPERS];
    pthread_t threads[POPPERS];

    if (!scene->row->own_queues || scene->row->polls)
        return;
    for (int i = 0; i < POPPERS; i++) {
        calls[i] = (struct waiting_call){ .key = "q" };
        CHOIR_CHECK_OK(choir_store_clone(scene->store, &calls[i].store));
        threads[i] = start(pop_in_thread, &calls[i]);
        until_asleep(calls[i].store);
    }
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)('a' + i);

        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), bytes(&element, 1)));
    }
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)('a' + i);

        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        check_blob(calls[i].value, bytes(&element, 1));
        choir_store_close(calls[i].store);
    }
}

CHOIR_TEST(poppers_are_served_in_turn)
{
    for_all(poppers_are_served_in_turn);
}

enum { ELEMENTS = 60 };

struct impatient {
    choir_store *store;
    _Atomic bool stop;
    int got;
};

static void *pop_impatiently(void *arg)
{
    struct impatient *popper = arg;

    while (!atomic_load(&popper->stop)) {
        choir_blob value;
        choir_status rc = choir_store_queue_pop(popper->store, K("q"), 1, &value);

        if (rc == CHOIR_OK) {
            popper->got++;
            choir_blob_free(&value);
        } else {
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
        }
    }
    return NULL;
}

/* A pop whose time is up just as an element comes: it takes the element, or leaves it there. */
static void no_element_is_lost_to_a_deadline(struct scene *scene)
{
    struct impatient popper = { .store = NULL };
    choir_blob value;
    pthread_t thread;

    popper.store = another(scene);
    thread = start(pop_impatiently, &popper);
    for (int i = 0; i < ELEMENTS; i++) {
        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("x")));
        /* Some milliseconds apart, and never the same. */
        CHOIR_CHECK_STATUS(choir_store_get(scene->store, K("missing"), 1 + i % 2, &value),
                           CHOIR_ERR_TIMEOUT);
    }
    atomic_store(&popper.stop, true);
    pthread_join(thread, NULL);
    CHOIR_CHECK_EQ(popper.got + length(scene->store, "q"), ELEMENTS);
    choir_store_close(popper.store);
}

CHOIR_TEST(no_element_is_lost_to_a_deadline)
{
    for_all(no_element_is_lost_to_a_deadline);
}

/* One element ends the waits of all who only want to know, and one pop. */
static void an_element_is_seen_by_all(struct scene *scene)
{
    struct waiting_call calls[4];
    pthread_t threads[4];
    choir_store *other;
    choir_blob value;

    if (!scene->row->own_queues || scene->row->polls)
        return;
    other = another(scene);
    CHOIR_CHECK_OK(choir_store_queue_push(other, K("q"), K("x")));
    CHOIR_CHECK_OK(choir_store_queue_pop(other, K("q"), 0, &value));
    choir_blob_free(&value);
    for (int i = 0; i < 4; i++) {
        choir_store *store;

        CHOIR_CHECK_OK(choir_store_clone(scene->store, &store));
        calls[i] = (struct waiting_call){ .store = store, .key = "q" };
        threads[i] = start(i < 2 ? wait_in_thread : pop_in_thread, &calls[i]);
        until_asleep(store);
    }
    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_OK(choir_store_queue_push(other, K("q"), K("y")));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        choir_blob_free(&calls[i].value);
        choir_store_close(calls[i].store);
    }
    choir_store_close(other);
}

CHOIR_TEST(an_element_is_seen_by_all)
{
    for_all(an_element_is_seen_by_all);
}

/* --- many threads -------------------------------------------------------------------------------- */

enum { THREADS = 8, ADDS = 25 };

struct worker {
    choir_store *store;
    int number;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    char key[32];

    for (int i = 0; i < ADDS; i++) {
        CHOIR_CHECK_OK(choir_store_add(worker->store, K("sum"), 1, NULL));
        CHOIR_CHECK_OK(choir_store_append(worker->store, K("line"), K("x")));
        snprintf(key, sizeof(key), "%d/%d", worker->number, i);
        set(worker->store, key, key);
        check_value(worker->store, K(key), K(key));
        snprintf(key, sizeof(key), "%d/%d", (worker->number + 1) % THREADS, i);
        check_value(worker->store, K(key), K(key)); /* a neighbour's, waiting for it */
    }
    return NULL;
}

static void many_threads(struct scene *scene)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    choir_store *other = another(scene);
    choir_blob line;
    int64_t sum;

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ i % 2 == 0 ? scene->store : other, i };
        threads[i] = start(work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHOIR_CHECK_OK(choir_store_add(scene->store, K("sum"), 0, &sum));
    CHOIR_CHECK_EQ(sum, THREADS * ADDS);
    CHOIR_CHECK_OK(choir_store_get(scene->store, K("line"), 0, &line));
    CHOIR_CHECK_EQ(line.nbytes, THREADS * ADDS);
    choir_blob_free(&line);
    CHOIR_CHECK_EQ(count(scene->store), THREADS * ADDS + 2);
    choir_store_close(other);
}

CHOIR_TEST_TIMED(many_threads, 60)
{
    for_all(many_threads);
}

/* --- barrier ------------------------------------------------------------------------------------- */

struct arrival {
    choir_store *store;
    _Atomic int *arrived;
    int saw;
    choir_status rc;
};

static void *arrive(void *arg)
{
    struct arrival *arrival = arg;

    atomic_fetch_add(arrival->arrived, 1);
    arrival->rc = choir_store_barrier(arrival->store, K("b"), THREADS, 0);
    arrival->saw = atomic_load(arrival->arrived);
    return NULL;
}

static void a_barrier_lets_all_go_together(struct scene *scene)
{
    struct arrival arrivals[THREADS];
    pthread_t threads[THREADS];
    choir_store *other = another(scene);
    _Atomic int arrived = 0;

    for (int i = 0; i < THREADS; i++) {
        arrivals[i] = (struct arrival){ .store = i % 2 == 0 ? scene->store : other,
                                        .arrived = &arrived };
        threads[i] = start(arrive, &arrivals[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(arrivals[i].rc);
        CHOIR_CHECK_EQ(arrivals[i].saw, THREADS); /* nobody left before all had come */
    }
    CHOIR_CHECK_OK(choir_store_barrier(scene->store, K("b"), THREADS, 0)); /* late: passes */
    CHOIR_CHECK_OK(choir_store_barrier(scene->store, K("alone"), 1, 0));
    CHOIR_CHECK_STATUS(choir_store_barrier(scene->store, K("c"), 0, 0), CHOIR_ERR_INVALID);
    choir_store_close(other);
}

CHOIR_TEST(a_barrier_lets_all_go_together)
{
    for_all(a_barrier_lets_all_go_together);
}

/* --- arguments ----------------------------------------------------------------------------------- */

CHOIR_TEST(bad_urls_are_refused)
{
    static const struct {
        const char *url, *says;
    } bad[] = {
        { "hash", "://" },
        { "", "://" },
        { "carrier-pigeon://coop", "there are hash://" },
        { "hash://somewhere", "nothing may follow" },
        { "hash://?protocol=torch", "there are hash://" },
        { "hash://?protcol=torch", "only protocol=" },
        { "hash://?protocol=a&b=c", "only protocol=" },
        { "HASH://", "no such kind" },
    };
    choir_store *store;

    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++) {
        CHOIR_ROW("\"%s\"", bad[i].url);
        CHOIR_CHECK_STATUS(choir_store_open(bad[i].url, NULL, &store), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), bad[i].says);
    }
}

CHOIR_TEST(bad_arguments_are_refused)
{
    const choir_bytes wild = { NULL, 3 }, key = K("k");
    choir_store_open_opts opts = { .size = 1 };
    choir_store *store;
    choir_blob value;
    int64_t n;

    CHOIR_CHECK_STATUS(choir_store_open(NULL, NULL, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_open("hash://", NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_open("hash://", &opts, &store), CHOIR_ERR_INVALID);
    opts = (choir_store_open_opts){ .size = sizeof(opts), .nranks = -1 };
    CHOIR_CHECK_STATUS(choir_store_open("hash://", &opts, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    CHOIR_CHECK_EQ(choir_store_timeout(store), 300000);
    CHOIR_CHECK_STATUS(choir_store_clone(NULL, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_clone(store, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_prefix(store, wild, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_set(NULL, key, key), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_set(store, wild, key), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_set(store, key, wild), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_get(store, key, 0, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_append(store, key, wild), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_compare_set(store, key, wild, key, &value), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_compare_set(store, key, key, wild, &value), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_compare_set(store, key, key, key, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_wait(store, NULL, 1, 0), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_multi_set(store, &key, NULL, 1), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_list(store, NULL, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_count(store, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_queue_length(store, wild, &n), CHOIR_ERR_INVALID);
    choir_store_close(store);
    choir_store_close(NULL);
}

/* --- faults -------------------------------------------------------------------------------------- */

/* Every call once, on a handle under a prefix. */
static choir_status use_values(choir_store *store)
{
    choir_bytes keys[] = { K("a"), K("b") };
    choir_blob value = { NULL, 0 }, *list = NULL;
    size_t n = 0;
    int64_t number;
    bool all;
    choir_status rc = choir_store_multi_set(store, keys, keys, 2);

    if (rc == CHOIR_OK)
        rc = choir_store_multi_get(store, keys, 2, 0, &list);
    if (rc == CHOIR_OK)
        choir_blob_free_list(list, 2);
    if (rc == CHOIR_OK)
        rc = choir_store_append(store, K("a"), K("more"));
    if (rc == CHOIR_OK)
        rc = choir_store_compare_set(store, K("c"), K(""), K("d"), &value);
    choir_blob_free(&value);
    if (rc == CHOIR_OK)
        rc = choir_store_add(store, K("n"), 1, &number);
    if (rc == CHOIR_OK)
        rc = choir_store_check(store, keys, 2, &all);
    if (rc == CHOIR_OK)
        rc = choir_store_delete(store, K("b"), &all);
    if (rc == CHOIR_OK)
        rc = choir_store_count(store, &number);
    if (rc == CHOIR_OK)
        rc = choir_store_list(store, &list, &n);
    if (rc == CHOIR_OK)
        choir_blob_free_list(list, n);
    return rc;
}

static choir_status use_queues_and_waits(choir_store *store)
{
    choir_bytes missing[] = { K("a"), K("missing") };
    choir_blob value = { NULL, 0 };
    int64_t number;
    choir_status rc = choir_store_queue_push(store, K("q"), K("x"));

    if (rc == CHOIR_OK)
        rc = choir_store_queue_length(store, K("q"), &number);
    if (rc == CHOIR_OK)
        rc = choir_store_queue_pop(store, K("q"), 0, &value);
    choir_blob_free(&value);
    if (rc == CHOIR_OK)
        rc = choir_store_barrier(store, K("b"), 1, 0);
    if (rc == CHOIR_OK) {
        rc = choir_store_wait(store, missing, 2, 1);
        rc = rc == CHOIR_ERR_TIMEOUT ? CHOIR_OK : rc;
    }
    return rc;
}

static choir_status use_everything(void *arg)
{
    struct scene scene = { .row = arg };
    choir_status rc = scene.row->open(&scene, &scene.bare);

    /* A set that fails in a server leaves the get behind it waiting. */
    if (rc == CHOIR_OK)
        rc = choir_store_set_timeout(scene.bare, slow(200) < 1000 ? slow(200) : 1000);
    if (rc == CHOIR_OK)
        rc = choir_store_prefix(
            scene.bare,
            K("a prefix so long that keys below it are put together on the heap, which takes more"
              " than a hundred and ninety-two bytes in all, so that the memory for it may be missing"
              " as well: and on it goes"),
            &scene.store);
    if (rc == CHOIR_OK)
        rc = use_values(scene.store);
    if (rc == CHOIR_OK)
        rc = use_queues_and_waits(scene.store);
    close_scene(&scene);
    return rc;
}

/* A server says what goes wrong, and here everything does. */
static void hush(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    (void)line;
}

CHOIR_TEST_TIMED(every_failing_call_is_an_error, 120)
{
    choir_log_set_sink(hush, NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i]->name);
        choir_test_all_faults(use_everything, (void *)rows[i]);
    }
}

/* --- forks --------------------------------------------------------------------------------------- */

static void refused_in_child(void *arg)
{
    struct scene *scene = arg;
    choir_blob value;

    CHOIR_CHECK_STATUS(choir_store_set(scene->store, K("k"), K("v")), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(choir_store_get(scene->store, K("k"), 0, &value), CHOIR_ERR_FORKED);
    choir_store_close(scene->store);
    choir_store_close(scene->bare);
}

static void a_fork_is_refused(struct scene *scene)
{
    set(scene->store, "k", "v");
    choir_test_join(choir_test_fork(refused_in_child, scene));
    check_value(scene->store, K("k"), K("v"));
}

CHOIR_TEST(a_fork_is_refused)
{
    for_all(a_fork_is_refused);
}
