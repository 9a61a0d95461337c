/* torch_link.c - see torch_link.h. */
#include "store/torch_link.h"

#include <poll.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sys.h"
#include "io/sock.h"

enum {
    INBOX_LEAST = 4096,
    INBOX_KEPT = 1 << 20, /* what a large reply needed beyond this is given back */
};

static const struct ch_torch_reply_parser nothing = { .form = CH_TORCH_REPLY_NONE };

bool ch_torch_gave_up(choir_status rc)
{
    return rc == CHOIR_ERR_TIMEOUT || rc == CHOIR_ERR_INTERRUPTED || rc == CHOIR_ERR_REMOTE;
}

/* --- closing -------------------------------------------------------------------------------------- */

void ch_torch_link_init(struct ch_torch_link *link)
{
    *link = (struct ch_torch_link){ .fd = -1 };
}

static void drop_inbox(struct ch_torch_link *link)
{
    ch_free(link->inbox);
    link->inbox = NULL;
    link->nbytes = link->room = 0;
}

void ch_torch_link_close(struct ch_torch_link *link)
{
    ch_sys_close(link->fd);
    link->fd = -1;
    link->owed = nothing;
    link->unanswered = 0;
    drop_inbox(link);
}

/* The link is of no use any more. Requests that nobody got an answer to may be lost with it: either
 * this failure tells, or, if it is about something else, the next call. */
static choir_status broken(struct ch_torch_link *link, choir_status rc)
{
    if (link->unanswered > 0 && ch_torch_gave_up(rc))
        link->lost += link->unanswered;
    else if (link->unanswered > 0)
        ch_error_prefix("%llu earlier requests without a reply may be lost too: ",
                        (unsigned long long)link->unanswered);
    ch_torch_link_close(link);
    return rc;
}

/* --- sending -------------------------------------------------------------------------------------- */

choir_status ch_torch_link_send(struct ch_torch_link *link, const void *request, size_t nbytes,
                                enum ch_torch_reply form, size_t count,
                                const struct ch_patience *patience)
{
    choir_status rc = ch_sock_send_all(link->fd, request, nbytes, patience);

    if (rc != CHOIR_OK)
        return broken(link, rc); /* half a request may have gone */
    link->unanswered += form == CH_TORCH_REPLY_NONE;
    link->owed = ch_torch_reply_parser(form, count);
    link->nbytes = 0;
    if (link->room > INBOX_KEPT)
        drop_inbox(link);
    return CHOIR_OK;
}

void ch_torch_link_cancel(struct ch_torch_link *link)
{
    const unsigned char cancel = CH_TORCH_CANCEL_WAIT;
    size_t done;

    if (link->fd < 0)
        return;
    if (ch_sock_send_now(link->fd, &cancel, 1, &done) != CHOIR_OK) {
        ch_torch_link_close(link);
        return;
    }
    if (link->owed.form == CH_TORCH_REPLY_NONE)
        link->nbytes = 0;
    link->owed = ch_torch_reply_parser(CH_TORCH_REPLY_CANCEL, 0);
}

/* --- receiving ------------------------------------------------------------------------------------ */

