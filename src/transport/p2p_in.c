/*
 * p2p_in.c - frames that come.
 *
 * A peer's bytes: every field is checked before it is used, lengths have caps, and numbers are looked up, never
 * followed. What cannot be is CHOIR_ERR_PROTO and the end of that peer.
 */
#include "transport/p2p_state.h"

#include <string.h>

#include "base/error.h"

/* Of a message of this size the beginning is out of the caches when its end is here. */
enum { PAST_CACHES_NBYTES = 8 * 1024 * 1024 };

static bool broken(struct ch_p2p *p2p, struct peer *peer, const char *what, uint64_t seen)
{
    choir_error e;

    ch_p2p_describe(&e, CHOIR_ERR_PROTO, (int)peer->rank, "recv",
                    "rank %u sent a frame that is not valid: kind %u, %u bytes, %s (%llu)",
                    peer->rank, peer->in.frame.kind, peer->in.frame.nbytes, what,
                    (unsigned long long)seen);
    ch_p2p_fail_peer_locked(p2p, peer, &e);
    return false;
}

/* --- one function for each kind: false if the peer has failed ------------------------------------------ */

/* Count what the peer may make us keep. */
static bool charge(struct ch_p2p *p2p, struct peer *peer, size_t nbytes)
{
    if (nbytes > p2p->kept_max - peer->kept)
        return broken(p2p, peer, "beyond its credit", peer->kept + nbytes);
    peer->kept += nbytes;
    return true;
}

static bool eager_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    if (f->total != f->nbytes)
        return broken(p2p, peer, "of another length in all", f->total);
    if (!charge(p2p, peer, ch_frame_charge(f->nbytes)))
        return false;
    ch_match_eager(p2p, peer, f);
    return peer->stream != NULL;
}

static bool offer_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    if ((f->flags & CH_FRAME_ASKED) != 0) {
        if (peer->asks == 0 || peer->nfree == CH_P2P_KEPT / CH_FRAME_CHARGE)
            return broken(p2p, peer, "more than was asked for", peer->nfree);
        peer->asks--;
    } else if (!charge(p2p, peer, CH_FRAME_CHARGE)) {
        return false;
    }
    if (f->id == 0 || f->total > SIZE_MAX)
        return broken(p2p, peer, "an offer without a number", f->total);
    ch_match_offer(p2p, peer, f);
    return peer->stream != NULL;
}

/* A number that finds nothing is of a send that was taken back: WITHDRAW is on its way. */
static bool take_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = ch_message_find(p2p, peer, f->id, MESSAGE_SEND);
    struct ch_transfer *t = m != NULL ? m->transfer : NULL;

    if (t == NULL)
        return true;
    if (t->state != TRANSFER_OFFERED)
        return broken(p2p, peer, "takes what was not offered", f->id);
    if (t->nbytes == 0) {
        t->message = NULL;
        ch_message_free(p2p, m);
        ch_p2p_finish_locked(p2p, t, NULL);
        return true;
    }
    m->rid = f->rid;
    t->state = TRANSFER_STREAMING;
    ch_list_push_back(&peer->streaming, &t->link);
    return true;
}

/* The same. */
static bool read_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = ch_message_find(p2p, peer, f->id, MESSAGE_SEND);

    if (m == NULL || m->transfer == NULL)
        return true;
    if (!ch_p2p_was_read(p2p, m))
        return broken(p2p, peer, "has read what was not lent", f->id);
    return true;
}

/* A number that finds nothing is of a receive that was taken back: the bytes go nowhere. */
static bool data_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = ch_message_find(p2p, peer, f->rid, MESSAGE_ACCEPTED);
    struct ch_transfer *t = m != NULL ? m->transfer : NULL;

    if (t == NULL)
        return true;
    /* Its TAKE has gone when it is in no list. Until then it is being read, and may be done before these bytes are here. */
    if (!ch_list_empty(&m->link) || peer->out.message == m)
        return broken(p2p, peer, "a piece that was not sent for", f->rid);
    if (f->nbytes == 0 || f->nbytes > t->nbytes - t->moved || f->total != t->moved)
        return broken(p2p, peer, "a piece that does not follow", f->total);
    peer->in.into = t;
    return true;
}

