/* p2p_short_test.c - the short way of small messages: when it is gone, and that it overtakes nobody. */
#include "transport/mesh_test.h"

#include "base/error.h"
#include "base/sys.h"
#include "transport/p2p_state.h"

enum { ROOM = 4 * CH_P2P_EAGER, LOOKS = 3, CONTEXT = 7, TAG = 3, CHECK = 5 };

static struct mesh mesh;
static unsigned char out[2][CH_P2P_EAGER + 1], in[2][CH_P2P_EAGER + 1];
static struct ch_transfer transfer;
static struct iovec iov;

static struct ch_short part(bool is_send, uint32_t peer, void *data, size_t nbytes)
{
    return (struct ch_short){
        .envelope = { CONTEXT, TAG, CHECK, nbytes }, .data = data, .peer = peer, .is_send = is_send
    };
}

static size_t run(uint32_t rank, struct ch_short *s)
{
    return ch_p2p_short(mesh.p2p[rank], s, 1, LOOKS, NULL);
}

static bool sent(size_t nbytes)
{
    struct ch_short s = part(true, 1, out[0], nbytes);

    fill(out[0], nbytes, nbytes);
    return run(0, &s) == 1 && s.done;
}

static bool got(size_t nbytes)
{
    struct ch_short s = part(false, 0, in[0], nbytes);

    memset(in[0], 0, nbytes);
    if (run(1, &s) == 0) {
        CHOIR_CHECK(!s.done);
        return false;
    }
    check_filled(in[0], nbytes, nbytes);
    return s.done;
}

/* The ordinary way, on rank 1. */
static void receive(int peer, uint64_t tag, size_t nbytes)
{
    iov = (struct iovec){ in[1], nbytes };
    memset(in[1], 0, sizeof(in[1]));
    ch_p2p_recv(mesh.p2p[1], &transfer, peer, CONTEXT, tag, CHECK, &iov, 1);
}

static void check_received(size_t nbytes)
{
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&transfer));
    CHOIR_CHECK_EQ(transfer.status, CHOIR_OK);
    check_filled(in[1], nbytes, nbytes);
}

CHOIR_TEST(small_messages_go_the_short_way)
{
    static const size_t sizes[] = { 0, 1, 8, 63, 64, 65, 1000, 4097, CH_P2P_EAGER };

    mesh_open(&mesh, 2, ROOM);
    for (int lap = 0; lap < 20; lap++) {
        for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            CHOIR_ROW("lap %d, %zu bytes", lap, sizes[i]);
            CHOIR_CHECK(!got(sizes[i])); /* nothing has come */
            if (!sent(sizes[i])) {       /* round the end of the ring */
                iov = (struct iovec){ out[0], sizes[i] };
                ch_p2p_send(mesh.p2p[0], &transfer, 1, CONTEXT, TAG, CHECK, &iov, 1);
                CHOIR_CHECK(is_done(&transfer));
            }
            if (!got(sizes[i])) {
                receive(0, TAG, sizes[i]);
                check_received(sizes[i]);
            }
        }
    }
    CHOIR_CHECK(!sent(CH_P2P_EAGER + 1));
    CHOIR_CHECK(!got(CH_P2P_EAGER + 1));
    mesh_close(&mesh);
}

/* Of nothing there need not be memory, in either way. */
CHOIR_TEST(nothing_has_no_place)
{
    struct ch_short s = part(true, 1, NULL, 0), r = part(false, 0, NULL, 0);

    mesh_open(&mesh, 2, ROOM);
    CHOIR_CHECK_EQ(run(0, &s), (size_t)1);
    CHOIR_CHECK_EQ(run(1, &r), (size_t)1);
    iov = (struct iovec){ NULL, 0 };
    ch_p2p_send(mesh.p2p[0], &transfer, 1, CONTEXT, TAG, CHECK, &iov, 1);
    CHOIR_CHECK(is_done(&transfer));
    ch_p2p_recv(mesh.p2p[1], &transfer, 0, CONTEXT, TAG, CHECK, &iov, 1);
    check_received(0);
    mesh_close(&mesh);
}

