/*
 * serve_torch.c - PyTorch's TCPStore protocol on a connection of the server (server.h).
 *
 *   NEW --[VALIDATE with the right magic]--> OPEN --[any request, as often as wanted]--> OPEN
 *    |                                        |
 *    +--[anything else]--> closed             +--[what is not a request, a second VALIDATE,
 *                                                 ADD to what is no number, a full table]--> closed
 *
 * Like PyTorch's own server it knows no other way to refuse a request than to close the connection.
 * Requests with a list are carried out item by item as they come, so that nobody can make us gather
 * gigabytes first. A connection has one wait at a time; other requests are served meanwhile.
 */
#include <string.h>

#include "base/error.h"
#include "store/bytes.h"
#include "store/server.h"
#include "store/torch_wire.h"

struct session {
    struct ch_conn *conn;
    bool is_open;                  /* VALIDATE has come */
    enum ch_torch_command command; /* whose list is under way */
    int64_t items_left;            /* 0: none is */
    bool all_exist;                /* CHECK: so far */
    bool owes_stop;                /* the wait has ended in the middle of another reply */
    struct ch_table_wait wait;     /* WAIT, BARRIER */
};

/* --- replies -------------------------------------------------------------------------------------- */

static choir_status reply_byte(struct ch_conn *conn, unsigned char byte)
{
    return ch_conn_append(conn, &byte, 1);
}

static choir_status reply_number(struct ch_conn *conn, int64_t number)
{
    unsigned char bytes[8];

    ch_torch_put_number(bytes, number);
    return ch_conn_append(conn, bytes, sizeof(bytes));
}

static choir_status reply_value(struct ch_conn *conn, choir_bytes value)
{
    choir_status rc = reply_number(conn, (int64_t)value.nbytes);

    if (rc == CHOIR_OK && value.nbytes > 0)
        rc = ch_conn_append(conn, value.data, value.nbytes);
    return rc;
}

/* A missing value is an empty one here. */
static choir_status reply_value_of(struct ch_conn *conn, choir_bytes key)
{
    choir_bytes value = { NULL, 0 };

    ch_table_get(ch_conn_table(conn), key, &value);
    return reply_value(conn, value);
}

/* --- waits ---------------------------------------------------------------------------------------- */

static void wait_is_done(struct ch_table_wait *wait)
{
    struct session *session = CH_CONTAINER(wait, struct session, wait);

    if (session->items_left > 0 && session->command == CH_TORCH_MULTI_GET)
        session->owes_stop = true;
    else
        (void)reply_byte(session->conn, CH_TORCH_STOP_WAITING); /* a failure closes by itself */
}

static void cancel_wait(struct session *session)
{
    ch_table_wait_cancel(ch_conn_table(session->conn), &session->wait);
}

/* `rc` is what registering said: there may be nothing to wait for. */
static choir_status reply_to_wait(struct session *session, choir_status rc)
{
    if (rc == CHOIR_OK)
        return reply_byte(session->conn, CH_TORCH_STOP_WAITING);
    return rc == CHOIR_IN_PROGRESS ? CHOIR_OK : rc;
}

/* --- requests ------------------------------------------------------------------------------------- */

/* An empty value is no number to PyTorch's server; the table would count it as 0. */
static choir_status check_not_empty(const struct ch_table *table,
                                    const struct ch_torch_request *request)
{
    choir_bytes value;

    if (ch_table_get(table, request->key, &value) && value.nbytes == 0)
        return ch_fail(CHOIR_ERR_INVALID, "its value is empty, not a number");
    return CHOIR_OK;
}

static choir_status serve_add(struct session *session, const struct ch_torch_request *request)
{
    struct ch_table *table = ch_conn_table(session->conn);
    int64_t sum = 0;
    choir_status rc = check_not_empty(table, request);

    if (rc == CHOIR_OK)
        rc = ch_table_add(table, request->key, request->number, &sum);
    return rc == CHOIR_OK ? reply_number(session->conn, sum) : rc;
}

static choir_status serve_barrier(struct session *session, const struct ch_torch_request *request)
{
    struct ch_table *table = ch_conn_table(session->conn);
    choir_status rc = check_not_empty(table, request);

    if (rc != CHOIR_OK)
        return rc;
    cancel_wait(session);
    rc = ch_table_barrier(table, &session->wait, request->key, request->number, wait_is_done);
    return reply_to_wait(session, rc);
}

