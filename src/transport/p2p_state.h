/*
 * p2p_state.h - what the files of p2p share. For users there is p2p.h; for the protocol frame.h.
 *
 *   p2p.c        the calls; how transfers begin, end and are taken back
 *   p2p_match.c  receives and messages find each other
 *   p2p_in.c     frames that come
 *   p2p_read.c   messages that are read where they are
 *   p2p_out.c    frames that go
 *   p2p_short.c  small messages that meet nobody
 *   p2p_pool.c   records and buffers
 *
 * A transfer is its owner's and may vanish at any time by ch_p2p_cancel(); what the protocol must remember
 * beyond that is in a message, which is ours.
 *
 * Life of a send; on each arrow what takes it.
 *
 *   HELD --[credit, ASK]--> QUEUED --[EAGER written]---------------------------------> DONE
 *                             |                                                          ^
 *                             +--[OFFER written]--> OFFERED --[TAKE came]--> STREAMING --+ [last DATA written]
 *
 * Life of a receive.
 *
 *   POSTED --[EAGER came]--> FILLING --[its last byte]------> DONE
 *      |                                                        ^
 *      +-----[OFFER came]--> ACCEPTED --[the last DATA]---------+
 *
 * What is lent may be read instead, by its receiver: then the send is done when READ came, and the receive when READ was written.
 * If it cannot be read after all it is sent for, from its beginning. An empty one is done on both sides by TAKE likewise.
 *
 * From every state cancel, a failed peer and an ended context lead to DONE.
 */
#ifndef CH_P2P_STATE_H
#define CH_P2P_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "kernel/kernel.h"
#include "transport/byte_ring.h"
#include "transport/frame.h"
#include "transport/p2p.h"

enum transfer_state {
    TRANSFER_IDLE = 0,
    TRANSFER_HELD,      /* in peer->held; has a message */
    TRANSFER_QUEUED,    /* in peer->starting, or peer->out writes its first frame */
    TRANSFER_OFFERED,   /* in no queue; has a message */
    TRANSFER_STREAMING, /* in peer->streaming, or peer->out writes a piece of it; has a message */
    TRANSFER_POSTED,    /* in a bucket of p2p->posted */
    TRANSFER_FILLING, /* peer->in reads into it, or it waits for a kept message to be whole (message) */
    TRANSFER_ACCEPTED, /* has a message; peer->in may read into it */
    TRANSFER_DONE,
};

enum message_kind {
    MESSAGE_FREE,
    MESSAGE_SEND,     /* ours, offered or about to be; `transfer` NULL: taken back */
    MESSAGE_EAGER,    /* a peer's, kept in `data` */
    MESSAGE_OFFER,    /* a peer's, kept as its envelope */
    MESSAGE_ACCEPTED, /* a peer's, for `transfer`; NULL: taken back, and REFUSE is on its way */
    MESSAGE_NOTE,     /* nothing but a frame to be written */
};

struct buffer {
    struct ch_list link; /* of the pool */
    size_t room;
    unsigned char data[];
};

struct message {
    struct ch_list link;    /* a bucket of p2p->kept, peer->notes, or the pool */
    struct ch_list of_peer; /* peer->messages */
    enum message_kind kind;
    uint32_t peer;
    uint64_t id;  /* our number: generation in the upper half, slot in the lower */
    uint64_t sid; /* the sender's number, of a peer's */
    uint64_t rid; /* the receiver's number, of ours once taken; see REFUSE too */
    uint64_t context, tag, check, total;
    struct ch_transfer *transfer;
    uint32_t charge;      /* to give back when it is kept no more */
    uint8_t note, reason; /* the frame to be written while it is in peer->notes */
    bool asked;           /* offered because of ASK: no charge */
    bool counted;         /* in peer->nfree */
    bool whole;           /* EAGER: all its bytes are here */
    /* OFFER, ACCEPTED: it is at `remote` of its sender, as long as its withdrawals are `epoch`. */
    bool lent;
    uint32_t epoch;
    uint64_t remote;
    struct buffer *buffer; /* EAGER */
};

struct in_state {
    struct ch_frame frame;
    size_t nframe;            /* bytes of it that are here */
    size_t left;              /* of the payload */
    size_t fill;              /* bytes to come behind it */
    struct ch_transfer *into; /* where the payload goes; both NULL: nowhere */
    struct message *keep;
    size_t nkept; /* bytes of `keep` that are here */
};

