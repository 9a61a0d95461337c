/* kvs_pmix_test.c - PMIx as its library may behave: well, at once, late, never, with errors and strange values. */
#include <pthread.h>

#include "group/kvs.h"
#include "group/pmix_abi.h"
#include "io/io_test.h"

/* One process's libpmix, which calls back from a thread of its own. */
static struct fake {
    int ninit;         /* PMIx_Init less PMIx_Finalize */
    int fence_returns; /* of PMIx_Fence_nb */
    int fence_status;  /* what it calls back with */
    int npartial;      /* so many fences end without all ranks, before the others */
    int init_returns, put_returns, commit_returns, get_returns, get_status;
    bool fence_is_late;                /* held back until fake_release() */
    struct ch_pmix_value size, *value; /* what gets give; `value` if not what was put */
    char put[CH_KVS_VALUE_TEXT_MAX];
    ch_pmix_op_fn late_fn;
    void *late_arg;
    pthread_t threads[256];
    int nthreads;
} fake;

struct later {
    int status;
    struct ch_pmix_value value;
    ch_pmix_op_fn op;
    ch_pmix_value_fn got;
    void *arg;
};

static void *call_later(void *arg)
{
    struct later *later = arg;

    if (later->op != NULL)
        later->op(later->status, later->arg);
    else
        later->got(later->status, &later->value, later->arg);
    free(later);
    return NULL;
}

static void from_a_thread(struct later what)
{
    struct later *later = malloc(sizeof(*later));

    CHOIR_CHECK(later != NULL && fake.nthreads < (int)CH_ARRAY_LEN(fake.threads));
    *later = what;
    CHOIR_CHECK_EQ(pthread_create(&fake.threads[fake.nthreads++], NULL, call_later, later), 0);
}

static int fake_init(struct ch_pmix_proc *me_out, void *info, size_t ninfo)
{
    CHOIR_CHECK(info == NULL && ninfo == 0);
    if (fake.init_returns != 0)
        return fake.init_returns;
    *me_out = (struct ch_pmix_proc){ .nspace = "job", .rank = 0 };
    fake.ninit++;
    return 0;
}

static int fake_finalize(const void *info, size_t ninfo)
{
    CHOIR_CHECK(info == NULL && ninfo == 0);
    fake.ninit--;
    return 0;
}

static int fake_initialized(void)
{
    return fake.ninit > 0;
}

static int fake_put(uint8_t scope, const char *key, struct ch_pmix_value *value)
{
    CHOIR_CHECK_EQ(scope, CH_PMIX_GLOBAL);
    CHOIR_CHECK_STR(key, "key");
    CHOIR_CHECK_EQ(value->type, CH_PMIX_STRING);
    snprintf(fake.put, sizeof(fake.put), "%s", value->data.string);
    return fake.put_returns;
}

static int fake_commit(void)
{
    return fake.commit_returns;
}

static int fake_fence(const struct ch_pmix_proc *procs, size_t nprocs, const void *info,
                      size_t ninfo, ch_pmix_op_fn done, void *arg)
{
    CHOIR_CHECK(procs == NULL && nprocs == 0 && info == NULL && ninfo == 0);
    if (fake.fence_returns != 0)
        return fake.fence_returns;
    if (fake.fence_is_late) {
        fake.late_fn = done;
        fake.late_arg = arg;
        return 0;
    }
    from_a_thread(
        (struct later){ .status = fake.npartial-- > 0 ? CH_PMIX_PARTIAL_SUCCESS : fake.fence_status,
                        .op = done,
                        .arg = arg });
    return 0;
}

static int fake_get(const struct ch_pmix_proc *proc, const char *key, const void *info,
                    size_t ninfo, ch_pmix_value_fn done, void *arg)
{
    struct later later = { .got = done, .arg = arg };

    CHOIR_CHECK(info == NULL && ninfo == 0);
    CHOIR_CHECK_STR(proc->nspace, "job");
    if (strcmp(key, CH_PMIX_JOB_SIZE) == 0) {
        CHOIR_CHECK_EQ(proc->rank, CH_PMIX_RANK_WILDCARD);
        later.value = fake.size;
    } else {
        CHOIR_CHECK_EQ(proc->rank, 0);
        if (fake.get_returns != 0)
            return fake.get_returns;
        later.status = fake.get_status;
        later.value = (struct ch_pmix_value){ .type = CH_PMIX_STRING, .data.string = fake.put };
        if (fake.value != NULL)
            later.value = *fake.value;
    }
    from_a_thread(later);
    return 0;
}

