/*
 * kvs_pmix.c - PMIx, by way of the libpmix that the launcher's MPI uses too.
 *
 * The library is loaded, never linked, and never unloaded: it has threads. PMIx is one per process
 * and counts who initialised it, so an MPI library in the same process gets on with us, with one
 * exception that decides how we end: Open MPI cannot initialise PMIx again once its count has
 * fallen to zero (orte_init: "getting local rank failed"). So who is first keeps it until the process
 * exits, and then finalizes it: a process that initialised and exits without is taken for crashed,
 * and mpirun kills the others.
 *
 * Waits are ours, with our deadlines: the calls used are those that call back, from a thread of
 * libpmix. What they call back into is a record of its own that outlives a wait given up.
 */
#include "group/pmix_abi.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/sys.h"
#include "group/kvs.h"

/* Whose count is kept until exit. Written before the handler is installed; a forked child runs the
 * handler too, and is not the one. */
static struct {
    int (*finalize)(const void *info, size_t ninfo);
    pid_t pid;
} the_pmix;

static void finalize_at_exit(void)
{
    if (the_pmix.finalize != NULL && the_pmix.pid == getpid())
        the_pmix.finalize(NULL, 0);
}

/* --- a call under way ------------------------------------------------------------------------------ */

struct call {
    struct ch_ref ref; /* two holders: who waits, and libpmix until it called back */
    int fd;            /* eventfd: called back */
    _Atomic bool done; /* what follows is whole; the callback's release, the waiter's acquire */
    int status;
    uint16_t type;
    uint32_t number;
    bool is_too_long;
    char text[CH_KVS_VALUE_TEXT_MAX];
};

static void call_unref(struct call *call)
{
    if (!ch_ref_put(&call->ref))
        return;
    ch_sys_close(call->fd);
    ch_free(call);
}

static choir_status call_create(struct call **call_out)
{
    struct call *call = ch_zalloc(sizeof(*call));

    if (call == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "PMIx: no memory for a call");
    call->fd = ch_sys_eventfd(0);
    if (call->fd < 0) {
        ch_free(call);
        return ch_fail_errno("PMIx: make an eventfd");
    }
    ch_ref_init(&call->ref);
    *call_out = call;
    return CHOIR_OK;
}

static void call_back(int status, void *arg)
{
    struct call *call = arg;
    struct ch_bell bell = { .fd = call->fd };

    call->status = status;
    /* Release, pairs with the acquire in call_wait(). */
    atomic_store_explicit(&call->done, true, memory_order_release);
    ch_bell_ring(&bell);
    call_unref(call);
}

/* `value` is libpmix's and gone when we return. */
static void call_back_value(int status, struct ch_pmix_value *value, void *arg)
{
    struct call *call = arg;

    if (status == CH_PMIX_SUCCESS && value != NULL) {
        call->type = value->type;
        if (value->type == CH_PMIX_UINT32)
            call->number = value->data.uint32;
        if (value->type == CH_PMIX_STRING && value->data.string != NULL) {
            size_t len = strnlen(value->data.string, sizeof(call->text));

            call->is_too_long = len == sizeof(call->text);
            if (!call->is_too_long)
                memcpy(call->text, value->data.string, len + 1);
        }
    }
    call_back(status, arg);
}

static choir_status refused(const struct ch_pmix *pmix, int status, const char *what)
{
    const char *text = pmix->calls.PMIx_Error_string(status);

    return ch_fail(CHOIR_ERR_PROTO, "%s: PMIx says %s (%d)", what, text != NULL ? text : "?",
                   status);
}

/* Wait for the call that `started` says is under way. Takes the caller's reference over if it fails. */
static choir_status call_wait(const struct ch_pmix *pmix, struct call *call, int started,
                              const char *what, const struct ch_patience *patience)
{
    choir_status rc = CHOIR_OK;

    if (started == CH_PMIX_SUCCESS) {
        rc = ch_patience_wait(patience, call->fd, POLLIN, what);
        /* Acquire, pairs with the release in call_back(). */
        if (rc == CHOIR_OK && !atomic_load_explicit(&call->done, memory_order_acquire))
            rc = ch_fail(CHOIR_ERR_SYSTEM, "%s: its eventfd is ready, but nobody called back",
                         what);
        if (rc == CHOIR_OK && call->status != CH_PMIX_SUCCESS)
            rc = refused(pmix, call->status, what);
    } else {
        call_unref(call); /* libpmix's: it will not call back */
        if (started != CH_PMIX_OPERATION_SUCCEEDED)
            rc = refused(pmix, started, what);
    }
    if (rc != CHOIR_OK)
        call_unref(call);
    return rc;
}

