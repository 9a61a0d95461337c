/*
 * p2p_out.c - frames that go.
 *
 * One frame at a time is being written to each peer; when it is out the next one is chosen: first what tells
 * of messages (notes), then in turn a new message and a piece of a large one, so that neither holds the
 * other up for longer than a frame.
 */
#include "transport/p2p_state.h"

#include <string.h>

#include "base/error.h"

enum { PIECES = 8 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- what a send may use ------------------------------------------------------------------------------ */

static bool eager_fits(const struct ch_p2p *p2p, const struct peer *peer, size_t nbytes)
{
    return nbytes <= CH_P2P_EAGER && ch_list_empty(&peer->held) &&
           peer->used + ch_frame_charge((uint32_t)nbytes) <= p2p->kept_max - p2p->kept_max / 4;
}

static bool offer_fits(const struct ch_p2p *p2p, const struct peer *peer)
{
    return peer->used + CH_FRAME_CHARGE <= p2p->kept_max;
}

/* What was charged for it. */
static size_t charge_of(const struct ch_transfer *t)
{
    if (t->message == NULL)
        return ch_frame_charge((uint32_t)t->nbytes);
    return t->message->asked ? 0 : CH_FRAME_CHARGE;
}

static void queue(struct peer *peer, struct ch_transfer *t)
{
    t->state = TRANSFER_QUEUED;
    peer->used += charge_of(t);
    ch_list_push_back(&peer->starting, &t->link);
}

static void hold(struct peer *peer, struct ch_transfer *t)
{
    t->state = TRANSFER_HELD;
    ch_list_push_back(&peer->held, &t->link);
    peer->say_flows = false;
    if (peer->asking)
        peer->more_held = true;
    else
        peer->say_held = true;
}

bool ch_p2p_start_send(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t)
{
    struct message *m;

    if (eager_fits(p2p, peer, t->nbytes)) {
        queue(peer, t);
        return true;
    }
    m = ch_message_new(p2p, peer, MESSAGE_SEND);
    if (m == NULL)
        return false;
    m->transfer = t;
    t->message = m;
    if (ch_list_empty(&peer->held) && offer_fits(p2p, peer))
        queue(peer, t);
    else
        hold(peer, t);
    return true;
}

/* A held one leaves its list. */
static void unhold(struct peer *peer, struct ch_transfer *t)
{
    ch_list_remove(&t->link);
    if (!ch_list_empty(&peer->held))
        return;
    peer->say_flows = peer->told_held;
    peer->say_held = peer->more_held = false;
}

void ch_p2p_release_held(struct ch_p2p *p2p, struct peer *peer)
{
    while (!ch_list_empty(&peer->held) && offer_fits(p2p, peer)) {
        struct ch_transfer *t = CH_CONTAINER(peer->held.next, struct ch_transfer, link);

        unhold(peer, t);
        queue(peer, t);
    }
}

void ch_p2p_answer_ask(struct peer *peer, uint64_t context, uint64_t tag)
{
    CH_LIST_EACH (link, &peer->held) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, link);

        if (t->context == context && t->tag == tag) {
            unhold(peer, t);
            t->message->asked = true;
            queue(peer, t);
            return;
        }
    }
}

/* --- the short way: a small message to a peer with nothing before it ------------------------------------ */

/* The frame's credit: all that is owed. */
static uint32_t give_credit(struct peer *peer)
{
    uint32_t credit = (uint32_t)peer->owed; /* at most CH_P2P_KEPT */

    peer->kept -= peer->owed;
    peer->owed = 0;
    return credit;
}

/* A whole message into `to`, where it is read from: field by field, as one put together elsewhere of small stores would be
 * waited for before it could be copied. */
