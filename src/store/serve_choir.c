/*
 * serve_choir.c - the server's side of Choir's own protocol: hello.h, then wire.h.
 *
 *   HELLO --[48 bytes: send the challenge]--> PROOF --[32 bytes, and they are right]--> OPEN
 *
 * A request that has to wait is copied and registered in the table; when its keys have come it is
 * answered from there, in the turn of whoever brought them.
 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/hello.h"
#include "store/server.h"
#include "store/wire.h"

enum {
    /* What the waiting requests of one client may take up. */
    PENDING_NBYTES_MAX = 64 * 1024 * 1024,
};

enum stage { HELLO, PROOF, OPEN };

struct state {
    enum stage stage;
    struct ch_list pending; /* requests that wait */
    struct ch_list missed;  /* pops that were served and could not be answered any more */
    size_t pending_nbytes;
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES];
};

struct pending {
    struct ch_table_wait wait; /* first: done() gets a pointer to it */
    struct ch_list link;
    struct ch_conn *conn;
    struct ch_message request; /* its body is the copy below */
    unsigned char body[];
};

/* --- replies ------------------------------------------------------------------------------------- */

/* A connection that cannot take it is closed by the server: nobody here needs to know. Only who is
 * about to take an element out of its queue does. */
static choir_status put_head(struct ch_conn *conn, uint32_t id, choir_status status,
                             uint32_t nitems, size_t body_nbytes, uint64_t number)
{
    unsigned char bytes[CH_WIRE_HEAD_NBYTES];
    struct ch_wire_head head = { .body_nbytes = (uint32_t)body_nbytes,
                                 .id = id,
                                 .code = (uint32_t)status,
                                 .nitems = nitems,
                                 .number = number };

    ch_wire_put_head(bytes, &head);
    return ch_conn_append(conn, bytes, sizeof(bytes));
}

static choir_status put_item(struct ch_conn *conn, choir_bytes item)
{
    unsigned char length[CH_WIRE_LENGTH_NBYTES];
    choir_status rc;

    ch_put32(length, (uint32_t)item.nbytes);
    rc = ch_conn_append(conn, length, sizeof(length));
    if (rc == CHOIR_OK)
        rc = ch_conn_append(conn, item.data, item.nbytes);
    return rc;
}

static void reply_error(struct ch_conn *conn, uint32_t id, choir_status status)
{
    choir_bytes text = choir_str(choir_last_error());

    (void)put_head(conn, id, status, 1, CH_WIRE_LENGTH_NBYTES + text.nbytes, 0);
    (void)put_item(conn, text);
}

static void reply_number(struct ch_conn *conn, uint32_t id, int64_t number)
{
    (void)put_head(conn, id, CHOIR_OK, 0, 0, (uint64_t)number);
}

static choir_status reply_value(struct ch_conn *conn, uint32_t id, choir_bytes value)
{
    choir_status rc = put_head(conn, id, CHOIR_OK, 1, CH_WIRE_LENGTH_NBYTES + value.nbytes, 0);

    return rc == CHOIR_OK ? put_item(conn, value) : rc;
}

/* To requests whose sender may want to hear of failures only. */
static void reply_unless_quiet(struct ch_conn *conn, const struct ch_message *request,
                               int64_t number)
{
    if ((request->code >> 8 & CH_OP_QUIET) == 0)
        reply_number(conn, request->id, number);
}

static choir_status check_reply_fits(uint64_t nbytes)
{
    if (nbytes <= CH_WIRE_BODY_MAX)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID, "store: a reply of %llu bytes, at most %llu go at once",
                   (unsigned long long)nbytes, (unsigned long long)CH_WIRE_BODY_MAX);
}

/* --- requests that do not wait ------------------------------------------------------------------- */

static choir_status add(struct ch_conn *conn, const struct ch_message *request, choir_bytes key)
{
    int64_t sum;
    choir_status rc = ch_table_add(ch_conn_table(conn), key, (int64_t)request->number, &sum);

    if (rc == CHOIR_OK)
        reply_number(conn, request->id, sum);
    return rc;
}

