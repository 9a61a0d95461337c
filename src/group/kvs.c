/*
 * kvs.c - which launcher's key-value space there is, and what its kinds have in common: keys that
 * never come twice, and values that no launcher's syntax can trip over.
 */
#include "group/kvs.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"

/*
 * The launcher's key-value space belongs to the process, and so does what happened to it.
 *
 *   FREE --[ch_kvs_open]--> OPEN --[ch_kvs_close]--> FREE
 *                             +----[ch_kvs_close after a share that failed]--> SPOILED
 */
enum { FREE, OPEN, SPOILED };

static struct {
    _Atomic uint32_t state;
    uint32_t nshares; /* begun so far, the same on all ranks; touched by who has it open */
} the_launcher;

struct ch_kvs {
    const struct ch_kvs_ops *ops;
    void *self;
    int rank, size;
    bool taken;   /* the_launcher is ours to give back */
    bool spoiled; /* a share failed: a reply may still come, others may still wait for us */
};

/* In the order in which choir_init believes the environment. */
static const struct ch_kvs_ops *const kinds[] = { &ch_kvs_pmix, &ch_kvs_pmi1 };

static const struct ch_kvs_ops *find_kind(const char *name)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(kinds); i++) {
        if ((name == NULL || strcmp(kinds[i]->name, name) == 0) && kinds[i]->present())
            return kinds[i];
    }
    return NULL;
}

const char *ch_kvs_available(void)
{
    const struct ch_kvs_ops *ops = find_kind(NULL);

    return ops != NULL ? ops->name : NULL;
}

/* --- life --------------------------------------------------------------------------------------- */

static choir_status take_launcher(struct ch_kvs *kvs)
{
    uint32_t seen = FREE;

    /* Acquire, pairs with the release in ch_kvs_close(): nshares is the last owner's. */
    kvs->taken = atomic_compare_exchange_strong_explicit(
        &the_launcher.state, &seen, OPEN, memory_order_acquire, memory_order_relaxed);
    if (kvs->taken)
        return CHOIR_OK;
    if (seen == OPEN)
        return ch_fail(CHOIR_ERR_STATE,
                       "the launcher's key-value space is in use by another thread");
    return ch_fail(CHOIR_ERR_STATE,
                   "the launcher's key-value space cannot be used again: an earlier "
                   "exchange through it failed half-way");
}

static choir_status open_kind(struct ch_kvs *kvs, const struct ch_patience *patience)
{
    choir_status rc;

    kvs->self = ch_zalloc(kvs->ops->self_size);
    if (kvs->self == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "key-value space %s: no memory", kvs->ops->name);
    rc = kvs->ops->open(kvs->self, patience, &kvs->rank, &kvs->size);
    if (rc == CHOIR_OK && (kvs->rank < 0 || kvs->rank >= kvs->size))
        rc = ch_fail(CHOIR_ERR_PROTO, "the launcher says that this is rank %d of %d", kvs->rank,
                     kvs->size);
    return rc;
}

choir_status ch_kvs_open(const char *name, const struct ch_patience *patience,
                         struct ch_kvs **kvs_out)
{
    const struct ch_kvs_ops *ops = find_kind(name);
    struct ch_kvs *kvs;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    if (ops == NULL)
        return ch_fail(
            CHOIR_ERR_UNSUPPORTED,
            "no key-value space of a launcher%s%s: PMIX_NAMESPACE and PMI_FD, one of which "
            "mpirun, mpiexec or srun --mpi=pmix sets, are not in the environment",
            name != NULL ? " of kind " : "", name != NULL ? name : "");
    kvs = ch_zalloc(sizeof(*kvs));
    if (kvs == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "key-value space %s: no memory", ops->name);
    kvs->ops = ops;
    rc = take_launcher(kvs);
    if (rc == CHOIR_OK)
        rc = open_kind(kvs, patience);
    if (rc != CHOIR_OK) {
        ch_kvs_close(kvs);
        return rc;
    }
    *kvs_out = kvs;
    return CHOIR_OK;
}

