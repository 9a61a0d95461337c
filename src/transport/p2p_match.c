/*
 * p2p_match.c - receives and messages find each other.
 *
 * By context and tag they are in buckets, in order: receives that no message has come for, and messages that
 * nobody has asked for. A message takes the first receive that wants it, a receive the first message that it
 * wants; a receive from any source thus gets what came first. Never are both in a bucket that fit.
 */
#include "transport/p2p_state.h"

#include <string.h>

#include "base/error.h"

bool ch_context_ended(const struct ch_p2p *p2p, uint64_t context, const choir_error **record_out)
{
    *record_out = NULL;
    CH_LIST_EACH (link, &p2p->failed_contexts) {
        struct failed_context *f = CH_CONTAINER(link, struct failed_context, link);

        if (f->context == context) {
            *record_out = &f->record;
            return true;
        }
    }
    return context != 0 && p2p->gone[ch_gone_slot(context)] == context;
}

struct ch_transfer *ch_match_posted(struct ch_p2p *p2p, const struct peer *peer, uint64_t context,
                                    uint64_t tag)
{
    CH_LIST_EACH (link, &p2p->posted[ch_bucket_of(context, tag)]) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, link);

        if (t->context == context && t->tag == tag &&
            (t->peer == CH_P2P_ANY || t->peer == (int)peer->rank)) {
            ch_list_remove(&t->link);
            t->source = (int)peer->rank;
            return t;
        }
    }
    return NULL;
}

/* Why a receive and a message do not fit; 0 if they do. */
static enum ch_frame_reason differs(const struct ch_transfer *t, uint64_t total, uint64_t check)
{
    if (t->check != 0 && check != 0 && t->check != check)
        return CH_REFUSED_CHECK;
    return t->nbytes != total ? CH_REFUSED_LENGTH : 0;
}

static void fail_receive(struct ch_p2p *p2p, struct ch_transfer *t, enum ch_frame_reason reason,
                         uint64_t total, uint64_t check)
{
    choir_error e;

    if (reason == CH_REFUSED_CHECK)
        t->other_check = check;
    if (reason == CH_REFUSED_LENGTH)
        ch_p2p_describe(&e, CHOIR_ERR_INVALID, t->source, "recv",
                        "receive from rank %d, tag %llu: %zu bytes are expected here, the message "
                        "has %llu",
                        t->source, (unsigned long long)t->tag, t->nbytes,
                        (unsigned long long)total);
    else
        ch_p2p_describe(&e, CHOIR_ERR_INVALID, t->source, "recv",
                        "receive from rank %d, tag %llu: the message is part of another operation "
                        "(its word is %016llx, %016llx is expected here)",
                        t->source, (unsigned long long)t->tag, (unsigned long long)check,
                        (unsigned long long)t->check);
    ch_p2p_finish_locked(p2p, t, &e);
}

/* Tell the sender of an eager message, which may think that all went well. */
static void refuse_eager(struct ch_p2p *p2p, struct peer *peer, const struct ch_transfer *t,
                         enum ch_frame_reason reason, uint64_t total, uint64_t check)
{
    struct message *m = ch_message_new(p2p, peer, MESSAGE_NOTE);

    if (m == NULL)
        return; /* its receiver knows, which is the side that was promised to */
    m->context = t->context;
    m->tag = t->tag;
    m->check = t->check;
    m->total = t->nbytes;
    m->rid = reason == CH_REFUSED_LENGTH ? total : check;
    ch_p2p_note(p2p, m, CH_FRAME_REFUSE, reason);
}

static void no_memory(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *frame)
{
    choir_error e;

    ch_p2p_describe(&e, CHOIR_ERR_NOMEM, (int)peer->rank, "recv",
                    "no memory to keep a message of %llu bytes from rank %u",
                    (unsigned long long)frame->total, peer->rank);
    ch_p2p_fail_peer_locked(p2p, peer, &e);
}

static struct message *keep(struct ch_p2p *p2p, struct peer *peer, enum message_kind kind,
                            const struct ch_frame *frame)
{
    struct message *m = ch_message_new(p2p, peer, kind);

    if (m == NULL)
        return NULL;
    m->sid = frame->id;
    m->context = frame->context;
    m->tag = frame->tag;
    m->check = frame->check;
    m->total = frame->total;
    return m;
}

static void into_bucket(struct ch_p2p *p2p, struct message *m)
{
    ch_list_push_back(&p2p->kept[ch_bucket_of(m->context, m->tag)], &m->link);
}

/* The payload is still to come; pump_in() puts it where this says. */
void ch_match_eager(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *frame)
{
    uint32_t charge = ch_frame_charge(frame->nbytes);
    struct ch_transfer *t = ch_match_posted(p2p, peer, frame->context, frame->tag);
    const choir_error *record;
    enum ch_frame_reason reason;
    struct message *m;

    if (t != NULL) {
        peer->owed += charge;
        reason = differs(t, frame->total, frame->check);
        if (reason == 0) {
            t->state = TRANSFER_FILLING;
            peer->in.into = t;
        } else {
            refuse_eager(p2p, peer, t, reason, frame->total, frame->check);
            fail_receive(p2p, t, reason, frame->total, frame->check);
        }
        return;
    }
    if (ch_context_ended(p2p, frame->context, &record)) {
        peer->owed += charge;
        return;
    }
    m = keep(p2p, peer, MESSAGE_EAGER, frame);
    if (m != NULL && frame->nbytes > 0) {
        m->buffer = ch_buffer_new(p2p, frame->nbytes);
        if (m->buffer == NULL) {
            ch_message_free(p2p, m);
            m = NULL;
        }
    }
    if (m == NULL) {
        no_memory(p2p, peer, frame);
        return;
    }
    m->charge = charge;
    into_bucket(p2p, m);
    peer->in.keep = m;
    peer->in.nkept = 0;
}