struct out_state {
    bool busy; /* a frame is being written */
    struct ch_frame frame;
    size_t nframe;            /* bytes of it that went */
    size_t left;              /* of the payload */
    size_t fill;              /* bytes to go behind it */
    struct ch_transfer *from; /* where the payload comes from, or whose OFFER it is */
    struct message *message;  /* OFFER's, TAKE's, ... */
    struct buffer *rest;      /* the payload of a transfer that was taken back half-way */
    size_t rest_at;
};

/* What is looked at in every turn of a wait comes first. */
struct peer {
    _Alignas(64) struct ch_list link; /* p2p->connected */
    struct ch_stream *stream;         /* NULL: not connected, or failed */
    struct ch_list notes;             /* messages with a frame to be written */
    struct ch_list starting;          /* sends whose first frame is to be written, in order */

    /* Credit. `used` is what our messages may take up at the peer; `kept` what its messages may here, of
     * which `owed` is to be given back with the next frame. */
    size_t owed;

    struct ch_list reading;   /* messages, accepted, that are being read where they are */
    struct ch_list streaming; /* sends of which pieces are to be written, in turn */
    /* Held messages, ours: whether the peer is to be told, was told, is asking (HELD went, ASKED_ALL did not
     * come yet), whether more were held since, and whether it is to be told that there are none. */
    bool say_held, told_held, asking, more_held, say_flows;
    /* And the peer's. `asked_to` is the number of the last receive that was asked for, `asks` how many times
     * we asked and were not answered. */
    bool holds, say_asked;
    bool unreadable; /* what it lends cannot be read here */
    bool piece_next; /* whose turn it is: streaming's, or starting's */
    struct out_state out;

    struct in_state in;
    size_t used;
    uint64_t asked_to, asks;
    size_t
        kept; /* not beside `used`: compilers make one load of two, which waits for the stores before it */
    uint32_t nfree; /* offers kept free of charge; their receives were taken back */

    uint32_t rank;
    choir_error *failed;     /* why, once it has */
    struct ch_list messages; /* all messages to or from it */
    struct ch_list held;     /* sends without credit, in order */
};
_Static_assert(offsetof(struct peer, out) + offsetof(struct out_state, busy) < 128,
               "a look in vain is at two lines");

enum { NBUCKETS = 256, NGONE = 1024, BUFFER_CLASSES = 11 };
_Static_assert(CH_FRAME_BUFFER_MIN << (BUFFER_CLASSES - 1) == CH_P2P_EAGER,
               "a class for each power");
_Static_assert(sizeof(struct message) + sizeof(struct buffer) <= CH_FRAME_CHARGE, "it covers them");

/* A context that failed while its group lives. */
struct failed_context {
    struct ch_list link;
    uint64_t context;
    choir_error record;
};

struct ch_p2p {
    struct ch_lock lock; /* guards all below, and every transfer under way */
    struct ch_bell bell;
    uint32_t nranks;
    struct peer *peers;
    struct ch_list connected;
    struct ch_list all;       /* every transfer under way, in the order they were started */
    struct ch_list callbacks; /* done, but on_done() is still to be called */
    uint64_t last_seq;
    size_t read_from, read_to; /* see ch_p2p_read_from() */
    size_t kept_max;           /* CH_P2P_KEPT, less in tests; the same on all ranks */
    uint32_t nholding;         /* peers that hold messages back */
    bool rung; /* a transfer is done or there is more to do: ring when the lock is given back */
    choir_error no_memory; /* for a peer whose record there is no memory for */

    struct ch_list posted[NBUCKETS]; /* receives by context and tag, in order */
    struct ch_list kept[NBUCKETS];   /* messages of peers likewise, in order of arrival */

    struct ch_list failed_contexts;
    uint64_t gone
        [NGONE]; /* contexts that were ended for good, by hash; an older one may be overwritten */

    struct ch_p2p_refusal refusal;
    struct ch_list refusals; /* MESSAGE_NOTEs for refusal.fn, to be called without the lock */

    struct message **slots; /* by the lower half of the id */
    uint32_t nslots, slots_room;
    struct ch_list free_messages;
    struct ch_list free_buffers[BUFFER_CLASSES];
    uint32_t nfree_buffers[BUFFER_CLASSES];
};

/* --- p2p_pool.c --- */