static const char *fake_error_string(int status)
{
    return status == -1 ? "ERROR" : NULL;
}

static const struct ch_pmix_calls fake_calls = {
    .PMIx_Init = fake_init,
    .PMIx_Finalize = fake_finalize,
    .PMIx_Initialized = fake_initialized,
    .PMIx_Put = fake_put,
    .PMIx_Commit = fake_commit,
    .PMIx_Fence_nb = fake_fence,
    .PMIx_Get_nb = fake_get,
    .PMIx_Error_string = fake_error_string,
};

static void fake_start(void)
{
    int ninit = fake.ninit;

    memset(&fake, 0, sizeof(fake));
    fake.ninit = ninit; /* kept until exit, once initialised */
    fake.size = (struct ch_pmix_value){ .type = CH_PMIX_UINT32, .data.uint32 = 7 };
}

static void fake_release(void)
{
    if (fake.late_fn != NULL)
        from_a_thread((struct later){ .op = fake.late_fn, .arg = fake.late_arg });
    fake.late_fn = NULL;
}

static void fake_stop(void)
{
    fake_release();
    for (int i = 0; i < fake.nthreads; i++)
        pthread_join(fake.threads[i], NULL);
    fake.nthreads = 0;
}

/* One whole use, as the fake says; text_out as ch_pmix_share() leaves it. */
static choir_status use(int64_t ms, char *text_out)
{
    struct ch_pmix pmix = { .calls = fake_calls };
    struct rig rig;
    struct ch_patience patience;
    int rank = -1, size = -1;
    choir_status rc = rig_init(&rig);

    if (rc != CHOIR_OK)
        return rc;
    patience = patience_ms(&rig, ms);
    rc = ch_pmix_open(&pmix, &patience, &rank, &size);
    if (rc == CHOIR_OK) {
        CHOIR_CHECK_EQ(rank, 0);
        CHOIR_CHECK_EQ(size, 7);
        rc = ch_pmix_share(&pmix, "key", "6162", text_out, &patience);
    }
    ch_pmix_close(&pmix);
    rig_fini(&rig); /* before a late call back: it must not need the waiter */
    return rc;
}

static choir_status use_with_time(char *text_out)
{
    return use(10000 * (int64_t)choir_test_slowness(), text_out);
}

CHOIR_TEST(a_value_goes_round)
{
    char text[CH_KVS_VALUE_TEXT_MAX];

    fake_start();
    CHOIR_CHECK_OK(use_with_time(text));
    CHOIR_CHECK_STR(text, "6162");
    fake_stop();
    CHOIR_CHECK_EQ(fake.ninit, 1); /* until exit: MPI could not begin again */
    fake_start();
    CHOIR_CHECK_OK(use_with_time(text));
    fake_stop();
    CHOIR_CHECK_EQ(fake.ninit, 1); /* and no more than once */
}

CHOIR_TEST(what_mpi_initialised_stays_mpis)
{
    char text[CH_KVS_VALUE_TEXT_MAX];

    fake_start();
    fake.ninit = 1;
    CHOIR_CHECK_OK(use_with_time(text));
    CHOIR_CHECK_EQ(fake.ninit, 1);
    fake_stop();
}

CHOIR_TEST(a_fence_may_be_done_at_once)
{
    char text[CH_KVS_VALUE_TEXT_MAX];

    fake_start();
    fake.fence_returns = CH_PMIX_OPERATION_SUCCEEDED;
    CHOIR_CHECK_OK(use_with_time(text));
    CHOIR_CHECK_STR(text, "6162");
    fake_stop();
}

CHOIR_TEST(who_is_still_ending_mpi_is_waited_for)
{
    char text[CH_KVS_VALUE_TEXT_MAX];

    fake_start();
    fake.npartial = 3;
    CHOIR_CHECK_OK(use_with_time(text));
    CHOIR_CHECK_STR(text, "6162");
    fake_stop();
}

static char too_long[CH_KVS_VALUE_TEXT_MAX + 1];
static struct ch_pmix_value number = { .type = CH_PMIX_UINT32 }, null = { .type = CH_PMIX_STRING },
                            longer = { .type = CH_PMIX_STRING, .data.string = too_long };