static void write_message(const struct ch_stream *stream, struct ch_frame *to,
                          const struct ch_envelope *e, uint32_t credit, const void *data)
{
    to->nbytes = (uint32_t)e->nbytes;
    to->kind = CH_FRAME_EAGER;
    to->reason = 0;
    to->flags = 0;
    to->credit = credit;
    to->epoch = 0;
    to->context = e->context;
    to->tag = e->tag;
    to->check = e->check;
    to->total = e->nbytes;
    to->id = to->rid = 0;
    if (CH_LIKELY(e->nbytes < CH_COPY_OVER_FROM))
        ch_p2p_copy(to + 1, data, e->nbytes);
    else
        ch_copy_over(stream->ways, to + 1, data, e->nbytes);
}

static inline void tell(struct ch_stream *stream, const struct ch_envelope *e, uint32_t credit,
                        const void *data)
{
    uint64_t words[CH_TOLD_WORDS] = { e->context, e->tag, ch_told_bits(e, credit) };

    ch_p2p_copy(words + CH_TOLD_HEAD, data, e->nbytes);
    stream->ops->tell(stream, words, ch_told_count(e->nbytes));
}

/* With nothing before it and room for it, in one piece: frame and payload straight to where they are read from. */
bool ch_p2p_send_whole(struct ch_p2p *p2p, struct peer *peer, const struct ch_envelope *e,
                       const void *data)
{
    struct ch_stream *stream = peer->stream;
    size_t whole;
    struct ch_frame *to;
    uint32_t credit;

    if (!eager_fits(p2p, peer, e->nbytes) || ch_p2p_wants_out(p2p, peer) ||
        stream->ops->reserve == NULL)
        return false;
    whole = sizeof(*to) + e->nbytes + ch_frame_fill((uint32_t)e->nbytes);
    to = stream->ops->reserve(stream, whole);
    if (to == NULL)
        return false;
    credit = give_credit(peer);
    write_message(stream, to, e, credit, data);
    if (ch_told_fits(e) && stream->ops->tell != NULL)
        tell(stream, e, credit, data);
    peer->used += ch_frame_charge((uint32_t)e->nbytes);
    stream->ops->commit(stream, whole);
    return true;
}

bool ch_p2p_send_at_once(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t)
{
    struct ch_envelope e = { t->context, t->tag, t->check, t->nbytes };

    if (t->niov != 1 || !ch_p2p_send_whole(p2p, peer, &e, t->iov[0].iov_base))
        return false;
    t->moved = t->nbytes;
    ch_p2p_finish_locked(p2p, t, NULL);
    return true;
}

/* --- taking a send back --------------------------------------------------------------------------------- */

/* Forget the frame that is about to be written: nothing of it went. */
static void unbegin(struct peer *peer)
{
    peer->owed += peer->out.frame.credit;
    peer->kept += peer->out.frame.credit;
    peer->out = (struct out_state){ 0 };
}

/* The owner wants its buffer back in the middle of a frame: keep a copy of the rest. Without memory for it the
 * frame has no rest, and write_frame() gives the peer up. */
static void save_rest(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t)
{
    struct out_state *out = &peer->out;
    struct iovec piece;
    size_t at = 0;

    out->from = NULL;
    if (out->left == 0)
        return;
    out->rest = ch_buffer_new(p2p, out->left);
    out->rest_at = 0;
    if (out->rest == NULL)
        return;
    while (at < out->left && ch_transfer_iov(t, out->left - at, &piece, 1) > 0) {
        memcpy(out->rest->data + at, piece.iov_base, piece.iov_len);
        ch_transfer_advance(t, piece.iov_len);
        at += piece.iov_len;
    }
}

/* True if the current frame was the transfer's and cannot be taken back. */
static bool leave_frame(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t)
{
    if (!peer->out.busy || peer->out.from != t)
        return false;
    if (peer->out.nframe == 0) {
        unbegin(peer);
        return false;
    }
    save_rest(p2p, peer, t);
    return true;
}

static void leave_message(struct ch_p2p *p2p, struct ch_transfer *t, bool offered, bool refused)
{
    struct message *m = t->message;

    t->message = NULL;
    if (m == NULL)
        return;
    m->transfer = NULL;
    if (!offered || refused)
        ch_message_free(p2p, m);
    else
        ch_p2p_note(p2p, m, CH_FRAME_WITHDRAW, 0);
}

