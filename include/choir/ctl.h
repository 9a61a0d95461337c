/*
 * ctl.h - control collectives: small exchanges between ranks through a store.
 *
 *   choir_ctl *ctl;
 *   choir_blob *all;
 *
 *   choir_ctl_create(store, rank, nranks, &ctl);
 *   choir_ctl_all_gather(ctl, "address", choir_str(my_address), 0, &all);  // all[r] is rank r's
 *   choir_blob_free_list(all, nranks);
 *   choir_ctl_destroy(ctl);
 *
 * For what a group needs before it can talk by itself: every value goes through the store, so keep
 * them few and small. A rank calls what its part is (send or recv), all with the same key. A key
 * serves once: an object refuses it the second time, and a store that was used with it before must not
 * be used with it again. The names it takes in the store are in choir_ctl_create(3).
 *
 * Time-outs are in milliseconds, 0 for the store's own, negative for none. One that passes is
 * CHOIR_ERR_TIMEOUT; where others are waited for, its text names the ranks that are missing.
 *
 * Threads: any number may use one object at once, with keys of their own.
 */
#ifndef CHOIR_CTL_H
#define CHOIR_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include <choir/export.h>
#include <choir/status.h>
#include <choir/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_ctl choir_ctl;

/* The store may be closed before the object is destroyed; a prefix of it stays in force. */
CHOIR_API choir_status choir_ctl_create(choir_store *store, int rank, int nranks,
                                        choir_ctl **ctl_out);

/* Accepts NULL. No other thread may be using it. */
CHOIR_API void choir_ctl_destroy(choir_ctl *ctl);

/* Wait until all ranks have come; not `blocking`: only say that this one has. */
CHOIR_API choir_status choir_ctl_barrier(choir_ctl *ctl, const char *key, int64_t timeout_ms,
                                         bool blocking);

/* One sends, all others receive. *data_out is the caller's, for choir_blob_free(). */
CHOIR_API choir_status choir_ctl_broadcast_send(choir_ctl *ctl, const char *key, choir_bytes data);
CHOIR_API choir_status choir_ctl_broadcast_recv(choir_ctl *ctl, const char *key, int64_t timeout_ms,
                                                choir_blob *data_out);

/* All others send, one receives: (*list_out)[r] is rank r's, its own among them. `nranks` of them, for
 * choir_blob_free_list(). */
CHOIR_API choir_status choir_ctl_gather_send(choir_ctl *ctl, const char *key, choir_bytes data);
CHOIR_API choir_status choir_ctl_gather_recv(choir_ctl *ctl, const char *key, choir_bytes own,
                                             int64_t timeout_ms, choir_blob **list_out);

/* One sends list[r] to every other rank r, `nranks` in the list; they receive. */
CHOIR_API choir_status choir_ctl_scatter_send(choir_ctl *ctl, const char *key,
                                              const choir_bytes *list);
CHOIR_API choir_status choir_ctl_scatter_recv(choir_ctl *ctl, const char *key, int64_t timeout_ms,
                                              choir_blob *data_out);

/* Everybody's to everybody: as gather_recv at every rank. */
CHOIR_API choir_status choir_ctl_all_gather(choir_ctl *ctl, const char *key, choir_bytes own,
                                            int64_t timeout_ms, choir_blob **list_out);

/* The sum of everybody's, at every rank; it wraps. */
CHOIR_API choir_status choir_ctl_all_sum(choir_ctl *ctl, const char *key, int64_t own,
                                         int64_t timeout_ms, int64_t *sum_out);

#ifdef __cplusplus
}
#endif
#endif
