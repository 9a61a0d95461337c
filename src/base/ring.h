/*
 * ring.h - a bounded queue of fixed-size records, one writer, one reader, in any memory.
 *
 * The two may be different processes: the ring is plain memory without pointers, and each side keeps
 * its own view of it. The other side's index is a peer's word: it is checked, never trusted, so a
 * broken peer gives an error and not a wild access.
 *
 *   offset  bytes  field    writer   reader
 *        0    128  written  writer   reader     records ever written
 *      128    128  taken    reader   writer     records ever taken
 *      256      .  records  writer   reader     capacity * record_size bytes
 */
#ifndef CH_RING_H
#define CH_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/compiler.h"

struct ch_ring_shared {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t written;
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t taken;
    _Alignas(CH_CACHE_UNIT) unsigned char records[];
};
_Static_assert(offsetof(struct ch_ring_shared, taken) == 128, "one writer per cache unit");
_Static_assert(offsetof(struct ch_ring_shared, records) == 256, "records start a cache unit");

/* One side's end. */
struct ch_ring {
    struct ch_ring_shared *shared;
    uint64_t mine;     /* what this side has written or taken */
    uint64_t theirs;   /* the other side's, as last seen: spares a look at its cache line */
    uint32_t capacity; /* records; a power of two */
    uint32_t record_size;
};

/* Bytes of shared memory for a ring; 0 if the numbers do not fit or capacity is no power of two. */
size_t ch_ring_nbytes(uint32_t capacity, uint32_t record_size);

/* `shared` is zeroed memory of ch_ring_nbytes(), aligned to CH_CACHE_UNIT. Each side attaches once. */
void ch_ring_attach(struct ch_ring *ring, struct ch_ring_shared *shared, uint32_t capacity,
                    uint32_t record_size);

/* Writer: CHOIR_OK; CHOIR_IN_PROGRESS if the ring is full; CHOIR_ERR_PROTO if the reader's index is
 * impossible. The record is copied; ringing the reader's bell is the caller's part. */
choir_status ch_ring_write(struct ch_ring *ring, const void *record);

/* Reader: CHOIR_OK and a copy of the oldest record; CHOIR_IN_PROGRESS if there is none;
 * CHOIR_ERR_PROTO if the writer's index is impossible. */
choir_status ch_ring_take(struct ch_ring *ring, void *record_out);

#endif
