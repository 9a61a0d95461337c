/* ctl_test.c - control collectives, with threads as ranks, over the stores there are. */
#include "choir_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/ctl.h>

#include "base/clock.h"
#include "base/sys.h"
#include "store/file.h"

enum { MOST_RANKS = 17 };

static choir_store *the_store;

struct rank {
    int rank, nranks;
    void (*fn)(choir_ctl *ctl, int rank, int nranks);
};

static void *be_rank(void *arg)
{
    struct rank *rank = arg;
    choir_ctl *ctl;

    CHOIR_CHECK_OK(choir_ctl_create(the_store, rank->rank, rank->nranks, &ctl));
    rank->fn(ctl, rank->rank, rank->nranks);
    choir_ctl_destroy(ctl);
    return NULL;
}

/* Run `fn` as every rank of 1 to 17, over a fresh store each time. */
static void with_ranks(void (*fn)(choir_ctl *ctl, int rank, int nranks))
{
    for (int n = 1; n <= MOST_RANKS; n += n < 5 ? 1 : 6) {
        struct rank ranks[MOST_RANKS];
        pthread_t threads[MOST_RANKS];

        CHOIR_ROW("%d ranks", n);
        CHOIR_CHECK_OK(
            choir_store_open("hash://", CHOIR_OPTS(store_open, .timeout_ms = 20000), &the_store));
        for (int i = 0; i < n; i++) {
            ranks[i] = (struct rank){ i, n, fn };
            CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, be_rank, &ranks[i]), 0);
        }
        for (int i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        choir_store_close(the_store);
    }
}

/* What rank r sends: as long as its number, so that the first is empty. */
static choir_bytes word_of(int rank)
{
    return (choir_bytes){ "abcdefghijklmnopqrstuvwxyz", (size_t)rank };
}

static void check_word(const choir_blob *blob, int rank)
{
    CHOIR_CHECK_EQ(blob->nbytes, (size_t)rank);
    CHOIR_CHECK(memcmp(blob->data, word_of(rank).data, blob->nbytes) == 0);
}

static void check_list(choir_blob *list, int nranks)
{
    for (int r = 0; r < nranks; r++)
        check_word(&list[r], r);
    choir_blob_free_list(list, (size_t)nranks);
}

/* --- what they do -------------------------------------------------------------------------------- */

static _Atomic int arrived;

static void meet(choir_ctl *ctl, int rank, int nranks)
{
    if (rank == 0)
        arrived = 0;
    CHOIR_CHECK_OK(choir_ctl_barrier(ctl, "start", 0, true));
    atomic_fetch_add(&arrived, 1);
    CHOIR_CHECK_OK(choir_ctl_barrier(ctl, "middle", 0, true));
    CHOIR_CHECK_EQ(atomic_load(&arrived), nranks);
    CHOIR_CHECK_OK(choir_ctl_barrier(ctl, "end", 1, false)); /* waits for nobody */
}

CHOIR_TEST(nobody_leaves_a_barrier_early)
{
    with_ranks(meet);
}

static void spread(choir_ctl *ctl, int rank, int nranks)
{
    int root = nranks / 2;
    choir_blob data;

    if (rank == root) {
        CHOIR_CHECK_OK(choir_ctl_broadcast_send(ctl, "b", word_of(5)));
        return;
    }
    CHOIR_CHECK_OK(choir_ctl_broadcast_recv(ctl, "b", 0, &data));
    check_word(&data, 5);
    choir_blob_free(&data);
}

CHOIR_TEST(broadcast)
{
    with_ranks(spread);
}

static void collect(choir_ctl *ctl, int rank, int nranks)
{
    int roots[] = { 0, nranks / 2, nranks - 1 };

    for (int i = 0; i < 3; i++) {
        char key[16];
        choir_blob *list;

        snprintf(key, sizeof(key), "g%d", i);
        if (rank != roots[i]) {
            CHOIR_CHECK_OK(choir_ctl_gather_send(ctl, key, word_of(rank)));
            continue;
        }
        CHOIR_CHECK_OK(choir_ctl_gather_recv(ctl, key, word_of(rank), 0, &list));
        check_list(list, nranks);
    }
}

