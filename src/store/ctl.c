/*
 * ctl.c - control collectives over a store, with the keys that PyTorch's take:
 *
 *   broadcast                      <key>
 *   gather, scatter, all-gather    <key>/<rank>, but not the root's own
 *   barrier                        <key>/num_members, <key>/<rank>, <key>/last_members
 *   all-sum                        <key>, and a barrier on <key>/barrier
 */
#include <choir/ctl.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/table.h"

enum {
    PROBE_MS = 2000,  /* to find out who is missing, when the time is already up */
    SUFFIX_MAX = 24,  /* "/" and a number, or one of the words below */
    NAMED_MAX = 16,   /* missing ranks named in an error */
    RANKS_TEXT = 200, /* and the room for them */
};

struct choir_ctl {
    int rank, nranks;
    choir_store *store;
    choir_store *probe; /* another handle, with little time */
    struct ch_lock lock;
    struct ch_table *used; /* the keys that have served, as a set; under lock */
};

/* --- an object's life ---------------------------------------------------------------------------- */

choir_status choir_ctl_create(choir_store *store, int rank, int nranks, choir_ctl **ctl_out)
{
    choir_ctl *ctl;
    choir_status rc;

    if (store == NULL || ctl_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "ctl_create: store or ctl_out is NULL");
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return ch_fail(CHOIR_ERR_INVALID, "ctl_create: rank %d of %d", rank, nranks);
    ctl = ch_zalloc(sizeof(*ctl));
    if (ctl == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "ctl_create: no memory for it");
    ctl->rank = rank;
    ctl->nranks = nranks;
    ch_lock_init(&ctl->lock, CH_LOCK_STORE);
    rc = choir_store_clone(store, &ctl->store);
    if (rc == CHOIR_OK)
        rc = choir_store_clone(store, &ctl->probe);
    if (rc == CHOIR_OK)
        rc = choir_store_set_timeout(ctl->probe, PROBE_MS);
    if (rc == CHOIR_OK)
        rc = ch_table_create(&ch_table_default_limits, &ctl->used);
    if (rc != CHOIR_OK) {
        choir_ctl_destroy(ctl);
        return rc;
    }
    *ctl_out = ctl;
    return CHOIR_OK;
}

/* Takes half-built ones. */
void choir_ctl_destroy(choir_ctl *ctl)
{
    if (ctl == NULL)
        return;
    choir_store_close(ctl->store);
    choir_store_close(ctl->probe);
    ch_table_destroy(ctl->used);
    ch_lock_fini(&ctl->lock);
    ch_free(ctl);
}

/* --- keys ---------------------------------------------------------------------------------------- */

static choir_status use_key_locked(choir_ctl *ctl, const char *call, const char *key)
{
    ch_lock_assert_held(&ctl->lock);
    if (ch_table_exists(ctl->used, choir_str(key)))
        return ch_fail(CHOIR_ERR_STATE, "ctl_%s: key \"%s\" has already been used", call, key);
    return ch_table_set(ctl->used, choir_str(key), choir_str(""));
}

/* What every call begins with: its arguments, and that the key is new. */
static choir_status begin(choir_ctl *ctl, const char *call, const char *key, bool arguments)
{
    choir_status rc;

    if (ctl == NULL || key == NULL || !arguments)
        return ch_fail(CHOIR_ERR_INVALID, "ctl_%s: %s is NULL", call,
                       ctl == NULL   ? "ctl"
                       : key == NULL ? "key"
                                     : "an argument");
    ch_lock(&ctl->lock);
    rc = use_key_locked(ctl, call, key);
    ch_unlock(&ctl->lock);
    return rc;
}

/* "<key>/<word>", for ch_free(). NULL, with the error set, if there is no memory. */
static char *join(const char *key, const char *word)
{
    size_t nbytes = strlen(key) + strlen(word) + 2;
    char *text = ch_alloc(nbytes);

    if (text == NULL)
        (void)ch_fail(CHOIR_ERR_NOMEM, "ctl: no memory for the key \"%s/%s\"", key, word);
    else
        snprintf(text, nbytes, "%s/%s", key, word);
    return text;
}

static char *join_rank(const char *key, int rank)
{
    char word[SUFFIX_MAX];

    snprintf(word, sizeof(word), "%d", rank);
    return join(key, word);
}

/* "<key>/<rank>" of every rank, or of every other one, in one block. */
struct rank_keys {
    choir_bytes *list; /* the block */
    size_t count;
};