static void describe_refusal(choir_error *e, const struct peer *peer, const struct ch_frame *f,
                             uint64_t nbytes, uint64_t check)
{
    unsigned long long tag = f->tag;

    switch ((enum ch_frame_reason)f->reason) {
    case CH_REFUSED_LENGTH:
        ch_p2p_describe(
            e, CHOIR_ERR_INVALID, (int)peer->rank, "send",
            "send to rank %u, tag %llu: the message has %llu bytes, %llu are expected there",
            peer->rank, tag, (unsigned long long)nbytes, (unsigned long long)f->total);
        return;
    case CH_REFUSED_CHECK:
        ch_p2p_describe(
            e, CHOIR_ERR_INVALID, (int)peer->rank, "send",
            "send to rank %u, tag %llu: it is part of another operation there (the word is "
            "%016llx, %016llx is expected there)",
            peer->rank, tag, (unsigned long long)check, (unsigned long long)f->check);
        return;
    case CH_REFUSED_DROPPED:
        ch_p2p_describe(e, CHOIR_ERR_NETWORK, (int)peer->rank, "send",
                        "send to rank %u, tag %llu: the receive was taken back there", peer->rank,
                        tag);
        return;
    case CH_REFUSED_ENDED:
        ch_p2p_describe(e, CHOIR_ERR_NETWORK, (int)peer->rank, "send",
                        "send to rank %u, tag %llu: the group has ended there", peer->rank, tag);
        return;
    }
}

/* An eager message that was done here; its owner is told without the lock. */
static void eager_refused(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = ch_message_new(p2p, peer, MESSAGE_NOTE);

    if (m == NULL)
        return;
    m->context = f->context;
    m->tag = f->tag;
    m->check = f->check;
    m->total = f->total;
    m->rid = f->rid;
    m->reason = f->reason;
    ch_list_push_back(&p2p->refusals, &m->link);
}

void ch_p2p_describe_refused(const struct message *m, const struct peer *peer, choir_error *out)
{
    struct ch_frame f = {
        .reason = m->reason, .tag = m->tag, .check = m->check, .total = m->total
    };

    describe_refusal(out, peer, &f, m->rid, m->rid);
}

static bool refuse_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = ch_message_find(p2p, peer, f->id, MESSAGE_SEND);
    struct ch_transfer *t = m != NULL ? m->transfer : NULL;
    choir_error e;

    if (f->reason < CH_REFUSED_LENGTH || f->reason > CH_REFUSED_ENDED)
        return broken(p2p, peer, "no such reason", f->reason);
    if (f->id == 0)
        eager_refused(p2p, peer, f);
    if (t == NULL)
        return true;
    if (t->state != TRANSFER_OFFERED && t->state != TRANSFER_STREAMING)
        return broken(p2p, peer, "refuses what was not offered", f->id);
    describe_refusal(&e, peer, f, t->nbytes, t->check);
    if (f->reason == CH_REFUSED_CHECK)
        t->other_check = f->check;
    ch_p2p_leave_send(p2p, peer, t, true);
    ch_p2p_finish_locked(p2p, t, &e);
    return true;
}

static struct message *find_offered(struct peer *peer, uint64_t sid)
{
    CH_LIST_EACH (link, &peer->messages) {
        struct message *m = CH_CONTAINER(link, struct message, of_peer);

        if (m->sid == sid && (m->kind == MESSAGE_OFFER || m->kind == MESSAGE_ACCEPTED))
            return m;
    }
    return NULL;
}

static bool withdraw_in(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    struct message *m = f->id != 0 ? find_offered(peer, f->id) : NULL;
    struct ch_transfer *t = m != NULL ? m->transfer : NULL;
    choir_error e;

    if (m == NULL) /* refused, or whole: the two crossed */
        return true;
    peer->owed += m->charge;
    if (t != NULL) {
        ch_p2p_describe(
            &e, CHOIR_ERR_NETWORK, (int)peer->rank, "recv",
            "receive from rank %u, tag %llu: the send was taken back there after %zu of "
            "%zu bytes",
            peer->rank, (unsigned long long)t->tag, t->moved, t->nbytes);
        t->message = NULL;
        ch_p2p_finish_locked(p2p, t, &e);
    }
    ch_message_free(p2p, m);
    return true;
}

static bool held_in(struct ch_p2p *p2p, struct peer *peer)
{
    if (!peer->holds)
        p2p->nholding++;
    peer->holds = peer->say_asked = true;
    peer->asked_to = 0;
    return true;
}

static bool flows_in(struct ch_p2p *p2p, struct peer *peer)
{
    if (peer->holds)
        p2p->nholding--;
    peer->holds = false;
    return true;
}

static bool asked_all_in(struct peer *peer)
{
    peer->asking = false;
    if (peer->more_held)
        peer->say_held = true;
    return true;
}

/* --- all of them ------------------------------------------------------------------------------------------ */

static bool dispatch(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *f)
{
    switch ((enum ch_frame_kind)f->kind) {
    case CH_FRAME_EAGER:
        return eager_in(p2p, peer, f);
    case CH_FRAME_OFFER:
        return offer_in(p2p, peer, f);
    case CH_FRAME_TAKE:
        return take_in(p2p, peer, f);
    case CH_FRAME_READ:
        return read_in(p2p, peer, f);
    case CH_FRAME_DATA:
        return data_in(p2p, peer, f);
    case CH_FRAME_REFUSE:
        return refuse_in(p2p, peer, f);
    case CH_FRAME_WITHDRAW:
        return withdraw_in(p2p, peer, f);
    case CH_FRAME_CREDIT:
        return true;
    case CH_FRAME_HELD:
        return held_in(p2p, peer);
    case CH_FRAME_ASK:
        ch_p2p_answer_ask(peer, f->context, f->tag);
        return true;
    case CH_FRAME_ASKED_ALL:
        return asked_all_in(peer);
    case CH_FRAME_FLOWS:
        return flows_in(p2p, peer);
    }
    return broken(p2p, peer, "no such kind", f->kind);
}

