/*
 * p2p.c - the calls of p2p.h: how transfers begin, end and are taken back. See p2p_state.h for the files and
 * the states, frame.h for what ranks say to each other.
 */
#include "transport/p2p.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "transport/p2p_state.h"

/* What one call moves for one peer at most, each way: nobody has the lock for long. */
enum { TURN_NBYTES = 256 * 1024 };

void ch_p2p_describe(choir_error *out, choir_status code, int culprit, const char *operation,
                     const char *fmt, ...)
{
    va_list args;

    *out = (choir_error){ .code = code, .culprit = culprit };
    snprintf(out->operation, sizeof(out->operation), "%s", operation);
    va_start(args, fmt);
    vsnprintf(out->text, sizeof(out->text), fmt, args);
    va_end(args);
}

/* --- a transfer's memory ------------------------------------------------------------------------------ */

int ch_transfer_iov(const struct ch_transfer *t, size_t nbytes, struct iovec *iov, int niov)
{
    size_t skip = t->at_byte;
    int n = 0;

    for (int i = t->at_iov; i < t->niov && n < niov && nbytes > 0; i++) {
        size_t len = t->iov[i].iov_len - skip;

        if (len > nbytes)
            len = nbytes;
        if (len > 0)
            iov[n++] = (struct iovec){ (char *)t->iov[i].iov_base + skip, len };
        nbytes -= len;
        skip = 0;
    }
    return n;
}

void ch_transfer_advance(struct ch_transfer *t, size_t nbytes)
{
    t->moved += nbytes;
    while (nbytes > 0) {
        size_t left = t->iov[t->at_iov].iov_len - t->at_byte;

        if (nbytes < left) {
            t->at_byte += nbytes;
            return;
        }
        nbytes -= left;
        t->at_iov++;
        t->at_byte = 0;
    }
}

/* --- how a transfer ends ------------------------------------------------------------------------------ */

void ch_p2p_finish_locked(struct ch_p2p *p2p, struct ch_transfer *t, const choir_error *record)
{
    ch_lock_assert_held(&p2p->lock);
    if (CH_UNLIKELY(record != NULL && t->lent))
        ch_p2p_withdraw(&p2p->peers[t->peer]);
    ch_list_remove(&t->link);
    ch_list_remove(&t->all);
    t->state = TRANSFER_DONE;
    t->status = record != NULL ? record->code : CHOIR_OK;
    if (record != NULL)
        t->error = *record;
    if (t->on_done != NULL)
        ch_list_push_back(&p2p->callbacks, &t->link);
    p2p->rung = true;
    /* As in ch_post(), but its ring comes with the unlock, once for all. Without on_done() the transfer is
     * its owner's again from here on. */
    atomic_store_explicit(&t->done, 1, CH_POST_ORDER);
}

static void leave_receive(struct ch_p2p *p2p, struct ch_transfer *t)
{
    struct message *m = t->message;

    ch_list_remove(&t->link);
    t->message = NULL;
    if (t->state != TRANSFER_FILLING && t->state != TRANSFER_ACCEPTED)
        return;
    if (p2p->peers[t->source].in.into == t)
        p2p->peers[t->source].in.into = NULL; /* the rest goes nowhere */
    if (m == NULL)
        return;
    m->transfer = NULL;
    if (t->state == TRANSFER_FILLING)
        ch_match_drop(p2p, m, CH_REFUSED_DROPPED);
    else
        ch_p2p_note(p2p, m, CH_FRAME_REFUSE, CH_REFUSED_DROPPED);
}

void ch_p2p_detach_locked(struct ch_p2p *p2p, struct ch_transfer *t)
{
    if (t->is_send)
        ch_p2p_leave_send(p2p, &p2p->peers[t->peer], t, false);
    else
        leave_receive(p2p, t);
}

/* --- with and without the lock ------------------------------------------------------------------------ */

/* Take the next refusal off the list; false if there is none. */
static bool next_refusal_locked(struct ch_p2p *p2p, uint64_t *context_out, choir_error *record_out)
{
    struct ch_list *link = ch_list_pop_front(&p2p->refusals);
    struct message *m;

    if (link == NULL)
        return false;
    m = CH_CONTAINER(link, struct message, link);
    *context_out = m->context;
    ch_p2p_describe_refused(m, &p2p->peers[m->peer], record_out);
    ch_message_free(p2p, m);
    return true;
}

static void tell_refusal(const struct ch_p2p *p2p, uint64_t context, const choir_error *record)
{
    if (p2p->refusal.fn != NULL)
        p2p->refusal.fn(p2p->refusal.arg, context, record);
    else
        ch_log_warn("%s", record->text);
}