CHOIR_TEST(gather)
{
    with_ranks(collect);
}

static void deal(choir_ctl *ctl, int rank, int nranks)
{
    int root = nranks - 1;
    choir_blob data;

    if (rank == root) {
        choir_bytes list[MOST_RANKS];

        for (int r = 0; r < nranks; r++)
            list[r] = word_of(r);
        CHOIR_CHECK_OK(choir_ctl_scatter_send(ctl, "s", list));
        return;
    }
    CHOIR_CHECK_OK(choir_ctl_scatter_recv(ctl, "s", 0, &data));
    check_word(&data, rank);
    choir_blob_free(&data);
}

CHOIR_TEST(scatter)
{
    with_ranks(deal);
}

static void exchange(choir_ctl *ctl, int rank, int nranks)
{
    choir_blob *list;

    CHOIR_CHECK_OK(choir_ctl_all_gather(ctl, "a", word_of(rank), 0, &list));
    check_list(list, nranks);
}

CHOIR_TEST(all_gather)
{
    with_ranks(exchange);
}

static void add_up(choir_ctl *ctl, int rank, int nranks)
{
    int64_t sum;

    CHOIR_CHECK_OK(choir_ctl_all_sum(ctl, "n", rank - 3, 0, &sum));
    CHOIR_CHECK_EQ(sum, (int64_t)nranks * (nranks - 1) / 2 - 3 * nranks);
}

CHOIR_TEST(all_sum)
{
    with_ranks(add_up);
}

/* --- the names they take ------------------------------------------------------------------------- */

static void check_keys(choir_store *store, const char *want)
{
    choir_blob *keys;
    char text[512] = "";
    size_t n;

    CHOIR_CHECK_OK(choir_store_list(store, &keys, &n));
    for (size_t left = n; left > 0; left--) {
        size_t least = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
            if (keys[i].data != NULL &&
                (least == SIZE_MAX || strcmp(keys[i].data, keys[least].data) < 0))
                least = i;
        }
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", keys[least].data);
        choir_blob_free(&keys[least]);
    }
    choir_blob_free_list(keys, n);
    CHOIR_CHECK_STR(text, want);
}

static void check_value(choir_store *store, const char *key, const char *want)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, choir_str(key), 1, &value));
    CHOIR_CHECK_STR(value.data, want);
    choir_blob_free(&value);
}

static choir_ctl *made(choir_store *store, int rank, int nranks)
{
    choir_ctl *ctl;

    CHOIR_CHECK_OK(choir_ctl_create(store, rank, nranks, &ctl));
    return ctl;
}

CHOIR_TEST(keys_are_those_of_pytorch)
{
    choir_bytes list[2] = { choir_str("x"), choir_str("y") };
    choir_store *store, *prefixed;
    choir_ctl *ctl, *other;
    choir_blob *all;
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    CHOIR_CHECK_OK(choir_store_prefix(store, choir_str("P"), &prefixed));
    ctl = made(prefixed, 0, 2);
    other = made(prefixed, 1, 2);
    choir_store_close(prefixed);
    CHOIR_CHECK_OK(choir_ctl_barrier(other, "b", 0, false));
    CHOIR_CHECK_OK(choir_ctl_barrier(ctl, "b", 0, true));
    CHOIR_CHECK_OK(choir_ctl_broadcast_send(ctl, "c", choir_str("v")));
    CHOIR_CHECK_OK(choir_ctl_gather_send(other, "g", choir_str("v")));
    CHOIR_CHECK_OK(choir_ctl_gather_recv(ctl, "g", choir_str("w"), 0, &all));
    choir_blob_free_list(all, 2);
    CHOIR_CHECK_OK(choir_ctl_scatter_send(ctl, "s", list));
    check_keys(store, "P/b/0 P/b/1 P/b/last_members P/b/num_members P/c P/g/1 P/s/1 ");
    check_value(store, "P/b/0", "joined");
    check_value(store, "P/b/num_members", "2");
    check_value(store, "P/s/1", "y");
    choir_ctl_destroy(ctl);
    choir_ctl_destroy(other);
    choir_store_close(store);

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    ctl = made(store, 0, 1);
    CHOIR_CHECK_OK(choir_ctl_all_sum(ctl, "n", 7, 0, &sum));
    CHOIR_CHECK_OK(choir_ctl_all_gather(ctl, "a", choir_str("v"), 0, &all));
    choir_blob_free_list(all, 1);
    check_keys(store, "a/0 n n/barrier/0 n/barrier/last_members n/barrier/num_members ");
    choir_ctl_destroy(ctl);
    choir_store_close(store);
}