static choir_status compare_set(struct ch_conn *conn, const struct ch_message *request,
                                struct ch_items *items, choir_bytes key)
{
    choir_bytes expected = ch_items_next(items), desired = ch_items_next(items), value;
    choir_status rc = ch_table_compare_set(ch_conn_table(conn), key, expected, desired, &value);

    if (rc == CHOIR_OK)
        (void)reply_value(conn, request->id, value);
    return rc;
}

static choir_status multi_set(struct ch_conn *conn, const struct ch_message *request)
{
    struct ch_items items = ch_items_of(request);
    choir_status rc = CHOIR_OK;

    while (rc == CHOIR_OK && items.left > 0) {
        choir_bytes key = ch_items_next(&items), value = ch_items_next(&items);

        rc = ch_table_set(ch_conn_table(conn), key, value);
    }
    if (rc == CHOIR_OK)
        reply_unless_quiet(conn, request, 0);
    return rc;
}

static bool all_exist(struct ch_conn *conn, const struct ch_message *request)
{
    struct ch_items items = ch_items_of(request);

    while (items.left > 0) {
        if (!ch_table_exists(ch_conn_table(conn), ch_items_next(&items)))
            return false;
    }
    return true;
}

static void count_bytes(void *arg, choir_bytes key)
{
    *(uint64_t *)arg += CH_WIRE_LENGTH_NBYTES + key.nbytes;
}

static void put_key(void *arg, choir_bytes key)
{
    (void)put_item(arg, key);
}

static choir_status list(struct ch_conn *conn, const struct ch_message *request)
{
    struct ch_table *table = ch_conn_table(conn);
    uint64_t nbytes = 0;
    choir_status rc;

    ch_table_each(table, count_bytes, &nbytes);
    rc = check_reply_fits(nbytes);
    if (rc != CHOIR_OK)
        return rc;
    (void)put_head(conn, request->id, CHOIR_OK, (uint32_t)ch_table_count(table), nbytes, 0);
    ch_table_each(table, put_key, conn);
    return CHOIR_OK;
}

/* --- requests that may wait: the end ------------------------------------------------------------- */

/* A key that is only a queue has an empty value. */
static choir_bytes value_of(struct ch_conn *conn, choir_bytes key)
{
    choir_bytes value = { NULL, 0 };

    (void)ch_table_get(ch_conn_table(conn), key, &value);
    return value;
}

static choir_status multi_get(struct ch_conn *conn, const struct ch_message *request)
{
    uint64_t nbytes = 0;
    choir_status rc;

    for (struct ch_items items = ch_items_of(request); items.left > 0;)
        nbytes += CH_WIRE_LENGTH_NBYTES + value_of(conn, ch_items_next(&items)).nbytes;
    rc = check_reply_fits(nbytes);
    if (rc != CHOIR_OK)
        return rc;
    (void)put_head(conn, request->id, CHOIR_OK, request->nitems, nbytes, 0);
    for (struct ch_items items = ch_items_of(request); items.left > 0;)
        (void)put_item(conn, value_of(conn, ch_items_next(&items)));
    return CHOIR_OK;
}

/* An element that its client would never get stays in the queue: *missed_out. */
static choir_status pop(struct ch_conn *conn, const struct ch_message *request, bool *missed_out)
{
    struct ch_items items = ch_items_of(request);
    struct ch_table *table = ch_conn_table(conn);
    choir_bytes key = ch_items_next(&items), element;

    *missed_out = false;
    if (!ch_table_queue_front(table, key, &element))
        return ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    if (ch_conn_hears(conn) && reply_value(conn, request->id, element) == CHOIR_OK)
        ch_table_queue_drop(table, key);
    else
        *missed_out = true;
    return CHOIR_OK;
}

/* All that `request` needs is there. */
static choir_status finish(struct ch_conn *conn, const struct ch_message *request, bool *missed_out)
{
    struct ch_items items = ch_items_of(request);
    uint32_t op = request->code & 0xff;

    *missed_out = false;
    if (op == CH_OP_MULTI_GET)
        return multi_get(conn, request);
    if (op == CH_OP_POP)
        return pop(conn, request, missed_out);
    if (op == CH_OP_GET)
        (void)reply_value(conn, request->id, value_of(conn, ch_items_next(&items)));
    else
        reply_number(conn, request->id, 0);
    return CHOIR_OK;
}