static bool frame_in(struct ch_p2p *p2p, struct peer *peer)
{
    struct ch_frame *f = &peer->in.frame;
    bool has_payload = f->kind == CH_FRAME_EAGER || f->kind == CH_FRAME_DATA;

    if (f->nbytes > (has_payload ? CH_P2P_EAGER : 0))
        return broken(p2p, peer, "too long", f->nbytes);
    if ((f->flags & ~(f->kind == CH_FRAME_OFFER ? CH_FRAME_ASKED | CH_FRAME_LENT : 0)) != 0 ||
        (f->epoch != 0 && (f->flags & CH_FRAME_LENT) == 0))
        return broken(p2p, peer, "flags that mean nothing", f->flags);
    if (f->credit > peer->used)
        return broken(p2p, peer, "gives back more than was used", f->credit);
    peer->used -= f->credit;
    peer->in.left = f->nbytes;
    peer->in.fill = ch_frame_fill(f->nbytes);
    if (!dispatch(p2p, peer, f))
        return false;
    if (f->credit > 0)
        ch_p2p_release_held(p2p, peer);
    return true;
}

/* The payload is here. */
static void payload_in(struct ch_p2p *p2p, struct peer *peer)
{
    struct ch_transfer *t = peer->in.into;
    struct message *m = peer->in.keep;

    peer->in = (struct in_state){ 0 };
    if (m != NULL)
        ch_match_whole(p2p, m);
    if (t == NULL || t->moved < t->nbytes)
        return;
    if (t->message != NULL) {
        ch_message_free(p2p, t->message);
        t->message = NULL;
    }
    ch_p2p_finish_locked(p2p, t, NULL);
}

/* Where the next bytes go: to the frame, a receive, a kept message, or nowhere. */
static struct iovec sink_of(struct in_state *in, unsigned char *nowhere, size_t nowhere_room)
{
    struct iovec piece = { nowhere, in->left < nowhere_room ? in->left : nowhere_room };

    if (in->nframe < sizeof(in->frame))
        return (struct iovec){ (char *)&in->frame + in->nframe, sizeof(in->frame) - in->nframe };
    if (in->left == 0)
        return (struct iovec){ nowhere, in->fill };
    if (in->into != NULL)
        ch_transfer_iov(in->into, in->left, &piece, 1);
    else if (in->keep != NULL)
        piece = (struct iovec){ in->keep->buffer->data + in->nkept, in->left };
    return piece;
}

static choir_status read_some(struct ch_p2p *p2p, struct peer *peer, size_t *done_out)
{
    struct in_state *in = &peer->in;
    unsigned char nowhere[2048];
    struct iovec piece = sink_of(in, nowhere, sizeof(nowhere));
    choir_status rc;

    peer->stream->past_caches = in->into != NULL && in->into->nbytes >= PAST_CACHES_NBYTES;
    rc = peer->stream->ops->recv(peer->stream, piece.iov_base, piece.iov_len, done_out);
    if (rc < 0)
        ch_p2p_lose_peer_locked(p2p, peer);
    if (rc != CHOIR_OK)
        return rc;
    if (in->nframe < sizeof(in->frame)) {
        in->nframe += *done_out;
        if (in->nframe == sizeof(in->frame) && !frame_in(p2p, peer))
            return CHOIR_ERR_PROTO;
        return CHOIR_OK;
    }
    if (in->left == 0) {
        in->fill -= *done_out;
        return CHOIR_OK;
    }
    in->left -= *done_out;
    if (in->into != NULL)
        ch_transfer_advance(in->into, *done_out);
    else if (in->keep != NULL)
        in->nkept += *done_out;
    return CHOIR_OK;
}

bool ch_p2p_pump_in(struct ch_p2p *p2p, struct peer *peer, size_t *budget)
{
    bool moved = false;
    size_t done = 0;

    while (peer->stream != NULL && *budget > 0 && ch_stream_readable(peer->stream)) {
        if (read_some(p2p, peer, &done) != CHOIR_OK)
            return moved || peer->stream == NULL;
        moved = true;
        *budget -= done < *budget ? done : *budget;
        if (peer->in.nframe == sizeof(peer->in.frame) && peer->in.left == 0 && peer->in.fill == 0)
            payload_in(p2p, peer);
    }
    return moved;
}
