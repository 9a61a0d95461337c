/*
 * ring.c - one writer, one reader, fixed-size records. See ring.h for the layout.
 */
#include "base/ring.h"

#include <string.h>

#include "base/error.h"

size_t ch_ring_nbytes(uint32_t capacity, uint32_t record_size)
{
    size_t nbytes;

    if (capacity == 0 || (capacity & (capacity - 1)) != 0 || record_size == 0)
        return 0;
    if (__builtin_mul_overflow((size_t)capacity, (size_t)record_size, &nbytes) ||
        __builtin_add_overflow(nbytes, sizeof(struct ch_ring_shared), &nbytes))
        return 0;
    return nbytes;
}

void ch_ring_attach(struct ch_ring *ring, struct ch_ring_shared *shared, uint32_t capacity,
                    uint32_t record_size)
{
    *ring = (struct ch_ring){ .shared = shared, .capacity = capacity, .record_size = record_size };
}

static unsigned char *record_at(const struct ch_ring *ring, uint64_t index)
{
    return ring->shared->records + (index & (ring->capacity - 1)) * (size_t)ring->record_size;
}

static choir_status impossible(const struct ch_ring *ring, const char *whose, uint64_t theirs)
{
    return ch_fail(CHOIR_ERR_PROTO, "ring: the %s index is %llu beside our %llu, capacity %u",
                   whose, (unsigned long long)theirs, (unsigned long long)ring->mine,
                   ring->capacity);
}

choir_status ch_ring_write(struct ch_ring *ring, const void *record)
{
    if (ring->mine - ring->theirs == ring->capacity) {
        /* Acquire, pairs with the release in ch_ring_take(): its copy out is over. */
        uint64_t taken = atomic_load_explicit(&ring->shared->taken, memory_order_acquire);

        if (ring->mine - taken > ring->capacity)
            return impossible(ring, "reader's", taken);
        ring->theirs = taken;
        if (ring->mine - taken == ring->capacity)
            return CHOIR_IN_PROGRESS;
    }
    memcpy(record_at(ring, ring->mine), record, ring->record_size);
    /* Release, pairs with the acquire in ch_ring_take(): the record is whole. */
    atomic_store_explicit(&ring->shared->written, ++ring->mine, memory_order_release);
    return CHOIR_OK;
}

choir_status ch_ring_take(struct ch_ring *ring, void *record_out)
{
    if (ring->mine == ring->theirs) {
        /* Acquire, pairs with the release in ch_ring_write(). */
        uint64_t written = atomic_load_explicit(&ring->shared->written, memory_order_acquire);

        if (written - ring->mine > ring->capacity)
            return impossible(ring, "writer's", written);
        ring->theirs = written;
        if (written == ring->mine)
            return CHOIR_IN_PROGRESS;
    }
    memcpy(record_out, record_at(ring, ring->mine), ring->record_size);
    /* Release, pairs with the acquire in ch_ring_write(): the slot may be written again. */
    atomic_store_explicit(&ring->shared->taken, ++ring->mine, memory_order_release);
    return CHOIR_OK;
}