/* --- requests that wait -------------------------------------------------------------------------- */

static void drop_pending(struct pending *pending)
{
    struct state *state = ch_conn_state(pending->conn);

    ch_table_wait_cancel(ch_conn_table(pending->conn), &pending->wait);
    ch_list_remove(&pending->link);
    state->pending_nbytes -= sizeof(*pending) + pending->request.body_nbytes;
    ch_free(pending);
}

/* The last key has come. */
static void done(struct ch_table_wait *wait)
{
    struct pending *pending = (struct pending *)wait;
    struct state *state = ch_conn_state(pending->conn);
    bool missed;
    choir_status rc = finish(pending->conn, &pending->request, &missed);

    if (rc != CHOIR_OK)
        reply_error(pending->conn, pending->request.id, rc);
    if (!missed) {
        drop_pending(pending);
        return;
    }
    /* The next is not served from here: it may be this client's, and the one after that, and so on. */
    ch_list_remove(&pending->link);
    ch_list_push_back(&state->missed, &pending->link);
}

static choir_status make_pending(struct ch_conn *conn, const struct ch_message *request,
                                 struct pending **pending_out)
{
    struct state *state = ch_conn_state(conn);
    size_t nbytes = sizeof(struct pending) + request->body_nbytes;
    struct pending *pending;