/* Both directions in one call, whichever comes first in it. */
CHOIR_TEST(a_send_goes_before_a_receive_looks)
{
    struct ch_short there[] = { part(false, 1, in[0], 8), part(true, 1, out[0], 8) };
    struct ch_short back[] = { part(false, 0, in[1], 8), part(true, 0, out[1], 8) };

    mesh_open(&mesh, 2, ROOM);
    fill(out[0], 8, 1);
    fill(out[1], 8, 2);
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[0], there, 2, LOOKS, NULL), (size_t)1);
    CHOIR_CHECK(!there[0].done && there[1].done);
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], back, 2, LOOKS, NULL), (size_t)2);
    check_filled(in[1], 8, 1);
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[0], there, 1, LOOKS, NULL), (size_t)1);
    check_filled(in[0], 8, 2);
    mesh_close(&mesh);
}

/* Only what is not done yet is looked for again, and whether looking again may help is told. */
CHOIR_TEST(what_is_late_is_looked_for_again)
{
    struct ch_short both[] = { part(false, 0, in[0], 8), part(true, 0, out[1], 8) };
    struct ch_short large = part(false, 0, in[1], CH_P2P_EAGER + 1);

    mesh_open(&mesh, 2, ROOM);
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], both, 2, LOOKS, NULL), (size_t)1);
    CHOIR_CHECK(both[0].late && !both[0].done && both[1].done);
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], both, 2, LOOKS, NULL), (size_t)0);
    CHOIR_CHECK(sent(8));
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], both, 2, LOOKS, NULL), (size_t)1);
    CHOIR_CHECK(both[0].done && !both[0].late);
    check_filled(in[0], 8, 8);
    CHOIR_ROW("longer ones, and those behind another, are not late");
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], &large, 1, LOOKS, NULL), (size_t)0);
    CHOIR_CHECK(!large.late);
    receive(CH_P2P_ANY, TAG, 8);
    both[0].done = false;
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[1], both, 1, LOOKS, NULL), (size_t)0);
    CHOIR_CHECK(!both[0].late);
    ch_p2p_cancel(mesh.p2p[1], &transfer, CHOIR_ERR_TIMEOUT);
    mesh_close(&mesh);
}

/* What a receive writes for others has a limit. Who seems to be asleep is told of the rest: there is room for it, so its reader rings nobody. */
CHOIR_TEST(what_is_left_to_be_written_is_told)
{
    static unsigned char much[2][8 * CH_P2P_EAGER];
    struct iovec from = { much[0], sizeof(much[0]) }, to = { much[1], sizeof(much[1]) };
    struct ch_transfer send = { 0 }, recv = { 0 };
    uint64_t rings;
    int bell;

    mesh_open(&mesh, 2, ROOM);
    bell = mesh.waiters[1].bell.fd;
    fill(much[0], sizeof(much[0]), 9);
    ch_p2p_recv(mesh.p2p[0], &recv, 1, CONTEXT, TAG + 1, CHECK, &to, 1);
    ch_p2p_send(mesh.p2p[1], &send, 0, CONTEXT, TAG + 1, CHECK, &from, 1);
    ch_p2p_progress(mesh.p2p[0]);
    while (ch_p2p_progress(mesh.p2p[1]))
        ; /* until it is full */
    ch_p2p_progress(mesh.p2p[0]);
    CHOIR_CHECK(sent(8));
    atomic_store(&mesh.words[1].nasleep, 1);
    CHOIR_CHECK_EQ(ch_sys_read(bell, &rings, sizeof(rings)), -1);
    CHOIR_CHECK(got(8));
    CHOIR_CHECK_EQ(ch_sys_read(bell, &rings, sizeof(rings)), 8);
    CHOIR_CHECK(ch_p2p_progress(mesh.p2p[1]));
    atomic_store(&mesh.words[1].nasleep, 0);
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&send) && is_done(&recv));
    check_filled(much[1], sizeof(much[1]), 9);
    mesh_close(&mesh);
}

