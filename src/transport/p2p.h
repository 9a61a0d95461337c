/*
 * p2p.h - messages between ranks: matched by context, peer and tag, in order.
 *
 * One per rank, for all its groups. Both the sends and receives of users and the SEND and RECV steps of
 * schedules go through here; the context tells them, and groups, apart. Small messages go at once and are
 * kept by the receiver if nobody asks for them yet (eager, up to CH_P2P_EAGER bytes, CH_P2P_KEPT in all of
 * one peer); of large ones the receiver is told first and sends for them when it knows where to. So memory is
 * bounded, and a message that nobody wants holds nobody up: how, is in frame.h.
 *
 * A send is done when its buffer may be used again, a receive when the message is there and its sender needs nothing more
 * of this rank. A large send thus waits for its receive, a small one does not.
 *
 * Threads: any; one lock, never held while waiting.
 * Blocks:  nothing here does.
 */
#ifndef CH_P2P_H
#define CH_P2P_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <choir/status.h>

#include "base/bell.h"
#include "base/list.h"
#include "transport/transport.h"

enum {
    CH_P2P_EAGER = 64 * 1024,
    CH_P2P_PIECE = 32 * 1024, /* of a large one */
    CH_P2P_KEPT = 16 * 1024 * 1024,
    CH_P2P_ANY = -1, /* from whoever comes first */
};

struct ch_p2p;

/* `bell` is this rank's own: rung when a transfer is done. */
choir_status ch_p2p_create(uint32_t nranks, const struct ch_bell *bell, struct ch_p2p **p2p_out);

/* Transfers still there are forgotten. Accepts NULL. */
void ch_p2p_destroy(struct ch_p2p *p2p);

/* Give it the way to a peer, once; the stream is its own from then on. Transfers with a peer that is not
 * connected fail with CHOIR_ERR_STATE; to oneself it takes a stream too. */
void ch_p2p_connect(struct ch_p2p *p2p, uint32_t peer, struct ch_stream *stream);

/* What is told of a small message that was done for its sender when the receiver found that it differs in
 * length or check from its own call. Called without the lock, by whoever makes progress; a zeroed one: it is
 * logged. Set before the first transfer. */
struct ch_p2p_refusal {
    void (*fn)(void *arg, uint64_t context, const choir_error *record);
    void *arg;
};
void ch_p2p_on_refusal(struct ch_p2p *p2p, const struct ch_p2p_refusal *refusal);

/* Receives of `from` bytes and more, but less than `to`, are read from their sender's memory, where it lends it and it can
 * be; none to begin with. Set before the first transfer. */
void ch_p2p_read_from(struct ch_p2p *p2p, size_t from, size_t to);

/* A send or a receive. Lives in its owner, who sets on_done before the first use; its buffers and `iov` are lent until
 * it is done, and may be used again then. */
struct ch_transfer {
    _Atomic uint64_t
        done; /* 1 when it is, as by ch_post() to the rank's bell; all else is then readable */
    choir_status status;
    choir_error error;    /* if status is a failure */
    int source;           /* of a receive */
    uint64_t other_check; /* if it failed because the two sides' differ: the other's; else 0 */

    /* NULL, or called once, after `done` was set, with no lock held, by whoever made the progress: perhaps
     * before the call that started it returns. The transfer must not go away before it was called. */
    void (*on_done)(struct ch_transfer *transfer);

    /* what p2p keeps here */
    struct ch_list link, all;
    const struct iovec *iov;
    int niov, at_iov; /* where it is: in iov[at_iov], at_byte bytes from its start */
    size_t at_byte;
    size_t nbytes, moved;
    uint64_t context, tag, check, seq;
    struct message *message;
    int peer;
    int state;
    bool is_send;
    bool lent; /* a send that its receiver may read: withdrawn before it is done with a failure */
};

/* Start one. `context` names the group, and whether users or schedules use it; `check` is a word that must be
 * the same on both sides (what the sender says of the operation), 0: is not compared. What differs in length
 * or check is CHOIR_ERR_INVALID on both sides, naming both; the connection stays. A small send may be done
 * before that is known: then it is told to ch_p2p_on_refusal(). */
void ch_p2p_send(struct ch_p2p *p2p, struct ch_transfer *transfer, uint32_t peer, uint64_t context,
                 uint64_t tag, uint64_t check, const struct iovec *iov, int niov);
void ch_p2p_recv(struct ch_p2p *p2p, struct ch_transfer *transfer, int peer, uint64_t context,
                 uint64_t tag, uint64_t check, const struct iovec *iov, int niov);

/* The same for small ones that need not wait, without a transfer: one round of the lock for all. `looks` is how often a
 * receive looks for a message that is about to come. */
struct ch_envelope {
    uint64_t context, tag, check; /* as above; the context is the same for all */
    size_t nbytes;
};

struct ch_short {
    struct ch_envelope envelope;
    void *data;
    uint32_t peer;
    bool is_send;
    /* Set here. Who is done already is passed over; who is not has not begun, and is to be started in its order. */
    bool done;
    bool late; /* set here: a receive that lacks nothing but its message */
};

/* What its caller does in ch_p2p_short(), each once, with the lock held: it is not to block. */
struct ch_meanwhile {
    /* After the sends, of which `all` are done or not, and before the first look for what comes: while that is under way,
     * it costs no time. */
    void (*sent)(void *arg, bool all);
    /* At the end. `over`: all are done, and nothing here is touched any more once the lock is free, so that whoever takes it next
     * may do away with everything. */
    void (*end)(void *arg, bool over);
    void *arg;
};

/* How many are done by this. What fails is not done either: started as a transfer it has words for it. `meanwhile` may be NULL. */
size_t ch_p2p_short(struct ch_p2p *p2p, struct ch_short *parts, size_t count, int looks,
                    const struct ch_meanwhile *meanwhile);

/* Whoever is in ch_p2p_short() now has come to its end when this returns. */
void ch_p2p_pass(struct ch_p2p *p2p);

/* Whether there are frames that could not be written yet. The other side may wait for one of a transfer that has ended here,
 * badly or early: until it is written somebody must go on calling ch_p2p_progress(). */
bool ch_p2p_owes(struct ch_p2p *p2p);

/* Move what can be moved now. Whoever waits calls it, and the service thread. True if something moved. */
bool ch_p2p_progress(struct ch_p2p *p2p);

/* Take a transfer back: when this returns it is done, with `status` (a failure) if it was not yet. What comes
 * for it later is dropped. A send that has begun may still arrive; if it cannot arrive whole its receive
 * fails with CHOIR_ERR_NETWORK, as does a large send whose receive is taken back. */
void ch_p2p_cancel(struct ch_p2p *p2p, struct ch_transfer *transfer, choir_status status);

/* All transfers with a peer fail with `record`, and later ones as well, and its stream is closed. Short messages
 * that had come whole before, if only into the stream, are received all the same. Receives from any source go on.
 * The first record stays. */
void ch_p2p_fail_peer(struct ch_p2p *p2p, uint32_t peer, const choir_error *record);

/* All transfers of a context fail with `record`, and later ones as well. What comes in it is dropped. To be
 * followed, when nobody will use the context again, by a call with NULL: the record is then forgotten, and
 * what still comes is dropped. A context's number is never used again. */
void ch_p2p_end_context(struct ch_p2p *p2p, uint64_t context, const choir_error *record);

#endif