    if (nbytes > PENDING_NBYTES_MAX - state->pending_nbytes)
        return ch_fail(CHOIR_ERR_INVALID, "store: too many waits of one client: %zu bytes of them",
                       state->pending_nbytes);
    pending = ch_zalloc(nbytes);
    if (pending == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a wait");
    memcpy(pending->body, request->body, request->body_nbytes);
    pending->conn = conn;
    pending->request = *request;
    pending->request.body = pending->body;
    ch_list_push_back(&state->pending, &pending->link);
    state->pending_nbytes += nbytes;
    *pending_out = pending;
    return CHOIR_OK;
}

static choir_status register_keys(struct ch_table *table, struct pending *pending)
{
    struct ch_items items = ch_items_of(&pending->request);
    choir_status rc = CHOIR_OK;

    ch_table_wait_begin(&pending->wait, done);
    pending->wait.awaits = (pending->request.code & 0xff) == CH_OP_POP ? CH_AWAITS_ELEMENT
                                                                       : CH_AWAITS_KEY;
    while (rc == CHOIR_OK && items.left > 0)
        rc = ch_table_wait_add(table, &pending->wait, ch_items_next(&items));
    return rc == CHOIR_OK ? ch_table_wait_end(&pending->wait) : rc;
}

static choir_status register_wait(struct pending *pending)
{
    struct ch_table *table = ch_conn_table(pending->conn);
    struct ch_items items = ch_items_of(&pending->request);

    if ((pending->request.code & 0xff) != CH_OP_BARRIER)
        return register_keys(table, pending);
    return ch_table_barrier(table, &pending->wait, ch_items_next(&items),
                            (int64_t)pending->request.number, done);
}

/* Whether it can be answered at once, which is the common case and takes no memory. */
static bool has_all(struct ch_conn *conn, const struct ch_message *request)
{
    struct ch_items items = ch_items_of(request);
    uint32_t op = request->code & 0xff;

    if (op == CH_OP_BARRIER)
        return false; /* it counts itself */
    if (op == CH_OP_POP)
        return ch_table_queue_length(ch_conn_table(conn), ch_items_next(&items)) > 0;
    return all_exist(conn, request);
}

static choir_status wait_or_finish(struct ch_conn *conn, const struct ch_message *request)
{
    struct pending *pending = NULL;
    bool missed; /* then it just stays where it is */
    choir_status rc;

    if (has_all(conn, request))
        return finish(conn, request, &missed);
    rc = make_pending(conn, request, &pending);
    if (rc != CHOIR_OK)
        return rc;
    rc = register_wait(pending);
    if (rc == CHOIR_IN_PROGRESS)
        return CHOIR_OK;
    drop_pending(pending);
    return rc == CHOIR_OK ? finish(conn, request, &missed) : rc;
}

static choir_status cancel(struct ch_conn *conn, const struct ch_message *request)
{
    struct state *state = ch_conn_state(conn);

    CH_LIST_EACH (link, &state->pending) {
        struct pending *pending = CH_CONTAINER(link, struct pending, link);

        if (pending->request.id != request->number)
            continue;
        reply_error(conn, pending->request.id,
                    ch_fail(CHOIR_ERR_INTERRUPTED, "cancelled by the client"));
        drop_pending(pending);
        break;
    }
    return CHOIR_OK;
}

/* --- dispatch ------------------------------------------------------------------------------------ */

/* Requests that change something and tell nothing. */
static choir_status change(struct ch_conn *conn, const struct ch_message *request,
                           choir_status (*how)(struct ch_table *table, choir_bytes key,
                                               choir_bytes value))
{
    struct ch_items items = ch_items_of(request);
    choir_bytes key = ch_items_next(&items), value = ch_items_next(&items);
    choir_status rc = how(ch_conn_table(conn), key, value);

    if (rc == CHOIR_OK)
        reply_unless_quiet(conn, request, 0);
    return rc;
}

static choir_status answer(struct ch_conn *conn, const struct ch_message *request)
{
    struct ch_table *table = ch_conn_table(conn);
    struct ch_items items = ch_items_of(request);
    choir_bytes key = { NULL, 0 };
    bool missed;

    if (items.left > 0)
        key = ch_items_next(&items);
    switch ((enum ch_op)(request->code & 0xff)) {
    case CH_OP_SET:
        return change(conn, request, ch_table_set);
    case CH_OP_APPEND:
        return change(conn, request, ch_table_append);
    case CH_OP_PUSH:
        return change(conn, request, ch_table_queue_push);
    case CH_OP_MULTI_SET:
        return multi_set(conn, request);
    case CH_OP_ADD:
        return add(conn, request, key);
    case CH_OP_COMPARE_SET:
        return compare_set(conn, request, &items, key);
    case CH_OP_REMOVE:
        reply_unless_quiet(conn, request, ch_table_remove(table, key));
        return CHOIR_OK;
    case CH_OP_CHECK:
        reply_number(conn, request->id, all_exist(conn, request));
        return CHOIR_OK;
    case CH_OP_COUNT:
        reply_number(conn, request->id, (int64_t)ch_table_count(table));
        return CHOIR_OK;
    case CH_OP_LIST:
        return list(conn, request);
    case CH_OP_LENGTH:
        reply_number(conn, request->id, (int64_t)ch_table_queue_length(table, key));
        return CHOIR_OK;
    case CH_OP_TRY_POP:
        return pop(conn, request, &missed);
    case CH_OP_GET:
    case CH_OP_MULTI_GET:
    case CH_OP_WAIT:
    case CH_OP_POP:
    case CH_OP_BARRIER:
        return wait_or_finish(conn, request);
    case CH_OP_CANCEL:
        return cancel(conn, request);
    case CH_OP_PING:
        reply_number(conn, request->id, 0);
        return CHOIR_OK;
    case CH_NOPS:
        break;
    }
    return ch_fail(CHOIR_ERR_PROTO, "store: no such operation"); /* the codec has checked it */
}

/* --- bytes --------------------------------------------------------------------------------------- */

/* One hello, if it is all there. CHOIR_IN_PROGRESS if not. */
static choir_status take_hello(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                               size_t *used_out)
{
    struct state *state = ch_conn_state(conn);
    const struct ch_table_limits *limits = ch_table_limits(ch_conn_table(conn));
    struct ch_hello_limits told = { limits->key_nbytes, limits->value_nbytes };
    choir_status rc = ch_hello_begins(bytes, nbytes), sent;

    if (rc != CHOIR_OK)
        return rc;
    if (nbytes < CH_HELLO_NBYTES)
        return CHOIR_IN_PROGRESS;
    memcpy(state->hello, bytes, sizeof(state->hello));
    rc = ch_hello_challenge(ch_conn_token(conn), state->hello, &told, state->challenge);
    if (rc == CHOIR_ERR_SYSTEM)
        return rc; /* no challenge could be made */
    sent = ch_conn_append(conn, state->challenge, sizeof(state->challenge));
    *used_out = CH_HELLO_NBYTES;
    state->stage = PROOF;
    return rc != CHOIR_OK ? rc : sent;
}

static choir_status take_proof(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                               size_t *used_out)
{
    struct state *state = ch_conn_state(conn);
    choir_status rc;

    if (nbytes < CH_PROOF_NBYTES)
        return CHOIR_IN_PROGRESS;
    rc = ch_hello_verify(ch_conn_token(conn), state->hello, state->challenge, bytes);
    if (rc == CHOIR_OK)
        rc = ch_conn_admit(conn);
    if (rc != CHOIR_OK)
        return rc;
    *used_out = CH_PROOF_NBYTES;
    state->stage = OPEN;
    return CHOIR_OK;
}

/* Who waits for the reply knows what it asked for; who hears of it later does not. */
static void name_request(const struct ch_message *request)
{
    struct ch_items items = ch_items_of(request);
    char key[CH_BYTES_TEXT_MAX];

    if ((request->code >> 8 & CH_OP_QUIET) != 0 && items.left > 0)
        ch_error_prefix("%s \"%s\": ", ch_op_name(request->code & 0xff),
                        ch_bytes_text(ch_items_next(&items), key));
}

static choir_status take_request(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                                 size_t *used_out)
{
    struct ch_message request;
    choir_status rc = ch_wire_read_request(bytes, nbytes, &request);

    if (rc != CHOIR_OK)
        return rc;
    *used_out = CH_WIRE_HEAD_NBYTES + request.body_nbytes;
    rc = answer(conn, &request);
    if (rc != CHOIR_OK) {
        name_request(&request);
        reply_error(conn, request.id, rc);
    }
    return CHOIR_OK;
}

static choir_status take_one(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                             size_t *used_out)
{
    struct state *state = ch_conn_state(conn);

    if (nbytes == 0)
        return CHOIR_IN_PROGRESS;
    switch (state->stage) {
    case HELLO:
        return take_hello(conn, bytes, nbytes, used_out);
    case PROOF:
        return take_proof(conn, bytes, nbytes, used_out);
    case OPEN:
        break;
    }
    return take_request(conn, bytes, nbytes, used_out);
}

static choir_status received(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes,
                             size_t *used_out)
{
    struct state *state = ch_conn_state(conn);
    choir_status rc = CHOIR_OK;
    size_t used = 0;

    if (state->pending.next == NULL) {
        ch_list_init(&state->pending);
        ch_list_init(&state->missed);
    }
    while (rc == CHOIR_OK && !ch_conn_is_full(conn)) {
        size_t n = 0;

        rc = take_one(conn, bytes + used, nbytes - used, &n);
        used += n;
    }
    *used_out = used;
    return rc == CHOIR_IN_PROGRESS ? CHOIR_OK : rc;
}

/* Elements that the client never got are for others; its own waits are gone by then. */
static void closed(struct ch_conn *conn)
{
    struct state *state = ch_conn_state(conn);

    while (!ch_list_empty(&state->pending))
        drop_pending(CH_CONTAINER(state->pending.next, struct pending, link));
    while (!ch_list_empty(&state->missed)) {
        struct pending *pending = CH_CONTAINER(state->missed.next, struct pending, link);
        struct ch_items items = ch_items_of(&pending->request);

        ch_table_queue_serve(ch_conn_table(conn), ch_items_next(&items));
        drop_pending(pending);
    }
}

const struct ch_protocol ch_protocol_choir = {
    .name = "choir",
    .state_size = sizeof(struct state),
    .request_nbytes = CH_WIRE_HEAD_NBYTES + CH_WIRE_BODY_MAX,
    .received = received,
    .closed = closed,
};