static choir_status make_rank_keys(const choir_ctl *ctl, const char *key, bool own,
                                   struct rank_keys *keys)
{
    size_t each = strlen(key) + SUFFIX_MAX, n = (size_t)ctl->nranks;
    char *text;

    keys->count = 0;
    keys->list = ch_alloc_array(n, sizeof(choir_bytes) + each);
    if (keys->list == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "ctl: no memory for the keys of %d ranks", ctl->nranks);
    text = (char *)(keys->list + n);
    for (int rank = 0; rank < ctl->nranks; rank++, text += each) {
        if (rank == ctl->rank && !own)
            continue;
        snprintf(text, each, "%s/%d", key, rank);
        keys->list[keys->count++] = choir_str(text);
    }
    return CHOIR_OK;
}

/* --- time ---------------------------------------------------------------------------------------- */

static ch_deadline deadline(const choir_ctl *ctl, int64_t timeout_ms)
{
    return ch_deadline_ms(timeout_ms != 0 ? timeout_ms : choir_store_timeout(ctl->store));
}

/* What a store's call takes: at least 1, as 0 has another meaning. */
static int64_t left_ms(ch_deadline until)
{
    int64_t ns = ch_deadline_left_ns(until);

    if (ns < 0)
        return -1;
    return ns < CH_MS ? 1 : ns / CH_MS;
}

/* A handle for one call, of which all that the store does is to be done by `until`, also what has no
 * time-out of its own; to be closed. */
static choir_status borrow(const choir_ctl *ctl, ch_deadline until, choir_store **store_out)
{
    choir_store *store;
    choir_status rc = choir_store_clone(ctl->store, &store);

    if (rc != CHOIR_OK)
        return rc;
    (void)choir_store_set_timeout(store, left_ms(until)); /* which is never 0 */
    *store_out = store;
    return CHOIR_OK;
}

/* --- who is missing ------------------------------------------------------------------------------ */

/* Append a rank to the text. */
static void name_rank(char *text, int rank, size_t nmissing)
{
    size_t used = strlen(text);

    if (nmissing <= NAMED_MAX)
        snprintf(text + used, RANKS_TEXT - used, "%s%d", used > 0 ? ", " : "", rank);
}

/* After a time-out: replace its text by one that names the ranks whose "<key>/<rank>" is not there, but
 * for our own unless `own`. If the store does not tell any more, the text stays. */
static choir_status explain_timeout(choir_ctl *ctl, const char *call, const char *key, bool own)
{
    char text[RANKS_TEXT] = "", more[32] = "";
    choir_error before;
    size_t nmissing = 0;

    ch_error_save(&before);
    for (int rank = 0; rank < ctl->nranks; rank++) {
        char *name = join_rank(key, rank);
        choir_bytes bytes = choir_str(name != NULL ? name : "");
        bool there = false;
        choir_status rc = CHOIR_ERR_NOMEM;

        if (name != NULL)
            rc = choir_store_check(ctl->probe, &bytes, 1, &there);
        ch_free(name);
        if (rc != CHOIR_OK)
            return ch_error_load(&before);
        if (!there && (own || rank != ctl->rank))
            name_rank(text, rank, ++nmissing);
    }
    if (nmissing == 0) /* the last one came in the very last moment */
        return ch_error_load(&before);
    if (nmissing > NAMED_MAX)
        snprintf(more, sizeof(more), " and %zu more", nmissing - NAMED_MAX);
    return ch_fail(CHOIR_ERR_TIMEOUT, "ctl_%s \"%s\": failed -- missing ranks: %s%s (of %d)", call,
                   key, text, more, ctl->nranks);
}

/* --- barrier ------------------------------------------------------------------------------------- */

static choir_status arrive(const choir_ctl *ctl, choir_store *store, const char *members,
                           const char *mine, const char *last)
{
    int64_t arrived;
    choir_status rc = choir_store_add(store, choir_str(members), 1, &arrived);

    if (rc == CHOIR_OK)
        rc = choir_store_set(store, choir_str(mine), choir_str("joined"));
    if (rc == CHOIR_OK && arrived == ctl->nranks)
        rc = choir_store_set(store, choir_str(last), choir_str("1"));
    return rc;
}

