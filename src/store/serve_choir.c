/*
 * serve_choir.c - the server's side of Choir's own protocol.
 */
#include "base/error.h"
#include "store/server.h"

static choir_status received(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                             size_t *used_out)
{
    (void)bytes;
    *used_out = nbytes;
    return ch_fail(CHOIR_ERR_UNSUPPORTED, "Choir's own protocol is not served yet, to %s",
                   ch_conn_peer(conn));
}

static void closed(struct ch_conn *conn)
{
    (void)conn;
}

const struct ch_protocol ch_protocol_choir = {
    .name = "choir",
    .request_nbytes = 512,
    .received = received,
    .closed = closed,
};