CHOIR_TEST(it_overtakes_nobody)
{
    struct ch_short two[] = { part(true, 1, out[0], CH_P2P_EAGER + 1), part(true, 1, out[1], 8) };

    mesh_open(&mesh, 3, ROOM);
    CHOIR_ROW("a receive from any source is before it");
    receive(CH_P2P_ANY, TAG, 8);
    CHOIR_CHECK(sent(8));
    CHOIR_CHECK(!got(8));
    check_received(8);

    CHOIR_ROW("a message that was kept is before it");
    CHOIR_CHECK(sent(8));
    mesh_settle(&mesh); /* kept */
    CHOIR_CHECK(sent(9));
    CHOIR_CHECK(!got(9));
    receive(0, TAG, 8);
    check_received(8);
    receive(0, TAG, 9);
    check_received(9);

    CHOIR_ROW("a send that is not short is before it");
    CHOIR_CHECK_EQ(ch_p2p_short(mesh.p2p[0], two, 2, LOOKS, NULL), (size_t)0);
    CHOIR_CHECK(!two[0].done && !two[1].done);
    mesh_close(&mesh);
}

CHOIR_TEST(what_is_not_wanted_is_left_alone)
{
    mesh_open(&mesh, 2, ROOM);
    CHOIR_ROW("another tag");
    CHOIR_CHECK(sent(8));
    receive(0, TAG + 1, 8);
    CHOIR_CHECK(!is_done(&transfer));
    ch_p2p_cancel(mesh.p2p[1], &transfer, CHOIR_ERR_TIMEOUT);
    receive(0, TAG, 8);
    check_received(8);

    CHOIR_ROW("another length is both sides' failure, told by the ordinary way");
    CHOIR_CHECK(sent(8));
    CHOIR_CHECK(!got(12));
    receive(0, TAG, 12);
    mesh_settle(&mesh);
    CHOIR_CHECK_STATUS(transfer.status, CHOIR_ERR_INVALID);

    CHOIR_ROW("a context that has ended");
    ch_p2p_end_context(mesh.p2p[0], CONTEXT, NULL);
    CHOIR_CHECK(!sent(8));

    CHOIR_ROW("a peer that is lost");
    ch_p2p_fail_peer(mesh.p2p[1], 0, &(choir_error){ .code = CHOIR_ERR_DEAD });
    CHOIR_CHECK(!got(8));
    mesh_close(&mesh);
}

/* Copies differ by length: each is whole, and touches nothing behind it. */
CHOIR_TEST(every_small_length_arrives)
{
    mesh_open(&mesh, 2, ROOM);
    for (size_t n = 1; n <= 300; n++) {
        CHOIR_CHECK(sent(n));
        in[0][n] = 99;
        CHOIR_CHECK(got(n));
        CHOIR_CHECK_EQ(in[0][n], 99);
    }
    mesh_close(&mesh);
}

/* Far more than may be kept: what was received is given back. */
CHOIR_TEST_TIMED(credit_comes_back, 90)
{
    const size_t many = 4 * (CH_P2P_KEPT / ch_frame_charge(8));
    size_t nshort = 0;

    mesh_open(&mesh, 2, ROOM);
    for (size_t i = 0; i < many; i++) {
        CHOIR_CHECK(sent(8));
        nshort += got(8);
        if (i % 1024 == 0)
            mesh_settle(&mesh); /* a frame that gives back is read by the sender */
    }
    CHOIR_CHECK_EQ(nshort, many);
    mesh_close(&mesh);
}