void ch_kvs_close(struct ch_kvs *kvs)
{
    if (kvs == NULL)
        return;
    if (kvs->self != NULL)
        kvs->ops->close(kvs->self);
    ch_free(kvs->self);
    /* Release, pairs with the acquire in take_launcher(). */
    if (kvs->taken)
        atomic_store_explicit(&the_launcher.state, kvs->spoiled ? SPOILED : FREE,
                              memory_order_release);
    ch_free(kvs);
}

const char *ch_kvs_name(const struct ch_kvs *kvs)
{
    return kvs->ops->name;
}

int ch_kvs_rank(const struct ch_kvs *kvs)
{
    return kvs->rank;
}

int ch_kvs_size(const struct ch_kvs *kvs)
{
    return kvs->size;
}

/* --- sharing ------------------------------------------------------------------------------------ */

/* Hexadecimal: PMI-1 separates by spaces, '=' and ';' mean something to its servers, and some cut
 * values at characters that they do not like. */
static void encode(const char *value, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (; *value != '\0'; value++) {
        *text++ = digits[(unsigned char)*value >> 4];
        *text++ = digits[(unsigned char)*value & 15];
    }
    *text = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that two digits stand for; 0 if they do not stand for one that a text may hold. */
static int byte_at(const char *text)
{
    int high = digit(text[0]), low = high >= 0 ? digit(text[1]) : -1;

    return low >= 0 ? high * 16 + low : 0;
}

/* False, with nothing written, if `text` is not what encode() makes, or does not fit. */
static bool decode(const char *text, char *value_out, size_t room)
{
    size_t len = strlen(text), nbytes = len / 2;

    if (len % 2 != 0 || nbytes >= room)
        return false;
    for (size_t i = 0; i < nbytes; i++) {
        if (byte_at(text + 2 * i) == 0)
            return false;
    }
    for (size_t i = 0; i < nbytes; i++)
        value_out[i] = (char)byte_at(text + 2 * i);
    value_out[nbytes] = '\0';
    return true;
}

static choir_status check_arguments(const struct ch_kvs *kvs, const char *key, const char *value)
{
    if (strlen(key) >= CH_KVS_KEY_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "share %s: a key has at most %d bytes", key,
                       CH_KVS_KEY_MAX - 1);
    if ((kvs->rank == 0) != (value != NULL))
        return ch_fail(CHOIR_ERR_INVALID,
                       "share %s: rank 0 brings the value, nobody else; this is %d", key,
                       kvs->rank);
    if (value != NULL && strlen(value) >= CH_KVS_VALUE_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "share %s: a value of %zu bytes, at most %d fit", key,
                       strlen(value), CH_KVS_VALUE_MAX - 1);
    return CHOIR_OK;
}

choir_status ch_kvs_share(struct ch_kvs *kvs, const char *key, const char *value, char *value_out,
                          size_t room, const struct ch_patience *patience)
{
    char name[CH_KVS_KEY_TEXT_MAX], text[CH_KVS_VALUE_TEXT_MAX], got[CH_KVS_VALUE_TEXT_MAX];
    choir_status rc = check_arguments(kvs, key, value);

    if (rc != CHOIR_OK)
        return rc;
    if (kvs->spoiled)
        return ch_fail(CHOIR_ERR_STATE, "share %s: an earlier exchange failed half-way", key);
    /* Numbered, because a key cannot be put twice and a process may form groups again and again. */
    snprintf(name, sizeof(name), "choir-%u-%s", (unsigned)the_launcher.nshares++, key);
    if (value != NULL)
        encode(value, text);
    rc = kvs->ops->share(kvs->self, name, value != NULL ? text : NULL, got, patience);
    if (rc == CHOIR_OK && !decode(got, value_out, room))
        rc = ch_fail(CHOIR_ERR_PROTO, "what came back is not what a rank 0 of ours puts there");
    if (rc != CHOIR_OK) {
        ch_error_prefix("share %s through the launcher (%s) as rank %d of %d: ", key,
                        kvs->ops->name, kvs->rank, kvs->size);
        kvs->spoiled = true;
    }
    return rc;
}
