/*
 * byte_ring.h - a bounded stream of bytes through memory: one writer, one reader, in any two processes.
 *
 * Plain memory without pointers; each side keeps a view of its own. The other side's counter is a peer's
 * word: it is checked, so a broken peer gives an error and not a wild access.
 *
 *   offset  bytes  field    writer   reader
 *        0    128  written  writer   reader     bytes ever written
 *      128    128  taken    reader   writer     bytes ever taken
 *      256   room  data     writer   reader     byte i of the stream is at i % room
 *
 * Who writes tells the reader at every turn. Who takes tells the writer only if the ring was full: a writer
 * with room left waits for something else.
 */
#ifndef CH_BYTE_RING_H
#define CH_BYTE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <choir/status.h>

#include "base/bell.h"
#include "base/compiler.h"

struct ch_byte_ring {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t written;
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t taken;
    _Alignas(CH_CACHE_UNIT) unsigned char data[];
};
_Static_assert(offsetof(struct ch_byte_ring, taken) == 128, "one writer per cache unit");
_Static_assert(offsetof(struct ch_byte_ring, data) == 256, "data starts a cache unit");

/* One side's end; written by whoever uses that side, one at a time. */
struct ch_byte_ring_end {
    struct ch_byte_ring *ring;
    size_t room;
    const struct ch_bell *bell; /* of the other side; NULL: it is told by other means */
    uint64_t mine;              /* what this side has written or taken */
    bool past_caches;           /* what is taken is not read soon */
    uint64_t theirs; /* the other side's, as last seen: spares a look at its cache line */
};

/* Both: CHOIR_OK and how many bytes went, at least one; CHOIR_IN_PROGRESS if none can now; CHOIR_ERR_PROTO if
 * the other side's counter is impossible. */
choir_status ch_byte_ring_write(struct ch_byte_ring_end *end, const struct iovec *iov, int niov,
                                size_t *done_out);
choir_status ch_byte_ring_take(struct ch_byte_ring_end *end, void *buf, size_t nbytes,
                               size_t *done_out);

/* The same without a copy: where the next `nbytes` are to be put (reserve), and that they were (commit); where
 * they are (peek), and that they are not needed any more (consume). NULL: there is no room for them, or they have
 * not come, or they go round the end of the ring. */
void *ch_byte_ring_reserve(struct ch_byte_ring_end *end, size_t nbytes);
void ch_byte_ring_commit(struct ch_byte_ring_end *end, size_t nbytes);
const void *ch_byte_ring_peek(struct ch_byte_ring_end *end, size_t nbytes);
void ch_byte_ring_consume(struct ch_byte_ring_end *end, size_t nbytes);

/* Whether a take would do anything but wait. */
bool ch_byte_ring_readable(struct ch_byte_ring_end *end);

/* Whether `room` is one that a ring can have. */
bool ch_byte_ring_room_ok(size_t room);

#endif