static choir_status serve_compare_set(struct session *session,
                                      const struct ch_torch_request *request)
{
    choir_bytes value = { NULL, 0 };
    choir_status rc = ch_table_compare_set(ch_conn_table(session->conn), request->key,
                                           request->value, request->desired, &value);

    return rc == CHOIR_OK ? reply_value(session->conn, value) : rc;
}

static choir_status serve_pop(struct session *session, const struct ch_torch_request *request)
{
    struct ch_table *table = ch_conn_table(session->conn);
    size_t length = ch_table_queue_length(table, request->key);
    choir_bytes element;
    choir_status rc;

    if (!ch_table_queue_front(table, request->key, &element))
        return reply_number(session->conn, 0);
    if (!ch_conn_hears(session->conn))
        return CHOIR_OK; /* it stays for others */
    rc = reply_number(session->conn, (int64_t)length);
    if (rc == CHOIR_OK)
        rc = reply_value(session->conn, element);
    if (rc == CHOIR_OK)
        ch_table_queue_drop(table, request->key);
    return rc;
}

struct listing {
    struct ch_conn *conn;
    choir_status rc;
};

static void list_key(void *arg, choir_bytes key)
{
    struct listing *listing = arg;

    if (listing->rc == CHOIR_OK)
        listing->rc = reply_value(listing->conn, key);
}

static choir_status serve_list(struct session *session)
{
    struct ch_table *table = ch_conn_table(session->conn);
    struct listing listing = { session->conn, CHOIR_OK };

    listing.rc = reply_number(session->conn, (int64_t)ch_table_count(table));
    ch_table_each(table, list_key, &listing);
    return listing.rc;
}

static choir_status serve_validate(struct session *session, const struct ch_torch_request *request)
{
    if (session->is_open)
        return ch_fail(CHOIR_ERR_PROTO, "torch: VALIDATE a second time");
    if (request->number != CH_TORCH_MAGIC)
        return ch_fail(CHOIR_ERR_PROTO, "torch: VALIDATE with 0x%08llx instead of 0x%08x",
                       (unsigned long long)request->number, CH_TORCH_MAGIC);
    session->is_open = true;
    return ch_conn_admit(session->conn);
}

static choir_status serve_ping(struct session *session, const struct ch_torch_request *request)
{
    unsigned char bytes[8];

    ch_torch_put_number(bytes, request->number);
    return ch_conn_append(session->conn, bytes, 4);
}

/* --- lists ---------------------------------------------------------------------------------------- */

/* MULTI_GET has answered each item, and MULTI_SET answers none. */
static choir_status end_list(struct session *session)
{
    if (session->command == CH_TORCH_CHECK)
        return reply_byte(session->conn, session->all_exist ? CH_TORCH_READY : CH_TORCH_NOT_READY);
    if (session->command == CH_TORCH_WAIT)
        return reply_to_wait(session, ch_table_wait_end(&session->wait));
    if (!session->owes_stop)
        return CHOIR_OK;
    session->owes_stop = false;
    return reply_byte(session->conn, CH_TORCH_STOP_WAITING);
}

static choir_status begin_list(struct session *session, const struct ch_torch_request *head)
{
    session->command = head->command;
    session->items_left = head->number;
    session->all_exist = true;
    if (head->command == CH_TORCH_WAIT) {
        /* One that is still pending is forgotten, as by PyTorch's own server: no client does that. */
        cancel_wait(session);
        ch_table_wait_begin(&session->wait, wait_is_done);
    }
    return head->number == 0 ? end_list(session) : CHOIR_OK;
}

static choir_status serve_item(struct session *session, const struct ch_torch_request *item)
{
    struct ch_table *table = ch_conn_table(session->conn);
    choir_status rc = CHOIR_OK;

    if (item->command == CH_TORCH_CHECK)
        session->all_exist = session->all_exist && ch_table_exists(table, item->key);
    else if (item->command == CH_TORCH_WAIT)
        rc = ch_table_wait_add(table, &session->wait, item->key);
    else if (item->command == CH_TORCH_MULTI_GET)
        rc = reply_value_of(session->conn, item->key);
    else
        rc = ch_table_set(table, item->key, item->value);
    if (rc == CHOIR_OK && --session->items_left == 0)
        rc = end_list(session);
    return rc;
}

