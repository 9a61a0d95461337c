/* link.c - requests and replies over one connection. See link.h; connecting is in link_open.c. */
#include "store/link.h"

#include <poll.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "io/sock.h"
#include "store/link_call.h"

enum {
    OUT_FIRST = 4096,
    OUT_KEEP = 64 * 1024, /* a larger buffer is given back when empty */
    GRACE_MS = 2000,      /* for a server to answer a cancel, or at the end */
    QUIET_ID = 1u << 31,  /* ids of quiet requests have it: nobody waits for them */
};

/* --- the end of a connection --------------------------------------------------------------------- */

/* `call` has its result. Its owner may be gone as soon as the lock is let go. */
static void finish_locked(struct ch_link *link, struct ch_link_call *call, choir_status rc)
{
    ch_lock_assert_held(&link->lock);
    call->rc = rc;
    if (rc != CHOIR_OK)
        ch_error_save(&call->error);
    ch_list_remove(&call->link);
    ch_post(call->bell, &call->done, 1);
}

/* This thread's last error says why. */
static void break_locked(struct ch_link *link)
{
    choir_error cause;

    ch_lock_assert_held(&link->lock);
    if (link->broken.code != CHOIR_OK)
        return;
    ch_error_save(&cause);
    (void)ch_fail(CHOIR_ERR_NETWORK, "the connection to the store at %s is lost: %s", link->address,
                  cause.text);
    ch_error_save(&link->broken);
    while (!ch_list_empty(&link->calls))
        finish_locked(link, CH_CONTAINER(link->calls.next, struct ch_link_call, link),
                      CHOIR_ERR_NETWORK);
    /* What waits to be sent never will be. */
    link->out_start = link->out_end = 0;
    atomic_store_explicit(&link->unsent, 0, memory_order_relaxed);
}

/* --- sending ------------------------------------------------------------------------------------- */

