/*
 * store.h - what a kind of store must do. The core (store.c) does what all have in common.
 *
 * The core parses the URL, checks arguments, puts prefixes in front of keys, turns time-outs into
 * deadlines, counts handles, says which call on which key failed, and fills in for operations a kind
 * leaves NULL: multi_get and multi_set one by one, barrier by add and wait; the others are
 * CHOIR_ERR_UNSUPPORTED. Kinds are listed in store.def. Contract tests: store_test.c, for every kind.
 *
 * One `self` may serve many handles (clones, prefixes).
 *
 * Threads:  any number of threads call operations of one `self` at once, close() apart.
 * Blocks:   only in ch_wait(), through the patience that is passed along: so every call ends at its
 *           deadline and can be interrupted. No lock is held while waiting.
 * Outputs:  written on success only; blobs are made with ch_blob_init() and become the caller's.
 */
#ifndef CH_STORE_H
#define CH_STORE_H

#include <stddef.h>

#include <choir/store.h>

#include "io/patience.h"

/* A URL taken apart: "tcp" :// "host:1" ? "protocol=torch". */
struct ch_store_place {
    const char *url;          /* as given, for error texts */
    const char *where;        /* between "://" and "?": "10.0.0.1:4711", "/path" */
    const char *query;        /* behind "?", "" if there is none */
    const choir_token *token; /* NULL: none */
    int nranks;               /* 0: not told */
    const char *run_id;       /* NULL: not told */
};

struct ch_store_ops {
    const char *scheme;   /* the "tcp" in "tcp://host:port" */
    const char *protocol; /* the "torch" in "?protocol=torch"; NULL: the scheme's plain form */
    const char *help;     /* one line, for `choir info` */
    size_t self_size;     /* the core allocates this much, zeroed, and passes it as `self` */

    /* After a failure the core still calls close(): leave `self` in a state that close() can take. */
    choir_status (*open)(void *self, const struct ch_store_place *place,
                         const struct ch_patience *patience);
    /* Accepts a half-opened `self`; must end in bounded time. */
    void (*close)(void *self);

    choir_status (*set)(void *self, choir_bytes key, choir_bytes value,
                        const struct ch_patience *patience);
    /* A key that is only a queue has an empty value. */
    choir_status (*get)(void *self, choir_bytes key, choir_blob *value_out,
                        const struct ch_patience *patience);
    choir_status (*add)(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                        const struct ch_patience *patience);
    choir_status (*compare_set)(void *self, choir_bytes key, choir_bytes expected,
                                choir_bytes desired, choir_blob *value_out,
                                const struct ch_patience *patience);
    choir_status (*append)(void *self, choir_bytes key, choir_bytes more,
                           const struct ch_patience *patience);
    /* removed_out NULL: nobody asks whether it was there, and an answer need not be waited for. */
    choir_status (*remove)(void *self, choir_bytes key, bool *removed_out,
                           const struct ch_patience *patience);
    /* `values_out` has room for `count`; on failure none of them is left filled in. */
    choir_status (*multi_get)(void *self, const choir_bytes *keys, size_t count,
                              choir_blob *values_out, const struct ch_patience *patience);
    choir_status (*multi_set)(void *self, const choir_bytes *keys, const choir_bytes *values,
                              size_t count, const struct ch_patience *patience);
    /* For these two `count` is at least 1. */
    choir_status (*check)(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                          const struct ch_patience *patience);
    choir_status (*wait)(void *self, const choir_bytes *keys, size_t count,
                         const struct ch_patience *patience);
    choir_status (*count)(void *self, int64_t *count_out, const struct ch_patience *patience);
    /* All keys; the core picks those below the prefix. A list for choir_blob_free_list(). */
    choir_status (*list)(void *self, choir_blob **keys_out, size_t *count_out,
                         const struct ch_patience *patience);
    choir_status (*queue_push)(void *self, choir_bytes key, choir_bytes value,
                               const struct ch_patience *patience);
    choir_status (*queue_pop)(void *self, choir_bytes key, choir_blob *value_out,
                              const struct ch_patience *patience);
    choir_status (*queue_try_pop)(void *self, choir_bytes key, choir_blob *value_out,
                                  const struct ch_patience *patience);
    choir_status (*queue_length)(void *self, choir_bytes key, int64_t *length_out,
                                 const struct ch_patience *patience);
    /* Not used under a prefix, where PyTorch's stores do without it as well. */
    choir_status (*barrier)(void *self, choir_bytes key, int64_t nranks,
                            const struct ch_patience *patience);
};

#define CH_STORE(name) extern const struct ch_store_ops ch_store_##name;
#include "store/store.def"
#undef CH_STORE

#endif
