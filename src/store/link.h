/*
 * link.h - a client's connection to a server of Choir's own protocol, shared by any number of threads.
 *
 * Who asks sends its request and waits for the reply; there is no thread for it. Of those who wait one
 * at a time is the reader: it receives, keeps what is its own, and hands the others theirs. When it has
 * its own it passes the role on. So a lone caller does everything itself, one send and one receive.
 *
 *   ch_link_ask()   send --> [wait: be the reader if nobody is] --> done
 *                                  |                                ^
 *                                  +---[the reader brings it]-------+
 *
 * Requests that want no reply (quiet ones) return as soon as the kernel has their bytes. Should the
 * server refuse one, it says so, and the next request of this link fails with that.
 *
 * A lost connection ends all that wait and all that come after with CHOIR_ERR_NETWORK.
 */
#ifndef CH_LINK_H
#define CH_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/list.h"
#include "base/lock.h"
#include "io/patience.h"
#include "store/hello.h"
#include "store/wire.h"

struct ch_link_call;

struct ch_link {
    struct ch_lock lock;
    int fd;              /* -1: not connected */
    const char *address; /* as given, for error texts; the link's own copy */
    struct ch_hello_limits limits;

    /* Under the lock. */
    struct ch_list calls; /* who waits, the first comer first */
    uint32_t next_id;
    uint64_t asked;            /* requests so far */
    uint64_t quiet, confirmed; /* number of the last quiet one, and of the last that was answered */
    unsigned char *out;        /* bytes that the kernel had no room for yet */
    size_t out_start, out_end, out_room;
    choir_error broken; /* its code is CHOIR_OK as long as the connection is fine */
    choir_error late;   /* what became of a quiet request; CHOIR_OK: nothing to report */

    /* Written under the lock; read without it by those who wait, which is why they are atomic: who
     * acts on what it saw takes the lock and looks again. */
    _Atomic(struct ch_link_call *) reader;
    _Atomic size_t unsent;

    /* The reader's. */
    unsigned char *in; /* IN_ROOM bytes */
    size_t in_start, in_end;
    struct ch_wire_head big; /* a reply longer than `in`: its head, */
    unsigned char *body;     /* its body so far, NULL if there was no memory for it, */
    size_t body_room;        /* which grows as it comes: its length is only said, */
    size_t body_got;         /* and how much of it has come */
    bool is_big;
};

struct ch_ask {
    enum ch_op op;
    bool quiet;
    uint64_t number;
    const choir_bytes *items;
    size_t nitems;
    const choir_bytes *values; /* if not NULL one goes behind each item */

    /* The reply has come: keep what is wanted of it in *out. Called in whatever thread reads, with the
     * link's lock held. NULL: it says nothing. */
    choir_status (*take)(const struct ch_message *reply, void *out);
    void *out;
};

/* A link without a connection, which whoever tests it puts into `fd`. After a failure close is fine. */
choir_status ch_link_init(struct ch_link *link, const char *address);

/* Connect to "host:port" and say hello; a server that is not there is tried again until patience ends.
 * After a failure, and if zeroed, close is fine. */
choir_status ch_link_open(struct ch_link *link, const char *address, const choir_token *token,
                          const struct ch_patience *patience);

/* Sees for up to two seconds that quiet requests have arrived. */
void ch_link_close(struct ch_link *link);

choir_status ch_link_ask(struct ch_link *link, const struct ch_ask *ask,
                         const struct ch_patience *patience);

#endif