static choir_status reserve_locked(struct ch_link *link, size_t more)
{
    size_t waiting = link->out_end - link->out_start;
    size_t room = link->out_room == 0 ? OUT_FIRST : link->out_room;
    unsigned char *out;

    ch_lock_assert_held(&link->lock);
    if (link->out_start > 0) {
        memmove(link->out, link->out + link->out_start, waiting);
        link->out_start = 0;
        link->out_end = waiting;
    }
    while (room < waiting + more)
        room *= 2;
    if (room == link->out_room)
        return CHOIR_OK;
    out = ch_regrow(link->out, room, 1);
    if (out == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a request of %zu bytes", more);
    link->out = out;
    link->out_room = room;
    return CHOIR_OK;
}

static void put_locked(struct ch_link *link, const void *bytes, size_t nbytes)
{
    if (nbytes > 0)
        memcpy(link->out + link->out_end, bytes, nbytes);
    link->out_end += nbytes;
}

static void put_item_locked(struct ch_link *link, choir_bytes item)
{
    unsigned char length[CH_WIRE_LENGTH_NBYTES];

    ch_put32(length, (uint32_t)item.nbytes);
    put_locked(link, length, sizeof(length));
    put_locked(link, item.data, item.nbytes);
}

static void emptied_locked(struct ch_link *link)
{
    link->out_start = link->out_end = 0;
    if (link->out_room > OUT_KEEP) {
        ch_free(link->out);
        link->out = NULL;
        link->out_room = 0;
    }
}

/* Send as much as goes now. */
static void flush_locked(struct ch_link *link)
{
    ch_lock_assert_held(&link->lock);
    while (link->out_start < link->out_end && link->broken.code == CHOIR_OK) {
        size_t n = 0;
        choir_status rc = ch_sock_send_now(link->fd, link->out + link->out_start,
                                           link->out_end - link->out_start, &n);

        if (rc == CHOIR_IN_PROGRESS)
            break;
        if (rc != CHOIR_OK) {
            break_locked(link);
            return;
        }
        link->out_start += n;
    }
    /* Relaxed: see its declaration. */
    atomic_store_explicit(&link->unsent, link->out_end - link->out_start, memory_order_relaxed);
    if (link->out_start == link->out_end)
        emptied_locked(link);
}

static size_t body_nbytes(const struct ch_ask *ask)
{
    size_t nbytes = 0;

    for (size_t i = 0; i < ask->nitems; i++) {
        nbytes += CH_WIRE_LENGTH_NBYTES + ask->items[i].nbytes;
        if (ask->values != NULL)
            nbytes += CH_WIRE_LENGTH_NBYTES + ask->values[i].nbytes;
    }
    return nbytes;
}

static choir_status send_locked(struct ch_link *link, const struct ch_ask *ask, uint32_t id)
{
    unsigned char bytes[CH_WIRE_HEAD_NBYTES];
    size_t nbytes = body_nbytes(ask);
    struct ch_wire_head head = { .body_nbytes = (uint32_t)nbytes,
                                 .id = id,
                                 .code = ask->op | (ask->quiet ? CH_OP_QUIET << 8 : 0),
                                 .nitems = (uint32_t)(ask->nitems * (ask->values == NULL ? 1 : 2)),
                                 .number = ask->number };
    choir_status rc;

    if (nbytes > CH_WIRE_BODY_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "a request of %zu bytes, at most %llu go at once", nbytes,
                       (unsigned long long)CH_WIRE_BODY_MAX);
    rc = reserve_locked(link, sizeof(bytes) + nbytes);
    if (rc != CHOIR_OK)
        return rc;
    ch_wire_put_head(bytes, &head);
    put_locked(link, bytes, sizeof(bytes));
    for (size_t i = 0; i < ask->nitems; i++) {
        put_item_locked(link, ask->items[i]);
        if (ask->values != NULL)
            put_item_locked(link, ask->values[i]);
    }
    flush_locked(link);
    return CHOIR_OK;
}

/* --- receiving ----------------------------------------------------------------------------------- */

/* The server's words as this thread's error. Its code must at least be one of ours. */
static choir_status fail_as_told(const struct ch_message *reply)
{
    struct ch_items items = ch_items_of(reply);
    choir_bytes text = items.left > 0 ? ch_items_next(&items) : choir_str("no reason given");
    choir_status code = (choir_status)(int32_t)reply->code;

    if (strcmp(choir_status_name(code), "CHOIR_STATUS_UNKNOWN") == 0)
        code = CHOIR_ERR_PROTO;
    return ch_fail(code, "%.*s",
                   (int)(text.nbytes < CHOIR_ERROR_TEXT_MAX ? text.nbytes : CHOIR_ERROR_TEXT_MAX),
                   (const char *)text.data);
}

static void cancel_locked(struct ch_link *link, const struct ch_link_call *call);

/* Who came later, and waits in the server for something that may now never come. Not for an element,
 * which may be on its way. */
static struct ch_link_call *later_wait_locked(struct ch_link *link, uint32_t quiet_id)
{
    CH_LIST_EACH (at, &link->calls) {
        struct ch_link_call *call = CH_CONTAINER(at, struct ch_link_call, link);
        enum ch_op op = call->ask->op;
        bool waits = op == CH_OP_GET || op == CH_OP_MULTI_GET || op == CH_OP_WAIT ||
                     op == CH_OP_BARRIER;

        if (waits && (int32_t)((call->id - quiet_id) << 1) > 0)
            return call;
    }
    return NULL;
}

/* The next call reports it, or one that waits since. The first failure is kept: what follows is often
 * its consequence. */
static void quiet_failed_locked(struct ch_link *link, const struct ch_message *reply)
{
    struct ch_link_call *call = later_wait_locked(link, reply->id);
    choir_status rc;

    if (link->late.code != CHOIR_OK || (int32_t)reply->code >= 0)
        return;
    rc = fail_as_told(reply);
    ch_error_prefix("an earlier request that was not waited for: ");
    if (call == NULL) {
        ch_error_save(&link->late);
        return;
    }
    finish_locked(link, call, rc);
    cancel_locked(link, call);
}

static struct ch_link_call *find_locked(struct ch_link *link, uint32_t id)
{
    CH_LIST_EACH (at, &link->calls) {
        struct ch_link_call *call = CH_CONTAINER(at, struct ch_link_call, link);

        if (call->id == id)
            return call;
    }
    return NULL; /* it gave up before */
}

static void deliver(struct ch_link *link, const struct ch_message *reply)
{
    struct ch_link_call *call;

    ch_lock(&link->lock);
    call = find_locked(link, reply->id);
    if ((reply->id & QUIET_ID) != 0) {
        quiet_failed_locked(link, reply);
    } else if (call != NULL) {
        if (call->number > link->confirmed)
            link->confirmed = call->number;
        if ((int32_t)reply->code < 0)
            finish_locked(link, call, fail_as_told(reply));
        else
            finish_locked(link, call,
                          call->ask->take != NULL ? call->ask->take(reply, call->ask->out)
                                                  : CHOIR_OK);
    }
    ch_unlock(&link->lock);
}

static void break_link(struct ch_link *link)
{
    ch_lock(&link->lock);
    break_locked(link);
    ch_unlock(&link->lock);
}

/* Room for more of a long reply: twice as much each time, so that a server that only says it is long
 * gets no memory for it. Without memory the rest is read and forgotten. */
static void grow_body(struct ch_link *link, size_t least)
{
    size_t room = link->body_room * 2 > least ? link->body_room * 2 : least;
    unsigned char *body;

    room = room < link->big.body_nbytes ? room : link->big.body_nbytes;
    body = ch_regrow(link->body, room, 1);
    if (body == NULL)
        ch_free(link->body);
    link->body = body;
    link->body_room = room;
}

/* The reply that `in` has no room for goes into a block of its own. */
static void begin_big(struct ch_link *link)
{
    size_t have = link->in_end - link->in_start - CH_WIRE_HEAD_NBYTES;

    ch_wire_get_head(link->in + link->in_start, &link->big);
    grow_body(link, 2 * CH_LINK_IN_ROOM);
    if (link->body != NULL)
        memcpy(link->body, link->in + link->in_start + CH_WIRE_HEAD_NBYTES, have);
    link->body_got = have;
    link->is_big = true;
    link->in_start = link->in_end = 0;
}

static choir_status end_big(struct ch_link *link)
{
    struct ch_message reply = { .id = link->big.id,
                                .code = link->big.code,
                                .nitems = link->big.nitems,
                                .number = link->big.number,
                                .body = link->body,
                                .body_nbytes = link->big.body_nbytes };
    choir_status rc = CHOIR_OK;

    if (link->body == NULL) {
        reply.code = (uint32_t)CHOIR_ERR_NOMEM; /* its words are lost, too */
        reply.nitems = 0;
    } else {
        rc = ch_wire_check_body(&reply);
    }
    if (rc == CHOIR_OK)
        deliver(link, &reply);
    ch_free(link->body);
    link->body = NULL;
    link->body_room = 0;
    link->is_big = false;
    return rc;
}

/* All whole replies in `in`. */
static choir_status take_replies(struct ch_link *link)
{
    choir_status rc = CHOIR_OK;

    while (rc == CHOIR_OK) {
        struct ch_message reply;
        size_t have = link->in_end - link->in_start;

        rc = ch_wire_read_reply(link->in + link->in_start, have, &reply);
        if (rc == CHOIR_OK) {
            link->in_start += CH_WIRE_HEAD_NBYTES + reply.body_nbytes;
            deliver(link, &reply);
        }
    }
    if (rc != CHOIR_IN_PROGRESS)
        return rc;
    if (link->in_end - link->in_start >= CH_WIRE_HEAD_NBYTES &&
        ch_get32(link->in + link->in_start) > CH_LINK_IN_ROOM - CH_WIRE_HEAD_NBYTES) {
        begin_big(link);
    } else if (link->in_start > 0) {
        link->in_end -= link->in_start;
        memmove(link->in, link->in + link->in_start, link->in_end);
        link->in_start = 0;
    }
    return CHOIR_OK;
}

/* Where the next bytes go. What there is no memory for is read over `in`, and forgotten. */
static unsigned char *where_to(const struct ch_link *link, size_t *room_out)
{
    size_t left = link->big.body_nbytes - link->body_got;

    if (!link->is_big) {
        *room_out = CH_LINK_IN_ROOM - link->in_end;
        return link->in + link->in_end;
    }
    if (link->body != NULL) {
        *room_out = link->body_room - link->body_got;
        return link->body + link->body_got;
    }
    *room_out = left < CH_LINK_IN_ROOM ? left : CH_LINK_IN_ROOM;
    return link->in;
}

/* As the reader: receive what is there. */
static void receive(struct ch_link *link)
{
    size_t room, n = 0;
    unsigned char *at = where_to(link, &room);
    choir_status rc = ch_sock_recv_now(link->fd, at, room, &n);

    if (rc == CHOIR_IN_PROGRESS)
        return;
    if (rc == CHOIR_OK && link->is_big) {
        link->body_got += n;
        if (link->body_got == link->big.body_nbytes)
            rc = end_big(link);
        else if (link->body_got == link->body_room && link->body != NULL)
            grow_body(link, 0);
    } else if (rc == CHOIR_OK) {
        link->in_end += n;
        rc = take_replies(link);
    }
    if (rc != CHOIR_OK)
        break_link(link);
}

/* --- waiting ------------------------------------------------------------------------------------- */

/* Somebody who waits must be the reader, and look after what is unsent. */
static void pass_on_locked(struct ch_link *link, struct ch_link_call *from)
{
    bool was_reader = atomic_load_explicit(&link->reader, memory_order_relaxed) == from;
    struct ch_link_call *next = NULL;

    ch_lock_assert_held(&link->lock);
    if (!ch_list_empty(&link->calls))
        next = CH_CONTAINER(link->calls.next, struct ch_link_call, link);
    if (was_reader)
        /* Release, pairs with the acquire in be_reader(): what was received so far goes along. */
        atomic_store_explicit(&link->reader, next, memory_order_release);
    if (next != NULL && (was_reader || link->out_start < link->out_end))
        ch_post(next->bell, &next->stirred, 1);
}

/* Whether `call` reads. Nobody does: then it does from now on. */
static bool be_reader(struct ch_link *link, struct ch_link_call *call)
{
    /* Acquire, pairs with the release in pass_on_locked(). */
    struct ch_link_call *reader = atomic_load_explicit(&link->reader, memory_order_acquire);

    if (reader == NULL) {
        ch_lock(&link->lock);
        reader = atomic_load_explicit(&link->reader, memory_order_relaxed);
        if (reader == NULL) {
            reader = call;
            atomic_store_explicit(&link->reader, call, memory_order_relaxed);
        }
        ch_unlock(&link->lock);
    }
    return reader == call;
}

static bool is_done(struct ch_link_call *call)
{
    return ch_flag_reached(&call->done, 1);
}

/* A quiet request is done when nothing is left to send. */
static void push_on(struct ch_link *link, struct ch_link_call *call)
{
    ch_lock(&link->lock);
    flush_locked(link);
    if (call->ask->quiet && link->out_start == link->out_end && !is_done(call))
        finish_locked(link, call, CHOIR_OK);
    ch_unlock(&link->lock);
}

static bool call_is_ready(void *arg)
{
    struct ch_link_call *call = arg;
    struct ch_link *link = call->owner;

    if (is_done(call))
        return true;
    if (call->ask->quiet || atomic_load_explicit(&link->unsent, memory_order_relaxed) > 0)
        push_on(link, call);
    if (!is_done(call) && be_reader(link, call))
        receive(link);
    return is_done(call);
}

static int socket_to_watch(void *arg, short *events_out)
{
    struct ch_link_call *call = arg;
    struct ch_link *link = call->owner;
    short events = 0;

    /* Relaxed: nobody but ourselves gives the role away, and who gives it to us rings. */
    if (atomic_load_explicit(&link->reader, memory_order_relaxed) == call)
        events |= POLLIN;
    if (atomic_load_explicit(&link->unsent, memory_order_relaxed) > 0)
        events |= POLLOUT;
    *events_out = events;
    return events != 0 ? link->fd : -1;
}

static choir_status wait_for(struct ch_link_call *call, const struct ch_patience *patience)
{
    struct ch_wait wait = { .waiter = patience->waiter,
                            .ready = call_is_ready,
                            .also = socket_to_watch,
                            .arg = call,
                            .until = patience->until,
                            .poison = patience->poison,
                            .what = call->ask->quiet ? "room to send" : "the store's reply" };

    return ch_wait(&wait);
}

/* --- giving up ----------------------------------------------------------------------------------- */

static void cancel_locked(struct ch_link *link, const struct ch_link_call *call)
{
    struct ch_ask ask = { .op = CH_OP_CANCEL, .quiet = true, .number = call->id };

    if (link->broken.code == CHOIR_OK && send_locked(link, &ask, QUIET_ID) != CHOIR_OK)
        break_locked(link); /* no memory: without the connection the server forgets it, too */
}

/* An element may be on its way to us already: nobody else would get it. So wait for the server's last
 * word, whatever made the caller give up, on a waiter that nobody interrupts. */
static void settle(struct ch_link *link, struct ch_link_call *call)
{
    struct ch_bell_word word = { 0 };
    struct ch_waiter waiter;
    struct ch_patience patience = { .waiter = &waiter, .until = ch_deadline_ms(GRACE_MS) };
    choir_status rc = ch_waiter_init(&waiter, &word);

    if (rc == CHOIR_OK) {
        ch_lock(&link->lock);
        call->bell = &waiter.bell;
        cancel_locked(link, call);
        ch_unlock(&link->lock);
        rc = wait_for(call, &patience);
    }
    ch_lock(&link->lock);
    if (!is_done(call))
        break_locked(link);
    ch_unlock(&link->lock);
    if (waiter.bell.fd >= 0)
        ch_waiter_fini(&waiter);
}

static bool takes_an_element(const struct ch_link_call *call)
{
    return call->ask->op == CH_OP_POP || call->ask->op == CH_OP_TRY_POP;
}

/* `rc` ended the wait. What came in the last moment counts all the same. */
static void give_up(struct ch_link *link, struct ch_link_call *call, choir_status rc)
{
    bool in_vain, pops = takes_an_element(call);
    choir_error why;

    ch_error_save(&why);
    if (pops)
        settle(link, call);
    ch_lock(&link->lock);
    in_vain = !is_done(call) || (pops && call->rc != CHOIR_OK);
    if (!is_done(call)) {
        ch_list_remove(&call->link);
        if (!call->ask->quiet)
            cancel_locked(link, call);
    }
    if (in_vain) {
        call->rc = rc;
        call->error = why;
    }
    ch_unlock(&link->lock);
}

/* --- asking -------------------------------------------------------------------------------------- */

static choir_status report_locked(struct ch_link *link)
{
    ch_lock_assert_held(&link->lock);
    if (link->broken.code != CHOIR_OK)
        return ch_error_load(&link->broken);
    if (link->late.code != CHOIR_OK) {
        choir_status rc = ch_error_load(&link->late);

        link->late.code = CHOIR_OK;
        return rc;
    }
    return CHOIR_OK;
}

static choir_status begin_locked(struct ch_link *link, struct ch_link_call *call)
{
    choir_status rc = report_locked(link);

    if (rc != CHOIR_OK)
        return rc;
    call->id = link->next_id++ & ~(uint32_t)QUIET_ID;
    call->number = ++link->asked;
    if (call->ask->quiet) {
        call->id |= QUIET_ID;
        link->quiet = call->number;
    }
    ch_list_push_back(&link->calls, &call->link);
    rc = send_locked(link, call->ask, call->id);
    if (rc != CHOIR_OK)
        ch_list_remove(&call->link);
    else if (call->ask->quiet && !is_done(call) && link->out_start == link->out_end)
        finish_locked(link, call, CHOIR_OK);
    else if (!is_done(call) && atomic_load_explicit(&link->reader, memory_order_relaxed) == NULL)
        atomic_store_explicit(&link->reader, call, memory_order_relaxed);
    return rc;
}

choir_status ch_link_ask(struct ch_link *link, const struct ch_ask *ask,
                         const struct ch_patience *patience)
{
    struct ch_link_call call;
    choir_status rc;

    ch_link_call_init(&call, link, ask, &patience->waiter->bell);
    ch_lock(&link->lock);
    rc = begin_locked(link, &call);
    ch_unlock(&link->lock);
    if (rc != CHOIR_OK)
        return rc;
    if (!is_done(&call) || !ask->quiet) {
        rc = wait_for(&call, patience);
        if (rc != CHOIR_OK)
            give_up(link, &call, rc);
        /* With the lock: whoever brought it has let go of our bell. */
        ch_lock(&link->lock);
        pass_on_locked(link, &call);
        ch_unlock(&link->lock);
    }
    return call.rc == CHOIR_OK ? CHOIR_OK : ch_error_load(&call.error);
}

/* --- the end ------------------------------------------------------------------------------------- */

/* Nobody is left to whom it could be returned. */
static void say_what_failed(struct ch_link *link)
{
    if (link->late.code != CHOIR_OK)
        ch_log_warn("store at %s: %s", link->address, link->late.text);
    link->late.code = CHOIR_OK;
}

/* Whether everything asked for has arrived. A reply tells so for all that was sent before it. */
static choir_status make_sure(struct ch_link *link)
{
    struct ch_ask ask = { .op = CH_OP_PING };
    struct ch_bell_word word = { 0 };
    struct ch_waiter waiter;
    struct ch_patience patience = { .waiter = &waiter, .until = ch_deadline_ms(GRACE_MS) };
    choir_status rc;

    if (link->quiet <= link->confirmed && link->out_start == link->out_end)
        return CHOIR_OK;
    say_what_failed(link);
    rc = ch_waiter_init(&waiter, &word);
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_link_ask(link, &ask, &patience);
    ch_waiter_fini(&waiter);
    return rc;
}

void ch_link_close(struct ch_link *link)
{
    if (link->calls.next == NULL)
        return; /* zeroed */
    if (link->fd >= 0 && link->broken.code == CHOIR_OK && !ch_is_forked()) {
        if (make_sure(link) != CHOIR_OK)
            ch_log_warn("store at %s: what was set last may not have arrived: %s", link->address,
                        choir_last_error());
        say_what_failed(link);
    }
    ch_sys_close(link->fd);
    ch_free(link->in);
    ch_free(link->out);
    ch_free(link->body);
    ch_free((char *)(uintptr_t)link->address);
    ch_lock_fini(&link->lock);
    memset(link, 0, sizeof(*link));
}
