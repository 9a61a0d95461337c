/*
 * comm.h - a communicator: a group, its own reductions, and who is using it just now.
 *
 *   OPEN --[finalize]--> FINAL --[close, destroy]--> CLOSED
 *
 * Calls come only into one that is open. The group ends when it is closed and the last call has left, by whoever
 * comes last; so neither a capsule that is collected nor another thread can take it from under a call.
 */
#ifndef CH_COMM_H
#define CH_COMM_H

#include <choir/comm.h>

#include "base/list.h"
#include "base/lock.h"

enum { CH_COMM_REDOPS = 64 }; /* that one communicator has at a time */

/* A number is the communicator's (15 bits), the place + 1 and the turn of that place (8 bits each). */
struct ch_comm_redop {
    bool used;
    uint8_t turn;
    choir_type type;
    double factor;
    const void *lent; /* where the factor is; NULL: in `factor` */
};

enum ch_comm_state { CH_COMM_OPEN, CH_COMM_FINAL, CH_COMM_CLOSED };

struct choir_comm {
    choir_group *group; /* until the last has left */
    int rank, nranks;
    struct ch_list link; /* of all that exist; under the list's lock */
    uint32_t number;     /* tells its reductions from others' */
    struct ch_lock lock; /* what follows */
    enum ch_comm_state state;
    unsigned nusing; /* calls under way, and its owner */
    struct ch_comm_redop redops[CH_COMM_REDOPS];
};

/* The group, which stays until ch_comm_leave(). CHOIR_ERR_STATE if it is not open. */
choir_status ch_comm_enter(choir_comm *comm, choir_group **group_out);
void ch_comm_leave(choir_comm *comm);

/* What `op` means on `comm`, NULL if there is none: in the library's terms. CHOIR_ERR_INVALID, with its text, if it means
 * nothing there. */
choir_status ch_comm_redop(choir_comm *comm, int op, choir_type type, choir_redop *redop_out,
                           double *factor_out);

#endif
