/*
 * store.h - a store: a small dictionary through which processes find each other.
 *
 *   choir_store *store;
 *   choir_blob value;
 *
 *   choir_store_open("tcp://10.0.0.1:4711", NULL, &store);
 *   choir_store_set(store, choir_str("greeting"), choir_str("hello"));
 *   choir_store_get(store, choir_str("greeting"), 0, &value);    // waits until somebody has set it
 *   puts(value.data);
 *   choir_blob_free(&value);
 *   choir_store_close(store);
 *
 * Keys and values are bytes of any kind, also none. A key exists as soon as any writing call touched
 * it. Queues have a name space of their own, but a queue that is not empty counts as existing for
 * check and wait.
 *
 * Time-outs are in milliseconds: 0 means the store's own (five minutes unless set otherwise), negative
 * means none. One that passes is CHOIR_ERR_TIMEOUT.
 *
 * Threads: any number may use one handle at once; one that waits does not hold the others up.
 */
#ifndef CHOIR_STORE_H
#define CHOIR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <choir/export.h>
#include <choir/opts.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- bytes --------------------------------------------------------------------------------------- */

/* Bytes that belong to the caller; borrowed for the call. */
typedef struct choir_bytes {
    const void *data;
    size_t nbytes;
} choir_bytes;

static inline choir_bytes choir_str(const char *text)
{
    choir_bytes bytes;

    bytes.data = text;
    bytes.nbytes = strlen(text);
    return bytes;
}

/* Bytes that a call hands out. A NUL stands behind them, not counted, so that text can be printed. */
typedef struct choir_blob {
    char *data;
    size_t nbytes;
} choir_blob;

/* Both accept what is zeroed or was freed before. The second frees the list as well. */
CHOIR_API void choir_blob_free(choir_blob *blob);
CHOIR_API void choir_blob_free_list(choir_blob *list, size_t count);

/* --- the job token ------------------------------------------------------------------------------- */

enum { CHOIR_TOKEN_NBYTES = 32 };

/* A secret of 256 bits that the members of a job share: who holds it belongs to the job. */
typedef struct choir_token {
    unsigned char bytes[CHOIR_TOKEN_NBYTES];
} choir_token;

/* A new random one. */
CHOIR_API choir_status choir_token_make(choir_token *out);

/* From a file of 64 hexadecimal digits, which nobody but its owner may be able to read. */
CHOIR_API choir_status choir_token_read(const char *path, choir_token *out);

/* The same from an open descriptor, from its beginning; it is neither moved nor closed. */
CHOIR_API choir_status choir_token_read_fd(int fd, choir_token *out);

/* Write such a file (mode 0600), which must not exist yet. */
CHOIR_API choir_status choir_token_write(const char *path, const choir_token *token);

/* --- a store's life ------------------------------------------------------------------------------ */

typedef struct choir_store choir_store;

typedef struct choir_store_open_opts {
    size_t size;        /* filled in by CHOIR_OPTS */
    int64_t timeout_ms; /* for connecting, and the store's own from then on; 0: five minutes */
    const choir_token *token; /* tcp: what its server was given; NULL: none */
    int nranks;         /* file: how many will use it, the last of them removes it; 0: it stays */
    const char *run_id; /* file: which run it belongs to; see choir_store_open(3) */
} choir_store_open_opts;

/*
 * Open the store at `url`:
 *   hash://                         inside this process; share it with choir_store_clone()
 *   file:///path                    a file that all processes see
 *   tcp://host:port                 a server (choir_store_server_create(), choir run)
 *   tcp://host:port?protocol=torch  PyTorch's TCPStore
 * Blocks:  until connected; a server that is not there yet is tried again until the time is up.
 * Errors:  CHOIR_ERR_INVALID for a bad URL, CHOIR_ERR_PERMISSION if server and client do not hold the
 *          same token, CHOIR_ERR_TIMEOUT with what was tried.
 */
CHOIR_API choir_status choir_store_open(const char *url, const choir_store_open_opts *opts,
                                        choir_store **store_out);

/* Another handle to the same data, with a time-out and an interrupt of its own. */
CHOIR_API choir_status choir_store_clone(choir_store *store, choir_store **store_out);

/* A handle that puts `prefix` and "/" in front of every key. Prefixes nest. */
CHOIR_API choir_status choir_store_prefix(choir_store *store, choir_bytes prefix,
                                          choir_store **store_out);

/* A handle to the same data without any prefix. */
CHOIR_API choir_status choir_store_unprefixed(choir_store *store, choir_store **store_out);

/* End a handle; others to the same data stay. No other thread may be using this one. Accepts NULL. */
CHOIR_API void choir_store_close(choir_store *store);

/* The store's own time-out, in milliseconds; negative: none. 0 is refused. */
CHOIR_API choir_status choir_store_set_timeout(choir_store *store, int64_t timeout_ms);
CHOIR_API int64_t choir_store_timeout(const choir_store *store);

/* Make every wait on this handle, also those to come, return CHOIR_ERR_INTERRUPTED, until resumed.
 * The first may be called from a signal handler. */
