/*
 * torch_request_fuzz.c - PyTorch's protocol as anybody might speak it to our server.
 *
 * The input is what four connections do in turn: a byte that names the connection and how it begins,
 * a byte of how many bytes it sends now (0: it closes), these bytes. Each piece is shown to the
 * protocol behind what it left standing, in memory of exactly that size. Replies are counted, not
 * kept; a connection with many of them unread is full, and is drained later.
 *
 * Whatever comes: no more is taken than was shown, nothing is left standing that is longer than a
 * request may be, no reply is written to a connection that was closed.
 *
 * This file has the connections that conn.c would have; the linker then leaves that out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/server.h"
#include "store/torch_wire.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { CONNS = 4, FULL = 4096 };

static const struct ch_table_limits limits = { .key_nbytes = 8192,
                                               .value_nbytes = 1 << 20,
                                               .total_nbytes = 4 << 20 };

struct ch_conn {
    bool is_open, is_admitted, was_served;
    struct ch_table *table;
    unsigned char *waiting; /* left standing */
    size_t nwaiting, unread, sum;
    void *state;
};

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* --- what the protocol sees ---------------------------------------------------------------------- */

void *ch_conn_state(struct ch_conn *conn)
{
    return conn->state;
}

struct ch_table *ch_conn_table(struct ch_conn *conn)
{
    return conn->table;
}

const choir_token *ch_conn_token(const struct ch_conn *conn)
{
    (void)conn;
    return NULL;
}

const char *ch_conn_peer(const struct ch_conn *conn)
{
    (void)conn;
    return "fuzzer";
}

choir_status ch_conn_append(struct ch_conn *conn, const void *bytes, size_t nbytes)
{
    check(conn->is_open && conn->is_admitted);
    for (size_t i = 0; i < nbytes; i++)
        conn->sum += ((const unsigned char *)bytes)[i]; /* all of them can be read */
    conn->unread += nbytes;
    return CHOIR_OK;
}

bool ch_conn_is_full(const struct ch_conn *conn)
{
    return conn->unread > FULL;
}

bool ch_conn_hears(const struct ch_conn *conn)
{
    (void)conn;
    return true;
}

choir_status ch_conn_admit(struct ch_conn *conn)
{
    conn->is_admitted = true;
    return CHOIR_OK;
}

/* --- connections --------------------------------------------------------------------------------- */

static void close_conn(struct ch_conn *conn)
{
    if (conn->was_served)
        ch_protocol_torch.closed(conn);
    free(conn->waiting);
    free(conn->state);
    *conn = (struct ch_conn){ .table = conn->table };
}

static void show(struct ch_conn *conn, const unsigned char *more, size_t nmore)
{
    size_t nbytes = conn->nwaiting + nmore, used = 0;
    unsigned char *bytes = malloc(nbytes > 0 ? nbytes : 1);
    choir_status rc;

    check(bytes != NULL);
    if (conn->nwaiting > 0)
        memcpy(bytes, conn->waiting, conn->nwaiting);
    if (nmore > 0)
        memcpy(bytes + conn->nwaiting, more, nmore);
    conn->was_served = true;
    rc = ch_protocol_torch.received(conn, bytes, nbytes, &used);
    check(used <= nbytes);
    check(rc == CHOIR_OK || rc < 0);
    free(conn->waiting);
    conn->waiting = malloc(nbytes - used + 1);
    check(conn->waiting != NULL);
    conn->nwaiting = nbytes - used;
    memcpy(conn->waiting, bytes + used, conn->nwaiting);
    free(bytes);
    check(rc != CHOIR_OK || ch_conn_is_full(conn) ||
          conn->nwaiting < ch_protocol_torch.request_nbytes);
    if (rc != CHOIR_OK)
        close_conn(conn);
}

/* The client reads; what was left standing for that is taken up. */
static void drain(struct ch_conn *conn)
{
    while (conn->is_open && conn->unread > 0) {
        bool was_full = ch_conn_is_full(conn);

        conn->unread = 0;
        if (was_full)
            show(conn, NULL, 0);
    }
}

static void open_conn(struct ch_conn *conn, bool says_hello)
{
    static const unsigned char validate[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };

    conn->is_open = true;
    conn->state = calloc(1, ch_protocol_torch.state_size);
    check(conn->state != NULL);
    if (says_hello)
        show(conn, validate, sizeof(validate));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ch_conn conns[CONNS] = { { .is_open = false } };
    struct ch_table *table;

    check(ch_table_create(&limits, &table) == CHOIR_OK);
    for (int i = 0; i < CONNS; i++)
        conns[i].table = table;
    while (size >= 2) {
        struct ch_conn *conn = &conns[data[0] % CONNS];
        size_t nbytes = data[1] < size - 2 ? data[1] : size - 2;

        if (data[1] == 0)
            close_conn(conn);
        else if (!conn->is_open)
            open_conn(conn, data[0] < 0x80);
        if (data[1] != 0 && conn->is_open)
            show(conn, data + 2, nbytes);
        if (data[0] & 0x40)
            drain(conn);
        data += 2 + nbytes;
        size -= 2 + nbytes;
    }
    for (int i = 0; i < CONNS; i++)
        drain(&conns[i]);
    for (int i = 0; i < CONNS; i++)
        close_conn(&conns[i]);
    ch_table_destroy(table);
    return 0;
}