static void call_back(struct ch_list *callbacks)
{
    struct ch_list *link;

    while ((link = ch_list_pop_front(callbacks)) != NULL) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, link);

        t->on_done(t); /* it may be gone afterwards */
    }
}

void ch_p2p_leave_slow(struct ch_p2p *p2p) CH_NO_TSA
{
    struct ch_list callbacks = CH_LIST_INIT(callbacks);
    struct ch_list *link;
    choir_error record;
    uint64_t context;
    bool refused, rung;

    do {
        while ((link = ch_list_pop_front(&p2p->callbacks)) != NULL)
            ch_list_push_back(&callbacks, link);
        refused = next_refusal_locked(p2p, &context, &record);
        rung = p2p->rung;
        p2p->rung = false;
        ch_unlock(&p2p->lock);
        if (rung)
            ch_bell_after_store(&p2p->bell);
        call_back(&callbacks);
        if (refused) {
            tell_refusal(p2p, context, &record);
            ch_lock(&p2p->lock);
        }
    } while (refused);
}

/* --- making and ending one ---------------------------------------------------------------------------- */

static void init_peer(struct peer *peer, uint32_t rank)
{
    peer->rank = rank;
    ch_list_init(&peer->link);
    ch_list_init(&peer->messages);
    ch_list_init(&peer->notes);
    ch_list_init(&peer->starting);
    ch_list_init(&peer->reading);
    ch_list_init(&peer->streaming);
    ch_list_init(&peer->held);
}

choir_status ch_p2p_create(uint32_t nranks, const struct ch_bell *bell, struct ch_p2p **p2p_out)
{
    struct ch_p2p *p2p = ch_zalloc(sizeof(*p2p));

    if (p2p != NULL)
        p2p->peers = ch_zalloc_aligned(_Alignof(struct peer), nranks * sizeof(struct peer));
    if (p2p == NULL || p2p->peers == NULL) {
        ch_free(p2p);
        return ch_fail(CHOIR_ERR_NOMEM, "p2p: no memory for the records of %u ranks", nranks);
    }
    ch_lock_init(&p2p->lock, CH_LOCK_P2P);
    p2p->bell = *bell;
    p2p->nranks = nranks;
    p2p->kept_max = CH_P2P_KEPT;
    p2p->read_from = p2p->read_to = SIZE_MAX;
    for (uint32_t r = 0; r < nranks; r++)
        init_peer(&p2p->peers[r], r);
    ch_list_init(&p2p->connected);
    ch_list_init(&p2p->all);
    ch_list_init(&p2p->callbacks);
    ch_list_init(&p2p->failed_contexts);
    ch_list_init(&p2p->refusals);
    ch_list_init(&p2p->free_messages);
    for (int b = 0; b < NBUCKETS; b++) {
        ch_list_init(&p2p->posted[b]);
        ch_list_init(&p2p->kept[b]);
    }
    for (int class = 0; class < BUFFER_CLASSES; class ++)
        ch_list_init(&p2p->free_buffers[class]);
    *p2p_out = p2p;
    return CHOIR_OK;
}

void ch_p2p_destroy(struct ch_p2p *p2p)
{
    struct ch_list *link;

    if (p2p == NULL)
        return;
    for (uint32_t r = 0; r < p2p->nranks; r++) {
        struct peer *peer = &p2p->peers[r];

        ch_p2p_withdraw(peer);
        if (peer->stream != NULL)
            peer->stream->ops->close(peer->stream);
        if (peer->failed != &p2p->no_memory)
            ch_free(peer->failed);
        ch_free(peer->out.rest);
    }
    while ((link = ch_list_pop_front(&p2p->failed_contexts)) != NULL)
        ch_free(CH_CONTAINER(link, struct failed_context, link));
    ch_pool_fini(p2p);
    ch_free(p2p->peers);
    ch_lock_fini(&p2p->lock);
    ch_free(p2p);
}

void ch_p2p_connect(struct ch_p2p *p2p, uint32_t peer, struct ch_stream *stream)
{
    struct peer *p = &p2p->peers[peer];

    ch_assert(peer < p2p->nranks);
    ch_lock(&p2p->lock);
    ch_assert(p->stream == NULL);
    if (p->failed != NULL) {
        stream->ops->close(stream); /* it died before we knew the way */
    } else {
        p->stream = stream;
        ch_list_push_back(&p2p->connected, &p->link);
    }
    ch_p2p_leave(p2p);
}

void ch_p2p_on_refusal(struct ch_p2p *p2p, const struct ch_p2p_refusal *refusal)
{
    p2p->refusal = *refusal;
}