/* One fence. *partial_out: it came to an end without some of the ranks. */
static choir_status meet_once(const struct ch_pmix *pmix, const struct ch_patience *patience,
                              bool *partial_out)
{
    struct call *call;
    choir_status rc = call_create(&call);
    int started;

    if (rc != CHOIR_OK)
        return rc;
    ch_ref_get(&call->ref); /* libpmix's */
    ch_ref_get(&call->ref); /* call_wait()'s, if it fails */
    started = pmix->calls.PMIx_Fence_nb(NULL, 0, NULL, 0, call_back, call);
    rc = call_wait(pmix, call, started, "all ranks to meet at the launcher's fence", patience);
    /* Acquire, pairs with the release in call_back(). */
    *partial_out = atomic_load_explicit(&call->done, memory_order_acquire) &&
                   call->status == CH_PMIX_PARTIAL_SUCCESS;
    call_unref(call);
    if (rc == CHOIR_OK)
        call_unref(call);
    return rc;
}

/* A while in which nothing is to come. */
static void pause_for(int64_t ms, const struct ch_patience *patience)
{
    struct ch_patience brief = *patience;
    ch_deadline end = ch_deadline_ms(ms);

    if (end < brief.until)
        brief.until = end;
    (void)ch_patience_wait(&brief, -1, 0, "another fence");
}

/* Who comes here behind MPI's end, which finalised PMIx too, may find others still in theirs: the launcher takes
 * them for gone, and ends the fence without them. They come yet: so for a while it is tried again. */
static choir_status meet(const struct ch_pmix *pmix, const struct ch_patience *patience)
{
    enum { TRY_FOR_MS = 1000, PAUSE_MS = 10 };
    ch_deadline end = ch_deadline_ms(TRY_FOR_MS);
    bool partial = false;
    choir_status rc;

    do {
        choir_error last;

        if (partial) {
            ch_error_save(&last);
            pause_for(PAUSE_MS, patience);
            ch_error_load(&last);
        }
        rc = meet_once(pmix, patience, &partial);
    } while (rc != CHOIR_OK && partial && !ch_deadline_passed(end) &&
             !ch_deadline_passed(patience->until));
    return rc;
}

/* Get `key` of `rank`. *call_out holds it, to be ended by call_unref(). */
static choir_status get(const struct ch_pmix *pmix, uint32_t rank, const char *key, uint16_t type,
                        const char *what, const struct ch_patience *patience,
                        struct call **call_out)
{
    struct ch_pmix_proc whose = pmix->me;
    struct call *call;
    choir_status rc = call_create(&call);
    int started;

    if (rc != CHOIR_OK)
        return rc;
    whose.rank = rank;
    ch_ref_get(&call->ref);
    started = pmix->calls.PMIx_Get_nb(&whose, key, NULL, 0, call_back_value, call);
    rc = call_wait(pmix, call, started, what, patience);
    if (rc != CHOIR_OK)
        return rc;
    if (call->type != type || call->is_too_long) {
        rc = ch_fail(CHOIR_ERR_PROTO, "%s: PMIx has %s of type %d, expected type %d", what,
                     call->is_too_long ? "a too long value" : "a value", call->type, type);
        call_unref(call);
        return rc;
    }
    *call_out = call;
    return CHOIR_OK;
}

/* --- open, share, close ------------------------------------------------------------------------- */

static choir_status find_size(const struct ch_pmix *pmix, const struct ch_patience *patience,
                              int *size_out)
{
    struct call *call;
    choir_status rc = get(pmix, CH_PMIX_RANK_WILDCARD, CH_PMIX_JOB_SIZE, CH_PMIX_UINT32,
                          "the number of ranks", patience, &call);

    if (rc != CHOIR_OK)
        return rc;
    *size_out = call->number <= INT32_MAX ? (int)call->number : -1;
    call_unref(call);
    return CHOIR_OK;
}

/* The first of the process to initialise PMIx keeps it until exit; see above. */
static choir_status keep_until_exit(const struct ch_pmix *pmix)
{
    bool is_installed = the_pmix.finalize != NULL && the_pmix.pid == getpid();

    the_pmix.finalize = pmix->calls.PMIx_Finalize;
    the_pmix.pid = getpid();
    if (!is_installed && atexit(finalize_at_exit) != 0)
        return ch_fail(CHOIR_ERR_NOMEM, "PMIx: no memory for a handler at exit");
    return CHOIR_OK;
}