/* A receive and an offer have met; the message is in no bucket. */
static void accept(struct ch_p2p *p2p, struct peer *peer, struct message *m, struct ch_transfer *t)
{
    enum ch_frame_reason reason = differs(t, m->total, m->check);

    peer->owed += m->charge;
    peer->nfree -= m->counted;
    m->charge = 0;
    m->counted = false;
    if (reason != 0) {
        uint64_t total = m->total, check = m->check;

        m->total = t->nbytes;
        m->check = t->check;
        ch_p2p_note(p2p, m, CH_FRAME_REFUSE, reason);
        fail_receive(p2p, t, reason, total, check);
        return;
    }
    m->kind = MESSAGE_ACCEPTED;
    m->transfer = t;
    t->message = m;
    t->state = TRANSFER_ACCEPTED;
    if (m->total == 0 || !ch_p2p_start_read(p2p, peer, m))
        ch_p2p_note(p2p, m, CH_FRAME_TAKE, 0);
}

static void keep_offer(struct ch_p2p *p2p, struct peer *peer, struct message *m)
{
    m->counted = m->charge == 0;
    peer->nfree += m->counted;
    into_bucket(p2p, m);
}

void ch_match_offer(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *frame)
{
    struct message *m = keep(p2p, peer, MESSAGE_OFFER, frame);
    const choir_error *record;
    struct ch_transfer *t;

    if (m == NULL) {
        no_memory(p2p, peer, frame);
        return;
    }
    m->charge = (frame->flags & CH_FRAME_ASKED) ? 0 : CH_FRAME_CHARGE;
    m->lent = (frame->flags & CH_FRAME_LENT) != 0;
    m->epoch = frame->epoch;
    m->remote = frame->rid;
    t = ch_match_posted(p2p, peer, frame->context, frame->tag);
    if (t != NULL)
        accept(p2p, peer, m, t);
    else if (ch_context_ended(p2p, frame->context, &record))
        ch_match_drop(p2p, m, CH_REFUSED_ENDED);
    else
        keep_offer(p2p, peer, m);
}

/* All of a kept message is here, and its receive as well. */
static void hand_over(struct ch_p2p *p2p, struct message *m, struct ch_transfer *t)
{
    size_t at = 0;
    struct iovec piece;

    while (at < m->total && ch_transfer_iov(t, m->total - at, &piece, 1) > 0) {
        memcpy(piece.iov_base, m->buffer->data + at, piece.iov_len);
        ch_transfer_advance(t, piece.iov_len);
        at += piece.iov_len;
    }
    ch_p2p_finish_locked(p2p, t, NULL);
    p2p->peers[m->peer].owed += m->charge;
    ch_message_free(p2p, m);
}

void ch_match_whole(struct ch_p2p *p2p, struct message *message)
{
    message->whole = true;
    if (message->transfer != NULL)
        hand_over(p2p, message, message->transfer);
}

static void take_eager(struct ch_p2p *p2p, struct message *m, struct ch_transfer *t)
{
    struct peer *peer = &p2p->peers[m->peer];
    enum ch_frame_reason reason = differs(t, m->total, m->check);

    if (reason != 0) {
        refuse_eager(p2p, peer, t, reason, m->total, m->check);
        fail_receive(p2p, t, reason, m->total, m->check);
        ch_match_drop(p2p, m, reason);
        return;
    }
    if (m->whole) {
        hand_over(p2p, m, t);
        return;
    }
    m->transfer = t;
    t->message = m;
    t->state = TRANSFER_FILLING;
}

static struct message *find_kept(struct ch_p2p *p2p, const struct ch_transfer *t)
{
    CH_LIST_EACH (link, &p2p->kept[ch_bucket_of(t->context, t->tag)]) {
        struct message *m = CH_CONTAINER(link, struct message, link);

        if (m->context == t->context && m->tag == t->tag &&
            (t->peer == CH_P2P_ANY || t->peer == (int)m->peer))
            return m;
    }
    return NULL;
}

bool ch_match_has_kept(struct ch_p2p *p2p, const struct ch_transfer *t)
{
    return find_kept(p2p, t) != NULL;
}

bool ch_match_kept(struct ch_p2p *p2p, struct ch_transfer *t)
{
    struct message *m = find_kept(p2p, t);

    if (m == NULL)
        return false;
    ch_list_remove(&m->link);
    t->source = (int)m->peer;
    if (m->kind == MESSAGE_EAGER)
        take_eager(p2p, m, t);
    else
        accept(p2p, &p2p->peers[m->peer], m, t);
    return true;
}

void ch_match_drop(struct ch_p2p *p2p, struct message *message, enum ch_frame_reason reason)
{
    struct peer *peer = &p2p->peers[message->peer];

    ch_list_remove(&message->link);
    peer->owed += message->charge;
    message->charge = 0;
    if (message->kind == MESSAGE_OFFER) {
        ch_p2p_note(p2p, message, CH_FRAME_REFUSE, reason);
        return;
    }
    if (peer->in.keep == message)
        peer->in.keep = NULL; /* the rest goes nowhere */
    ch_message_free(p2p, message);
}

void ch_match_drop_context(struct ch_p2p *p2p, uint64_t context)
{
    for (uint32_t b = 0; b < NBUCKETS; b++) {
        CH_LIST_EACH (link, &p2p->kept[b]) {
            struct message *m = CH_CONTAINER(link, struct message, link);

            if (m->context == context)
                ch_match_drop(p2p, m, CH_REFUSED_ENDED);
        }
    }
}
