/*
 * byte_ring.c - one writer, one reader, bytes. See byte_ring.h for the layout.
 */
#include "transport/byte_ring.h"

#include <string.h>

#include "base/error.h"
#include "kernel/kernel.h"
#include "transport/transport.h"

/* Below this a call into the kernels costs more than it saves. */
enum { SMALL_COPY = 256 };

/* CH_BREAK_RING_RELEASE builds the ring without the writer's release: ThreadSanitizer must then complain
 * (tests/model/release_test.py), or our tests would prove nothing. */
#ifdef CH_BREAK_RING_RELEASE
#define WRITTEN_ORDER memory_order_relaxed
#else
#define WRITTEN_ORDER memory_order_release
#endif

bool ch_byte_ring_room_ok(size_t room)
{
    return room != 0 && (room & (room - 1)) == 0 && room <= SIZE_MAX / 2;
}

size_t ch_byte_ring_nbytes(size_t room)
{
    return ch_byte_ring_room_ok(room) ? sizeof(struct ch_byte_ring) + room : 0;
}

static void copy(unsigned char *dst, const unsigned char *src, size_t nbytes)
{
    if (nbytes <= SMALL_COPY)
        memcpy(dst, src, nbytes);
    else
        ch_copy(dst, src, nbytes);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static choir_status impossible(const struct ch_byte_ring_end *end, const char *whose,
                               uint64_t theirs)
{
    return ch_fail(CHOIR_ERR_PROTO, "byte ring: the %s counter is %llu beside our %llu, room %zu",
                   whose, (unsigned long long)theirs, (unsigned long long)end->mine, end->room);
}

/* Bytes that can be written, of `wanted`; 0 also for an impossible counter, which *rc_out then tells. */
static size_t space(struct ch_byte_ring_end *end, size_t wanted, choir_status *rc_out)
{
    *rc_out = CHOIR_IN_PROGRESS;
    if (end->room - (size_t)(end->mine - end->theirs) < wanted) {
        /* Acquire, pairs with the release in ch_byte_ring_take(): its copy out is over. */
        uint64_t taken = atomic_load_explicit(&end->ring->taken, memory_order_acquire);

        if (end->mine - taken > end->room) {
            *rc_out = impossible(end, "reader's", taken);
            return 0;
        }
        end->theirs = taken;
    }
    return end->room - (size_t)(end->mine - end->theirs);
}

static void copy_in(struct ch_byte_ring_end *end, unsigned char *dst, const unsigned char *src,
                    size_t nbytes)
{
    if (nbytes <= SMALL_COPY)
        memcpy(dst, src, nbytes);
    else
        ch_copy_over(&end->ways, dst, src, nbytes);
}

/* Put bytes at position `at` of the stream, round the end of the ring if need be. */
static void put(struct ch_byte_ring_end *end, uint64_t at, const unsigned char *src, size_t nbytes)
{
    size_t offset = at & (end->room - 1), first = smaller(nbytes, end->room - offset);

    copy_in(end, end->ring->data + offset, src, first);
    if (nbytes > first)
        copy_in(end, end->ring->data, src + first, nbytes - first);
}

/* Where position `mine` of the stream is, if `nbytes` from there on are in one piece. */
static unsigned char *in_one_piece(const struct ch_byte_ring_end *end, size_t nbytes)
{
    size_t offset = end->mine & (end->room - 1);

    return nbytes <= end->room - offset ? end->ring->data + offset : NULL;
}

void *ch_byte_ring_reserve(struct ch_byte_ring_end *end, size_t nbytes)
{
    choir_status rc;

    return space(end, nbytes, &rc) >= nbytes ? in_one_piece(end, nbytes) : NULL;
}

void ch_byte_ring_commit(struct ch_byte_ring_end *end, size_t nbytes)
{
    end->mine += nbytes;
    /* Release, pairs with the acquire in available(): the bytes are there. */
    atomic_store_explicit(&end->ring->written, end->mine, WRITTEN_ORDER);
    if (end->bell != NULL)
        ch_bell_after_store(end->bell);
}

/* Whoever finds the ring full may leave it to the reader to ring, and so looks once more in order: of its `written` and the reader's
 * `taken`, each followed by a full fence and a look at the other, at least one is seen (tell_writer()). One fence for each
 * filling is enough: who finds it full again has written nothing since. */
static size_t space_in_order(struct ch_byte_ring_end *end, size_t wanted, choir_status *rc_out)
{
    if (end->ordered == end->mine)
        return 0;
    end->ordered = end->mine;
    CH_FULL_FENCE();
    return space(end, wanted, rc_out);
}

choir_status ch_byte_ring_write(struct ch_byte_ring_end *end, const struct iovec *iov, int niov,
                                size_t *done_out)
{
    choir_status rc;
    size_t wanted = 0, room, done = 0;

    for (int i = 0; i < niov && wanted < end->room; i++)
        wanted += smaller(iov[i].iov_len, end->room);
    room = space(end, wanted, &rc);
    if (room == 0 && rc == CHOIR_IN_PROGRESS)
        room = space_in_order(end, wanted, &rc);
    for (int i = 0; i < niov && done < room; i++) {
        size_t n = smaller(iov[i].iov_len, room - done);

        if (n > 0)
            put(end, end->mine + done, iov[i].iov_base, n);
        done += n;
    }
    if (done == 0)
        return rc;
    ch_byte_ring_commit(end, done);
    *done_out = done;
    return CHOIR_OK;
}

/* Bytes that can be taken; the writer is only asked if it is not known to have written `wanted`. */
static size_t available(struct ch_byte_ring_end *end, size_t wanted, choir_status *rc_out)
{
    *rc_out = CHOIR_IN_PROGRESS;
    if (end->theirs - end->mine < wanted) {
        /* Acquire, pairs with the release in ch_byte_ring_commit(). */
        uint64_t written = atomic_load_explicit(&end->ring->written, memory_order_acquire);

        if (written - end->mine > end->room) {
            *rc_out = impossible(end, "writer's", written);
            return 0;
        }
        end->theirs = written;
    }
    return (size_t)(end->theirs - end->mine);
}

/* After a take: a writer that saw the ring full before it may sleep until it is told. If it sleeps we see that it does (bell.h), but
 * it, or another thread of its rank, may have filled the ring in its last look or later. So there is a fence here as well
 * as there (space_in_order()): either we see that the ring was full, or who filled it sees that it is not. */
static void tell_writer(const struct ch_byte_ring_end *end, uint64_t taken_before)
{
    if (!ch_bell_may_sleep(end->bell))
        return;
    CH_FULL_FENCE();
    /* Relaxed: nothing is read through it. */
    if (atomic_load_explicit(&end->ring->written, memory_order_relaxed) - taken_before >= end->room)
        ch_bell_ring(end->bell);
}

const void *ch_byte_ring_peek(struct ch_byte_ring_end *end, size_t nbytes)
{
    choir_status rc;

    return available(end, nbytes, &rc) >= nbytes ? in_one_piece(end, nbytes) : NULL;
}

void ch_byte_ring_consume(struct ch_byte_ring_end *end, size_t nbytes)
{
    uint64_t before = end->mine;

    end->mine += nbytes;
    /* Release, pairs with the acquire in space(): the bytes may be written over. */
    atomic_store_explicit(&end->ring->taken, end->mine, memory_order_release);
    if (end->bell != NULL)
        tell_writer(end, before);
}

/* Each word is released after told_at was taken back, and told_at after all of them: a reader that sees one of later words
 * also sees that told_at has changed. */
void ch_byte_ring_tell(struct ch_byte_ring_end *end, const uint64_t *words, int count)
{
    struct ch_byte_ring *ring = end->ring;

    atomic_store_explicit(&ring->told_at, 0, memory_order_relaxed);
    for (int i = 0; i < count; i++)
        atomic_store_explicit(&ring->told[i], words[i], memory_order_release);
    atomic_store_explicit(&ring->told_at, end->mine + 1, memory_order_release);
}

bool ch_byte_ring_told(struct ch_byte_ring_end *end, size_t nbytes, uint64_t *words_out, int count)
{
    struct ch_byte_ring *ring = end->ring;
    choir_status rc;

    if (available(end, nbytes, &rc) < nbytes)
        return false;
    /* Acquire, all of them: pairs with the releases in ch_byte_ring_tell(). */
    if (atomic_load_explicit(&ring->told_at, memory_order_acquire) != end->mine + 1)
        return false;
    for (int i = 0; i < count; i++)
        words_out[i] = atomic_load_explicit(&ring->told[i], memory_order_acquire);
    return atomic_load_explicit(&ring->told_at, memory_order_relaxed) == end->mine + 1;
}

/* Two full fences: what the writer does with its memory afterwards is after this, and what the reader has read was before its
 * look. So a reader that does not see this has read nothing that was written later. */
void ch_byte_ring_withdraw(struct ch_byte_ring_end *end)
{
    /* Relaxed: the fence orders it; there is one writer. */
    uint64_t before = atomic_load_explicit(&end->ring->withdrawn, memory_order_relaxed);

    atomic_store_explicit(&end->ring->withdrawn, before + 1, memory_order_relaxed);
    CH_FULL_FENCE();
}

uint64_t ch_byte_ring_withdrawn(const struct ch_byte_ring_end *end)
{
    CH_FULL_FENCE();
    return atomic_load_explicit(&end->ring->withdrawn, memory_order_relaxed);
}

static void copy_out(const struct ch_byte_ring_end *end, unsigned char *buf, size_t offset,
                     size_t nbytes)
{
    if (end->past_caches && nbytes > SMALL_COPY)
        ch_copy_nt(buf, end->ring->data + offset, nbytes);
    else
        copy(buf, end->ring->data + offset, nbytes);
}

choir_status ch_byte_ring_take(struct ch_byte_ring_end *end, void *buf, size_t nbytes,
                               size_t *done_out)
{
    choir_status rc;
    size_t done = smaller(available(end, 1, &rc), nbytes);
    size_t offset = end->mine & (end->room - 1), first = smaller(done, end->room - offset);

    if (done == 0)
        return rc;
    copy_out(end, buf, offset, first);
    if (done > first)
        copy_out(end, (unsigned char *)buf + first, 0, done - first);
    ch_byte_ring_consume(end, done);
    *done_out = done;
    return CHOIR_OK;
}

bool ch_byte_ring_readable(struct ch_byte_ring_end *end)
{
    choir_status rc;

    return available(end, 1, &rc) > 0 || rc != CHOIR_IN_PROGRESS;
}
