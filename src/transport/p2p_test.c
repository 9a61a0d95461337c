/* p2p_test.c - what the calls of p2p.h promise, one thing at a time. */
#include "transport/mesh_test.h"

#include "base/error.h"
#include "base/sys.h"

enum { ROOM = 4096, BIG = CH_P2P_EAGER + CH_P2P_PIECE + 5 };

/* One side of a message, with memory of its own. */
struct side {
    struct ch_transfer transfer;
    struct iovec iov;
    unsigned char data[BIG];
};

static struct mesh mesh;
static struct side s[8];

static struct ch_transfer *send_to(int i, uint32_t from, uint32_t to, uint64_t context,
                                   uint64_t tag, size_t nbytes)
{
    fill(s[i].data, nbytes, (uint64_t)i + 1);
    s[i].iov = (struct iovec){ s[i].data, nbytes };
    ch_p2p_send(mesh.p2p[from], &s[i].transfer, to, context, tag, 0, &s[i].iov, 1);
    return &s[i].transfer;
}

static struct ch_transfer *recv_from(int i, uint32_t at, int from, uint64_t context, uint64_t tag,
                                     size_t nbytes)
{
    memset(s[i].data, 0, sizeof(s[i].data));
    s[i].iov = (struct iovec){ s[i].data, nbytes };
    ch_p2p_recv(mesh.p2p[at], &s[i].transfer, from, context, tag, 0, &s[i].iov, 1);
    return &s[i].transfer;
}

static void check_got(int i, int sent, size_t nbytes)
{
    CHOIR_CHECK(is_done(&s[i].transfer));
    CHOIR_CHECK_EQ(s[i].transfer.status, CHOIR_OK);
    check_filled(s[i].data, nbytes, (uint64_t)sent + 1);
}

static const struct {
    uint32_t from, to;
    size_t nbytes;
    bool receive_first;
    const char *why;
} rows[] = {
    { 0, 1, 100, true, "a small one that is waited for" },
    { 0, 1, 100, false, "a small one that is kept" },
    { 0, 1, 0, true, "nothing, waited for" },
    { 0, 1, 0, false, "nothing, kept" },
    { 0, 1, CH_P2P_EAGER, true, "the largest small one, longer than the ring" },
    { 0, 1, CH_P2P_EAGER, false, "the largest small one, kept" },
    { 0, 1, CH_P2P_EAGER + 1, true, "the smallest large one" },
    { 0, 1, BIG, false, "a large one that waits" },
    { 1, 1, 100, true, "to itself" },
    { 1, 1, 100, false, "to itself, kept" },
    { 1, 1, 0, false, "to itself, nothing" },
    { 1, 1, BIG, true, "to itself, large" },
    { 1, 1, BIG, false, "to itself, large, waits" },
};

CHOIR_TEST(a_message_arrives)
{
    mesh_open(&mesh, 2, ROOM);
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].why);
        if (rows[i].receive_first)
            recv_from(1, rows[i].to, (int)rows[i].from, 7, 3, rows[i].nbytes);
        send_to(0, rows[i].from, rows[i].to, 7, 3, rows[i].nbytes);
        mesh_settle(&mesh);
        if (!rows[i].receive_first)
            recv_from(1, rows[i].to, (int)rows[i].from, 7, 3, rows[i].nbytes);
        mesh_settle(&mesh);
        CHOIR_CHECK(is_done(&s[0].transfer));
        CHOIR_CHECK_EQ(s[0].transfer.status, CHOIR_OK);
        check_got(1, 0, rows[i].nbytes);
        CHOIR_CHECK_EQ(s[1].transfer.source, (int)rows[i].from);
    }
    mesh_close(&mesh);
}

CHOIR_TEST(order_holds_for_each_context_peer_and_tag)
{
    mesh_open(&mesh, 3, ROOM);
    send_to(0, 0, 2, 7, 1, 10); /* the first of its kind, kept */
    send_to(1, 0, 2, 7, 1, BIG);
    send_to(2, 0, 2, 7, 2, 10); /* another tag */
    send_to(3, 0, 2, 8, 1, 10); /* another context */
    mesh_settle(&mesh);
    recv_from(4, 2, 0, 8, 1, 10);
    recv_from(5, 2, 0, 7, 2, 10);
    recv_from(6, 2, 0, 7, 1, 10);
    recv_from(7, 2, 0, 7, 1, BIG);
    mesh_settle(&mesh);
    check_got(4, 3, 10);
    check_got(5, 2, 10);
    check_got(6, 0, 10);
    check_got(7, 1, BIG);
    mesh_close(&mesh);
}

