/*
 * store_misuse_test.c - every kind of store used wrongly, failing, forked, and by many threads at once.
 */
#include "store/store_test.h"

#include <choir/log.h>

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