void ch_p2p_leave_send(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t, bool refused)
{
    bool begun = leave_frame(p2p, peer, t);

    switch ((enum transfer_state)t->state) {
    case TRANSFER_HELD:
        unhold(peer, t);
        leave_message(p2p, t, false, refused);
        break;
    case TRANSFER_QUEUED:
        ch_list_remove(&t->link);
        if (!begun)
            peer->used -= charge_of(t);
        leave_message(p2p, t, begun, refused);
        if (!begun)
            ch_p2p_release_held(p2p, peer);
        break;
    case TRANSFER_OFFERED:
    case TRANSFER_STREAMING:
        ch_list_remove(&t->link);
        leave_message(p2p, t, true, refused);
        break;
    case TRANSFER_IDLE:
    case TRANSFER_POSTED:
    case TRANSFER_FILLING:
    case TRANSFER_ACCEPTED:
    case TRANSFER_DONE:
        break;
    }
}

/* --- choosing the next frame --------------------------------------------------------------------------- */

void ch_p2p_note(struct ch_p2p *p2p, struct message *message, enum ch_frame_kind kind,
                 enum ch_frame_reason reason)
{
    struct peer *peer = &p2p->peers[message->peer];

    message->note = (uint8_t)kind;
    message->reason = (uint8_t)reason;
    ch_list_remove(&message->link); /* it may be there already, with a note that is now wrong */
    ch_list_push_back(&peer->notes, &message->link);
}

static struct ch_frame *begin(struct peer *peer, enum ch_frame_kind kind)
{
    peer->out = (struct out_state){ .busy = true };
    peer->out.frame.kind = (uint8_t)kind;
    peer->out.frame.credit = give_credit(peer);
    return &peer->out.frame;
}

static bool next_note(struct peer *peer)
{
    struct ch_list *link = ch_list_pop_front(&peer->notes);
    struct message *m;
    struct ch_frame *f;

    if (link == NULL)
        return false;
    m = CH_CONTAINER(link, struct message, link);
    f = begin(peer, m->note);
    peer->out.message = m;
    f->reason = m->reason;
    f->id = m->kind == MESSAGE_SEND ? m->id : m->sid;
    f->rid = m->kind == MESSAGE_NOTE ? m->rid : m->kind == MESSAGE_SEND ? 0 : m->id;
    if (m->note == CH_FRAME_REFUSE) {
        f->context = m->context;
        f->tag = m->tag;
        f->check = m->check;
        f->total = m->total;
    }
    return true;
}

static bool next_start(struct peer *peer)
{
    struct ch_list *link = ch_list_pop_front(&peer->starting);
    struct ch_transfer *t;
    struct ch_frame *f;

    if (link == NULL)
        return false;
    t = CH_CONTAINER(link, struct ch_transfer, link);
    f = begin(peer, t->message != NULL ? CH_FRAME_OFFER : CH_FRAME_EAGER);
    f->context = t->context;
    f->tag = t->tag;
    f->check = t->check;
    f->total = t->nbytes;
    peer->out.from = t;
    peer->out.message = t->message;
    if (t->message != NULL) {
        f->id = t->message->id;
        f->flags = t->message->asked ? CH_FRAME_ASKED : 0;
        ch_p2p_lend(peer, t, f);
    } else {
        f->nbytes = (uint32_t)t->nbytes;
        peer->out.left = t->nbytes;
        peer->out.fill = ch_frame_fill(f->nbytes);
    }
    peer->piece_next = true;
    return true;
}

static bool next_piece(struct peer *peer)
{
    struct ch_list *link = ch_list_pop_front(&peer->streaming);
    struct ch_transfer *t;
    struct ch_frame *f;
    size_t n;

    if (link == NULL)
        return false;
    t = CH_CONTAINER(link, struct ch_transfer, link);
    n = smaller(t->nbytes - t->moved, CH_P2P_PIECE);
    f = begin(peer, CH_FRAME_DATA);
    f->nbytes = (uint32_t)n;
    f->total = t->moved;
    f->rid = t->message->rid;
    peer->out.left = n;
    peer->out.fill = ch_frame_fill(f->nbytes);
    peer->out.from = t;
    peer->piece_next = false;
    return true;
}