/* --- progress ----------------------------------------------------------------------------------------- */

static bool to_ourselves(const struct peer *peer)
{
    return peer->stream != NULL && peer->stream->ops == &ch_transport_self;
}

/* In and out in turn, as what comes may call for an answer, and room made may be used. */
static bool pump(struct ch_p2p *p2p, struct peer *peer)
{
    size_t in = TURN_NBYTES, out = TURN_NBYTES, read = CH_READ_NBYTES;
    bool moved = false, again;

    do {
        again = ch_p2p_pump_in(p2p, peer, &in);
        again |= ch_p2p_pump_read(p2p, peer, &read);
        if (ch_p2p_wants_out(p2p, peer))
            again |= ch_p2p_pump_out(p2p, peer, &out);
        moved |= again;
    } while (again && in > 0 && out > 0 && read > 0);
    if (in == 0 || out == 0 || read == 0)
        p2p->rung = true; /* there may be more: whoever sleeps must look again */
    return moved;
}

/* After something was queued for it. What we send to ourselves nobody else would tell us of. */
static void push(struct ch_p2p *p2p, struct peer *peer)
{
    size_t out = TURN_NBYTES;

    if (to_ourselves(peer)) {
        pump(p2p, peer);
        return;
    }
    ch_p2p_pump_out(p2p, peer, &out);
    if (out == 0)
        p2p->rung = true;
}

bool ch_p2p_progress(struct ch_p2p *p2p)
{
    bool moved = false;

    ch_lock(&p2p->lock);
    CH_LIST_EACH (link, &p2p->connected) {
        struct peer *peer = CH_CONTAINER(link, struct peer, link);

        if (ch_stream_readable(peer->stream) || ch_p2p_wants_out(p2p, peer))
            moved |= pump(p2p, peer);
    }
    ch_p2p_leave(p2p);
    return moved;
}

bool ch_p2p_owes(struct ch_p2p *p2p)
{
    bool owes = false;

    ch_lock(&p2p->lock);
    CH_LIST_EACH (link, &p2p->connected) {
        struct peer *peer = CH_CONTAINER(link, struct peer, link);

        owes |= peer->out.busy || !ch_list_empty(&peer->notes);
    }
    ch_unlock(&p2p->lock);
    return owes;
}

/* --- how a transfer begins ---------------------------------------------------------------------------- */

static bool sum_of(const struct iovec *iov, int niov, size_t *nbytes_out)
{
    size_t sum = 0;

    for (int i = 0; i < niov; i++) {
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
            return false;
    }
    *nbytes_out = sum;
    return true;
}

/* Set it up and put it on the list of all. False: it is done already, badly. */
static bool begin_locked(struct ch_p2p *p2p, struct ch_transfer *t)
{
    struct peer *peer = t->peer == CH_P2P_ANY ? NULL : &p2p->peers[t->peer];
    const char *operation = t->is_send ? "send" : "recv";
    const choir_error *record = NULL;
    choir_error e;

    t->seq = ++p2p->last_seq;
    ch_list_push_back(&p2p->all, &t->all);
    if (!sum_of(t->iov, t->niov, &t->nbytes)) {
        ch_p2p_describe(&e, CHOIR_ERR_INVALID, CHOIR_NO_RANK, operation,
                        "%s: the lengths of %d pieces sum up to more than there is memory",
                        operation, t->niov);
        record = &e;
    } else if (ch_context_ended(p2p, t->context, &record)) {
        ch_p2p_describe(&e, CHOIR_ERR_STATE, CHOIR_NO_RANK, operation, "%s: its group has ended",
                        operation);
        record = record != NULL ? record : &e;
    } else if (peer != NULL && !t->is_send && ch_match_has_kept(p2p, t)) {
        record = NULL; /* it is here, whatever has become of its sender */
    } else if (peer != NULL && peer->failed != NULL) {
        record = peer->failed;
    } else if (peer != NULL && peer->stream == NULL) {
        ch_p2p_describe(&e, CHOIR_ERR_STATE, t->peer, operation, "%s: rank %d is not connected",
                        operation, t->peer);
        record = &e;
    }
    if (record != NULL)
        ch_p2p_finish_locked(p2p, t, record);
    return record == NULL;
}

