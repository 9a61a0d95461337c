/*
 * reduce_local.c - choir_reduce_local(): the public face of the kernels, which checks everything.
 */
#include <choir/reduce.h>

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernel/kernel.h"

/* The fields up to and including `op` are as old as the call; later ones may be missing. */
#define HAS(opts, field)                                                                           \
    ((opts)->size >= offsetof(choir_reduce_local_opts, field) + sizeof((opts)->field))

static choir_status read_opts(const choir_reduce_local_opts *opts, size_t nsrcs,
                              struct ch_reduction *r)
{
    if (opts == NULL)
        return CHOIR_OK;
    if (!HAS(opts, op))
        return ch_fail(CHOIR_ERR_INVALID,
                       "reduce_local: opts->size is %zu; set it with CHOIR_OPTS()", opts->size);
    r->op = opts->op;
    if (HAS(opts, divisor) && opts->divisor != 0)
        r->divisor = opts->divisor;
    if (HAS(opts, factors))
        r->factors = opts->factors;
    if (r->op == CHOIR_PREMUL_SUM && r->factors == NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "reduce_local: premul-sum needs opts->factors, one for each of %zu sources",
                       nsrcs);
    return CHOIR_OK;
}

/* Partly is the word: the very same buffer is fine, and so is none in common. */
static bool overlaps_partly(const void *a, const void *b, size_t nbytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    uintptr_t apart = x < y ? y - x : x - y;

    return apart != 0 && apart < nbytes;
}

static choir_status check_buffers(const void *dst, const void *const *srcs, size_t nsrcs,
                                  size_t nbytes)
{
    if (dst == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "reduce_local: dst is NULL");
    for (size_t i = 0; i < nsrcs; i++) {
        if (srcs[i] == NULL)
            return ch_fail(CHOIR_ERR_INVALID, "reduce_local: srcs[%zu] is NULL", i);
        if (overlaps_partly(dst, srcs[i], nbytes))
            return ch_fail(CHOIR_ERR_INVALID,
                           "reduce_local: dst and srcs[%zu] overlap partly; they may only be the "
                           "same or apart",
                           i);
    }
    return CHOIR_OK;
}

choir_status choir_reduce_local(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                                choir_type type, const choir_reduce_local_opts *opts)
{
    struct ch_reduction r = { .type = type, .op = CHOIR_SUM, .divisor = nsrcs };
    choir_status rc;

    if (srcs == NULL || nsrcs == 0)
        return ch_fail(CHOIR_ERR_INVALID, "reduce_local: there is no source");
    rc = read_opts(opts, nsrcs, &r);
    if (rc != CHOIR_OK)
        return rc;
    rc = choir_redop_check(r.op, type);
    if (rc != CHOIR_OK) {
        ch_error_prefix("reduce_local: ");
        return rc;
    }
    if (count > SIZE_MAX / choir_type_size(type))
        return ch_fail(CHOIR_ERR_INVALID, "reduce_local: %zu elements of %s are more than memory",
                       count, choir_type_name(type));
    if (count == 0)
        return CHOIR_OK;
    rc = check_buffers(dst, srcs, nsrcs, count * choir_type_size(type));
    if (rc != CHOIR_OK)
        return rc;
    ch_reduce(&r, &dst, 1, srcs, nsrcs, count);
    return CHOIR_OK;
}