CHOIR_TEST(any_source_takes_what_came_first)
{
    mesh_open(&mesh, 3, ROOM);
    send_to(0, 1, 2, 7, 1, 10);
    ch_p2p_progress(mesh.p2p[2]);
    send_to(1, 0, 2, 7, 1, 10);
    ch_p2p_progress(mesh.p2p[2]);
    send_to(2, 2, 2, 7, 1, 10); /* to itself */
    recv_from(3, 2, CH_P2P_ANY, 7, 1, 10);
    recv_from(4, 2, CH_P2P_ANY, 7, 1, 10);
    recv_from(5, 2, CH_P2P_ANY, 7, 1, 10);
    recv_from(6, 2, CH_P2P_ANY, 7, 1, 10); /* waits */
    recv_from(7, 2, 0, 7, 1, 10);          /* waits behind it */
    check_got(3, 0, 10);
    check_got(4, 1, 10);
    check_got(5, 2, 10);
    CHOIR_CHECK_EQ(s[3].transfer.source, 1);
    CHOIR_CHECK_EQ(s[4].transfer.source, 0);
    CHOIR_CHECK_EQ(s[5].transfer.source, 2);
    send_to(0, 0, 2, 7, 1, 10);
    mesh_settle(&mesh);
    check_got(6, 0, 10);
    CHOIR_CHECK(!is_done(&s[7].transfer));
    send_to(1, 0, 2, 7, 1, 10);
    mesh_settle(&mesh);
    check_got(7, 1, 10);
    mesh_close(&mesh);
}

/* The connection still carries what it should. */
static void check_alive(void)
{
    static const size_t sizes[] = { 11, CH_P2P_EAGER, BIG };

    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        recv_from(7, 1, 0, 99, 9, sizes[i]);
        send_to(6, 0, 1, 99, 9, sizes[i]);
        mesh_settle(&mesh);
        check_got(7, 6, sizes[i]);
        recv_from(7, 0, 1, 99, 9, sizes[i]);
        send_to(6, 1, 0, 99, 9, sizes[i]);
        mesh_settle(&mesh);
        check_got(7, 6, sizes[i]);
    }
}

struct refusals {
    int count;
    uint64_t context;
    choir_error last;
};

static void on_refusal(void *arg, uint64_t context, const choir_error *record)
{
    struct refusals *r = arg;

    r->count++;
    r->context = context;
    r->last = *record;
}

static const struct {
    size_t sent, expected;
    uint64_t sent_check, expected_check;
    bool receive_first, late; /* late: the send was done before */
    const char *receiver_says, *sender_says;
    const char *why;
} mismatches[] = {
    { 10, 12, 0, 0, true, true, "12 bytes are expected here, the message has 10",
      "has 10 bytes, 12 are expected there", "small, waited for" },
    { 10, 12, 0, 0, false, true, "12 bytes are expected here, the message has 10",
      "has 10 bytes, 12 are expected there", "small, kept" },
    { 0, 12, 0, 0, false, true, "12 bytes are expected here, the message has 0",
      "has 0 bytes, 12 are expected there", "nothing" },
    { BIG, 12, 0, 0, true, false, "12 bytes are expected here, the message has 98309",
      "has 98309 bytes, 12 are expected there", "large for small" },
    { BIG, BIG - 1, 0, 0, false, false, "98308 bytes are expected here, the message has 98309",
      "98308 are expected there", "large for large" },
    { 10, BIG, 0, 0, true, true, "98309 bytes are expected here, the message has 10",
      "98309 are expected there", "small for large" },
    { 10, 10, 0xab, 0xcd, true, true, "00000000000000ab, 00000000000000cd is expected here",
      "00000000000000ab, 00000000000000cd is expected there", "another operation" },
    { BIG, BIG, 0xab, 0xcd, false, false, "00000000000000ab, 00000000000000cd is expected here",
      "00000000000000ab, 00000000000000cd is expected there", "another operation, large" },
};

