/*
 * transport.h - how bytes reach a peer: a stream in each direction between two ranks, in order.
 *
 * A transport knows nothing of messages, tags or collectives; p2p.h makes messages of its streams. Nothing
 * here blocks: what does not go now is asked for again when the waiter was rung or a descriptor of its set
 * is ready. Listed in transport.def.
 *
 *   self   to oneself, through a buffer
 *   shm    to a rank of this host: a ring of bytes in the receiver's segment
 */
#ifndef CH_TRANSPORT_H
#define CH_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <choir/status.h>

#include "base/bell.h"
#include "kernel/copy_over.h"

/* One end of the streams to one peer. */
struct ch_stream;

struct ch_transport_ops {
    const char *name;

    /* As many bytes as go now, from the front of `iov`; CHOIR_OK with *done_out >= 1, CHOIR_IN_PROGRESS if
     * none go, CHOIR_ERR_NETWORK or CHOIR_ERR_PROTO if the peer is gone or broken. Tells the peer. */
    choir_status (*send)(struct ch_stream *stream, const struct iovec *iov, int niov,
                         size_t *done_out);

    /* The same as send() for what has come. */
    choir_status (*recv)(struct ch_stream *stream, void *buf, size_t nbytes, size_t *done_out);

    /* Whether recv() would find something. Called in every turn of a wait, unless the stream has a word for it. */
    bool (*readable)(struct ch_stream *stream);

    void (*close)(struct ch_stream *stream);

    /* Where the next `nbytes` are read from by the peer, to be written there and sent by commit(); NULL: there is no such
     * place now. And where the next that have come are, until consume(); NULL: not all of them are in one place. All four
     * are NULL if a transport has no memory that both sides see. */
    void *(*reserve)(struct ch_stream *stream, size_t nbytes);
    void (*commit)(struct ch_stream *stream, size_t nbytes);
    const void *(*peek)(struct ch_stream *stream, size_t nbytes);
    void (*consume)(struct ch_stream *stream, size_t nbytes);

    /* Words about what is committed next, and about the next that have come, where the peer finds them without a look at the
     * bytes (byte_ring.h); at most CH_TOLD_WORDS. False: there are none. NULL: a transport has no place for them. */
    void (*tell)(struct ch_stream *stream, const uint64_t *words, int count);
    bool (*told)(struct ch_stream *stream, size_t nbytes, uint64_t *words_out, int count);

    /* Remote memory access, where a transport has it: straight from or to the peer's memory. NULL: not
     * there, and bytes go through the stream. CHOIR_ERR_UNSUPPORTED: not with this peer, now or ever; what is at `dst` then
     * means nothing. It is up to the peer to lend the memory meanwhile: withdraw() says that it does not any more, before it is
     * used for anything else, and withdrawn() counts the peer's. What was read is what was lent if it has not changed since. */
    choir_status (*read_remote)(struct ch_stream *stream, void *dst, uint64_t remote,
                                size_t nbytes);
    void (*withdraw)(struct ch_stream *stream);
    uint64_t (*withdrawn)(struct ch_stream *stream, bool ours);
    choir_status (*write_remote)(struct ch_stream *stream, uint64_t remote, const void *src,
                                 size_t nbytes);
};

/* Every transport's stream begins with this. */
struct ch_stream {
    const struct ch_transport_ops *ops;
    uint32_t peer;
    bool past_caches;          /* what recv() writes is not read soon: set by who calls it */
    struct ch_copy_ways *ways; /* how to copy where reserve() says; NULL where there is no such */

    /* A word that the peer changes when it sends, and its value when all was read that had come; NULL: there is none, and
     * readable() knows. */
    const _Atomic uint64_t *arrived;
    uint64_t seen;
};

static inline bool ch_stream_readable(struct ch_stream *stream)
{
    /* Relaxed: recv() reads it in order. */
    return stream->arrived != NULL
               ? atomic_load_explicit(stream->arrived, memory_order_relaxed) != stream->seen
               : stream->ops->readable(stream);
}

/* Every transport's operations: ch_transport_shm, ... */
#define CH_TRANSPORT(name) extern const struct ch_transport_ops ch_transport_##name;
#include "transport/transport.def"
#undef CH_TRANSPORT

/* --- shm: a ring of bytes in each direction (byte_ring.h) --------------------------------------------- */

struct ch_byte_ring;

/* Bytes that a ring takes with `room` bytes of data, a power of two; 0 if it is not. Aligned to
 * CH_CACHE_UNIT, zeroed. */
size_t ch_byte_ring_nbytes(size_t room);

/* `out` is the ring in the peer's segment that we write, `in` the one in ours that it writes, both with the
 * same room; `bell` rings the peer. All outlive the stream. A peer's counters are its word: checked, never
 * trusted. */
choir_status ch_transport_shm_open(uint32_t peer, struct ch_byte_ring *in, struct ch_byte_ring *out,
                                   size_t room, const struct ch_bell *bell,
                                   struct ch_stream **stream_out);

/* Let it read the peer's memory: of the process `pid`, as we would call it, if that has these bytes at that address. They are asked for
 * in every reading, so that a number that means another process here, or by now, is found out. */
enum { CH_REMOTE_ID_NBYTES = 16 };
void ch_transport_shm_reads(struct ch_stream *stream, int64_t pid, uint64_t id_at,
                            const uint8_t id[CH_REMOTE_ID_NBYTES]);

/* `room` as for a ring. */
choir_status ch_transport_self_open(uint32_t rank, size_t room, struct ch_stream **stream_out);

#endif
