/*
 * store.c - the life of a handle: from a URL to a kind of store, clones, prefixes, the end. What is
 * done through a handle is in calls.c.
 */
#include "store/store.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "store/handle.h"

enum { DEFAULT_TIMEOUT_MS = 300 * 1000 };

static const struct ch_store_ops *const kinds[] = {
#define CH_STORE(name) &ch_store_##name,
#include "store/store.def"
#undef CH_STORE
};

/* --- URLs ---------------------------------------------------------------------------------------- */

/* A URL cut into pieces; they point into `copy`. */
struct url {
    char *copy;
    const char *scheme, *where, *query;
    const char *protocol; /* NULL: the query names none */
};

/* The only parameter there is: a mistyped one must not silently mean another protocol. */
static choir_status parse_query(struct url *url, const char *whole)
{
    if (url->query[0] == '\0')
        return CHOIR_OK;
    if (strncmp(url->query, "protocol=", 9) != 0 || strchr(url->query, '&') != NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "store URL \"%s\": behind \"?\" only protocol=NAME is known", whole);
    url->protocol = url->query + 9;
    return CHOIR_OK;
}

static choir_status parse_url(const char *whole, struct url *url)
{
    char *behind, *mark;

    *url = (struct url){ .copy = ch_strdup(whole) };
    if (url->copy == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for its URL");
    behind = strstr(url->copy, "://");
    if (behind == NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "store URL \"%s\": it has no \"://\"; tcp://host:port is one", whole);
    *behind = '\0';
    url->scheme = url->copy;
    url->where = behind + 3;
    url->query = "";
    mark = strchr(behind + 3, '?');
    if (mark != NULL) {
        *mark = '\0';
        url->query = mark + 1;
    }
    return parse_query(url, whole);
}

static bool is_kind(const struct ch_store_ops *ops, const struct url *url)
{
    if (strcmp(ops->scheme, url->scheme) != 0)
        return false;
    if (ops->protocol == NULL || url->protocol == NULL)
        return ops->protocol == url->protocol;
    return strcmp(ops->protocol, url->protocol) == 0;
}

static choir_status no_such_kind(const char *whole)
{
    char known[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(kinds) && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s://%s%s",
                                 i == 0 ? "" : ", ", kinds[i]->scheme,
                                 kinds[i]->protocol != NULL ? "...?protocol=" : "",
                                 kinds[i]->protocol != NULL ? kinds[i]->protocol : "");
    return ch_fail(CHOIR_ERR_INVALID, "store URL \"%s\": no such kind of store; there are %s",
                   whole, known);
}

static choir_status find_kind(const struct url *url, const char *whole,
                              const struct ch_store_ops **ops_out)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(kinds); i++) {
        if (is_kind(kinds[i], url)) {
            *ops_out = kinds[i];
            return CHOIR_OK;
        }
    }
    return no_such_kind(whole);
}

/* --- what handles share -------------------------------------------------------------------------- */

static choir_status no_memory(void)
{
    return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for its handle");
}

static void unref_shared(struct ch_store_shared *shared)
{
    if (shared == NULL || !ch_ref_put(&shared->ref))
        return;
    shared->ops->close(shared->self);
    ch_free(shared->url);
    ch_free(shared);
}

static choir_status make_shared(const struct ch_store_ops *ops, const char *url,
                                struct ch_store_shared **shared_out)
{
    struct ch_store_shared *shared = ch_zalloc(sizeof(*shared) + ops->self_size);

    if (shared == NULL)
        return no_memory();
    shared->url = ch_strdup(url);
    if (shared->url == NULL) {
        ch_free(shared);
        return no_memory();
    }
    shared->ops = ops;
    ch_ref_init(&shared->ref);
    *shared_out = shared;
    return CHOIR_OK;
}

/* --- handles ------------------------------------------------------------------------------------- */

/* A handle with room for a prefix, which refers to nothing yet. */
static choir_status make_handle(size_t prefix_nbytes, choir_store **store_out)
{
    choir_store *store;
    size_t nbytes;
    choir_status rc;

    if (__builtin_add_overflow(sizeof(*store), prefix_nbytes, &nbytes))
        return no_memory();
    store = ch_zalloc_aligned(CH_CACHE_UNIT, nbytes);
    if (store == NULL)
        return no_memory();
    rc = ch_waiter_init(&store->waiter, &store->word);
    if (rc != CHOIR_OK) {
        choir_store_close(store);
        return rc;
    }
    store->prefix_nbytes = prefix_nbytes;
    *store_out = store;
    return CHOIR_OK;
}

/* A handle to the data of `from`, whose prefix is the first `keep` bytes of that one's, then `more`
 * and "/" unless `more` is NULL. */
static choir_status derive(choir_store *from, size_t keep, const choir_bytes *more,
                           choir_store **store_out)
{
    size_t nbytes = keep;
    choir_store *store;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    if (more != NULL && __builtin_add_overflow(keep + 1, more->nbytes, &nbytes))
        return no_memory();
    rc = make_handle(nbytes, &store);
    if (rc != CHOIR_OK)
        return rc;
    memcpy(store->prefix, from->prefix, keep);
    if (more != NULL) {
        if (more->nbytes > 0)
            memcpy(store->prefix + keep, more->data, more->nbytes);
        store->prefix[nbytes - 1] = '/';
    }
    ch_ref_get(&from->shared->ref);
    store->shared = from->shared;
    atomic_init(&store->timeout_ms, choir_store_timeout(from));
    *store_out = store;
    return CHOIR_OK;
}

