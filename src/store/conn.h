/*
 * conn.h - the connections of a server: their memory, their buffers, their limits.
 *
 *              ch_conns_add()              ch_conn_admit()
 *   a free one --------------> a stranger ----------------> admitted
 *        ^                         |                            |
 *        +---[refused, silent for 2 s, gone, evicted]     [gone] +---> freed
 *
 * Strangers cost nothing: there is a fixed number of connections for them, made with the server, with
 * small fixed buffers. Who is admitted keeps its connection, and another is made in its place: so
 * free ones and strangers are always CH_STRANGERS together.
 *
 * Everything here belongs to the server's thread, or to whoever has joined it.
 */
#ifndef CH_CONN_H
#define CH_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "io/addr.h"
#include "io/loop.h"
#include "store/server.h"

enum {
    CH_STRANGERS = 256,        /* connections that have not proved themselves, at once */
    CH_HELLO_MS = 2000,        /* how long they have for it */
    CH_STRANGER_REST_MS = 100, /* how long a stranger is safe from one that wants its place */
    CH_CONN_FIXED = 512,       /* bytes that wait, in each direction, without the heap */
};

/* What a connection serves: a protocol, its table, the token it asks for (NULL: none). */
struct ch_service_point {
    const struct ch_protocol *protocol;
    struct ch_table *table;
    const choir_token *token;
    char address[CH_ADDR_TEXT_MAX]; /* where it listens, for log lines */
};

/* At most one line of log every few seconds, however many strangers come. */
struct ch_complaints {
    uint64_t last; /* when the last line was written, 0: never */
    uint64_t unsaid;
};

struct ch_conns {
    struct ch_loop *loop;
    struct ch_list free, admitted;
    struct ch_list strangers; /* the oldest first */
    struct ch_list unsettled; /* have something to send, or to end, when the callback is over */
    size_t nfree;
    size_t state_size;
    size_t buffered_nbytes; /* on the heap, for all connections together */
    unsigned char *scratch; /* where bytes arrive that are then all used up */
    struct ch_complaints complaints;
};

/* `state_size`: the largest of the protocols'. After a failure, and if zeroed, fini is fine. */
choir_status ch_conns_init(struct ch_conns *conns, struct ch_loop *loop, size_t state_size);
void ch_conns_fini(struct ch_conns *conns);

/* Whether ch_conns_add() will find a place: a free one, or that of a stranger who has had some time
 * already and is sent away for it. */
bool ch_conns_make_room(struct ch_conns *conns);

/* A connection was accepted. Takes `fd` over, also on failure. */
choir_status ch_conns_add(struct ch_conns *conns, const struct ch_service_point *point, int fd);

/* A line of log about trouble that others can make as often as they like. */
void ch_conns_complain(struct ch_conns *conns, const struct ch_service_point *point,
                       const char *peer, const char *trouble);

#endif
