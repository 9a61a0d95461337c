/*
 * kvs.h - hand a small text from rank 0 to all ranks through the launcher that started them.
 *
 * Ranks that mpirun, mpiexec or srun started share no store of ours yet. What they do share is the
 * key-value space that their launcher keeps for its MPI library; through it rank 0 tells the others
 * where its store listens and the job's token. Used once, while a group forms: clarity beats speed.
 *
 * Kinds, one file each:
 *   pmix   Open MPI's mpirun, srun --mpi=pmix; libpmix is loaded at run time, never linked
 *   pmi1   MPICH's mpiexec (hydra), srun --mpi=pmi2 (which speaks PMI-1 as well): lines of
 *          text on the socket PMI_FD
 *
 * Promised: a program may use MPI too, before us, after us or around us. Limits of that, and why:
 * docs/design/launchers.md.
 *
 * What is shared is as secret as the launcher keeps its own control connections.
 */
#ifndef CH_KVS_H
#define CH_KVS_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>

#include "io/patience.h"

enum {
    CH_KVS_KEY_MAX = 32,    /* bytes of a key, with its NUL */
    CH_KVS_VALUE_MAX = 256, /* bytes of a value, with its NUL */
};

struct ch_kvs;

/* The kind that ch_kvs_open(NULL) would take, by the variables in the environment: "pmix", "pmi1", or
 * NULL if no launcher with a key-value space started this process. Talks to nobody. */
const char *ch_kvs_available(void);

/*
 * Reach the launcher's key-value space: of the kind `name`, or of the first that is there if NULL.
 * *kvs_out is the caller's, to end with ch_kvs_close().
 * Threads:  one open key-value space per process, used by one thread at a time.
 * Blocks:   until patience ends, but for PMIx_Init(), which talks to a daemon of the same host and has
 *           no deadline.
 * Errors:   CHOIR_ERR_UNSUPPORTED if there is none, or libpmix is missing; CHOIR_ERR_STATE if one is open
 *           already, or if an earlier exchange failed half-way: its late replies would be taken for
 *           ours.
 */
choir_status ch_kvs_open(const char *name, const struct ch_patience *patience,
                         struct ch_kvs **kvs_out);

/* Accepts NULL. */
void ch_kvs_close(struct ch_kvs *kvs);

/* How the launcher sees this process. */
const char *ch_kvs_name(const struct ch_kvs *kvs);
int ch_kvs_rank(const struct ch_kvs *kvs);
int ch_kvs_size(const struct ch_kvs *kvs);

/*
 * Every rank gets the text that rank 0 brings. Collective: all ranks of the launcher's job call it, in
 * the same order; it ends with all of them having entered it. Any byte but NUL may be in the value.
 * `value` is rank 0's (others pass NULL); `value_out` has room for `room` bytes.
 * Blocks:  until all ranks are there or patience ends.
 * Errors:  CHOIR_ERR_TIMEOUT, _INTERRUPTED, _REMOTE by patience; CHOIR_ERR_NETWORK if the launcher is
 *          gone; CHOIR_ERR_PROTO if it refuses or says what it should not. After any of these this
 *          process cannot use its launcher's key-value space again.
 */
choir_status ch_kvs_share(struct ch_kvs *kvs, const char *key, const char *value, char *value_out,
                          size_t room, const struct ch_patience *patience);

/* --- for the kinds ------------------------------------------------------------------------------ */

enum {
    CH_KVS_KEY_TEXT_MAX = 64,                        /* of a key as the launcher sees it */
    CH_KVS_VALUE_TEXT_MAX = 2 * CH_KVS_VALUE_MAX + 1 /* of a value, with its NUL: hexadecimal */
};

struct ch_kvs_ops {
    const char *name;
    size_t self_size; /* the core allocates that much, zeroed, and passes it as `self` */

    /* Whether the environment says that such a launcher started this process. */
    bool (*present)(void);

    /* Find rank and size. Leaves nothing under way, also when it fails; the core calls close() in any
     * case, so leave `self` in a state that close() can take. */
    choir_status (*open)(void *self, const struct ch_patience *patience, int *rank_out,
                         int *size_out);

    /* Rank 0 puts `value` (others: NULL), all meet, all get. Keys and values are letters, digits and
     * '-' only, of at most the lengths above; no key comes twice. `text_out` has room for
     * CH_KVS_VALUE_TEXT_MAX bytes. */
    choir_status (*share)(void *self, const char *key, const char *value, char *text_out,
                          const struct ch_patience *patience);

    void (*close)(void *self);
};

extern const struct ch_kvs_ops ch_kvs_pmix, ch_kvs_pmi1;

#endif