choir_status choir_store_clone(choir_store *store, choir_store **store_out)
{
    if (store == NULL || store_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "store_clone: store or store_out is NULL");
    return derive(store, store->prefix_nbytes, NULL, store_out);
}

choir_status choir_store_prefix(choir_store *store, choir_bytes prefix, choir_store **store_out)
{
    if (store == NULL || store_out == NULL || (prefix.data == NULL && prefix.nbytes > 0))
        return ch_fail(CHOIR_ERR_INVALID, "store_prefix: store, prefix or store_out is NULL");
    return derive(store, store->prefix_nbytes, &prefix, store_out);
}

choir_status choir_store_unprefixed(choir_store *store, choir_store **store_out)
{
    if (store == NULL || store_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "store_unprefixed: store or store_out is NULL");
    return derive(store, 0, NULL, store_out);
}

/* Takes half-built ones. */
void choir_store_close(choir_store *store)
{
    if (store == NULL)
        return;
    unref_shared(store->shared);
    ch_waiter_fini(&store->waiter);
    ch_free(store);
}

/* --- opening ------------------------------------------------------------------------------------- */

#define HAS(opts, field)                                                                           \
    ((opts)->size >= offsetof(choir_store_open_opts, field) + sizeof((opts)->field))

static choir_status read_opts(const choir_store_open_opts *opts, struct ch_store_place *place,
                              int64_t *timeout_ms_out)
{
    *timeout_ms_out = DEFAULT_TIMEOUT_MS;
    if (opts == NULL)
        return CHOIR_OK;
    if (!HAS(opts, timeout_ms))
        return ch_fail(CHOIR_ERR_INVALID, "store_open: opts->size is %zu; set it with CHOIR_OPTS()",
                       opts->size);
    if (opts->timeout_ms != 0)
        *timeout_ms_out = opts->timeout_ms;
    if (HAS(opts, token))
        place->token = opts->token;
    if (HAS(opts, nranks))
        place->nranks = opts->nranks;
    if (HAS(opts, run_id))
        place->run_id = opts->run_id;
    if (place->nranks < 0)
        return ch_fail(CHOIR_ERR_INVALID, "store_open: opts->nranks is %d", place->nranks);
    return CHOIR_OK;
}

static choir_status open_place(const struct ch_store_ops *ops, const struct ch_store_place *place,
                               int64_t timeout_ms, choir_store **store_out)
{
    struct ch_patience patience;
    choir_store *store;
    choir_status rc = make_handle(0, &store);

    if (rc != CHOIR_OK)
        return rc;
    atomic_init(&store->timeout_ms, timeout_ms);
    rc = make_shared(ops, place->url, &store->shared);
    if (rc == CHOIR_OK) {
        patience = ch_store_patience(store, 0);
        rc = ops->open(store->shared->self, place, &patience);
    }
    if (rc != CHOIR_OK) {
        choir_store_close(store);
        return rc;
    }
    *store_out = store;
    return CHOIR_OK;
}

choir_status choir_store_open(const char *url, const choir_store_open_opts *opts,
                              choir_store **store_out)
{
    struct ch_store_place place = { .url = url };
    const struct ch_store_ops *ops = NULL;
    int64_t timeout_ms;
    struct url parts;
    choir_status rc;

    if (url == NULL || store_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "store_open: url or store_out is NULL");
    rc = ch_forked();
    if (rc == CHOIR_OK)
        rc = read_opts(opts, &place, &timeout_ms);
    if (rc != CHOIR_OK)
        return rc;
    rc = parse_url(url, &parts);
    if (rc == CHOIR_OK)
        rc = find_kind(&parts, url, &ops);
    if (rc == CHOIR_OK) {
        place.where = parts.where;
        place.query = parts.query;
        rc = open_place(ops, &place, timeout_ms, store_out);
    }
    ch_free(parts.copy);
    return rc;
}

/* --- a handle's own time-out and interrupt ------------------------------------------------------- */

choir_status choir_store_set_timeout(choir_store *store, int64_t timeout_ms)
{
    if (store == NULL || timeout_ms == 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "store_set_timeout: store is NULL, or timeout_ms is 0; negative means none");
    atomic_store_explicit(&store->timeout_ms, timeout_ms, memory_order_relaxed);
    return CHOIR_OK;
}

int64_t choir_store_timeout(const choir_store *store)
{
    /* Relaxed: a number, nothing is published by it. */
    return atomic_load_explicit(&store->timeout_ms, memory_order_relaxed);
}

void choir_store_interrupt(choir_store *store)
{
    ch_waiter_interrupt(&store->waiter);
}

void choir_store_resume(choir_store *store)
{
    ch_waiter_clear_interrupt(&store->waiter);
}
