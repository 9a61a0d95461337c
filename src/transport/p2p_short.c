/*
 * p2p_short.c - small messages that meet nobody: sent to a peer with nothing before them, received as the next that
 * comes from a peer, in a context and with a tag that nobody else waits for.
 *
 * Such a message needs no transfer, no message and no bucket: it is written where it is read from, and copied from
 * there to where it goes. Whatever is not so is left to the ordinary way, which is right for everything; so nothing here
 * fails.
 */
#include "transport/p2p_state.h"

#include "base/arch.h"

/* What a receive sends for others at most, who were waiting for the credit that came with it. */
enum { OUT_NBYTES = 64 * 1024 };

/* There is a way to it, through memory. */
static bool is_open(const struct peer *peer)
{
    return peer->stream != NULL && peer->stream->ops->peek != NULL;
}

/* No receive before this one wants what comes, no message has come before for it, and no frame is half read. */
static bool is_next(const struct ch_p2p *p2p, const struct peer *peer, const struct ch_envelope *e)
{
    uint32_t bucket = ch_bucket_of(e->context, e->tag);

    return ch_list_empty(&p2p->posted[bucket]) && ch_list_empty(&p2p->kept[bucket]) &&
           p2p->nholding == 0 && peer->in.nframe == 0;
}

/* Whether it is the message that is waited for, in every field: what is not is for dispatch() to judge. */
static inline bool is_wanted(const struct ch_p2p *p2p, const struct peer *peer,
                             const struct ch_frame *f, const struct ch_envelope *e, uint32_t charge)
{
    return f->kind == CH_FRAME_EAGER && f->context == e->context && f->tag == e->tag &&
           f->check == e->check && f->nbytes == e->nbytes && f->total == e->nbytes &&
           f->flags == 0 && f->epoch == 0 && f->credit <= peer->used &&
           charge <= p2p->kept_max - peer->kept;
}

static CH_NOINLINE void write_out(struct ch_p2p *p2p, struct peer *peer)
{
    size_t budget = OUT_NBYTES;

    ch_p2p_pump_out(p2p, peer, &budget);
    if (budget == 0)
        p2p->rung = true; /* there may be more, and room for it, of which nobody else tells */
}

static inline void account(struct ch_p2p *p2p, struct peer *peer, uint32_t credit, uint32_t charge)
{
    peer->used -= credit;
    peer->kept += charge;
    peer->owed += charge;
    if (CH_UNLIKELY(!ch_list_empty(&peer->held)))
        ch_p2p_release_held(p2p, peer);
    if (CH_UNLIKELY(ch_p2p_wants_out(p2p, peer)))
        write_out(p2p, peer);
}

/* By what is told of it, without a look at the message: there is one cache line to wait for, not three. */
static inline bool take_told(struct ch_p2p *p2p, struct peer *peer, const struct ch_envelope *e,
                             void *data, size_t whole)
{
    struct ch_stream *stream = peer->stream;
    uint32_t charge = ch_frame_charge((uint32_t)e->nbytes), credit;
    uint64_t words[CH_TOLD_WORDS];

    if (!stream->ops->told(stream, whole, words, ch_told_count(e->nbytes)))
        return false;
    credit = (uint32_t)(words[2] >> 32);
    if (words[0] != e->context || words[1] != e->tag || words[2] != ch_told_bits(e, credit) ||
        credit > peer->used || charge > p2p->kept_max - peer->kept)
        return false;
    ch_p2p_copy(data, words + CH_TOLD_HEAD, e->nbytes);
    stream->ops->consume(stream, whole);
    account(p2p, peer, credit, charge);
    return true;
}

static inline bool take_whole(struct ch_p2p *p2p, struct peer *peer, const struct ch_envelope *e,
                              void *data, size_t whole)
{
    struct ch_stream *stream = peer->stream;
    uint32_t charge = ch_frame_charge((uint32_t)e->nbytes);
    const struct ch_frame *at = stream->ops->peek(stream, whole);
    struct ch_frame f;

    if (at == NULL)
        return false;
    f = *at;
    /* It is a peer's memory: what was checked is what is used. */
    atomic_signal_fence(memory_order_seq_cst);
    if (!is_wanted(p2p, peer, &f, e, charge))
        return false;
    ch_p2p_copy(data, at + 1, e->nbytes);
    stream->ops->consume(stream, whole);
    account(p2p, peer, f.credit, charge);
    return true;
}

/* There is something to read. False: it is not for the short way. */
static inline bool take_next(struct ch_p2p *p2p, struct peer *peer, const struct ch_envelope *e,
                             void *data)
{
    size_t whole = sizeof(struct ch_frame) + e->nbytes + ch_frame_fill((uint32_t)e->nbytes);

    if (ch_told_fits(e) && peer->stream->ops->told != NULL && take_told(p2p, peer, e, data, whole))
        return true;
    return take_whole(p2p, peer, e, data, whole);
}

static inline bool send_short(struct ch_p2p *p2p, const struct ch_short *s)
{
    struct peer *peer = &p2p->peers[s->peer];

    return s->envelope.nbytes <= CH_P2P_EAGER && is_open(peer) &&
           ch_p2p_send_whole(p2p, peer, &s->envelope, s->data);
}

static inline bool recv_short(struct ch_p2p *p2p, struct ch_short *s, int looks)
{
    struct peer *peer = &p2p->peers[s->peer];

    s->late = false;
    if (s->envelope.nbytes > CH_P2P_EAGER || !is_open(peer) || !is_next(p2p, peer, &s->envelope))
        return false;
    while (!ch_stream_readable(peer->stream)) {
        if (--looks <= 0) {
            s->late = true;
            return false;
        }
    }
    return take_next(p2p, peer, &s->envelope, s->data);
}

/* Those that go one way, in order, up to the first that is not short: none may overtake it. True: all are done. */
static CH_ALWAYS_INLINE bool all_of(struct ch_p2p *p2p, struct ch_short *parts, size_t count,
                                    bool sends, int looks, size_t *done)
{
    for (size_t i = 0; i < count; i++) {
        if (parts[i].is_send != sends || parts[i].done)
            continue;
        parts[i].done = sends ? send_short(p2p, &parts[i]) : recv_short(p2p, &parts[i], looks);
        if (!parts[i].done)
            return false;
        ++*done;
    }
    return true;
}

/* Something is to be done without the lock. Refusals are not by this: whoever has some comes back for them. */
static inline bool has_more(const struct ch_p2p *p2p)
{
    return p2p->rung || !ch_list_empty(&p2p->callbacks);
}

size_t ch_p2p_short(struct ch_p2p *p2p, struct ch_short *parts, size_t count, int looks,
                    const struct ch_meanwhile *meanwhile)
{
    const choir_error *record;
    size_t done = 0;
    bool ended, well, more;

    ch_lock(&p2p->lock);
    ended = count == 0 || ch_context_ended(p2p, parts[0].envelope.context, &record);
    well = !ended && all_of(p2p, parts, count, true, 0, &done);
    if (meanwhile != NULL)
        meanwhile->sent(meanwhile->arg, well);
    if (!ended)
        well &= all_of(p2p, parts, count, false, looks, &done);
    more = has_more(p2p);
    if (meanwhile != NULL)
        meanwhile->end(meanwhile->arg, well && !more);
    if (CH_UNLIKELY(more))
        ch_p2p_leave(p2p);
    else
        ch_unlock(&p2p->lock);
    return done;
}

void ch_p2p_pass(struct ch_p2p *p2p)
{
    ch_lock(&p2p->lock);
    ch_unlock(&p2p->lock);
}