static void set_up(struct ch_transfer *t, bool is_send, int peer, uint64_t context, uint64_t tag,
                   uint64_t check, const struct iovec *iov, int niov)
{
    atomic_store_explicit(&t->done, 0, memory_order_relaxed); /* it is the caller's alone yet */
    ch_list_init(&t->link);
    ch_list_init(&t->all);
    t->status = CHOIR_IN_PROGRESS;
    t->source = CHOIR_NO_RANK;
    t->other_check = 0;
    t->iov = iov;
    t->niov = niov;
    t->at_iov = 0;
    t->at_byte = t->moved = 0;
    t->context = context;
    t->tag = tag;
    t->check = check;
    t->message = NULL;
    t->peer = peer;
    t->state = TRANSFER_IDLE;
    t->is_send = is_send;
    t->lent = false;
}

void ch_p2p_send(struct ch_p2p *p2p, struct ch_transfer *transfer, uint32_t peer, uint64_t context,
                 uint64_t tag, uint64_t check, const struct iovec *iov, int niov)
{
    struct peer *to = &p2p->peers[peer];
    choir_error e;

    ch_assert(peer < p2p->nranks);
    set_up(transfer, true, (int)peer, context, tag, check, iov, niov);
    ch_lock(&p2p->lock);
    if (begin_locked(p2p, transfer)) {
        if (ch_p2p_send_at_once(p2p, to, transfer)) {
            ; /* most are done by this */
        } else if (ch_p2p_start_send(p2p, to, transfer)) {
            push(p2p, to);
        } else {
            ch_p2p_describe(&e, CHOIR_ERR_NOMEM, CHOIR_NO_RANK, "send",
                            "send to rank %u: no memory for the record of a message", peer);
            ch_p2p_finish_locked(p2p, transfer, &e);
        }
    }
    ch_p2p_leave(p2p);
}

/* Whoever holds messages back may have one for a new receive. */
static void ask_holders(struct ch_p2p *p2p)
{
    if (p2p->nholding == 0)
        return;
    CH_LIST_EACH (link, &p2p->connected) {
        struct peer *peer = CH_CONTAINER(link, struct peer, link);

        if (peer->holds)
            push(p2p, peer);
    }
}

void ch_p2p_recv(struct ch_p2p *p2p, struct ch_transfer *transfer, int peer, uint64_t context,
                 uint64_t tag, uint64_t check, const struct iovec *iov, int niov)
{
    ch_assert(peer == CH_P2P_ANY || (peer >= 0 && (uint32_t)peer < p2p->nranks));
    set_up(transfer, false, peer, context, tag, check, iov, niov);
    ch_lock(&p2p->lock);
    if (begin_locked(p2p, transfer)) {
        if (ch_match_kept(p2p, transfer)) {
            push(p2p, &p2p->peers[transfer->source]);
        } else {
            transfer->state = TRANSFER_POSTED;
            ch_list_push_back(&p2p->posted[ch_bucket_of(context, tag)], &transfer->link);
            ask_holders(p2p);
        }
    }
    ch_p2p_leave(p2p);
}

/* --- how it ends early -------------------------------------------------------------------------------- */

static void end_early_locked(struct ch_p2p *p2p, struct ch_transfer *t, const choir_error *record)
{
    ch_p2p_detach_locked(p2p, t);
    ch_p2p_finish_locked(p2p, t, record);
}

static void describe_cancel(choir_error *e, const struct ch_transfer *t, choir_status status)
{
    const char *operation = t->is_send ? "send" : "recv";
    char who[24] = "any rank";

    if (t->peer != CH_P2P_ANY)
        snprintf(who, sizeof(who), "rank %d", t->peer);
    ch_p2p_describe(e, status, t->peer, operation,
                    "%s %s, tag %llu: taken back after %zu of %zu bytes",
                    t->is_send ? "send to" : "receive from", who, (unsigned long long)t->tag,
                    t->moved, t->nbytes);
}

void ch_p2p_cancel(struct ch_p2p *p2p, struct ch_transfer *transfer, choir_status status)
{
    choir_error e;

    ch_assert(status < 0);
    ch_lock(&p2p->lock);
    if (transfer->state != TRANSFER_IDLE && transfer->state != TRANSFER_DONE) {
        int other = transfer->is_send ? transfer->peer : transfer->source;

        describe_cancel(&e, transfer, status);
        end_early_locked(p2p, transfer, &e);
        if (other >= 0)
            push(p2p, &p2p->peers[other]); /* so that the other side knows */
    }
    ch_p2p_leave(p2p);
}

static bool is_with(const struct ch_transfer *t, const struct peer *peer)
{
    return t->peer == (int)peer->rank || (!t->is_send && t->source == (int)peer->rank);
}