choir_status ch_pmix_open(struct ch_pmix *pmix, const struct ch_patience *patience, int *rank_out,
                          int *size_out)
{
    choir_status rc = CHOIR_OK;
    int status;

    pmix->was_open = pmix->calls.PMIx_Initialized() != 0;
    status = pmix->calls.PMIx_Init(&pmix->me, NULL, 0);
    if (status != CH_PMIX_SUCCESS)
        return refused(pmix, status, "reach the launcher");
    pmix->is_open = true;
    if (!pmix->was_open)
        rc = keep_until_exit(pmix);
    if (rc == CHOIR_OK)
        rc = find_size(pmix, patience, size_out);
    if (rc == CHOIR_OK)
        *rank_out = pmix->me.rank <= INT32_MAX ? (int)pmix->me.rank : -1;
    return rc;
}

void ch_pmix_close(struct ch_pmix *pmix)
{
    if (pmix->is_open && pmix->was_open)
        pmix->calls.PMIx_Finalize(NULL, 0); /* one count less; not the last */
    pmix->is_open = false;
}

static choir_status put(const struct ch_pmix *pmix, const char *key, const char *value)
{
    struct ch_pmix_value put = { .type = CH_PMIX_STRING, .data.string = (char *)value };
    int status = pmix->calls.PMIx_Put(CH_PMIX_GLOBAL, key, &put);

    if (status == CH_PMIX_SUCCESS)
        status = pmix->calls.PMIx_Commit();
    return status == CH_PMIX_SUCCESS ? CHOIR_OK : refused(pmix, status, "store a value");
}

choir_status ch_pmix_share(struct ch_pmix *pmix, const char *key, const char *value, char *text_out,
                           const struct ch_patience *patience)
{
    struct call *call;
    choir_status rc = value != NULL ? put(pmix, key, value) : CHOIR_OK;

    if (rc == CHOIR_OK)
        rc = meet(pmix, patience);
    if (rc == CHOIR_OK)
        rc = get(pmix, 0, key, CH_PMIX_STRING, "the value that rank 0 put", patience, &call);
    if (rc != CHOIR_OK)
        return rc;
    memcpy(text_out, call->text, sizeof(call->text));
    call_unref(call);
    return CHOIR_OK;
}

/* --- the kind ----------------------------------------------------------------------------------- */

/* Both: one without the other is somebody's leftover. */
static bool pmix_present(void)
{
    return getenv("PMIX_NAMESPACE") != NULL && getenv("PMIX_RANK") != NULL;
}

static choir_status load(struct ch_pmix_calls *calls)
{
    static const char file[] = "libpmix.so.2";
    void *lib = ch_sys_dlopen(file);
    const char *why = NULL;

    if (lib == NULL) {
        why = dlerror();
        return ch_fail(
            CHOIR_ERR_UNSUPPORTED,
            "the launcher speaks PMIx, and %s cannot be loaded (%s); if it is elsewhere, "
            "LD_LIBRARY_PATH can say where",
            file, why != NULL ? why : "no reason given");
    }
#define LOAD(name, ret, params)                                                                    \
    calls->name = (ret(*) params)ch_sys_dlsym(lib, #name);                                         \
    if (calls->name == NULL)                                                                       \
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "%s has no %s: it is too old", file, #name);
    CH_PMIX_CALLS(LOAD)
#undef LOAD
    return CHOIR_OK;
}

static choir_status pmix_open(void *self, const struct ch_patience *patience, int *rank_out,
                              int *size_out)
{
    struct ch_pmix *pmix = self;
    choir_status rc = load(&pmix->calls);

    return rc == CHOIR_OK ? ch_pmix_open(pmix, patience, rank_out, size_out) : rc;
}

static choir_status pmix_share(void *self, const char *key, const char *value, char *text_out,
                               const struct ch_patience *patience)
{
    return ch_pmix_share(self, key, value, text_out, patience);
}

static void pmix_close(void *self)
{
    ch_pmix_close(self);
}

const struct ch_kvs_ops ch_kvs_pmix = {
    .name = "pmix",
    .self_size = sizeof(struct ch_pmix),
    .present = pmix_present,
    .open = pmix_open,
    .share = pmix_share,
    .close = pmix_close,
};
