/*
 * meet.h - open the store in which the ranks of a job meet, whoever keeps it.
 */
#ifndef CH_MEET_H
#define CH_MEET_H

#include <choir/status.h>
#include <choir/store.h>

#include "base/clock.h"
#include "group/environ.h"
#include "io/addr.h"
#include "io/patience.h"

struct ch_meeting_place {
    choir_store *store;
    choir_store_server *server;     /* rank 0's, where there is no launcher to keep it; else NULL */
    bool kept_by_rank0;             /* there is such a server, here or in rank 0 */
    char address[CH_ADDR_TEXT_MAX]; /* where others reach this host, without a port */
    char story[256];                /* for people: where we met and where the token is from */
};

/* `place` is zeroed; end it with ch_part() also after a failure. */
choir_status ch_meet(const struct ch_whereabouts *where, const struct ch_patience *patience,
                     struct ch_meeting_place *place);

/* The same through a word that the caller carries from rank 0 to the others (choir_init_opts). */
choir_status ch_meet_carried(const struct ch_whereabouts *where, const choir_init_opts *opts,
                             const struct ch_patience *patience, struct ch_meeting_place *place);

void ch_part(struct ch_meeting_place *place);

#endif
