/*
 * p2p_fuzz.c - a peer's bytes, to a rank with sends and receives in every state.
 *
 * Whatever they are: nothing is read or written that is not ours, what is kept has its limit, every transfer ends
 * when the peer is given up, and all memory comes back. The first byte sets the pace in which the others come,
 * and whether the rank takes transfers back on the way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "transport/byte_ring.h"
#include "transport/p2p.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void fuzz_check(bool holds)
{
    if (!holds)
        abort();
}

enum { ROOM = 4096, LARGE = CH_P2P_EAGER + 8192, EXPECTED = 24576, TRANSFERS = 8 };

static unsigned char memory[TRANSFERS][LARGE];
static struct ch_transfer transfers[TRANSFERS];
static struct iovec pieces[TRANSFERS];
static struct ch_byte_ring *in, *out;
static struct ch_bell_word word;

static void recv_one(struct ch_p2p *p2p, int i, int peer, uint64_t tag, size_t nbytes)
{
    pieces[i] = (struct iovec){ memory[i], nbytes };
    ch_p2p_recv(p2p, &transfers[i], peer, 1, tag, 5, &pieces[i], 1);
}

static void send_one(struct ch_p2p *p2p, int i, uint64_t tag, size_t nbytes)
{
    pieces[i] = (struct iovec){ memory[i], nbytes };
    ch_p2p_send(p2p, &transfers[i], 1, 1, tag, 5, &pieces[i], 1);
}

static void start_all(struct ch_p2p *p2p)
{
    memset(transfers, 0, sizeof(transfers));
    send_one(p2p, 0, 1, LARGE); /* number 1 << 32: may be taken or refused */
    send_one(p2p, 1, 2, 0);
    send_one(p2p, 2, 3, LARGE);
    recv_one(p2p, 3, 1, 1, 16);
    recv_one(p2p, 4, 1, 2, EXPECTED); /* as the seeds offer it */
    recv_one(p2p, 5, CH_P2P_ANY, 3, 0);
    recv_one(p2p, 6, CH_P2P_ANY, 4, CH_P2P_EAGER);
    recv_one(p2p, 7, 0, 1, 16); /* from ourselves: no business of the peer's */
}

/* The peer takes all that we write, and looks at none of it. */
static void drain(void)
{
    atomic_store(&out->taken, atomic_load(&out->written));
}

/* The short way meets the same bytes. */
static void recv_short(struct ch_p2p *p2p)
{
    static unsigned char small[24];
    struct ch_short s = { .envelope = { 1, 9, 5, sizeof(small) }, .data = small, .peer = 1 };

    ch_p2p_short(p2p, &s, 1, 1, NULL);
}

/* Hand the bytes over as the peer's side of the ring would. */
static void feed(struct ch_p2p *p2p, struct ch_byte_ring_end *end, const unsigned char *data,
                 size_t size, size_t pace)
{
    for (size_t at = 0; at < size;) {
        struct iovec iov = { (void *)(uintptr_t)(data + at), size - at < pace ? size - at : pace };
        size_t done = 0;

        if (ch_byte_ring_write(end, &iov, 1, &done) == CHOIR_OK)
            at += done;
        else if (!ch_p2p_progress(p2p))
            return; /* the peer was given up */
        recv_short(p2p);
        ch_p2p_progress(p2p);
        drain();
    }
}

/* Else every refusal would be logged. */
static void on_refusal(void *arg, uint64_t context, const choir_error *record)
{
    (void)arg;
    (void)context;
    fuzz_check(record->code == CHOIR_ERR_INVALID || record->code == CHOIR_ERR_NETWORK);
}

static bool is_done(struct ch_transfer *t)
{
    return ch_flag_reached(&t->done, 1);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const choir_error record = { .code = CHOIR_ERR_REMOTE,
                                        .culprit = 1,
                                        .text = "given up" };
    uint64_t before = ch_mem_count(CH_SUB_TRANSPORT).live_blocks;
    struct ch_stream *stream;
    struct ch_bell bell;
    struct ch_byte_ring_end end = { .room = ROOM };
    struct ch_p2p *p2p;
    size_t half;

    if (size == 0)
        return 0;
    end.ring = in = ch_zalloc_aligned(CH_CACHE_UNIT, ch_byte_ring_nbytes(ROOM));
    out = ch_zalloc_aligned(CH_CACHE_UNIT, ch_byte_ring_nbytes(ROOM));
    ch_bell_attach(&bell, &word, -1);
    fuzz_check(in != NULL && out != NULL);
    fuzz_check(ch_p2p_create(2, &bell, &p2p) == CHOIR_OK);
    fuzz_check(ch_transport_shm_open(1, in, out, ROOM, &bell, &stream) == CHOIR_OK);
    ch_p2p_on_refusal(p2p, &(struct ch_p2p_refusal){ .fn = on_refusal });
    ch_p2p_read_from(p2p, 0, SIZE_MAX);
    ch_p2p_connect(p2p, 1, stream);
    fuzz_check(ch_transport_self_open(0, ROOM, &stream) == CHOIR_OK);
    ch_p2p_connect(p2p, 0, stream);
    start_all(p2p);

    half = (data[0] & 1) ? (size - 1) / 2 : size - 1;
    feed(p2p, &end, data + 1, half, 1 + (size_t)(data[0] >> 2) * 16);
    for (int i = 0; i < TRANSFERS && (data[0] & 2); i += 2)
        ch_p2p_cancel(p2p, &transfers[i], CHOIR_ERR_TIMEOUT);
    feed(p2p, &end, data + 1 + half, size - 1 - half, 1 + (size_t)(data[0] >> 2) * 16);
    if (data[0] & 4) {
        atomic_store(&in->written, UINT64_MAX); /* more than there is room for */
        ch_p2p_progress(p2p);
    }

    fuzz_check(ch_mem_count(CH_SUB_TRANSPORT).live_bytes < 2 * CH_P2P_KEPT);
    ch_p2p_fail_peer(p2p, 1, &record);
    ch_p2p_end_context(p2p, 1, &record);
    for (int i = 0; i < TRANSFERS; i++)
        fuzz_check(is_done(&transfers[i]));
    ch_p2p_destroy(p2p);
    ch_free(in);
    ch_free(out);
    fuzz_check(ch_mem_count(CH_SUB_TRANSPORT).live_blocks == before);
    return 0;
}