/* NULL: no memory. Zeroed but for its number, in peer->messages. */
struct message *ch_message_new(struct ch_p2p *p2p, struct peer *peer, enum message_kind kind);
void ch_message_free(struct ch_p2p *p2p, struct message *message);
/* The message with that number, if it is this peer's and of that kind; else NULL. */
struct message *ch_message_find(struct ch_p2p *p2p, const struct peer *peer, uint64_t id,
                                enum message_kind kind);
/* At most CH_P2P_EAGER bytes. */
struct buffer *ch_buffer_new(struct ch_p2p *p2p, size_t nbytes);
void ch_buffer_free(struct ch_p2p *p2p, struct buffer *buffer);
void ch_pool_fini(struct ch_p2p *p2p);

/* --- p2p.c: with the lock held --- */

void ch_p2p_describe(choir_error *out, choir_status code, int culprit, const char *operation,
                     const char *fmt, ...) CH_PRINTF(5, 6);
/* Out of whatever it is in, and done. `record` NULL: well. */
void ch_p2p_finish_locked(struct ch_p2p *p2p, struct ch_transfer *t, const choir_error *record);
void ch_p2p_fail_peer_locked(struct ch_p2p *p2p, struct peer *peer, const choir_error *record);
/* The same with this thread's last error. */
void ch_p2p_lose_peer_locked(struct ch_p2p *p2p, struct peer *peer);
/* Take a transfer out of whatever it is in; its peer is told if it knows of it. */
void ch_p2p_detach_locked(struct ch_p2p *p2p, struct ch_transfer *t);

/* Give the lock back, ring, and make the calls that must not be made with it. */
void ch_p2p_leave_slow(struct ch_p2p *p2p) CH_RELEASES(&p2p->lock);

/* Not analysed: which of the two gives it back is no concern of the caller. */
static inline void ch_p2p_leave(struct ch_p2p *p2p) CH_RELEASES(&p2p->lock) CH_NO_TSA
{
    bool rung = p2p->rung;

    if (CH_UNLIKELY(!ch_list_empty(&p2p->callbacks) || !ch_list_empty(&p2p->refusals))) {
        ch_p2p_leave_slow(p2p);
        return;
    }
    p2p->rung = false;
    ch_unlock(&p2p->lock);
    if (rung)
        ch_bell_after_store(&p2p->bell);
}

/* The next `nbytes` of a transfer's memory in at most `niov` pieces: how many pieces there are. */
int ch_transfer_iov(const struct ch_transfer *t, size_t nbytes, struct iovec *iov, int niov);
void ch_transfer_advance(struct ch_transfer *t, size_t nbytes);

/* --- p2p_match.c --- */

static inline uint32_t ch_hash_of(uint64_t context, uint64_t tag)
{
    return (
        uint32_t)(((context + tag * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd)) >>
                  40);
}

static inline uint32_t ch_bucket_of(uint64_t context, uint64_t tag)
{
    return ch_hash_of(context, tag) % NBUCKETS;
}

static inline uint32_t ch_gone_slot(uint64_t context)
{
    return ch_hash_of(context, 0) % NGONE;
}

/* Whether it failed, with its record, or is gone, with none. */
bool ch_context_ended(const struct ch_p2p *p2p, uint64_t context, const choir_error **record_out);
/* The first receive for it, out of its bucket; NULL: there is none. */
struct ch_transfer *ch_match_posted(struct ch_p2p *p2p, const struct peer *peer, uint64_t context,
                                    uint64_t tag);
/* A message has come: for a receive, or to be kept. The payload of an eager one goes where peer->in says. The
 * peer may have failed afterwards. */
void ch_match_eager(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *frame);
void ch_match_offer(struct ch_p2p *p2p, struct peer *peer, const struct ch_frame *frame);
/* Find a kept message for a receive; false if there is none. */
bool ch_match_has_kept(struct ch_p2p *p2p, const struct ch_transfer *t);
bool ch_match_kept(struct ch_p2p *p2p, struct ch_transfer *t);
/* A kept message is whole. */
void ch_match_whole(struct ch_p2p *p2p, struct message *message);
/* Forget what is kept of a context. */
void ch_match_drop_context(struct ch_p2p *p2p, uint64_t context);
/* Forget a kept message, giving its charge back; an offer is refused. */
void ch_match_drop(struct ch_p2p *p2p, struct message *message, enum ch_frame_reason reason);

/* --- p2p_in.c, p2p_out.c --- */

/* Of a small message: below this a call into the kernels costs more than it saves. Of an empty one there
 * need not be memory. */