static const struct {
    struct fake how;
    const char *text, *why;
} refusals[] = {
    { { .init_returns = -1 }, "reach the launcher: PMIx says ERROR (-1)", "no server" },
    { { .put_returns = -1 }, "store a value", "put" },
    { { .commit_returns = -25 }, "PMIx says ? (-25)", "commit, with a code that has no name" },
    { { .fence_returns = -1 }, "all ranks to meet", "fence, at once" },
    { { .fence_status = -52 }, "all ranks to meet", "fence, later: a rank ended" },
    { { .get_returns = -1 }, "the value that rank 0 put", "get, at once" },
    { { .get_returns = CH_PMIX_OPERATION_SUCCEEDED }, "of type 0", "get, done without a value" },
    { { .get_status = -46 }, "the value that rank 0 put", "get, later: not found" },
    { { .value = &number }, "of type 14, expected type 3", "not a text" },
    { { .value = &longer }, "a too long value", "longer than ours can be" },
};

CHOIR_TEST(a_refusal_is_an_error)
{
    char text[CH_KVS_VALUE_TEXT_MAX] = "untouched";

    memset(too_long, 'a', sizeof(too_long) - 1);
    for (size_t i = 0; i < CH_ARRAY_LEN(refusals); i++) {
        struct fake how = refusals[i].how;

        CHOIR_ROW("%s", refusals[i].why);
        fake_start();
        how.ninit = fake.ninit;
        how.size = fake.size;
        fake = how;
        CHOIR_CHECK_STATUS(use_with_time(text), CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(choir_last_error(), refusals[i].text);
        CHOIR_CHECK_STR(text, "untouched");
        fake_stop();
    }
    CHOIR_ROW("an empty pointer is an empty text");
    fake_start();
    fake.value = &null;
    CHOIR_CHECK_OK(use_with_time(text));
    CHOIR_CHECK_STR(text, "");
    fake_stop();
}

CHOIR_TEST(a_strange_number_of_ranks_is_an_error)
{
    struct ch_pmix pmix = { .calls = fake_calls };
    struct rig rig;
    struct ch_patience patience;
    int rank, size;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    fake_start();
    fake.size.data.uint32 = UINT32_MAX;
    CHOIR_CHECK_OK(ch_pmix_open(&pmix, &patience, &rank, &size));
    CHOIR_CHECK_EQ(size, -1); /* the core refuses it */
    ch_pmix_close(&pmix);
    fake.size.type = CH_PMIX_STRING;
    fake.size.data.string = NULL;
    pmix = (struct ch_pmix){ .calls = fake_calls };
    CHOIR_CHECK_STATUS(ch_pmix_open(&pmix, &patience, &rank, &size), CHOIR_ERR_PROTO);
    ch_pmix_close(&pmix);
    fake_stop();
    rig_fini(&rig);
}

CHOIR_TEST(a_late_call_back_harms_nobody)
{
    enum { SOON_MS = 100 };
    int64_t soon = SOON_MS * (int64_t)choir_test_slowness();
    char text[CH_KVS_VALUE_TEXT_MAX];
    uint64_t began;

    fake_start();
    fake.fence_is_late = true;
    began = ch_now();
    CHOIR_CHECK_STATUS(use(soon, text), CHOIR_ERR_TIMEOUT);
    check_took_about(began, soon);
    CHOIR_CHECK_HAS(choir_last_error(), "all ranks to meet at the launcher's fence");
    fake_stop(); /* releases it: the harness then sees that nothing is kept */
}

static choir_status scenario(void *arg)
{
    char text[CH_KVS_VALUE_TEXT_MAX];
    choir_status rc;

    (void)arg;
    fake_start();
    rc = use_with_time(text);
    fake_stop();
    return rc;
}

CHOIR_TEST(every_failing_call_of_pmix_is_an_error)
{
    choir_test_all_faults(scenario, NULL);
}

CHOIR_TEST(without_libpmix_the_error_says_so)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    setenv("PMIX_NAMESPACE", "job", 1);
    setenv("PMIX_RANK", "0", 1);
    CHOIR_CHECK_STR(ch_kvs_available(), "pmix");
    ch_fault_arm(CH_FAULT_dlopen, 1, 0);
    CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &kvs), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK(ch_fault_disarm());
    CHOIR_CHECK_HAS(choir_last_error(), "libpmix.so.2 cannot be loaded");
    rig_fini(&rig);
}