static bool wants_from(const struct ch_transfer *t, const struct peer *peer)
{
    return t->state == TRANSFER_POSTED && t->seq > peer->asked_to &&
           (t->peer == CH_P2P_ANY || t->peer == (int)peer->rank);
}

/* Ask a peer that holds messages back for the next receive that it was not asked for yet. */
static bool next_ask(struct ch_p2p *p2p, struct peer *peer)
{
    struct ch_frame *f;

    if (!peer->holds || peer->asked_to == p2p->last_seq)
        return false;
    CH_LIST_EACH (link, &p2p->all) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, all);

        if (!wants_from(t, peer))
            continue;
        f = begin(peer, CH_FRAME_ASK);
        f->context = t->context;
        f->tag = t->tag;
        peer->asked_to = t->seq;
        peer->asks++;
        return true;
    }
    peer->asked_to = p2p->last_seq;
    return false;
}

/* About messages held back, ours and the peer's. */
static bool next_about_held(struct ch_p2p *p2p, struct peer *peer)
{
    if (peer->say_held) {
        peer->say_held = peer->more_held = false;
        peer->asking = peer->told_held = true;
        begin(peer, CH_FRAME_HELD);
        return true;
    }
    if (peer->say_flows) {
        peer->say_flows = peer->told_held = false;
        begin(peer, CH_FRAME_FLOWS);
        return true;
    }
    if (next_ask(p2p, peer))
        return true;
    if (peer->say_asked) {
        peer->say_asked = false;
        begin(peer, CH_FRAME_ASKED_ALL);
        return true;
    }
    return false;
}

/* Credit goes with other frames if there are any; alone when it is much, or is waited for. */
static bool next_credit(const struct ch_p2p *p2p, struct peer *peer)
{
    if (peer->owed == 0 || (peer->owed < p2p->kept_max / 4 && !peer->holds))
        return false;
    begin(peer, CH_FRAME_CREDIT);
    return true;
}

static bool next_frame(struct ch_p2p *p2p, struct peer *peer)
{
    if (next_note(peer) || next_about_held(p2p, peer))
        return true;
    if (peer->piece_next ? next_piece(peer) || next_start(peer)
                         : next_start(peer) || next_piece(peer))
        return true;
    return next_credit(p2p, peer);
}

/* --- writing it ---------------------------------------------------------------------------------------- */

static void eager_out(struct ch_p2p *p2p, struct ch_transfer *t)
{
    if (t != NULL)
        ch_p2p_finish_locked(p2p, t, NULL);
}

/* If it was taken back meanwhile WITHDRAW is on its way. */
static void offer_out(struct ch_transfer *t)
{
    if (t != NULL)
        t->state = TRANSFER_OFFERED;
}

static void piece_out(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t)
{
    if (t == NULL)
        return;
    if (t->moved < t->nbytes) {
        ch_list_push_back(&peer->streaming, &t->link);
        return;
    }
    ch_message_free(p2p, t->message);
    t->message = NULL;
    ch_p2p_finish_locked(p2p, t, NULL);
}

/* Its sender has been told that it was read, or, if it is empty, that it was taken: the receive is done, and not before. Its
 * owner may never look again, and the sender waits for no less. */
static void last_out(struct ch_p2p *p2p, struct message *m)
{
    struct ch_transfer *t = m->transfer;

    if (t != NULL) { /* not taken back meanwhile */
        t->message = NULL;
        ch_p2p_finish_locked(p2p, t, NULL);
    }
    ch_message_free(p2p, m);
}

