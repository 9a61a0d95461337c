/*
 * flight.h - the flight record: the last operations of a rank, always on, for the day when one hangs.
 *
 *   flight = ch_flight_create(rank)                        with the rank's context
 *   fg = ch_flight_group_open(flight, name, ...)           with each group
 *
 *   record = ch_flight_issue(fg, &info, call->issued);     with each operation
 *   ch_flight_started(fg, record, call->began);
 *   ch_flight_done(fg, record, call->ended, status, peer);
 *
 * A ring of fixed size (CHOIR_TRACE_OPERATIONS): an operation overwrites the one that many before. Writing takes
 * no lock, allocates nothing and reads no clock; times are the caller's ch_now(). Reading (flight_dump.h) never
 * holds a writer up. Losing count of an operation that was overwritten while it was under way is fine.
 *
 * Nothing here fails in a way that matters to an operation: a NULL group or a record of 0 is ignored.
 */
#ifndef CH_FLIGHT_H
#define CH_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/coll.h>
#include <choir/work.h>

struct ch_flight;       /* of one rank; all of a process are found by choir_trace_dump() */
struct ch_flight_group; /* what is known of a group while its operations are in the ring */

/* `rank` is the one of the first group, by which files are named. Without CHOIR_TRACE_OPERATIONS *flight_out is
 * NULL, which all calls here take: nothing is recorded.
 * Errors:  CHOIR_ERR_NOMEM only. */
choir_status ch_flight_create(int rank, struct ch_flight **flight_out);

/* All groups are closed. Accepts NULL. */
void ch_flight_destroy(struct ch_flight *flight);

/* `ranks` are those of the first group that are members, in order; NULL: 0 to nranks - 1. `rank` is ours among the
 * members. Everything is copied. `timeout_ms` of operations is told with each.
 * Threads: any.
 * Errors:  CHOIR_ERR_NOMEM only. *group_out is NULL if nothing is recorded. */
choir_status ch_flight_group_open(struct ch_flight *flight, const char *name, const char *desc,
                                  const int *ranks, int nranks, int rank,
                                  struct ch_flight_group **group_out);

/* Its operations are over. What is recorded of them stays until it is overwritten. Accepts NULL. */
void ch_flight_group_close(struct ch_flight_group *group);

/* An operation as it is issued; everything is lent for the call alone. */
struct ch_flight_info {
    choir_optype op;
    bool is_p2p;
    uint64_t collective_seq, p2p_seq; /* the group's counters, this operation included */
    uint64_t op_id;                   /* counts every operation, also those inside of batches */
    int64_t timeout_ms;               /* what it has in the end; negative: none */
    bool reduces, has_root;           /* whether the next two mean something */
    choir_redop redop;
    int root;
    int peer, tag; /* sends and receives: a rank of the group, -1 any */
    const choir_buf *ins, *outs;
    size_t nins, nouts;
};

/*
 * Record an operation: "scheduled". Returns its number for the two calls below, 0 if nothing is recorded.
 * Threads: any, at once.
 */
uint64_t ch_flight_issue(struct ch_flight_group *group, const struct ch_flight_info *info,
                         uint64_t now);

/* What most collectives are: of one array on each side (0 elements: none), started when it is issued. */
struct ch_flight_plain {
    choir_optype op;
    choir_type type;
    size_t in_count, out_count;
    uint64_t collective_seq, p2p_seq;
    int64_t timeout_ms;
    choir_redop redop;
    int root;
    bool reduces, has_root;
};

/* The same as issue and started, in fewer steps. `group` is not NULL. */
uint64_t ch_flight_start_plain(struct ch_flight_group *group, const struct ch_flight_plain *op,
                               uint64_t now);

/* A send or receive of one array that has elements. */
struct ch_flight_message {
    choir_optype op; /* CHOIR_OP_SEND or CHOIR_OP_RECV */
    choir_type type;
    size_t count;
    int64_t timeout_ms;
    int peer, tag;
    bool over; /* it was done, well, before it was recorded */
};

/* Several of them, issued at once. */
struct ch_flight_moment {
    uint64_t collective_seq;
    uint64_t p2p_seq; /* of the first; the others follow it */
    uint64_t issued;
};

/* The same as ch_flight_start_plain() for all of them, and as ch_flight_done() if all went well. Their records' numbers
 * follow the first's, which is returned. `group` is not NULL. */
uint64_t ch_flight_start_messages(struct ch_flight_group *group,
                                  const struct ch_flight_message *messages, size_t count,
                                  const struct ch_flight_moment *when);
void ch_flight_messages_done(struct ch_flight_group *group, uint64_t first, size_t count,
                             uint64_t now);

/* It is being carried out: "started". */
void ch_flight_started(struct ch_flight_group *group, uint64_t record, uint64_t now);

/* It is over: "completed" if well; otherwise it stays in the state it failed in, with the failure's name. `peer` is
 * the source of a receive from any rank, -1 otherwise.
 * Threads: the calls about one operation come one after the other. */
void ch_flight_done(struct ch_flight_group *group, uint64_t record, uint64_t now,
                    choir_status status, int peer);

/*
 * The group failed with `why`: the first time that a group says so its rank's record goes to the files that
 * CHOIR_TRACE_DIR and TORCH_FR_DUMP_TEMP_FILE ask for (flight_file.h), if they do. What goes wrong is logged.
 * Threads: any; not with a lock held.
 * Blocks:  while it writes.
 */
void ch_flight_failed(struct ch_flight_group *group, const choir_error *why);

#endif
