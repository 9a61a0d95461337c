/*
 * torch_link.h - one connection to a server that speaks PyTorch's TCPStore protocol.
 *
 * Strictly one request at a time. Who gives up waiting for a reply (deadline, interrupt) leaves it
 * owed; whoever uses the link next skips it first. So giving up costs no connection, and nothing that
 * was sent before is lost. Any other failure closes the link.
 *
 * Threads: one at a time; store_torch.c sees to it.
 */
#ifndef CH_TORCH_LINK_H
#define CH_TORCH_LINK_H

#include "io/patience.h"
#include "store/torch_wire.h"

struct ch_torch_link {
    int fd;                            /* -1: closed */
    struct ch_torch_reply_parser owed; /* by the server: its next reply */
    unsigned char *inbox;              /* what has come of it */
    size_t nbytes, room;
    uint64_t unanswered; /* requests without a reply since the last reply that came */
    uint64_t lost;       /* of these, when the link broke in a way that nobody was told */
};

/* Closed, nothing owed. */
void ch_torch_link_init(struct ch_torch_link *link);

/* Connect to "host:port", once; say VALIDATE and PING and see the PING come back. */
choir_status ch_torch_link_open(struct ch_torch_link *link, const char *where,
                                const struct ch_patience *patience);
void ch_torch_link_close(struct ch_torch_link *link);

/* Make an open link ready for a request: skip what is owed, see whether the server has closed. */
choir_status ch_torch_link_settle(struct ch_torch_link *link, const struct ch_patience *patience);

/* Send a request. `form` is of the reply it will have. */
choir_status ch_torch_link_send(struct ch_torch_link *link, const void *request, size_t nbytes,
                                enum ch_torch_reply form, size_t count,
                                const struct ch_patience *patience);

/* The reply that is owed; borrowed until the next call. */
choir_status ch_torch_link_receive(struct ch_torch_link *link, const struct ch_patience *patience,
                                   choir_bytes *reply_out);

/* Withdraw a WAIT or BARRIER, whether or not it was answered. Does not wait for the answer. */
void ch_torch_link_cancel(struct ch_torch_link *link);

/* Whether `rc` says that the caller gave up waiting, and not that something is wrong. */
bool ch_torch_gave_up(choir_status rc);

#endif