/* --- what goes wrong ----------------------------------------------------------------------------- */

CHOIR_TEST(a_key_serves_once)
{
    choir_store *store;
    choir_blob data;
    choir_ctl *ctl;
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    ctl = made(store, 0, 1);
    CHOIR_CHECK_OK(choir_ctl_broadcast_send(ctl, "k", choir_str("v")));
    CHOIR_CHECK_STATUS(choir_ctl_broadcast_recv(ctl, "k", 0, &data), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "\"k\" has already been used");
    CHOIR_CHECK_OK(choir_ctl_all_sum(ctl, "n", 1, 0, &sum));
    CHOIR_CHECK_STATUS(choir_ctl_barrier(ctl, "n/barrier", 0, true), CHOIR_ERR_STATE);
    CHOIR_CHECK_STATUS(choir_ctl_all_sum(ctl, "n", 1, 0, &sum), CHOIR_ERR_STATE);
    choir_ctl_destroy(ctl);
    choir_store_close(store);
}

CHOIR_TEST(missing_ranks_are_named)
{
    choir_store *store;
    choir_ctl *ctls[4];
    choir_blob *list, data;
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_open("hash://", CHOIR_OPTS(store_open, .timeout_ms = 50), &store));
    for (int r = 0; r < 4; r++)
        ctls[r] = made(store, r, 4);
    CHOIR_CHECK_OK(choir_ctl_barrier(ctls[2], "b", 0, false));
    CHOIR_CHECK_STATUS(choir_ctl_barrier(ctls[0], "b", 20, true), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "barrier \"b\": failed -- missing ranks: 1, 3 (of 4)");
    CHOIR_CHECK_OK(choir_ctl_gather_send(ctls[3], "g", choir_str("")));
    /* The root's own is in its hands, not in the store: it must not call itself missing. */
    CHOIR_CHECK_STATUS(choir_ctl_gather_recv(ctls[0], "g", choir_str(""), 20, &list),
                       CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "gather_recv \"g\": failed -- missing ranks: 1, 2 (of 4)");
    CHOIR_CHECK_STATUS(choir_ctl_all_gather(ctls[1], "a", choir_str(""), 0, &list),
                       CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "missing ranks: 0, 2, 3 (of 4)");
    CHOIR_CHECK_STATUS(choir_ctl_all_sum(ctls[1], "n", 1, 0, &sum), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "all_sum \"n/barrier\": failed -- missing ranks: 0, 2, 3");
    CHOIR_CHECK_STATUS(choir_ctl_broadcast_recv(ctls[1], "c", 20, &data), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STATUS(choir_ctl_scatter_recv(ctls[1], "s", 20, &data), CHOIR_ERR_TIMEOUT);
    for (int r = 0; r < 4; r++)
        choir_ctl_destroy(ctls[r]);
    choir_store_close(store);
}

CHOIR_TEST(many_missing_ranks_are_counted)
{
    choir_store *store;
    choir_ctl *ctl;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    ctl = made(store, 0, 1000);
    CHOIR_CHECK_STATUS(choir_ctl_barrier(ctl, "b", 20, true), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "missing ranks: 1, 2, 3");
    CHOIR_CHECK_HAS(choir_last_error(), "16 and 983 more (of 1000)");
    choir_ctl_destroy(ctl);
    choir_store_close(store);
}

/* The deadline holds for what is added and set as well, not only for waiting: here a store that does
 * not answer, a file that somebody keeps locked. */