/* Small ones are told beside being written; what a receive cannot use of that does no harm. */
CHOIR_TEST(what_is_told_is_what_is_written)
{
    mesh_open(&mesh, 2, ROOM);
    CHOIR_ROW("two behind each other: the words are of the second");
    CHOIR_CHECK(sent(8) && sent(9));
    CHOIR_CHECK(got(8) && got(9));
    CHOIR_ROW("taken the ordinary way");
    CHOIR_CHECK(sent(8));
    receive(0, TAG, 8);
    check_received(8);
    CHOIR_ROW("of another length, tag or check: told by the ordinary way");
    CHOIR_CHECK(sent(8));
    CHOIR_CHECK(!got(9));
    receive(0, TAG + 1, 8);
    mesh_settle(&mesh);
    CHOIR_CHECK(!is_done(&transfer));
    ch_p2p_cancel(mesh.p2p[1], &transfer, CHOIR_ERR_TIMEOUT);
    receive(0, TAG, 8);
    check_received(8);
    mesh_close(&mesh);
}

static struct ch_stream *raw_stream(void)
{
    struct ch_stream *raw;

    CHOIR_CHECK_OK(ch_transport_shm_open(1, mesh.rings[0][1], mesh.rings[1][0], ROOM,
                                         &mesh.waiters[1].bell, &raw));
    return raw;
}

/* Words that cannot be are not believed; the frame beside them is. */
CHOIR_TEST(broken_words_are_not_believed)
{
    struct ch_frame f = { .kind = CH_FRAME_EAGER,
                          .nbytes = 8,
                          .total = 8,
                          .context = CONTEXT,
                          .tag = TAG,
                          .check = CHECK };
    const struct ch_envelope e = { CONTEXT, TAG, CHECK, 8 };
    const struct {
        uint64_t words[4];
        const char *why;
    } rows[] = {
        { { CONTEXT, TAG, ch_told_bits(&e, 1), 0 }, "credit for what was not used" },
        { { CONTEXT + 1, TAG, ch_told_bits(&e, 0), 0 }, "another context" },
        { { CONTEXT, TAG + 1, ch_told_bits(&e, 0), 0 }, "another tag" },
        { { CONTEXT, TAG, ch_told_bits(&e, 0) + 1, 0 }, "another length" },
        { { CONTEXT, TAG, ch_told_bits(&e, 0) + 256, 0 }, "another check" },
    };
    struct ch_stream *raw;
    size_t done;

    mesh_open(&mesh, 2, ROOM);
    raw = raw_stream();
    fill(out[0], 8, 8);
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].why);
        raw->ops->tell(raw, rows[i].words, 4);
        CHOIR_CHECK_OK(raw->ops->send(
            raw, (struct iovec[]){ { &f, sizeof(f) }, { out[0], sizeof(f) } }, 2, &done));
        CHOIR_CHECK(got(8));
    }
    raw->ops->close(raw);
    mesh_close(&mesh);
}

/* A peer's memory may say anything: what is not right in every field is judged by the ordinary way. */
CHOIR_TEST(a_broken_frame_is_not_short)
{
    struct ch_frame f = { .kind = CH_FRAME_EAGER,
                          .nbytes = 8,
                          .total = 8,
                          .context = CONTEXT,
                          .tag = TAG,
                          .check = CHECK,
                          .credit = 1 /* of nothing that was used */ };
    struct ch_stream *raw;
    size_t done;

    mesh_open(&mesh, 2, ROOM);
    CHOIR_CHECK_OK(ch_transport_shm_open(1, mesh.rings[0][1], mesh.rings[1][0], ROOM,
                                         &mesh.waiters[1].bell, &raw));
    CHOIR_CHECK_OK(raw->ops->send(raw, (struct iovec[]){ { &f, sizeof(f) }, { out[0], sizeof(f) } },
                                  2, &done));
    CHOIR_CHECK(!got(8));
    receive(0, TAG, 8);
    mesh_settle(&mesh);
    CHOIR_CHECK_STATUS(transfer.status, CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(transfer.error.text, "gives back more than was used");
    raw->ops->close(raw);
    mesh_close(&mesh);
}
