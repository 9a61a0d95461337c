/*
 * forked.h - a fork of a process that was using Choir must not touch what its parent owns.
 *
 * A data loader forks in every training job. If the library owned descriptors at the moment of the
 * fork, the child closes its copies at once (a peer that waits for a hang-up must not be fooled by
 * the child's copy), its segments are not mapped, and every call in it fails with CHOIR_ERR_FORKED.
 * A child of a process that had nothing open may use the library like any other process.
 */
#ifndef CH_FORKED_H
#define CH_FORKED_H

#include <stdbool.h>

#include <choir/status.h>

/* CHOIR_OK, or CHOIR_ERR_FORKED with its text set. Cheap: one relaxed load. */
choir_status ch_forked(void);

/* The bare question, for places that must not touch the error record. */
bool ch_is_forked(void);

/* No fork happens between the two, in any thread: for what a child must not find half done (a
 * descriptor not yet marked, a mapping not yet kept from it, a record half written). Short, no
 * blocking, no user code, not nested. False, with errno set and nothing held, if the fork handlers
 * cannot be installed; try_hold() also if it would have to wait. */
bool ch_fork_hold(void);
bool ch_fork_try_hold(void);
void ch_fork_release(void);

/* Install the fork handlers; called by the ch_sys_ layer before its first descriptor. Idempotent.
 * False, with errno set, if they could not be installed. */
bool ch_forked_watch(void);

#endif