CHOIR_TEST(what_does_not_fit_is_an_error_on_both_sides)
{
    struct refusals refusals = { 0 };

    mesh_open(&mesh, 2, ROOM);
    ch_p2p_on_refusal(mesh.p2p[0], &(struct ch_p2p_refusal){ on_refusal, &refusals });
    for (size_t i = 0; i < CH_ARRAY_LEN(mismatches); i++) {
        struct iovec out = { s[0].data, mismatches[i].sent };
        struct iovec in = { s[1].data, mismatches[i].expected };
        const choir_error *told = mismatches[i].late ? &refusals.last : &s[0].transfer.error;

        CHOIR_ROW("%s", mismatches[i].why);
        refusals.count = 0;
        if (mismatches[i].receive_first)
            ch_p2p_recv(mesh.p2p[1], &s[1].transfer, 0, 7, 1, mismatches[i].expected_check, &in, 1);
        ch_p2p_send(mesh.p2p[0], &s[0].transfer, 1, 7, 1, mismatches[i].sent_check, &out, 1);
        mesh_settle(&mesh);
        if (!mismatches[i].receive_first)
            ch_p2p_recv(mesh.p2p[1], &s[1].transfer, 0, 7, 1, mismatches[i].expected_check, &in, 1);
        mesh_settle(&mesh);
        CHOIR_CHECK(is_done(&s[0].transfer) && is_done(&s[1].transfer));
        CHOIR_CHECK_EQ(s[1].transfer.status, CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(s[1].transfer.error.text, mismatches[i].receiver_says);
        CHOIR_CHECK_EQ(s[0].transfer.status, mismatches[i].late ? CHOIR_OK : CHOIR_ERR_INVALID);
        CHOIR_CHECK_EQ(refusals.count, mismatches[i].late ? 1 : 0);
        CHOIR_CHECK_EQ(told->code, CHOIR_ERR_INVALID);
        CHOIR_CHECK_EQ(told->culprit, 1);
        CHOIR_CHECK_HAS(told->text, mismatches[i].sender_says);
        check_alive();
    }
    CHOIR_CHECK_EQ(refusals.context, 7);
    mesh_close(&mesh);
}

/* --- taking back -------------------------------------------------------------------------------------- */

/* Before the n-th turn of a message's life one side takes it back. Whatever the turn: both sides end, and the
 * connection goes on. A turn is one progress of one rank over a ring much smaller than the message. */
static void cancel_at(size_t nbytes, bool receive_first, bool cancel_send, int turn)
{
    struct ch_transfer *sent, *got;

    if (receive_first)
        got = recv_from(1, 1, 0, 7, 1, nbytes);
    sent = send_to(0, 0, 1, 7, 1, nbytes);
    for (int i = 0; i < turn && !receive_first; i++)
        ch_p2p_progress(mesh.p2p[(i + 1) % 2]);
    if (!receive_first)
        got = recv_from(1, 1, 0, 7, 1, nbytes);
    for (int i = 0; i < turn; i++)
        ch_p2p_progress(mesh.p2p[(i + 1) % 2]);
    ch_p2p_cancel(mesh.p2p[cancel_send ? 0 : 1], cancel_send ? sent : got, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK(is_done(cancel_send ? sent : got));
    if (cancel_send && sent->status != CHOIR_OK) {
        CHOIR_CHECK_EQ(sent->status, CHOIR_ERR_TIMEOUT);
        memset(s[0].data, 0xee, sizeof(s[0].data)); /* it is its owner's again */
    }
    mesh_settle(&mesh);
    if (!is_done(got)) { /* nothing had begun */
        CHOIR_CHECK(cancel_send);
        ch_p2p_cancel(mesh.p2p[1], got, CHOIR_ERR_TIMEOUT);
    }
    if (!is_done(sent)) { /* the receive was taken back before they met */
        CHOIR_CHECK(!cancel_send);
        ch_p2p_cancel(mesh.p2p[0], sent, CHOIR_ERR_TIMEOUT);
    }
    if (got->status == CHOIR_OK)
        check_filled(s[1].data, nbytes, 1);
    else
        CHOIR_CHECK(got->status == CHOIR_ERR_TIMEOUT || got->status == CHOIR_ERR_NETWORK);
    mesh_settle(&mesh);
    /* What was sent and received by nobody is still there: take it, so that the next turn starts clean. */
    if (sent->status == CHOIR_OK && got->status != CHOIR_OK) {
        struct ch_transfer *late = recv_from(2, 1, 0, 7, 1, nbytes);

        mesh_settle(&mesh);
        if (!is_done(late))
            ch_p2p_cancel(mesh.p2p[1], late, CHOIR_ERR_TIMEOUT);
    }
    check_alive();
}

static void cancel_at_any_moment(size_t read_from)
{
    static const size_t sizes[] = { 0, 100, 5000, CH_P2P_EAGER, BIG };
    int step = choir_test_slowness() > 1 ? 7 : 1;

    mesh_open(&mesh, 2, 2048);
    for (uint32_t r = 0; r < 2; r++)
        ch_p2p_read_from(mesh.p2p[r], read_from, SIZE_MAX);
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        for (int mode = 0; mode < 4; mode++) {
            for (int turn = 0; turn < 60; turn += step) {
                CHOIR_ROW("%zu bytes, receive first %d, cancel the send %d, turn %d", sizes[i],
                          mode & 1, mode >> 1, turn);
                cancel_at(sizes[i], mode & 1, mode >> 1, turn);
            }
        }
    }
    mesh_close(&mesh);
}

CHOIR_TEST(taken_back_at_any_moment)
{
    cancel_at_any_moment(SIZE_MAX);
}

CHOIR_TEST(taken_back_at_any_moment_where_it_is_read)
{
    cancel_at_any_moment(0);
}

CHOIR_TEST(taken_back_twice_or_when_done_is_nothing)
{
    struct ch_transfer *t;

    mesh_open(&mesh, 1, ROOM);
    t = send_to(0, 0, 0, 7, 1, 10);
    CHOIR_CHECK(is_done(t));
    ch_p2p_cancel(mesh.p2p[0], t, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_EQ(t->status, CHOIR_OK);
    t = recv_from(1, 0, CH_P2P_ANY, 7, 2, 10);
    ch_p2p_cancel(mesh.p2p[0], t, CHOIR_ERR_TIMEOUT);
    ch_p2p_cancel(mesh.p2p[0], t, CHOIR_ERR_INTERRUPTED);
    CHOIR_CHECK_EQ(t->status, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(t->error.text, "receive from any rank, tag 2: taken back after 0 of 10 bytes");
    mesh_close(&mesh);
}

/* --- peers and contexts that end ---------------------------------------------------------------------- */

static const choir_error gone = { .code = CHOIR_ERR_REMOTE,
                                  .culprit = 1,
                                  .text = "rank 1 is dead" };

CHOIR_TEST(a_failed_peer_ends_what_is_with_it)
{
    mesh_open(&mesh, 3, ROOM);
    send_to(0, 0, 1, 7, 1, BIG);
    recv_from(1, 0, 1, 7, 1, 10);
    recv_from(2, 0, CH_P2P_ANY, 7, 2, 10);
    recv_from(3, 0, 2, 7, 1, 10);
    ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
    ch_p2p_fail_peer(mesh.p2p[0], 1, &(choir_error){ .code = CHOIR_ERR_NETWORK });
    for (int i = 0; i < 2; i++) {
        CHOIR_CHECK(is_done(&s[i].transfer));
        CHOIR_CHECK_EQ(s[i].transfer.status, CHOIR_ERR_REMOTE);
        CHOIR_CHECK_STR(s[i].transfer.error.text, "rank 1 is dead");
    }
    CHOIR_CHECK_EQ(send_to(4, 0, 1, 7, 3, 10)->status, CHOIR_ERR_REMOTE);
    CHOIR_CHECK_EQ(recv_from(5, 0, 1, 7, 3, 10)->status, CHOIR_ERR_REMOTE);
    send_to(6, 2, 0, 7, 2, 10);
    send_to(7, 2, 0, 7, 1, 10);
    mesh_settle(&mesh);
    check_got(2, 6, 10);
    check_got(3, 7, 10);
    mesh_close(&mesh);
}

/* A rank that is done with its part may go, however far the others are. */
CHOIR_TEST(what_a_peer_sent_before_it_failed_is_received)
{
    mesh_open(&mesh, 2, ROOM);
    send_to(0, 1, 0, 7, 1, 10); /* read before, and kept */
    ch_p2p_progress(mesh.p2p[0]);
    send_to(1, 1, 0, 7, 1, 20); /* still in the stream */
    send_to(2, 1, 0, 7, 2, 30);
    recv_from(3, 0, 1, 7, 2, 30); /* waits already */
    ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
    check_got(3, 2, 30);
    recv_from(4, 0, 1, 7, 1, 10);
    check_got(4, 0, 10);
    recv_from(5, 0, CH_P2P_ANY, 7, 1, 20);
    check_got(5, 1, 20);
    CHOIR_CHECK_EQ(recv_from(6, 0, 1, 7, 1, 10)->status, CHOIR_ERR_REMOTE);
    mesh_close(&mesh);
}

/* It may fail while anything is half-way; what is taken from it must all come back. */
CHOIR_TEST(a_peer_fails_at_any_moment)
{
    for (int turn = 0; turn < 40; turn++) {
        CHOIR_ROW("turn %d", turn);
        mesh_open(&mesh, 2, 256);
        send_to(0, 0, 1, 7, 1, BIG);
        recv_from(1, 0, 1, 7, 1, BIG);
        send_to(2, 0, 1, 7, 2, 5000);
        send_to(3, 1, 0, 7, 1, BIG);
        recv_from(4, 1, CH_P2P_ANY, 7, 1, BIG);
        send_to(5, 1, 0, 7, 2, 5000); /* nobody wants it */
        for (int i = 0; i < turn; i++)
            ch_p2p_progress(mesh.p2p[i % 2]);
        ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
        for (int i = 0; i < 3; i++)
            CHOIR_CHECK(is_done(&s[i].transfer));
        ch_p2p_fail_peer(mesh.p2p[1], 0, &gone);
        CHOIR_CHECK(is_done(&s[3].transfer) && is_done(&s[5].transfer));
        ch_p2p_cancel(mesh.p2p[1], &s[4].transfer, CHOIR_ERR_TIMEOUT);
        mesh_close(&mesh);
    }
}

CHOIR_TEST(an_ended_context_ends_what_is_in_it)
{
    mesh_open(&mesh, 2, ROOM);
    send_to(0, 0, 1, 7, 1, BIG); /* offered */
    send_to(1, 1, 0, 7, 5, 10);  /* kept by rank 0 */
    send_to(2, 1, 0, 7, 6, BIG); /* offered to rank 0 */
    recv_from(3, 0, 1, 7, 2, 10);
    recv_from(4, 0, 1, 8, 1, 10); /* another context */
    mesh_settle(&mesh);
    ch_p2p_end_context(mesh.p2p[0], 7, &gone);
    CHOIR_CHECK_STR(s[0].transfer.error.text, "rank 1 is dead");
    CHOIR_CHECK_STR(s[3].transfer.error.text, "rank 1 is dead");
    CHOIR_CHECK(!is_done(&s[4].transfer));
    CHOIR_CHECK_EQ(recv_from(5, 0, 1, 7, 5, 10)->status, CHOIR_ERR_REMOTE);
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&s[2].transfer)); /* the other side is told */
    CHOIR_CHECK_EQ(s[2].transfer.status, CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(s[2].transfer.error.text, "the group has ended there");
    ch_p2p_end_context(mesh.p2p[0], 7, NULL);
    CHOIR_CHECK_EQ(recv_from(5, 0, 1, 7, 5, 10)->status, CHOIR_ERR_STATE);
    send_to(5, 1, 0, 7, 1, BIG); /* comes late */
    send_to(6, 1, 0, 7, 1, 10);
    mesh_settle(&mesh);
    CHOIR_CHECK_EQ(s[5].transfer.status, CHOIR_ERR_NETWORK);
    CHOIR_CHECK_EQ(s[6].transfer.status, CHOIR_OK);
    send_to(7, 1, 0, 8, 1, 10);
    mesh_settle(&mesh);
    check_got(4, 7, 10);
    mesh_close(&mesh);
}

CHOIR_TEST(a_rank_without_a_way_is_an_error)
{
    struct ch_bell_word word = { 0 };
    struct ch_bell bell;
    struct ch_p2p *p2p;

    ch_bell_attach(&bell, &word, -1);
    CHOIR_CHECK_OK(ch_p2p_create(2, &bell, &p2p));
    mesh.p2p[0] = p2p;
    CHOIR_CHECK_EQ(send_to(0, 0, 1, 7, 1, 10)->status, CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(s[0].transfer.error.text, "send: rank 1 is not connected");
    CHOIR_CHECK_EQ(recv_from(0, 0, 1, 7, 1, 10)->status, CHOIR_ERR_STATE);
    s[0].iov.iov_len = SIZE_MAX;
    ch_p2p_recv(p2p, &s[0].transfer, CH_P2P_ANY, 7, 1, 0, (struct iovec[]){ s[0].iov, s[0].iov },
                2);
    CHOIR_CHECK_EQ(s[0].transfer.status, CHOIR_ERR_INVALID);
    ch_p2p_destroy(p2p);
    mesh.p2p[0] = NULL;
}

/* --- limits ------------------------------------------------------------------------------------------- */

/* Far more messages that nobody wants than may be kept: they are held by their sender, memory has its limit, a
 * message in another context still gets through, whichever side was first, and in the end all arrive in order. */
static void flood(size_t nbytes, uint32_t count)
{
    struct ch_transfer *sends = ch_zalloc_array(count, sizeof(*sends));
    unsigned char *data = ch_alloc(nbytes + 8);
    struct iovec iov = { data, nbytes };
    uint64_t before = ch_mem_count(CH_SUB_TRANSPORT).live_bytes;

    CHOIR_CHECK(sends != NULL && data != NULL);
    fill(data, nbytes, 5);
    for (uint32_t i = 0; i < count; i++) {
        ch_p2p_send(mesh.p2p[0], &sends[i], 1, 7, i % 2, i + 1, &iov, 1);
        if (i % 64 == 0)
            ch_p2p_progress(mesh.p2p[1]);
    }
    mesh_settle(&mesh);
    CHOIR_CHECK(!is_done(&sends[count - 1]));
    /* What is kept, and a record at the sender for each message that is not done. */
    CHOIR_CHECK_LE(ch_mem_count(CH_SUB_TRANSPORT).live_bytes - before,
                   CH_P2P_KEPT * 2 + (uint64_t)count * 512);

    recv_from(1, 1, 0, 8, 1, 10); /* the receive is there first */
    mesh_settle(&mesh);
    send_to(0, 0, 1, 8, 1, 10);
    mesh_settle(&mesh);
    check_got(1, 0, 10);
    send_to(2, 0, 1, 8, 2, BIG); /* and the send */
    mesh_settle(&mesh);
    recv_from(3, 1, CH_P2P_ANY, 8, 2, BIG);
    mesh_settle(&mesh);
    check_got(3, 2, BIG);
    recv_from(4, 0, 1, 8, 3, BIG); /* and the other way round */
    send_to(5, 1, 0, 8, 3, BIG);
    mesh_settle(&mesh);
    check_got(4, 5, BIG);

    for (uint32_t k = 0; k < count; k++) { /* the odd ones first */
        uint32_t i = k < count / 2 ? 2 * k + 1 : 2 * (k - count / 2);
        struct ch_transfer got = { 0 };

        ch_p2p_recv(mesh.p2p[1], &got, 0, 7, i % 2, i + 1, &iov, 1);
        while (!is_done(&got)) {
            ch_p2p_progress(mesh.p2p[0]);
            ch_p2p_progress(mesh.p2p[1]);
        }
        if (got.status != CHOIR_OK)
            CHOIR_FAIL("message %u: %s", i, got.error.text);
    }
    mesh_settle(&mesh);
    for (uint32_t i = 0; i < count; i++)
        CHOIR_CHECK(is_done(&sends[i]) && sends[i].status == CHOIR_OK);
    check_filled(data, nbytes, 5);
    ch_free(sends);
    ch_free(data);
}

CHOIR_TEST_TIMED(what_nobody_wants_has_a_limit_and_blocks_nobody, 120)
{
    mesh_open(&mesh, 2, 65536);
    flood(1000, 70000); /* eager, then offered, then held */
    flood(0, 70000);
    check_alive();
    mesh_close(&mesh);
}

CHOIR_TEST(a_large_message_does_not_hold_up_a_small_one)
{
    enum { HUGE = 4 * 1024 * 1024 };
    unsigned char *out = ch_zalloc(HUGE), *in = ch_zalloc(HUGE);
    struct iovec from = { out, HUGE }, to = { in, HUGE };
    struct ch_transfer huge_out = { 0 }, huge_in = { 0 };
    int turns = 0;

    CHOIR_CHECK(out != NULL && in != NULL);
    mesh_open(&mesh, 2, ROOM);
    fill(out, HUGE, 3);
    ch_p2p_recv(mesh.p2p[1], &huge_in, 0, 7, 1, 0, &to, 1);
    ch_p2p_send(mesh.p2p[0], &huge_out, 1, 7, 1, 0, &from, 1);
    for (int i = 0; i < 10; i++) {
        ch_p2p_progress(mesh.p2p[1]);
        ch_p2p_progress(mesh.p2p[0]);
    }
    recv_from(1, 1, 0, 7, 2, 10);
    send_to(0, 0, 1, 7, 2, 10);
    while (!is_done(&s[1].transfer)) {
        ch_p2p_progress(mesh.p2p[1]);
        ch_p2p_progress(mesh.p2p[0]);
        turns++;
    }
    /* What was begun before, in so many fillings of the ring, and a few turns to begin and to end. */
    CHOIR_CHECK_LE(turns, CH_P2P_PIECE / ROOM + 4);
    CHOIR_CHECK(!is_done(&huge_in));
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&huge_in) && is_done(&huge_out));
    check_filled(in, HUGE, 3);
    mesh_close(&mesh);
    ch_free(out);
    ch_free(in);
}

static bool was_rung(uint32_t rank)
{
    uint64_t rings;

    return ch_sys_read(mesh.waiters[rank].bell.fd, &rings, sizeof(rings)) > 0;
}

/* While somebody of a rank seems to be asleep (the service thread, most likely): who fills a ring does not wake it, whoever
 * makes room does. */
CHOIR_TEST(only_room_wakes_who_waits_for_room)
{
    mesh_open(&mesh, 2, ROOM);
    recv_from(1, 1, 0, 7, 1, CH_P2P_EAGER);
    atomic_store(&mesh.words[0].nasleep, 1);
    send_to(0, 0, 1, 7, 1, CH_P2P_EAGER);
    CHOIR_CHECK(!was_rung(0));
    for (int lap = 0; lap < 3; lap++) {
        CHOIR_ROW("lap %d", lap);
        CHOIR_CHECK(!ch_p2p_progress(mesh.p2p[0])); /* it is full */
        CHOIR_CHECK(!was_rung(0));
        CHOIR_CHECK(ch_p2p_progress(mesh.p2p[1]));
        CHOIR_CHECK(was_rung(0));
        CHOIR_CHECK(ch_p2p_progress(mesh.p2p[0]));
        CHOIR_CHECK(!was_rung(0));
    }
    atomic_store(&mesh.words[0].nasleep, 0);
    mesh_settle(&mesh);
    check_got(1, 0, CH_P2P_EAGER);
    mesh_close(&mesh);
}

CHOIR_TEST_TIMED(more_than_two_gibibytes, 120)
{
    enum { PIECE = 1 << 20, PIECES = 2049 };
    static struct iovec from[PIECES + 2], to[PIECES + 2];
    struct ch_transfer out = { 0 }, in = { 0 };
    unsigned char *a, *b, last = 'x', tail = 0;

    if (choir_test_slowness() > 1)
        CHOIR_SKIP("too slow here");
    a = ch_alloc(PIECE);
    b = ch_zalloc(PIECE);
    CHOIR_CHECK(a != NULL && b != NULL);
    fill(a, PIECE, 9);
    for (int i = 0; i < PIECES; i++) { /* the same memory again and again */
        from[i] = (struct iovec){ a, PIECE };
        to[i] = (struct iovec){ b, PIECE };
    }
    from[PIECES + 1] = (struct iovec){ &last, 1 }; /* behind an empty piece */
    to[PIECES + 1] = (struct iovec){ &tail, 1 };
    mesh_open(&mesh, 2, 65536);
    ch_p2p_send(mesh.p2p[0], &out, 1, 7, 1, 0, from, PIECES + 2);
    ch_p2p_recv(mesh.p2p[1], &in, 0, 7, 1, 0, to, PIECES + 2);
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&out) && is_done(&in));
    CHOIR_CHECK_EQ(in.status, CHOIR_OK);
    CHOIR_CHECK_EQ(in.moved, (uint64_t)PIECE * PIECES + 1);
    check_filled(b, PIECE, 9);
    CHOIR_CHECK_EQ(tail, 'x');
    mesh_close(&mesh);
    ch_free(a);
    ch_free(b);
}