/* --- the protocol --------------------------------------------------------------------------------- */

static choir_status serve(struct session *session, const struct ch_torch_request *request)
{
    struct ch_conn *conn = session->conn;
    struct ch_table *table = ch_conn_table(conn);

    switch (request->command) {
    case CH_TORCH_VALIDATE:
        return serve_validate(session, request);
    case CH_TORCH_SET:
        return ch_table_set(table, request->key, request->value);
    case CH_TORCH_COMPARE_SET:
        return serve_compare_set(session, request);
    case CH_TORCH_GET:
        return reply_value_of(conn, request->key);
    case CH_TORCH_ADD:
        return serve_add(session, request);
    case CH_TORCH_CHECK:
    case CH_TORCH_WAIT:
    case CH_TORCH_MULTI_GET:
    case CH_TORCH_MULTI_SET:
        return begin_list(session, request);
    case CH_TORCH_COUNT:
        return reply_number(conn, (int64_t)ch_table_count(table));
    case CH_TORCH_DELETE:
        return reply_number(conn, ch_table_remove(table, request->key));
    case CH_TORCH_APPEND:
        return ch_table_append(table, request->key, request->value);
    case CH_TORCH_CANCEL_WAIT:
        cancel_wait(session);
        return reply_byte(conn, CH_TORCH_WAIT_CANCELLED);
    case CH_TORCH_PING:
        return serve_ping(session, request);
    case CH_TORCH_QUEUE_PUSH:
        return ch_table_queue_push(table, request->key, request->value);
    case CH_TORCH_QUEUE_POP:
        return serve_pop(session, request);
    case CH_TORCH_QUEUE_LENGTH:
        return reply_number(conn, (int64_t)ch_table_queue_length(table, request->key));
    case CH_TORCH_LIST:
        return serve_list(session);
    case CH_TORCH_BARRIER:
        return serve_barrier(session, request);
    case CH_TORCH_NCOMMANDS:
        break;
    }
    return ch_fail(CHOIR_ERR_PROTO, "torch: no such command");
}

/* For the line of log: which request it was that could not be served. */
static choir_status explain(const struct ch_torch_request *request, choir_status rc)
{
    char key[CH_BYTES_TEXT_MAX];

    if (rc != CHOIR_OK && request->command != CH_TORCH_VALIDATE)
        ch_error_prefix("torch: %s \"%s\": ", ch_torch_command_name(request->command),
                        ch_bytes_text(request->key, key));
    return rc;
}

/* One request, or one item of a list. CHOIR_IN_PROGRESS: not complete yet. */
static choir_status serve_next(struct session *session, const unsigned char *bytes, size_t nbytes,
                               size_t *used_out)
{
    struct ch_torch_request request;
    choir_status rc;

    if (!session->is_open && bytes[0] != CH_TORCH_VALIDATE)
        return ch_fail(CHOIR_ERR_PROTO, "torch: the first byte is 0x%02x, not VALIDATE", bytes[0]);
    if (session->items_left > 0) {
        rc = ch_torch_parse_item(session->command, bytes, nbytes, &request, used_out);
        return rc == CHOIR_OK ? explain(&request, serve_item(session, &request)) : rc;
    }
    rc = ch_torch_parse(bytes, nbytes, &request, used_out);
    return rc == CHOIR_OK ? explain(&request, serve(session, &request)) : rc;
}

static choir_status received(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                             size_t *used_out)
{
    struct session *session = ch_conn_state(conn);
    choir_status rc = CHOIR_OK;

    session->conn = conn;
    *used_out = 0;
    while (*used_out < nbytes && !ch_conn_is_full(conn)) {
        size_t used = 0;

        rc = serve_next(session, bytes + *used_out, nbytes - *used_out, &used);
        if (rc != CHOIR_OK)
            break;
        *used_out += used;
    }
    return rc == CHOIR_IN_PROGRESS ? CHOIR_OK : rc;
}

static void closed(struct ch_conn *conn)
{
    struct session *session = ch_conn_state(conn);

    if (session->conn != NULL)
        cancel_wait(session);
}

const struct ch_protocol ch_protocol_torch = {
    .name = "torch",
    .state_size = sizeof(struct session),
    .request_nbytes = CH_TORCH_REQUEST_MAX,
    .received = received,
    .closed = closed,
};
