/*
 * p2p_read.c - large messages that are read where they are, instead of being sent through the stream.
 *
 * One copy instead of two, by the receiver alone and in one go; but the system looks up every page. Where each rank has a processor
 * two copies through a ring that stays in the caches are as fast; where they take turns, a ring's worth is all that a turn moves.
 *
 * A send is its owner's to take back at any moment, also while it is read. So the sender withdraws what it lent before the
 * owner has it back, and the receiver asks after each reading whether it did: if so, or if it could not be read, the
 * message is sent for as if it had never been lent. If it was this one that was taken back, WITHDRAW is on its way.
 */
#include "transport/p2p_state.h"

void ch_p2p_read_from(struct ch_p2p *p2p, size_t from, size_t to)
{
    p2p->read_from = from;
    p2p->read_to = to;
}

/* --- the sender ------------------------------------------------------------------------------------------ */

void ch_p2p_lend(const struct peer *peer, struct ch_transfer *t, struct ch_frame *offer)
{
    struct ch_stream *stream = peer->stream;

    if (stream->ops->withdrawn == NULL || t->niov != 1 || t->nbytes == 0)
        return;
    t->lent = true;
    offer->flags |= CH_FRAME_LENT;
    offer->epoch = (uint32_t)stream->ops->withdrawn(stream, true);
    offer->rid = (uint64_t)(uintptr_t)t->iov[0].iov_base;
}

void ch_p2p_withdraw(const struct peer *peer)
{
    if (peer->stream != NULL && peer->stream->ops->withdraw != NULL)
        peer->stream->ops->withdraw(peer->stream);
}

bool ch_p2p_was_read(struct ch_p2p *p2p, struct message *message)
{
    struct ch_transfer *t = message->transfer;

    if (t->state != TRANSFER_OFFERED || !t->lent)
        return false;
    t->moved = t->nbytes;
    t->message = NULL;
    ch_message_free(p2p, message);
    ch_p2p_finish_locked(p2p, t, NULL);
    return true;
}

/* --- the receiver ---------------------------------------------------------------------------------------- */

bool ch_p2p_start_read(struct ch_p2p *p2p, struct peer *peer, struct message *message)
{
    if (!message->lent || message->total < p2p->read_from || message->total >= p2p->read_to ||
        peer->unreadable || peer->stream->ops->read_remote == NULL)
        return false;
    ch_list_push_back(&peer->reading, &message->link);
    return true;
}

static bool is_lent_still(const struct peer *peer, const struct message *m)
{
    return (uint32_t)peer->stream->ops->withdrawn(peer->stream, false) == m->epoch;
}

/* Some of it: false if it cannot be had. */
static bool read_some(struct peer *peer, const struct message *m, size_t *done_out)
{
    struct ch_transfer *t = m->transfer;
    struct iovec piece = { NULL, 0 };

    ch_transfer_iov(t, CH_READ_NBYTES, &piece, 1);
    if (peer->stream->ops->read_remote(peer->stream, piece.iov_base, m->remote + t->moved,
                                       piece.iov_len) != CHOIR_OK) {
        if (is_lent_still(peer, m))
            peer->unreadable = true; /* not allowed, or another process: not again */
        return false;
    }
    if (!is_lent_still(peer, m))
        return false;
    ch_transfer_advance(t, piece.iov_len);
    *done_out = piece.iov_len;
    return true;
}

/* As if nothing of it had come. */
static void send_for(struct ch_p2p *p2p, struct message *m)
{
    struct ch_transfer *t = m->transfer;

    t->at_iov = 0;
    t->at_byte = t->moved = 0;
    ch_p2p_note(p2p, m, CH_FRAME_TAKE, 0);
}

bool ch_p2p_pump_read(struct ch_p2p *p2p, struct peer *peer, size_t *budget)
{
    bool moved = false;

    while (*budget > 0 && !ch_list_empty(&peer->reading)) {
        struct message *m = CH_CONTAINER(peer->reading.next, struct message, link);
        size_t done = 0;

        moved = true;
        if (!read_some(peer, m, &done)) {
            send_for(p2p, m);
            continue;
        }
        *budget -= done < *budget ? done : *budget;
        if (m->transfer->moved == m->transfer->nbytes)
            ch_p2p_note(p2p, m, CH_FRAME_READ, 0); /* the receive is done with it */
    }
    return moved;
}
