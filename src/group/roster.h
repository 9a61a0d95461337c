/*
 * roster.h - the ranks of a job meet in a store, and each learns the records of all.
 *
 * Keys, below the prefix that the caller's handle has:
 *
 *   first       the record of whoever came first: later ones compare version, byte order and size
 *   rank/<r>    the record of rank r; who finds another's there claims a rank that is taken
 *   arrived     how many have joined
 *   known       the verdict: all records, or why it failed
 *   ready       how many have done what comes after (ch_roster_finish)
 *   done        the verdict on that
 *   left/<r>    rank r has heard its verdict; only where a rank serves the store
 *
 * A verdict is written once, by compare and set: the first cause wins and everybody hears it, those
 * who wait and those who come later.
 */
#ifndef CH_ROSTER_H
#define CH_ROSTER_H

#include <stdbool.h>

#include <choir/status.h>
#include <choir/store.h>

#include "base/clock.h"
#include "group/record.h"

/*
 * A store may see several meetings, one after the other, and keep what the earlier ones left. Ranks that
 * arrive below `scope` are counted: every full round of `nranks` is a meeting, with a prefix of its own.
 * `attempt` tells the tries of a launcher apart. *round_out ends with choir_store_close().
 */
choir_status ch_roster_round(choir_store *store, const char *scope, const char *attempt, int nranks,
                             choir_store **round_out);

/* Spent: this process was in that round already and it failed, so who tries again needs another; everybody else hears there
 * why it failed. */
struct ch_roster_entry {
    bool counted; /* as that rank, in this round: no other process came as it before */
    bool spent;
};

/*
 * Join as mine->rank of mine->nranks. `all_out` has room for mine->nranks records. *entry_out is written on failure, too.
 * Blocks:  until all have joined, one has failed, or `until`.
 * Errors:  see choir_init().
 */
choir_status ch_roster_join(choir_store *store, const struct ch_record *mine, ch_deadline until,
                            struct ch_record *all_out, struct ch_roster_entry *entry_out);

/* Asked now and then while others are waited for: CHOIR_OK, or why they will not all come, as this thread's
 * last error. */
struct ch_roster_watch {
    choir_status (*fn)(void *arg);
    void *arg;
};

/*
 * Tell the others how it went on after joining: `mine_went` is CHOIR_OK, or a failure whose text is this
 * thread's last error. Returns CHOIR_OK when it went well everywhere, otherwise the first failure.
 */
choir_status ch_roster_finish(choir_store *store, const struct ch_record *mine, ch_deadline until,
                              choir_status mine_went, const struct ch_roster_watch *watch);

/* After a meeting that went well: remove what nobody needs any more, each rank its share, so that a store which
 * sees many does not grow. */
void ch_roster_forget(choir_store *store, int rank, int nranks);

/*
 * Where one of the ranks serves the store, it must not end it before the others have heard their
 * verdicts. So each rank says when it has, well or not; and the one that serves lingers until all who
 * joined have said so, for two seconds at most. Who came second as a rank does not speak for the first. The answer to the last one's call leaves the server
 * together with the answer to the one that lingers.
 */
void ch_roster_leave(choir_store *store, int rank);
void ch_roster_linger(choir_store *store, int nranks);

#endif
