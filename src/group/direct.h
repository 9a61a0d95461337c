/*
 * direct.h - the short way: a collective that is done on return and has nothing in its way.
 *
 * Most calls are like that: no handle, no batch, no hook, memory in one piece, and nothing of this rank before them
 * in the group. Such a call needs no queue and no struct ch_call: its caller takes the group's token, runs the
 * operation and gives the token back. All else, and whatever looks wrong, goes the long way (call.h), which does
 * the same and has the words for errors.
 *
 *   if (ch_direct_may(group, opts, work_out) && it_is_plain) {
 *       struct ch_op op = ...;
 *
 *       if (ch_direct_run(group, &op, "choir_allreduce", opts, &rc))
 *           return rc;
 *   }
 *   ... the long way
 */
#ifndef CH_DIRECT_H
#define CH_DIRECT_H

#include "base/forked.h"
#include "group/args.h"
#include "group/group.h"
#include "group/memory.h"
#include "kernel/kernel.h"

/* Whether the short way is worth a look. */
static inline bool ch_direct_may(const choir_group *group, const choir_coll_opts *opts,
                                 choir_work *const *work_out)
{
    return work_out == NULL && group != NULL && group->direct &&
           (opts == NULL || (opts->size == sizeof(*opts) && opts->algo == NULL)) &&
           atomic_load_explicit(&group->batch_owner, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&group->nbatches, memory_order_relaxed) == 0 &&
           !atomic_load_explicit(&group->hooked, memory_order_relaxed);
}

/* A buffer that is what most are: elements behind each other, and there are some. No type has 256 bytes, and a shift is
 * cheaper than a division. */
static inline bool ch_direct_buf(const choir_buf *buf)
{
    return buf->ndim == 0 && buf->count > 0 && buf->data != NULL &&
           (unsigned)buf->type < CHOIR_NTYPES && buf->count <= SIZE_MAX >> 9;
}

/* Two of them that do not touch. */
static inline bool ch_direct_apart(const void *a, size_t a_nbytes, const void *b, size_t b_nbytes)
{
    return (uintptr_t)a + a_nbytes <= (uintptr_t)b || (uintptr_t)b + b_nbytes <= (uintptr_t)a;
}

static inline bool ch_direct_reduces(const choir_coll_opts *opts, choir_type type)
{
    choir_redop op = opts != NULL ? opts->op : CHOIR_SUM;

    return (unsigned)op < CHOIR_NREDOPS && op != CHOIR_PREMUL_SUM &&
           ch_kernels()->reduce[type][op] != NULL;
}

static inline uint32_t ch_root_of(const choir_coll_opts *opts)
{
    return opts == NULL ? 0 : (uint32_t)opts->root;
}

static inline bool ch_direct_root(const choir_group *group, const choir_coll_opts *opts)
{
    return ch_root_of(opts) < (uint32_t)group->nranks;
}

/* True: it was run, and *rc_out is what came of it. False: nothing has happened. */
bool ch_direct_run(choir_group *group, struct ch_op *op, const char *name,
                   const choir_coll_opts *opts, choir_status *rc_out);

#endif