/* `call` is for the error text: a barrier may be a part of something. `store` is borrowed. */
static choir_status barrier(choir_ctl *ctl, choir_store *store, const char *call, const char *key,
                            ch_deadline until, bool blocking)
{
    char *members = join(key, "num_members"), *last = join(key, "last_members");
    char *mine = join_rank(key, ctl->rank);
    choir_status rc = CHOIR_ERR_NOMEM;

    if (members != NULL && last != NULL && mine != NULL)
        rc = arrive(ctl, store, members, mine, last);
    if (rc == CHOIR_OK && blocking) {
        choir_bytes name = choir_str(last);

        rc = choir_store_wait(store, &name, 1, left_ms(until));
        if (rc == CHOIR_ERR_TIMEOUT)
            rc = explain_timeout(ctl, call, key, true);
    }
    ch_free(members);
    ch_free(last);
    ch_free(mine);
    return rc;
}

choir_status choir_ctl_barrier(choir_ctl *ctl, const char *key, int64_t timeout_ms, bool blocking)
{
    choir_store *store;
    ch_deadline until;
    choir_status rc = begin(ctl, "barrier", key, true);

    if (rc != CHOIR_OK)
        return rc;
    until = deadline(ctl, timeout_ms);
    rc = borrow(ctl, until, &store);
    if (rc != CHOIR_OK)
        return rc;
    rc = barrier(ctl, store, "barrier", key, until, blocking);
    choir_store_close(store);
    return rc;
}

static choir_status sum_up(choir_ctl *ctl, choir_store *store, const char *key, const char *meeting,
                           int64_t own, ch_deadline until, int64_t *sum_out)
{
    choir_status rc = choir_store_add(store, choir_str(key), own, NULL);

    if (rc == CHOIR_OK)
        rc = barrier(ctl, store, "all_sum", meeting, until, true);
    if (rc == CHOIR_OK)
        rc = choir_store_add(store, choir_str(key), 0, sum_out);
    return rc;
}

choir_status choir_ctl_all_sum(choir_ctl *ctl, const char *key, int64_t own, int64_t timeout_ms,
                               int64_t *sum_out)
{
    choir_status rc = begin(ctl, "all_sum", key, sum_out != NULL);
    choir_store *store = NULL;
    ch_deadline until;
    char *meeting;

    if (rc != CHOIR_OK)
        return rc;
    meeting = join(key, "barrier");
    if (meeting == NULL)
        return CHOIR_ERR_NOMEM;
    until = deadline(ctl, timeout_ms);
    rc = begin(ctl, "all_sum", meeting, true);
    if (rc == CHOIR_OK)
        rc = borrow(ctl, until, &store);
    if (rc == CHOIR_OK)
        rc = sum_up(ctl, store, key, meeting, own, until, sum_out);
    choir_store_close(store);
    ch_free(meeting);
    return rc;
}

/* --- one to all ---------------------------------------------------------------------------------- */

choir_status choir_ctl_broadcast_send(choir_ctl *ctl, const char *key, choir_bytes data)
{
    choir_status rc = begin(ctl, "broadcast_send", key, data.data != NULL || data.nbytes == 0);

    return rc == CHOIR_OK ? choir_store_set(ctl->store, choir_str(key), data) : rc;
}

choir_status choir_ctl_broadcast_recv(choir_ctl *ctl, const char *key, int64_t timeout_ms,
                                      choir_blob *data_out)
{
    choir_status rc = begin(ctl, "broadcast_recv", key, data_out != NULL);

    return rc == CHOIR_OK ? choir_store_get(ctl->store, choir_str(key), timeout_ms, data_out) : rc;
}

/* --- all to one, one to each --------------------------------------------------------------------- */

/* Set this rank's "<key>/<rank>". */
static choir_status set_mine(const choir_ctl *ctl, choir_store *store, const char *key,
                             choir_bytes data)
{
    char *name = join_rank(key, ctl->rank);
    choir_status rc = CHOIR_ERR_NOMEM;

    if (name != NULL)
        rc = choir_store_set(store, choir_str(name), data);
    ch_free(name);
    return rc;
}

/* Fetch every "<key>/<rank>", or all but our own, in the order of ranks. */
static choir_status get_all(choir_ctl *ctl, const char *call, const char *key, bool own,
                            ch_deadline until, choir_blob **list_out)
{
    struct rank_keys keys;
    choir_status rc = make_rank_keys(ctl, key, own, &keys);

    if (rc == CHOIR_OK)
        rc = choir_store_multi_get(ctl->store, keys.list, keys.count, left_ms(until), list_out);
    if (rc == CHOIR_ERR_TIMEOUT)
        rc = explain_timeout(ctl, call, key, own);
    ch_free(keys.list);
    return rc;
}

