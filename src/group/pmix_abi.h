/*
 * pmix_abi.h - the few calls of libpmix that we make, as the PMIx Standard lays them out.
 *
 * Declared here so that a build does not need PMIx's headers and the library never links with it:
 * it is loaded when a launcher that speaks PMIx started us. Everything passed is a scalar, a string,
 * a struct ch_pmix_proc or a struct ch_pmix_value, which did not change since PMIx 2 (libpmix.so.2).
 * pmix_abi_test.c compares with PMIx's own headers, where they are installed.
 */
#ifndef CH_PMIX_ABI_H
#define CH_PMIX_ABI_H

#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "io/patience.h"

enum {
    CH_PMIX_SUCCESS = 0,
    CH_PMIX_PARTIAL_SUCCESS = -52,      /* of a fence: without those that have finalised */
    CH_PMIX_OPERATION_SUCCEEDED = -157, /* done already: there will be no call back */
    CH_PMIX_STRING = 3,                 /* types of a value */
    CH_PMIX_UINT32 = 14,
    CH_PMIX_GLOBAL = 3, /* a scope: for the ranks of all hosts */
};

#define CH_PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define CH_PMIX_JOB_SIZE      "pmix.job.size"

struct ch_pmix_proc {
    char nspace[256];
    uint32_t rank;
};

struct ch_pmix_value {
    uint16_t type;
    union {
        char *string;
        uint32_t uint32;
        uint64_t room[8]; /* more than any version's: what libpmix reads is ours */
    } data;
};

typedef void (*ch_pmix_op_fn)(int status, void *arg);
typedef void (*ch_pmix_value_fn)(int status, struct ch_pmix_value *value, void *arg);

/* CH_PMIX_CALL(name, return type, (parameters)) */
#define CH_PMIX_CALLS(CALL)                                                                        \
    CALL(PMIx_Init, int, (struct ch_pmix_proc * me_out, void *info, size_t ninfo))                 \
    CALL(PMIx_Finalize, int, (const void *info, size_t ninfo))                                     \
    CALL(PMIx_Initialized, int, (void))                                                            \
    CALL(PMIx_Put, int, (uint8_t scope, const char *key, struct ch_pmix_value *value))             \
    CALL(PMIx_Commit, int, (void))                                                                 \
    CALL(PMIx_Fence_nb, int,                                                                       \
         (const struct ch_pmix_proc *procs, size_t nprocs, const void *info, size_t ninfo,         \
          ch_pmix_op_fn done, void *arg))                                                          \
    CALL(PMIx_Get_nb, int,                                                                         \
         (const struct ch_pmix_proc *proc, const char *key, const void *info, size_t ninfo,        \
          ch_pmix_value_fn done, void *arg))                                                       \
    CALL(PMIx_Error_string, const char *, (int status))

struct ch_pmix_calls {
#define CH_PMIX_MEMBER(name, ret, params) ret(*name) params;
    CH_PMIX_CALLS(CH_PMIX_MEMBER)
#undef CH_PMIX_MEMBER
};

/* One process's use of it; kvs_pmix.c, which tests give other calls. */
struct ch_pmix {
    struct ch_pmix_calls calls;
    struct ch_pmix_proc me;
    bool is_open;
    bool was_open; /* by somebody else, before us */
};

/* With `calls` set. */
choir_status ch_pmix_open(struct ch_pmix *pmix, const struct ch_patience *patience, int *rank_out,
                          int *size_out);
choir_status ch_pmix_share(struct ch_pmix *pmix, const char *key, const char *value, char *text_out,
                           const struct ch_patience *patience);
void ch_pmix_close(struct ch_pmix *pmix);

#endif
