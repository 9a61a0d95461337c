/*
 * transport_shm.c - to a rank of this host: two rings of bytes in shared memory. See byte_ring.h.
 *
 * `self` is the same with one ring in our own memory, whose two ends are ours.
 */
#include "transport/transport.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sys.h"
#include "transport/byte_ring.h"

struct ring_stream {
    struct ch_stream stream;
    struct ch_byte_ring_end in, out;
    struct ch_bell bell; /* the peer's; unused by self */
    int64_t pid;         /* of the peer, for read_remote(); 0: not to be read */
    uint64_t id_at;      /* where it has these */
    uint8_t id[CH_REMOTE_ID_NBYTES];
    struct ch_byte_ring *owned; /* self's ring; NULL: the rings are the caller's */
};

static choir_status ring_send(struct ch_stream *stream, const struct iovec *iov, int niov,
                              size_t *done_out)
{
    return ch_byte_ring_write(&CH_CONTAINER(stream, struct ring_stream, stream)->out, iov, niov,
                              done_out);
}

static void *ring_reserve(struct ch_stream *stream, size_t nbytes)
{
    return ch_byte_ring_reserve(&CH_CONTAINER(stream, struct ring_stream, stream)->out, nbytes);
}

static void ring_commit(struct ch_stream *stream, size_t nbytes)
{
    ch_byte_ring_commit(&CH_CONTAINER(stream, struct ring_stream, stream)->out, nbytes);
}

static const void *ring_peek(struct ch_stream *stream, size_t nbytes)
{
    return ch_byte_ring_peek(&CH_CONTAINER(stream, struct ring_stream, stream)->in, nbytes);
}

static void ring_consume(struct ch_stream *stream, size_t nbytes)
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);

    ch_byte_ring_consume(&s->in, nbytes);
    stream->seen = s->in.mine;
}

static void ring_tell(struct ch_stream *stream, const uint64_t *words, int count)
{
    ch_byte_ring_tell(&CH_CONTAINER(stream, struct ring_stream, stream)->out, words, count);
}

static bool ring_told(struct ch_stream *stream, size_t nbytes, uint64_t *words_out, int count)
{
    return ch_byte_ring_told(&CH_CONTAINER(stream, struct ring_stream, stream)->in, nbytes,
                             words_out, count);
}

static void ring_withdraw(struct ch_stream *stream)
{
    ch_byte_ring_withdraw(&CH_CONTAINER(stream, struct ring_stream, stream)->out);
}

static uint64_t ring_withdrawn(struct ch_stream *stream, bool ours)
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);

    return ch_byte_ring_withdrawn(ours ? &s->out : &s->in);
}

/* One system call is of one process: if it has the id, the bytes are its own. */
static choir_status ring_read_remote(struct ch_stream *stream, void *dst, uint64_t remote,
                                     size_t nbytes)
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);
    uint8_t id[CH_REMOTE_ID_NBYTES];
    struct iovec to[] = { { id, sizeof(id) }, { dst, nbytes } };
    struct iovec from[] = { { (void *)(uintptr_t)s->id_at, sizeof(id) },
                            { (void *)(uintptr_t)remote, nbytes } };
    ssize_t n = s->pid != 0 ? ch_sys_read_process((pid_t)s->pid, to, 2, from, 2) : -1;

    if (n != (ssize_t)(sizeof(id) + nbytes) || memcmp(id, s->id, sizeof(id)) != 0)
        return CHOIR_ERR_UNSUPPORTED;
    return CHOIR_OK;
}

static choir_status ring_recv(struct ch_stream *stream, void *buf, size_t nbytes, size_t *done_out)
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);
    choir_status rc;

    s->in.past_caches = stream->past_caches;
    rc = ch_byte_ring_take(&s->in, buf, nbytes, done_out);
    stream->seen = s->in.mine;
    return rc;
}

static bool ring_readable(struct ch_stream *stream)
{
    return ch_byte_ring_readable(&CH_CONTAINER(stream, struct ring_stream, stream)->in);
}

static void ring_close(struct ch_stream *stream)
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);

    ch_free(s->owned);
    ch_free(s);
}

const struct ch_transport_ops ch_transport_shm = {
    .name = "shm",
    .send = ring_send,
    .recv = ring_recv,
    .readable = ring_readable,
    .close = ring_close,
    .reserve = ring_reserve,
    .commit = ring_commit,
    .peek = ring_peek,
    .consume = ring_consume,
    .tell = ring_tell,
    .told = ring_told,
    .read_remote = ring_read_remote,
    .withdraw = ring_withdraw,
    .withdrawn = ring_withdrawn,
};

/* No short way (p2p_short.c): what we send to ourselves nobody would tell p2p of, if it were put there behind
 * its back. */
const struct ch_transport_ops ch_transport_self = {
    .name = "self",
    .send = ring_send,
    .recv = ring_recv,
    .readable = ring_readable,
    .close = ring_close,
};

static struct ring_stream *stream_new(const struct ch_transport_ops *ops, uint32_t peer,
                                      size_t room)
{
    struct ring_stream *s;

    if (!ch_byte_ring_room_ok(room)) {
        ch_fail(CHOIR_ERR_INVALID, "%s to rank %u: a ring of %zu bytes, which is no power of two",
                ops->name, peer, room);
        return NULL;
    }
    s = ch_zalloc(sizeof(*s));
    if (s == NULL) {
        ch_fail(CHOIR_ERR_NOMEM, "%s to rank %u: no memory for the stream", ops->name, peer);
        return NULL;
    }
    s->stream = (struct ch_stream){ .ops = ops, .peer = peer };
    return s;
}

choir_status ch_transport_shm_open(uint32_t peer, struct ch_byte_ring *in, struct ch_byte_ring *out,
                                   size_t room, const struct ch_bell *bell,
                                   struct ch_stream **stream_out)
{
    struct ring_stream *s = stream_new(&ch_transport_shm, peer, room);

    if (s == NULL)
        return choir_last_error_record()->code;
    s->bell = *bell;
    s->in = (struct ch_byte_ring_end){ .ring = in, .room = room, .bell = &s->bell };
    s->out = (struct ch_byte_ring_end){ .ring = out, .room = room, .bell = &s->bell };
    s->stream.arrived = &s->in.ring->written;
    s->stream.ways = &s->out.ways;
    *stream_out = &s->stream;
    return CHOIR_OK;
}

void ch_transport_shm_reads(struct ch_stream *stream, int64_t pid, uint64_t id_at,
                            const uint8_t id[CH_REMOTE_ID_NBYTES])
{
    struct ring_stream *s = CH_CONTAINER(stream, struct ring_stream, stream);

    s->pid = pid;
    s->id_at = id_at;
    memcpy(s->id, id, sizeof(s->id));
}

choir_status ch_transport_self_open(uint32_t rank, size_t room, struct ch_stream **stream_out)
{
    struct ring_stream *s = stream_new(&ch_transport_self, rank, room);

    if (s == NULL)
        return choir_last_error_record()->code;
    s->owned = ch_zalloc_aligned(CH_CACHE_UNIT, ch_byte_ring_nbytes(room));
    if (s->owned == NULL) {
        ring_close(&s->stream);
        return ch_fail(CHOIR_ERR_NOMEM, "self, rank %u: no memory for a ring of %zu bytes", rank,
                       room);
    }
    s->in = s->out = (struct ch_byte_ring_end){ .ring = s->owned, .room = room };
    s->stream.arrived = &s->in.ring->written;
    *stream_out = &s->stream;
    return CHOIR_OK;
}