choir_status choir_ctl_gather_send(choir_ctl *ctl, const char *key, choir_bytes data)
{
    choir_status rc = begin(ctl, "gather_send", key, data.data != NULL || data.nbytes == 0);

    return rc == CHOIR_OK ? set_mine(ctl, ctl->store, key, data) : rc;
}

/* Make room for our own among those of the others. */
static choir_status insert_own(const choir_ctl *ctl, choir_bytes own, choir_blob **list_io)
{
    size_t n = (size_t)ctl->nranks, mine = (size_t)ctl->rank;
    choir_blob copy, *list;
    choir_status rc = ch_blob_init(&copy, own.data, own.nbytes);

    if (rc != CHOIR_OK)
        return rc;
    list = ch_regrow(*list_io, n, sizeof(*list));
    if (list == NULL) {
        choir_blob_free(&copy);
        return ch_fail(CHOIR_ERR_NOMEM, "ctl_gather_recv: no memory for %d values", ctl->nranks);
    }
    memmove(list + mine + 1, list + mine, (n - 1 - mine) * sizeof(*list));
    list[mine] = copy;
    *list_io = list;
    return CHOIR_OK;
}

choir_status choir_ctl_gather_recv(choir_ctl *ctl, const char *key, choir_bytes own,
                                   int64_t timeout_ms, choir_blob **list_out)
{
    choir_blob *list;
    choir_status rc = begin(ctl, "gather_recv", key,
                            list_out != NULL && (own.data != NULL || own.nbytes == 0));

    if (rc == CHOIR_OK)
        rc = get_all(ctl, "gather_recv", key, false, deadline(ctl, timeout_ms), &list);
    if (rc != CHOIR_OK)
        return rc;
    rc = insert_own(ctl, own, &list);
    if (rc == CHOIR_OK)
        *list_out = list;
    else
        choir_blob_free_list(list, (size_t)ctl->nranks - 1);
    return rc;
}

choir_status choir_ctl_scatter_send(choir_ctl *ctl, const char *key, const choir_bytes *list)
{
    struct rank_keys keys;
    choir_bytes *others;
    choir_status rc = begin(ctl, "scatter_send", key, list != NULL);

    if (rc == CHOIR_OK)
        rc = make_rank_keys(ctl, key, false, &keys);
    if (rc != CHOIR_OK)
        return rc;
    others = ch_alloc_array((size_t)ctl->nranks, sizeof(*others));
    if (others == NULL) {
        rc = ch_fail(CHOIR_ERR_NOMEM, "ctl_scatter_send: no memory for %d values", ctl->nranks);
    } else {
        for (int rank = 0, i = 0; rank < ctl->nranks; rank++) {
            if (rank != ctl->rank)
                others[i++] = list[rank];
        }
        rc = choir_store_multi_set(ctl->store, keys.list, others, keys.count);
    }
    ch_free(others);
    ch_free(keys.list);
    return rc;
}

choir_status choir_ctl_scatter_recv(choir_ctl *ctl, const char *key, int64_t timeout_ms,
                                    choir_blob *data_out)
{
    choir_status rc = begin(ctl, "scatter_recv", key, data_out != NULL);
    char *name;

    if (rc != CHOIR_OK)
        return rc;
    name = join_rank(key, ctl->rank);
    if (name == NULL)
        return CHOIR_ERR_NOMEM;
    rc = choir_store_get(ctl->store, choir_str(name), timeout_ms, data_out);
    ch_free(name);
    return rc;
}

choir_status choir_ctl_all_gather(choir_ctl *ctl, const char *key, choir_bytes own,
                                  int64_t timeout_ms, choir_blob **list_out)
{
    choir_store *store;
    ch_deadline until;
    choir_status rc = begin(ctl, "all_gather", key,
                            list_out != NULL && (own.data != NULL || own.nbytes == 0));

    if (rc != CHOIR_OK)
        return rc;
    until = deadline(ctl, timeout_ms);
    rc = borrow(ctl, until, &store);
    if (rc != CHOIR_OK)
        return rc;
    rc = set_mine(ctl, store, key, own);
    choir_store_close(store);
    if (rc == CHOIR_OK)
        rc = get_all(ctl, "all_gather", key, true, until, list_out);
    return rc;
}
