/*
 * server.h - the server of a store: one event-loop thread, any number of connections, two protocols.
 *
 * server.c knows listeners, connections, buffers and limits, and no protocol. A protocol is a
 * struct ch_protocol: it looks at the bytes that have come, takes whole requests from their front, and
 * appends replies. Ours is serve_choir.c, PyTorch's serve_torch.c. Each has a table of its own.
 *
 * Everything here belongs to the server's thread.
 */
#ifndef CH_SERVER_H
#define CH_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>
#include <choir/store.h>

#include "io/patience.h"
#include "store/table.h"

struct ch_conn;

struct ch_protocol {
    const char *name;
    size_t state_size; /* each connection has that much, zeroed: ch_conn_state() */

    /* No request is longer. When that many bytes have come and received() takes none of them, the
     * connection is closed. Before ch_conn_admit() a small fixed buffer has to do. */
    size_t request_nbytes;

    /*
     * Some bytes have come. Take as many whole requests from the front as there are, and say how many
     * bytes that was; the rest is shown again when more has come, or, after ch_conn_is_full() has
     * said so, when the client has read what waits for it. Any error closes the connection
     * after what was appended so far is sent, with one rate-limited log line.
     */
    choir_status (*received)(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                             size_t *used_out);

    /* The connection is about to go: cancel its waits. Called once, if received() ever was. */
    void (*closed)(struct ch_conn *conn);
};

extern const struct ch_protocol ch_protocol_choir, ch_protocol_torch;

/* The protocol's own state of this connection. */
void *ch_conn_state(struct ch_conn *conn);

/* What this connection's protocol serves. */
struct ch_table *ch_conn_table(struct ch_conn *conn);
const choir_token *ch_conn_token(const struct ch_conn *conn);

/* "10.0.0.2:4711", for log lines. */
const char *ch_conn_peer(const struct ch_conn *conn);

/* Append to what is to be sent. It goes out when received() has returned, or, outside of it (a wait
 * that was served), at the end of the loop's turn. A client that does not read is not read from
 * either. Failure closes the connection, and needs no other care. For a client that has gone it does
 * nothing: requests that had come before are carried out all the same. */
choir_status ch_conn_append(struct ch_conn *conn, const void *bytes, size_t nbytes);

/* Whether what is appended can reach the client: ask before giving it what nobody else will get. */
bool ch_conn_hears(const struct ch_conn *conn);

/* So much waits to be sent that the client has to read first. Ask before each request and stop taking
 * them when it says true: a few bytes of requests can ask for gigabytes of replies. */
bool ch_conn_is_full(const struct ch_conn *conn);

/* The peer has proved that it belongs: from now on the connection may use the heap, does not count
 * as a stranger, and its hello timer is stopped. */
choir_status ch_conn_admit(struct ch_conn *conn);

/* choir_store_server_create() with other limits, for tests. */
choir_status ch_store_server_create(const choir_store_server_create_opts *opts,
                                    const struct ch_table_limits *limits,
                                    choir_store_server **server_out);

/* Take no new connections any more, those there are stay; its addresses are free for others when this
 * returns. Once in a server's life.
 * Blocks: until the server's thread has done it. The waiter must outlive the server if it fails. */
choir_status ch_store_server_stop_listening(choir_store_server *server,
                                            const struct ch_patience *patience);

#endif