CHOIR_TEST(nothing_is_allocated_once_warm)
{
    uint64_t blocks = 0;

    mesh_open(&mesh, 2, ROOM);
    for (int round = 0; round < 20; round++) {
        if (round == 2)
            blocks = ch_mem_count(CH_SUB_TRANSPORT).total_blocks;
        check_alive();
        send_to(0, 0, 1, 7, 1, 100); /* kept for a while */
        mesh_settle(&mesh);
        recv_from(1, 1, 0, 7, 1, 100);
        check_got(1, 0, 100);
    }
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TRANSPORT).total_blocks, blocks);
    mesh_close(&mesh);
}

static int ncalled;

static void count_call(struct ch_transfer *transfer)
{
    CHOIR_CHECK(is_done(transfer));
    ncalled++;
    transfer->on_done = NULL;
    /* No lock is held: it may be used again at once. */
    if (ncalled == 1)
        ch_p2p_recv(mesh.p2p[1], transfer, 0, 7, 2, 0, NULL, 0);
}

CHOIR_TEST(a_callback_is_called_once_without_the_lock)
{
    mesh_open(&mesh, 2, ROOM);
    s[1].transfer.on_done = count_call;
    recv_from(1, 1, 0, 7, 1, 10);
    send_to(0, 0, 1, 7, 1, 10);
    mesh_settle(&mesh);
    CHOIR_CHECK_EQ(ncalled, 1);
    send_to(0, 0, 1, 7, 2, 0);
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&s[1].transfer));
    CHOIR_CHECK_EQ(ncalled, 1);
    mesh_close(&mesh);
}

