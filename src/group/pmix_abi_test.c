/* pmix_abi_test.c - what we believe of libpmix against its own headers, where they are installed. */
#include "group/pmix_abi.h"

#include "choir_test.h"

#ifdef CH_HAVE_PMIX_H
#include <pmix.h>

CHOIR_TEST(numbers_are_those_of_the_headers)
{
    CHOIR_CHECK_EQ(CH_PMIX_SUCCESS, PMIX_SUCCESS);
    CHOIR_CHECK_EQ(CH_PMIX_OPERATION_SUCCEEDED, PMIX_OPERATION_SUCCEEDED);
    CHOIR_CHECK_EQ(CH_PMIX_PARTIAL_SUCCESS, PMIX_ERR_PARTIAL_SUCCESS);
    CHOIR_CHECK_EQ(CH_PMIX_STRING, PMIX_STRING);
    CHOIR_CHECK_EQ(CH_PMIX_UINT32, PMIX_UINT32);
    CHOIR_CHECK_EQ(CH_PMIX_GLOBAL, PMIX_GLOBAL);
    CHOIR_CHECK_EQ(CH_PMIX_RANK_WILDCARD, (uint32_t)(PMIX_RANK_WILDCARD));
    CHOIR_CHECK_STR(CH_PMIX_JOB_SIZE, PMIX_JOB_SIZE);
}

CHOIR_TEST(structs_are_those_of_the_headers)
{
    CHOIR_CHECK_EQ(sizeof(struct ch_pmix_proc), sizeof(pmix_proc_t));
    CHOIR_CHECK_EQ(offsetof(struct ch_pmix_proc, rank), offsetof(pmix_proc_t, rank));
    CHOIR_CHECK_EQ(sizeof(((pmix_value_t *)NULL)->type),
                   sizeof(((struct ch_pmix_value *)NULL)->type));
    CHOIR_CHECK_EQ(offsetof(struct ch_pmix_value, data), offsetof(pmix_value_t, data));
    CHOIR_CHECK_LE(sizeof(pmix_value_t), sizeof(struct ch_pmix_value));
    CHOIR_CHECK_EQ(sizeof(pmix_scope_t), sizeof(uint8_t));
    CHOIR_CHECK_EQ(sizeof(pmix_status_t), sizeof(int));
}

/* Compiles only if the calls are as we declare them, but for the names of the structs. */
CHOIR_TEST(calls_are_those_of_the_headers)
{
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t) = NULL;
    pmix_status_t (*finalize)(const pmix_info_t *, size_t) = NULL;
    int (*initialized)(void) = NULL;
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *) = NULL;
    pmix_status_t (*commit)(void) = NULL;
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t,
                           void (*)(pmix_status_t, void *), void *) = NULL;
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
                         void (*)(pmix_status_t, pmix_value_t *, void *), void *) = NULL;
    const char *(*error_string)(pmix_status_t) = NULL;

    CHOIR_CHECK(_Generic(&PMIx_Init, __typeof__(init) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Finalize, __typeof__(finalize) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Initialized, __typeof__(initialized) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Put, __typeof__(put) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Commit, __typeof__(commit) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Fence_nb, __typeof__(fence) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Get_nb, __typeof__(get) : true, default : false));
    CHOIR_CHECK(_Generic(&PMIx_Error_string, __typeof__(error_string) : true, default : false));
    (void)init, (void)finalize, (void)initialized, (void)put, (void)commit, (void)fence, (void)get;
    (void)error_string;
}

#else

CHOIR_TEST(our_view_is_that_of_the_headers)
{
    CHOIR_SKIP("pmix.h is not installed");
}

#endif