static void frame_out(struct ch_p2p *p2p, struct peer *peer)
{
    struct ch_transfer *t = peer->out.from;
    struct message *m = peer->out.message;
    enum ch_frame_kind kind = peer->out.frame.kind;

    if (peer->out.rest != NULL)
        ch_buffer_free(p2p, peer->out.rest);
    peer->out = (struct out_state){ 0 };
    switch (kind) {
    case CH_FRAME_EAGER:
        eager_out(p2p, t);
        break;
    case CH_FRAME_OFFER:
        offer_out(t);
        break;
    case CH_FRAME_DATA:
        piece_out(p2p, peer, t);
        break;
    case CH_FRAME_TAKE:
        if (m != NULL && m->total == 0)
            last_out(p2p, m);
        break;
    case CH_FRAME_READ:
        if (m != NULL)
            last_out(p2p, m);
        break;
    case CH_FRAME_REFUSE:
    case CH_FRAME_WITHDRAW:
        if (m != NULL)
            ch_message_free(p2p, m);
        break;
    case CH_FRAME_CREDIT:
    case CH_FRAME_HELD:
    case CH_FRAME_ASK:
    case CH_FRAME_ASKED_ALL:
    case CH_FRAME_FLOWS:
        break;
    }
}

/* What goes behind a payload. */
static const unsigned char nothing[sizeof(struct ch_frame)];

/* The payload, or as much as `room` pieces take; 0: there is no memory behind it any more. */
static int pieces_of_payload(struct out_state *out, struct iovec *iov, int room)
{
    if (out->from != NULL)
        return ch_transfer_iov(out->from, out->left, iov, room);
    if (out->rest == NULL)
        return 0;
    iov[0] = (struct iovec){ out->rest->data + out->rest_at, out->left };
    return 1;
}

/* What is left of the frame, as pieces; 0: there is no memory behind it any more. */
static int pieces_of(struct out_state *out, struct iovec *iov)
{
    int n = 0, room = PIECES - 1;

    if (out->nframe < sizeof(out->frame)) {
        iov[n++] = (struct iovec){ (char *)&out->frame + out->nframe,
                                   sizeof(out->frame) - out->nframe };
    }
    if (out->left > 0) {
        int more = pieces_of_payload(out, iov + n, room - n);

        if (more == 0)
            return 0;
        n += more;
    }
    if (out->fill > 0 && n < room) /* all of the payload is there: it ends in one of its pieces */
        iov[n++] = (struct iovec){ (void *)(uintptr_t)nothing, out->fill };
    return n;
}

static void advance(struct out_state *out, size_t done)
{
    size_t head = smaller(done, sizeof(out->frame) - out->nframe);
    size_t payload = smaller(done - head, out->left);

    out->nframe += head;
    out->left -= payload;
    out->fill -= done - head - payload;
    if (out->from != NULL)
        ch_transfer_advance(out->from, payload);
    else
        out->rest_at += payload;
}

/* Write some of the current frame: CHOIR_OK if something went. */
static choir_status write_frame(struct ch_p2p *p2p, struct peer *peer, size_t *done_out)
{
    struct iovec iov[PIECES];
    int n = pieces_of(&peer->out, iov);
    choir_status rc;

    if (n == 0)
        rc = ch_fail_rank(CHOIR_ERR_NOMEM, (int)peer->rank, "send",
                          "a send to rank %u was taken back half-way, with no memory for its rest",
                          peer->rank);
    else
        rc = peer->stream->ops->send(peer->stream, iov, n, done_out);
    if (rc < 0)
        ch_p2p_lose_peer_locked(p2p, peer);
    if (rc == CHOIR_OK)
        advance(&peer->out, *done_out);
    return rc;
}

bool ch_p2p_pump_out(struct ch_p2p *p2p, struct peer *peer, size_t *budget)
{
    bool moved = false;
    size_t done = 0;

    while (peer->stream != NULL && *budget > 0) {
        if (!peer->out.busy && !next_frame(p2p, peer))
            return moved;
        if (write_frame(p2p, peer, &done) != CHOIR_OK)
            return moved || peer->stream == NULL;
        moved = true;
        *budget -= done < *budget ? done : *budget;
        if (peer->out.nframe == sizeof(peer->out.frame) && peer->out.left == 0 &&
            peer->out.fill == 0)
            frame_out(p2p, peer);
    }
    return moved;
}