/* Room for some more. It grows with what has come, not with the length that the server names. */
static choir_status grow_inbox(struct ch_torch_link *link)
{
    size_t room = link->room < INBOX_LEAST ? INBOX_LEAST : 2 * link->room;
    unsigned char *inbox;

    if (link->nbytes < link->room)
        return CHOIR_OK;
    inbox = ch_regrow(link->inbox, room, 1);
    if (inbox == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for a reply of %zu bytes and more", room);
    link->inbox = inbox;
    link->room = room;
    return CHOIR_OK;
}

static choir_status receive_some(struct ch_torch_link *link, const struct ch_patience *patience)
{
    size_t done = 0;
    choir_status rc = grow_inbox(link);

    if (rc == CHOIR_OK)
        rc = ch_sock_recv_now(link->fd, link->inbox + link->nbytes, link->room - link->nbytes,
                              &done);
    if (rc == CHOIR_IN_PROGRESS)
        return ch_patience_wait(patience, link->fd, POLLIN, "a reply of the store's server");
    link->nbytes += done;
    return rc;
}

choir_status ch_torch_link_receive(struct ch_torch_link *link, const struct ch_patience *patience,
                                   choir_bytes *reply_out)
{
    size_t nbytes = 0;
    choir_status rc;

    for (;;) {
        rc = ch_torch_parse_reply(&link->owed, link->inbox, link->nbytes, &nbytes);
        if (rc == CHOIR_IN_PROGRESS)
            rc = receive_some(link, patience);
        else
            break;
        if (rc != CHOIR_OK)
            return ch_torch_gave_up(rc) ? rc : broken(link, rc);
    }
    if (rc == CHOIR_OK && link->nbytes > nbytes)
        rc = ch_fail(CHOIR_ERR_PROTO, "torch: %zu bytes more than the reply has",
                     link->nbytes - nbytes);
    if (rc != CHOIR_OK)
        return broken(link, rc);
    link->owed = nothing;
    link->unanswered = 0;
    *reply_out = (choir_bytes){ link->inbox, nbytes };
    return CHOIR_OK;
}

/* With nothing owed nothing may come, and an end of the stream is better found out before a request
 * is sent than after. */
static choir_status look_at_quiet_link(struct ch_torch_link *link)
{
    unsigned char byte;
    size_t done;
    choir_status rc = ch_sock_recv_now(link->fd, &byte, 1, &done);

    if (rc == CHOIR_IN_PROGRESS)
        return CHOIR_OK;
    if (rc == CHOIR_OK)
        rc = ch_fail(CHOIR_ERR_PROTO, "torch: the server sent 0x%02x, nothing was asked", byte);
    else
        ch_error_prefix("since the last call: ");
    return broken(link, rc);
}

static choir_status check_cancelled(struct ch_torch_link *link, choir_bytes reply)
{
    const unsigned char *bytes = reply.data;

    if (bytes[reply.nbytes - 1] == CH_TORCH_WAIT_CANCELLED)
        return CHOIR_OK;
    return broken(link, ch_fail(CHOIR_ERR_PROTO, "torch: 0x%02x as the reply to CANCEL_WAIT",
                                bytes[reply.nbytes - 1]));
}

choir_status ch_torch_link_settle(struct ch_torch_link *link, const struct ch_patience *patience)
{
    bool cancelled = link->owed.form == CH_TORCH_REPLY_CANCEL;
    choir_bytes reply;
    choir_status rc;

    if (link->owed.form == CH_TORCH_REPLY_NONE)
        return look_at_quiet_link(link);
    rc = ch_torch_link_receive(link, patience, &reply);
    return rc == CHOIR_OK && cancelled ? check_cancelled(link, reply) : rc;
}

/* --- opening -------------------------------------------------------------------------------------- */

/* VALIDATE leaves as one write: PyTorch's server takes its pieces for something else. */
static choir_status say_hello(struct ch_torch_link *link, const struct ch_patience *patience)
{
    const struct ch_torch_request validate = { .command = CH_TORCH_VALIDATE,
                                               .number = CH_TORCH_MAGIC };
    const struct ch_torch_request ping = { .command = CH_TORCH_PING,
                                           .number = (int64_t)(ch_now() & 0xffffffffu) };
    unsigned char bytes[8];
    choir_bytes reply;
    choir_status rc;

    ch_torch_put(bytes, &validate);
    rc = ch_torch_link_send(link, bytes, ch_torch_size(&validate), CH_TORCH_REPLY_NONE, 0,
                            patience);
    link->unanswered = 0;
    ch_torch_put(bytes, &ping);
    if (rc == CHOIR_OK)
        rc = ch_torch_link_send(link, bytes, ch_torch_size(&ping), CH_TORCH_REPLY_NONCE, 0,
                                patience);
    if (rc == CHOIR_OK)
        rc = ch_torch_link_receive(link, patience, &reply);
    if (rc == CHOIR_OK && memcmp(reply.data, bytes + 1, 4) != 0)
        rc = ch_fail(CHOIR_ERR_PROTO, "torch: a PING came back changed: this is no TCPStore");
    return rc;
}

choir_status ch_torch_link_open(struct ch_torch_link *link, const char *where,
                                const struct ch_patience *patience)
{
    uint64_t lost = link->lost;
    choir_status rc;

    ch_torch_link_init(link);
    link->lost = lost;
    rc = ch_sock_connect(where, patience, &link->fd);
    if (rc != CHOIR_OK)
        return rc;
    rc = say_hello(link, patience);
    if (rc != CHOIR_OK)
        ch_torch_link_close(link);
    return rc;
}