static choir_error *keep_record(struct ch_p2p *p2p, const choir_error *record)
{
    choir_error *kept = ch_alloc(sizeof(*kept));

    if (kept == NULL) {
        ch_p2p_describe(&p2p->no_memory, record->code, CHOIR_NO_RANK, record->operation,
                        "a rank failed, and there was no memory to note why");
        return &p2p->no_memory;
    }
    *kept = *record;
    return kept;
}

/* Nothing goes to it or comes from it any more. */
static void disconnect(struct ch_p2p *p2p, struct peer *peer)
{
    if (peer->stream != NULL)
        peer->stream->ops->close(peer->stream);
    peer->stream = NULL;
    ch_list_remove(&peer->link);
    if (peer->out.rest != NULL)
        ch_buffer_free(p2p, peer->out.rest);
    peer->in = (struct in_state){ 0 };
    peer->out = (struct out_state){ 0 };
    p2p->nholding -= peer->holds;
    peer->holds = false;
}

void ch_p2p_fail_peer_locked(struct ch_p2p *p2p, struct peer *peer, const choir_error *record)
{
    if (peer->failed != NULL)
        return;
    peer->failed = keep_record(p2p, record);
    ch_p2p_withdraw(peer); /* it may be there still, and read */
    disconnect(p2p, peer);
    CH_LIST_EACH (link, &p2p->all) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, all);

        if (is_with(t, peer)) {
            t->message = NULL; /* freed below, with all others of the peer */
            ch_p2p_finish_locked(p2p, t, record);
        }
    }
    CH_LIST_EACH (link, &peer->messages) {
        struct message *m = CH_CONTAINER(link, struct message, of_peer);

        if (m->kind != MESSAGE_EAGER || !m->whole || m->transfer != NULL)
            ch_message_free(p2p, m);
    }
}

void ch_p2p_lose_peer_locked(struct ch_p2p *p2p, struct peer *peer)
{
    choir_error e;

    ch_error_prefix("stream with rank %u: ", peer->rank);
    ch_error_save(&e);
    e.culprit = (int)peer->rank;
    ch_p2p_fail_peer_locked(p2p, peer, &e);
}

void ch_p2p_fail_peer(struct ch_p2p *p2p, uint32_t peer, const choir_error *record)
{
    size_t all = SIZE_MAX;

    ch_assert(peer < p2p->nranks && record->code < 0);
    ch_lock(&p2p->lock);
    /* What it sent before is here, if only in its stream: a rank that is done with an operation may go, and
     * the others be as far as they like. */
    ch_p2p_pump_in(p2p, &p2p->peers[peer], &all);
    ch_p2p_fail_peer_locked(p2p, &p2p->peers[peer], record);
    ch_p2p_leave(p2p);
}

/* --- contexts ----------------------------------------------------------------------------------------- */

static void forget_record(struct ch_p2p *p2p, uint64_t context)
{
    CH_LIST_EACH (link, &p2p->failed_contexts) {
        struct failed_context *f = CH_CONTAINER(link, struct failed_context, link);

        if (f->context == context) {
            ch_list_remove(link);
            ch_free(f);
        }
    }
}

/* Without memory for the record the context is as good as gone: later transfers fail without its words. */
static void note_end(struct ch_p2p *p2p, uint64_t context, const choir_error *record)
{
    struct failed_context *f = record != NULL ? ch_zalloc(sizeof(*f)) : NULL;

    if (f == NULL) {
        p2p->gone[ch_gone_slot(context)] = context;
        return;
    }
    f->context = context;
    f->record = *record;
    ch_list_push_back(&p2p->failed_contexts, &f->link);
}

static void end_transfers(struct ch_p2p *p2p, uint64_t context, const choir_error *record)
{
    CH_LIST_EACH (link, &p2p->all) {
        struct ch_transfer *t = CH_CONTAINER(link, struct ch_transfer, all);

        if (t->context == context)
            end_early_locked(p2p, t, record);
    }
}

void ch_p2p_end_context(struct ch_p2p *p2p, uint64_t context, const choir_error *record)
{
    const choir_error *known;
    choir_error e;

    ch_lock(&p2p->lock);
    if (record == NULL || !ch_context_ended(p2p, context, &known)) {
        ch_p2p_describe(&e, CHOIR_ERR_STATE, CHOIR_NO_RANK, "", "the group has ended");
        end_transfers(p2p, context, record != NULL ? record : &e);
        ch_match_drop_context(p2p, context);
        if (record == NULL)
            forget_record(p2p, context);
        note_end(p2p, context, record);
        CH_LIST_EACH (link, &p2p->connected)
            push(p2p, CH_CONTAINER(link, struct peer, link));
    }
    ch_p2p_leave(p2p);
}