static inline void ch_p2p_copy(void *dst, const void *src, size_t nbytes)
{
    uint64_t first, last;

    if (nbytes >= sizeof(first) && nbytes <= 2 * sizeof(first)) { /* without a call at all */
        memcpy(&first, src, sizeof(first));
        memcpy(&last, (const char *)src + nbytes - sizeof(last), sizeof(last));
        memcpy(dst, &first, sizeof(first));
        memcpy((char *)dst + nbytes - sizeof(last), &last, sizeof(last));
    } else if (nbytes > 256) {
        ch_copy(dst, src, nbytes);
    } else if (nbytes > 0) {
        memcpy(dst, src, nbytes);
    }
}

/* What is told of a small message in a few words, with all of it: context, tag, these bits, and the bytes. */
enum { CH_TOLD_HEAD = 3, CH_TOLD_NBYTES = (CH_TOLD_WORDS - CH_TOLD_HEAD) * 8 };

static inline bool ch_told_fits(const struct ch_envelope *e)
{
    return e->nbytes <= CH_TOLD_NBYTES && e->check >> 24 == 0;
}

static inline uint64_t ch_told_bits(const struct ch_envelope *e, uint32_t credit)
{
    return e->nbytes | e->check << 8 | (uint64_t)credit << 32;
}

static inline int ch_told_count(size_t nbytes)
{
    return CH_TOLD_HEAD + (int)((nbytes + 7) / 8);
}

/* The words for an eager message that was refused; `m` has what REFUSE said. */
void ch_p2p_describe_refused(const struct message *m, const struct peer *peer, choir_error *out);

/* Send a message whole and be done with it, if it can be now. False: nothing has happened. */
bool ch_p2p_send_whole(struct ch_p2p *p2p, struct peer *peer, const struct ch_envelope *envelope,
                       const void *data);
bool ch_p2p_send_at_once(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t);

/* Whether there is a frame to be written: most looks find none. */
static inline bool ch_p2p_wants_out(const struct ch_p2p *p2p, const struct peer *peer)
{
    return peer->out.busy || !ch_list_empty(&peer->notes) || !ch_list_empty(&peer->starting) ||
           !ch_list_empty(&peer->streaming) || !ch_list_empty(&peer->reading) || peer->say_held ||
           peer->say_flows || peer->say_asked || peer->holds || peer->owed >= p2p->kept_max / 4;
}

/* Read or write what can be now, at most about `budget` bytes. True if something moved. */
bool ch_p2p_pump_in(struct ch_p2p *p2p, struct peer *peer, size_t *budget);
bool ch_p2p_pump_out(struct ch_p2p *p2p, struct peer *peer, size_t *budget);

/* --- p2p_read.c --- */

/* What is read at a time, and about as much in a turn: withdrawals are asked for between, and nobody has the lock for longer. More
 * than what is copied in one: a quarter of it at a time took a fifth longer. */
enum { CH_READ_NBYTES = 1024 * 1024 };

/* Before an offer is written: lend the message, if it can be. */
void ch_p2p_lend(const struct peer *peer, struct ch_transfer *t, struct ch_frame *offer);
/* Whatever was lent to it is not any more. */
void ch_p2p_withdraw(const struct peer *peer);
/* An accepted message: whether to read it, which then has begun. False: it is to be sent for. */
bool ch_p2p_start_read(struct ch_p2p *p2p, struct peer *peer, struct message *message);
/* As the other two. */
bool ch_p2p_pump_read(struct ch_p2p *p2p, struct peer *peer, size_t *budget);
/* READ came. */
bool ch_p2p_was_read(struct ch_p2p *p2p, struct message *message);

/* Queue the frame that tells of a message. */
void ch_p2p_note(struct ch_p2p *p2p, struct message *message, enum ch_frame_kind kind,
                 enum ch_frame_reason reason);
/* A send begins: now, or it is held. False: no memory. */
bool ch_p2p_start_send(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t);
/* Take a send out of whatever it is in. A frame that was begun is finished without it, and WITHDRAW tells the
 * peer, unless it wanted it so (`refused`). */
void ch_p2p_leave_send(struct ch_p2p *p2p, struct peer *peer, struct ch_transfer *t, bool refused);
/* Credit came, or a held one went: start what can be. */
void ch_p2p_release_held(struct ch_p2p *p2p, struct peer *peer);
/* The peer asked for the first held message of a context and tag. */
void ch_p2p_answer_ask(struct peer *peer, uint64_t context, uint64_t tag);

#endif