CHOIR_TEST(a_deadline_is_of_the_whole_call)
{
    char path[] = "ctl_test.XXXXXX", url[64];
    uint64_t began, most = (uint64_t)choir_test_slowness() * 10 * CH_S;
    choir_blob *list;
    choir_store *store;
    choir_ctl *ctl;
    int64_t sum;
    int fd = mkstemp(path);

    CHOIR_CHECK(fd >= 0);
    snprintf(url, sizeof(url), "file://%s", path);
    CHOIR_CHECK_OK(choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = 600000), &store));
    CHOIR_CHECK_OK(choir_ctl_create(store, 0, 1, &ctl));
    CHOIR_CHECK_EQ(ch_sys_lock_byte(fd, F_WRLCK, CH_FILE_DATA), 0);
    began = ch_now();
    CHOIR_CHECK_STATUS(choir_ctl_barrier(ctl, "b", 20, true), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STATUS(choir_ctl_all_sum(ctl, "n", 1, 20, &sum), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STATUS(choir_ctl_all_gather(ctl, "a", choir_str(""), 20, &list), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_LT(ch_now() - began, most);
    choir_ctl_destroy(ctl);
    close(fd);
    choir_store_close(store);
    unlink(path);
}

CHOIR_TEST(bad_arguments_are_refused)
{
    const choir_bytes wild = { NULL, 3 };
    choir_store *store;
    choir_blob *list;
    choir_ctl *ctl;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    CHOIR_CHECK_STATUS(choir_ctl_create(NULL, 0, 1, &ctl), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_create(store, 0, 1, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_create(store, 0, 0, &ctl), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_create(store, 2, 2, &ctl), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_create(store, -1, 2, &ctl), CHOIR_ERR_INVALID);
    ctl = made(store, 0, 1);
    CHOIR_CHECK_STATUS(choir_ctl_barrier(NULL, "k", 0, true), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_barrier(ctl, NULL, 0, true), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_broadcast_send(ctl, "k", wild), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_gather_recv(ctl, "k", wild, 0, &list), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_all_gather(ctl, "k", choir_str(""), 0, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_ctl_scatter_send(ctl, "k", NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_OK(choir_ctl_barrier(ctl, "k", 0, true)); /* none of these used it up */
    choir_ctl_destroy(ctl);
    choir_ctl_destroy(NULL);
    choir_store_close(store);
}

/* --- faults -------------------------------------------------------------------------------------- */

static choir_status use_as_both(choir_ctl *root, choir_ctl *other)
{
    choir_bytes words[2] = { choir_str("x"), choir_str("y") };
    choir_blob data = { NULL, 0 }, *list;
    int64_t sum;
    choir_status rc = choir_ctl_barrier(other, "b", 0, false);

    if (rc == CHOIR_OK)
        rc = choir_ctl_barrier(root, "b", 0, true);
    if (rc == CHOIR_OK)
        rc = choir_ctl_gather_send(other, "g", words[1]);
    if (rc == CHOIR_OK)
        rc = choir_ctl_gather_recv(root, "g", words[0], 0, &list);
    if (rc == CHOIR_OK)
        choir_blob_free_list(list, 2);
    if (rc == CHOIR_OK)
        rc = choir_ctl_scatter_send(root, "s", words);
    if (rc == CHOIR_OK)
        rc = choir_ctl_scatter_recv(other, "s", 0, &data);
    choir_blob_free(&data);
    if (rc == CHOIR_OK) {
        rc = choir_ctl_all_gather(root, "a", words[0], 1, &list);
        rc = rc == CHOIR_ERR_TIMEOUT ? CHOIR_OK : rc;
    }
    if (rc == CHOIR_OK) {
        rc = choir_ctl_all_sum(root, "n", 1, 1, &sum);
        rc = rc == CHOIR_ERR_TIMEOUT ? CHOIR_OK : rc;
    }
    return rc;
}

static choir_status use_everything(void *arg)
{
    choir_store *store = NULL;
    choir_ctl *root = NULL, *other = NULL;
    choir_status rc = choir_store_open("hash://", NULL, &store);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = choir_ctl_create(store, 0, 2, &root);
    if (rc == CHOIR_OK)
        rc = choir_ctl_create(store, 1, 2, &other);
    if (rc == CHOIR_OK)
        rc = use_as_both(root, other);
    choir_ctl_destroy(root);
    choir_ctl_destroy(other);
    choir_store_close(store);
    return rc;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    choir_test_all_faults(use_everything, NULL);
}