CHOIR_API void choir_store_interrupt(choir_store *store);
CHOIR_API void choir_store_resume(choir_store *store);

/* --- values -------------------------------------------------------------------------------------- */

/* Create or overwrite. Over TCP it does not wait for the server: should it fail there (the store is
 * full, the connection breaks), a later call of this handle says so. */
CHOIR_API choir_status choir_store_set(choir_store *store, choir_bytes key, choir_bytes value);

/* Wait until the key exists and fetch its value, to be freed with choir_blob_free(). The value of a
 * key that is only a queue is empty. */
CHOIR_API choir_status choir_store_get(choir_store *store, choir_bytes key, int64_t timeout_ms,
                                       choir_blob *value_out);

/* Add to a decimal number; a missing or empty value counts as 0, the sum wraps. With 0: read it. */
CHOIR_API choir_status choir_store_add(choir_store *store, choir_bytes key, int64_t delta,
                                       int64_t *sum_out);

/* If the value is `expected` (a missing one is, if that is empty): store `desired` and return it.
 * Otherwise return the present value; if there is none, `expected`. */
CHOIR_API choir_status choir_store_compare_set(choir_store *store, choir_bytes key,
                                               choir_bytes expected, choir_bytes desired,
                                               choir_blob *value_out);

/* Put bytes behind the value; a missing one is empty. */
CHOIR_API choir_status choir_store_append(choir_store *store, choir_bytes key, choir_bytes more);

/* Remove a value; a queue of that name stays. *removed_out may be NULL. */
CHOIR_API choir_status choir_store_delete(choir_store *store, choir_bytes key, bool *removed_out);

/* get for several keys at once, in their order; to be freed with choir_blob_free_list(). */
CHOIR_API choir_status choir_store_multi_get(choir_store *store, const choir_bytes *keys,
                                             size_t count, int64_t timeout_ms,
                                             choir_blob **values_out);

/* set for several; not atomic as a whole. */
CHOIR_API choir_status choir_store_multi_set(choir_store *store, const choir_bytes *keys,
                                             const choir_bytes *values, size_t count);

/* Whether all of them exist, without waiting. */
CHOIR_API choir_status choir_store_check(choir_store *store, const choir_bytes *keys, size_t count,
                                         bool *all_out);

/* Wait until all of them exist. */
CHOIR_API choir_status choir_store_wait(choir_store *store, const choir_bytes *keys, size_t count,
                                        int64_t timeout_ms);

/* How many values there are in all, under whatever prefix. */
CHOIR_API choir_status choir_store_count(choir_store *store, int64_t *count_out);

/* The keys below this handle's prefix, without it, in no order; to be freed with
 * choir_blob_free_list(). */
CHOIR_API choir_status choir_store_list(choir_store *store, choir_blob **keys_out,
                                        size_t *count_out);

/* --- queues, first in first out -------------------------------------------------------------------- */

CHOIR_API choir_status choir_store_queue_push(choir_store *store, choir_bytes key,
                                              choir_bytes value);

/* The oldest element, waiting for one. */
CHOIR_API choir_status choir_store_queue_pop(choir_store *store, choir_bytes key,
                                             int64_t timeout_ms, choir_blob *value_out);

/* The oldest element, or CHOIR_ERR_QUEUE_EMPTY. */
CHOIR_API choir_status choir_store_queue_try_pop(choir_store *store, choir_bytes key,
                                                 choir_blob *value_out);

CHOIR_API choir_status choir_store_queue_length(choir_store *store, choir_bytes key,
                                                int64_t *length_out);

/* --- all together -------------------------------------------------------------------------------- */

/* Return when `nranks` callers have called it with this key. A key serves once: later callers pass. */
CHOIR_API choir_status choir_store_barrier(choir_store *store, choir_bytes key, int64_t nranks,
                                           int64_t timeout_ms);

/* --- serving a store over TCP ----------------------------------------------------------------------- */

typedef struct choir_store_server choir_store_server;

typedef struct choir_store_server_create_opts {
    size_t size;              /* filled in by CHOIR_OPTS */
    const char *bind;         /* "127.0.0.1:0" if NULL; port 0 lets the kernel pick one */
    const choir_token *token; /* who connects must hold it; NULL: anybody, on loopback only */
    const char *torch_bind;   /* also serve PyTorch's protocol here, to anybody; NULL: no */
} choir_store_server_create_opts;

/* Start a server on a thread of its own. PyTorch's clients have a key space of theirs. */
CHOIR_API choir_status choir_store_server_create(const choir_store_server_create_opts *opts,
                                                 choir_store_server **server_out);

/* End it: clients see the connection close, what was stored is gone. Accepts NULL. */
CHOIR_API void choir_store_server_destroy(choir_store_server *server);

/* Where it listens, "127.0.0.1:40123"; valid as long as the server. The second is NULL without
 * torch_bind. */
CHOIR_API const char *choir_store_server_address(const choir_store_server *server);
CHOIR_API const char *choir_store_server_torch_address(const choir_store_server *server);

#ifdef __cplusplus
}
#endif
#endif
