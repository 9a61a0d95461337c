/*
 * threadend.h - where ranks are threads: one that ends with its groups open is dead.
 *
 * Of processes the kernel tells (engine/watch.h); of a thread only itself can, on its way out.
 */
#ifndef CH_THREADEND_H
#define CH_THREADEND_H

#include "group/context.h"

/* The calling thread has joined as the rank of `context`. If others of its ranks are in this process, it is watched
 * from now on: groups of this rank that are still open when it ends fail, on all members, with CHOIR_ERR_DEAD. */
void ch_threadend_watch(struct ch_context *context);

#endif