/* --- faults ------------------------------------------------------------------------------------------- */

/* Everything that allocates, each failing in turn: all transfers end, and nothing is lost. */
static choir_status busy_scenario(void *arg)
{
    struct refusals refusals = { 0 };
    choir_status rc = mesh_try(&mesh, 2, 512);

    (void)arg;
    if (rc == CHOIR_OK) {
        ch_p2p_on_refusal(mesh.p2p[0], &(struct ch_p2p_refusal){ on_refusal, &refusals });
        send_to(0, 0, 1, 7, 1, 100); /* kept */
        send_to(1, 0, 1, 7, 2, BIG); /* offered */
        send_to(2, 1, 1, 7, 2, BIG); /* to itself */
        mesh_settle(&mesh);
        recv_from(3, 1, 0, 7, 1, 99); /* does not fit: a note */
        recv_from(4, 1, 0, 7, 2, BIG);
        ch_p2p_progress(mesh.p2p[1]);
        ch_p2p_progress(mesh.p2p[0]);
        ch_p2p_cancel(mesh.p2p[0], &s[1].transfer, CHOIR_ERR_TIMEOUT); /* half-way */
        mesh_settle(&mesh);
        ch_p2p_end_context(mesh.p2p[1], 7, &gone);
        ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
        for (int i = 0; i < 5; i++)
            CHOIR_CHECK(is_done(&s[i].transfer));
    }
    mesh_close(&mesh);
    return rc;
}

CHOIR_TEST(every_allocation_may_fail)
{
    choir_test_all_faults(busy_scenario, NULL);
}
