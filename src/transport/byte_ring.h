/*
 * byte_ring.h - a bounded stream of bytes through memory: one writer, one reader, in any two processes.
 *
 * Plain memory without pointers; each side keeps a view of its own. The other side's counter is a peer's
 * word: it is checked, so a broken peer gives an error and not a wild access.
 *
 *   offset  bytes  field    writer   reader
 *        0      8  written  writer   reader     bytes ever written
 *        8      8  told_at  writer   reader     where in the stream the bytes are that `told` is of
 *       16     48  told     writer   reader     a few words of the writer's, beside its counter
 *       64      8  withdrawn  writer reader    how often the writer took back what the reader may read elsewhere
 *      128    128  taken    reader   writer     bytes ever taken
 *      256   room  data     writer   reader     byte i of the stream is at i % room
 *
 * What a reader waits for is the counter. The bytes are in other cache lines, which it would have to wait for after
 * that; what fits in the counter's own line is there with it. So a writer may say in a few words what it writes, beside writing it:
 * of the last that it wrote. A reader that is as far finds them, another one takes the bytes.
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
#include "kernel/copy_over.h"

enum { CH_TOLD_WORDS = 6 };

struct ch_byte_ring {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t written;
    _Atomic uint64_t told_at; /* position + 1; 0: they are being written, or never were */
    _Atomic uint64_t told[CH_TOLD_WORDS];
    _Atomic uint64_t withdrawn;
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t taken;
    _Alignas(CH_CACHE_UNIT) unsigned char data[];
};
_Static_assert(offsetof(struct ch_byte_ring, told) == 16, "the words follow the counter");
_Static_assert(offsetof(struct ch_byte_ring, told) + CH_TOLD_WORDS * 8 == 64, "in its cache line");
_Static_assert(offsetof(struct ch_byte_ring, taken) == 128, "one writer per cache unit");
_Static_assert(offsetof(struct ch_byte_ring, data) == 256, "data starts a cache unit");

/* One side's end; written by whoever uses that side, one at a time. */
struct ch_byte_ring_end {
    struct ch_byte_ring *ring;
    size_t room;
    const struct ch_bell *bell; /* of the other side; NULL: it is told by other means */
    uint64_t mine;              /* what this side has written or taken */
    bool past_caches;           /* what is taken is not read soon */
    uint64_t theirs;          /* the other side's, as last seen: spares a look at its cache line */
    uint64_t ordered;         /* a writer's: `mine` when it last looked for room behind a fence */
    struct ch_copy_ways ways; /* of what is written */
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

/* Words about what is committed next, `count` of them; and those about the next `nbytes`, if these have come and there are
 * any, which then hold together. They are a peer's word as the bytes are. */
void ch_byte_ring_tell(struct ch_byte_ring_end *end, const uint64_t *words, int count);
bool ch_byte_ring_told(struct ch_byte_ring_end *end, size_t nbytes, uint64_t *words_out, int count);

/* For what the reader takes straight from the writer's memory: the writer says that it may not any more, before it uses
 * the memory for anything else, and the reader asks after reading whether it said so: not, if it is still what it was
 * before. */
void ch_byte_ring_withdraw(struct ch_byte_ring_end *end);
uint64_t ch_byte_ring_withdrawn(const struct ch_byte_ring_end *end);

/* Whether a take would do anything but wait. */
bool ch_byte_ring_readable(struct ch_byte_ring_end *end);

/* Whether `room` is one that a ring can have. */
bool ch_byte_ring_room_ok(size_t room);

#endif
