/* p2p_read_test.c - large messages that are read where they are: when they are, and that no byte comes of memory that was taken
 * back. */
#include "transport/mesh_test.h"

#include <errno.h>

#include "base/error.h"
#include "base/sys.h"
#include "transport/byte_ring.h"
#include "transport/p2p_state.h"

enum { ROOM = 4096, BIG = 4 * CH_READ_NBYTES + 5, TURN = CH_READ_NBYTES, CONTEXT = 7 };

static struct mesh mesh;
static unsigned char *out, *in;
static struct ch_transfer sent, got;
static struct iovec from, to[3];

static void open_mesh(void)
{
    mesh_open(&mesh, 2, ROOM);
    ch_p2p_read_from(mesh.p2p[1], CH_P2P_EAGER + 1, SIZE_MAX);
    out = ch_zalloc(BIG);
    in = ch_zalloc(BIG);
    CHOIR_CHECK(out != NULL && in != NULL);
    fill(out, BIG, 3);
}

static void close_mesh(void)
{
    mesh_close(&mesh);
    ch_free(out);
    ch_free(in);
}

static void start_send(uint64_t tag, size_t nbytes)
{
    from = (struct iovec){ out, nbytes };
    ch_p2p_send(mesh.p2p[0], &sent, 1, CONTEXT, tag, 0, &from, 1);
}

/* In three pieces, of which one is empty. */
static void start_recv(uint64_t tag, size_t nbytes)
{
    to[0] = (struct iovec){ in, nbytes / 3 };
    to[1] = (struct iovec){ in + nbytes / 3, 0 };
    to[2] = (struct iovec){ in + nbytes / 3, nbytes - nbytes / 3 };
    ch_p2p_recv(mesh.p2p[1], &got, 0, CONTEXT, tag, 0, to, 3);
}

static void check_both(size_t nbytes)
{
    mesh_settle(&mesh);
    CHOIR_CHECK(is_done(&sent) && is_done(&got));
    CHOIR_CHECK_EQ(sent.status, CHOIR_OK);
    CHOIR_CHECK_EQ(got.status, CHOIR_OK);
    CHOIR_CHECK_EQ(got.source, 0);
    check_filled(in, nbytes, 3);
}

/* Bytes that rank 0 has put into the stream to rank 1. */
static uint64_t written(void)
{
    return atomic_load(&mesh.rings[1][0]->written);
}

CHOIR_TEST(it_is_read_and_not_sent)
{
    open_mesh();
    for (int first = 0; first < 2; first++) {
        uint64_t before = written();

        CHOIR_ROW("%s first", first == 0 ? "send" : "receive");
        memset(in, 0, BIG);
        if (first == 0)
            start_send(1, BIG);
        mesh_settle(&mesh);
        start_recv(1, BIG);
        if (first == 1)
            start_send(1, BIG);
        check_both(BIG);
        CHOIR_CHECK_EQ(written() - before, sizeof(struct ch_frame)); /* the offer */
    }
    close_mesh();
}

/* Rank 1 has written so much to rank 0, which takes nothing, that not a byte more goes. */
static void fill_ring_back(void)
{
    static unsigned char byte;
    static struct iovec one = { &byte, 1 };
    static struct ch_transfer small[ROOM / sizeof(struct ch_frame)];

    for (size_t i = 0; i < CH_ARRAY_LEN(small) / 2; i++)
        ch_p2p_send(mesh.p2p[1], &small[i], 0, CONTEXT, 5, 0, &one, 1);
    CHOIR_CHECK_EQ(atomic_load(&mesh.rings[0][1]->written), (uint64_t)ROOM);
}

/* Whoever has its message may go and never look again: by then its sender must have been told, who waits for that. */
CHOIR_TEST(a_receive_is_done_when_its_sender_can_know)
{
    static const size_t lengths[] = { BIG, 0 };

    for (size_t i = 0; i < CH_ARRAY_LEN(lengths); i++) {
        CHOIR_ROW("%zu bytes", lengths[i]);
        open_mesh();
        if (lengths[i] == 0) /* so little credit is left that it is offered */
            mesh.p2p[0]->peers[1].used = CH_P2P_KEPT - CH_FRAME_CHARGE;
        fill_ring_back();
        start_recv(1, lengths[i]);
        start_send(1, lengths[i]);
        while (ch_p2p_progress(mesh.p2p[1]))
            ;
        CHOIR_CHECK(!is_done(&got) && !is_done(&sent));
        while (!is_done(&got)) {
            ch_p2p_progress(mesh.p2p[0]);
            ch_p2p_progress(mesh.p2p[1]);
        }
        while (ch_p2p_progress(mesh.p2p[0]))
            ;
        CHOIR_CHECK(is_done(&sent));
        check_both(lengths[i]);
        close_mesh();
    }
}

CHOIR_TEST(what_is_shorter_or_in_pieces_is_sent)
{
    uint64_t before;

    open_mesh();
    CHOIR_ROW("as long as what goes without asking");
    before = written();
    start_recv(1, CH_P2P_EAGER);
    start_send(1, CH_P2P_EAGER);
    check_both(CH_P2P_EAGER);
    CHOIR_CHECK(written() - before > CH_P2P_EAGER);
    CHOIR_ROW("shorter than what this rank reads");
    ch_p2p_read_from(mesh.p2p[1], BIG + 1, SIZE_MAX);
    before = written();
    start_recv(1, BIG);
    start_send(1, BIG);
    check_both(BIG);
    CHOIR_CHECK(written() - before > BIG);
    CHOIR_ROW("longer than what this rank reads");
    ch_p2p_read_from(mesh.p2p[1], 0, BIG);
    before = written();
    start_recv(1, BIG);
    start_send(1, BIG);
    check_both(BIG);
    CHOIR_CHECK(written() - before > BIG);
    CHOIR_ROW("in two pieces");
    ch_p2p_read_from(mesh.p2p[1], 0, SIZE_MAX);
    before = written();
    start_recv(1, BIG);
    ch_p2p_send(mesh.p2p[0], &sent, 1, CONTEXT, 1, 0,
                (struct iovec[]){ { out, 9 }, { out + 9, BIG - 9 } }, 2);
    check_both(BIG);
    CHOIR_CHECK(written() - before > BIG);
    close_mesh();
}

/* --- where it cannot be ----------------------------------------------------------------------------------- */

static int ncalls;

static ssize_t not_allowed(pid_t pid, const struct iovec *a, int na, const struct iovec *b, int nb)
{
    (void)pid, (void)a, (void)na, (void)b, (void)nb;
    ncalls++;
    errno = EPERM;
    return -1;
}

CHOIR_TEST(where_it_is_not_allowed_it_is_sent)
{
    struct ch_sys_ops ops = ch_sys_real;

    ops.read_process = not_allowed;
    open_mesh();
    ch_sys_replace(&ops);
    for (int i = 0; i < 3; i++) {
        memset(in, 0, BIG);
        start_recv(1, BIG);
        start_send(1, BIG);
        check_both(BIG);
    }
    ch_sys_replace(NULL);
    CHOIR_CHECK_EQ(ncalls, 1); /* once is enough to know */
    close_mesh();
}

/* A process that has another id where ours would be: nothing of it is taken for the message. */
CHOIR_TEST(another_process_is_not_read)
{
    open_mesh();
    mesh.ids[0][3] ^= 1;
    start_recv(1, BIG);
    start_send(1, BIG);
    check_both(BIG);
    CHOIR_CHECK(written() > BIG);
    close_mesh();
}

/* A part of it is no memory of the sender's. */
CHOIR_TEST(half_of_it_is_nothing)
{
    struct ch_sys_ops ops = ch_sys_real;

    ops.read_process = not_allowed;
    open_mesh();
    start_recv(1, BIG);
    start_send(1, BIG);
    ch_p2p_progress(mesh.p2p[1]);
    CHOIR_CHECK_EQ(got.moved, TURN);
    ch_sys_replace(&ops);
    check_both(BIG); /* from its beginning, through the stream */
    ch_sys_replace(NULL);
    close_mesh();
}

/* --- taken back ------------------------------------------------------------------------------------------- */

/* Before the n-th turn of its receiver, who reads it in four. */
static void take_back_at(int turn, bool the_send)
{
    start_recv(1, BIG);
    start_send(1, BIG);
    for (int i = 0; i < turn; i++)
        ch_p2p_progress(mesh.p2p[1]);
    if (the_send) {
        ch_p2p_cancel(mesh.p2p[0], &sent, CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK(is_done(&sent));
        memset(out, 0xee, BIG);
    } else {
        ch_p2p_cancel(mesh.p2p[1], &got, CHOIR_ERR_TIMEOUT);
    }
    mesh_settle(&mesh);
    if (turn == 0 && !the_send) /* before they met */
        ch_p2p_cancel(mesh.p2p[0], &sent, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK(is_done(&sent) && is_done(&got));
    if (got.status == CHOIR_OK)
        check_filled(in, BIG, 3);
    else
        CHOIR_CHECK_STATUS(got.status, the_send ? CHOIR_ERR_NETWORK : CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_EQ(got.status == CHOIR_OK, turn >= 4);
    fill(out, BIG, 3);
    memset(in, 0, BIG);
    start_recv(2, BIG);
    start_send(2, BIG);
    check_both(BIG);
}

CHOIR_TEST(taken_back_at_any_moment)
{
    open_mesh();
    for (int turn = 0; turn < 7; turn++) {
        for (int the_send = 0; the_send < 2; the_send++) {
            CHOIR_ROW("turn %d, cancel the %s", turn, the_send ? "send" : "receive");
            take_back_at(turn, the_send);
        }
    }
    close_mesh();
}

/* Whose withdrawal it was is not said: the other one is sent for, from its beginning. */
CHOIR_TEST(another_one_is_taken_back)
{
    struct ch_transfer other = { 0 };
    struct iovec iov;

    open_mesh();
    iov = (struct iovec){ out, BIG };
    start_recv(1, BIG);
    start_send(1, BIG);
    ch_p2p_send(mesh.p2p[0], &other, 1, CONTEXT, 2, 0, &iov, 1);
    ch_p2p_progress(mesh.p2p[1]);
    CHOIR_CHECK_EQ(got.moved, TURN);
    ch_p2p_cancel(mesh.p2p[0], &other, CHOIR_ERR_TIMEOUT);
    check_both(BIG);
    CHOIR_CHECK(written() > BIG);
    close_mesh();
}

static const choir_error gone = { .code = CHOIR_ERR_REMOTE, .text = "gone" };

/* A message is being read; then `who` gives the other rank up, or the context. */
static void give_up_in_the_middle(uint32_t who, bool context)
{
    CHOIR_ROW("%s", context ? "the context" : "the peer");
    open_mesh();
    start_recv(1, BIG);
    start_send(1, BIG);
    ch_p2p_progress(mesh.p2p[1]);
    if (context)
        ch_p2p_end_context(mesh.p2p[who], CONTEXT, &gone);
    else
        ch_p2p_fail_peer(mesh.p2p[who], 1 - who, &gone);
}

/* A sender that has given up has its memory back while it is read. */
CHOIR_TEST(a_sender_gives_up)
{
    for (int context = 0; context < 2; context++) {
        give_up_in_the_middle(0, context);
        CHOIR_CHECK(is_done(&sent));
        memset(out, 0xee, BIG);
        mesh_settle(&mesh);
        CHOIR_CHECK(!is_done(&got) || got.status != CHOIR_OK);
        ch_p2p_fail_peer(mesh.p2p[1], 0, &gone);
        CHOIR_CHECK(is_done(&got));
        close_mesh();
    }
}

CHOIR_TEST(a_receiver_ends_in_the_middle)
{
    for (int context = 0; context < 2; context++) {
        give_up_in_the_middle(1, context);
        CHOIR_CHECK(is_done(&got));
        mesh_settle(&mesh);
        CHOIR_CHECK_EQ(is_done(&sent), context); /* refused: the context has ended there */
        ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
        CHOIR_CHECK(is_done(&sent));
        close_mesh();
    }
}

/* --- a peer's word ------------------------------------------------------------------------------------------ */

/* To rank `hears`, as if the other one had said it. */
static void say_to(uint32_t hears, const struct ch_frame *frame)
{
    struct ch_byte_ring_end end = { .ring = mesh.rings[hears][1 - hears], .room = ROOM };
    struct iovec iov = { (void *)(uintptr_t)frame, sizeof(*frame) };
    size_t done;

    end.mine = end.theirs = atomic_load(&end.ring->written);
    CHOIR_CHECK_OK(ch_byte_ring_write(&end, &iov, 1, &done));
}

static void say(const struct ch_frame *frame)
{
    say_to(0, frame);
}

CHOIR_TEST(what_cannot_be_ends_the_peer)
{
    static const struct {
        struct ch_frame frame;
        const char *text;
    } rows[] = {
        { { .kind = CH_FRAME_CREDIT, .epoch = 1 }, "flags that mean nothing" },
        { { .kind = CH_FRAME_CREDIT, .flags = CH_FRAME_LENT }, "flags that mean nothing" },
        { { .kind = CH_FRAME_OFFER, .id = 5, .total = 9, .epoch = 1 }, "flags that mean nothing" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%zu: %s", i, rows[i].text);
        open_mesh();
        start_send(1, BIG);
        say(&rows[i].frame);
        ch_p2p_progress(mesh.p2p[0]);
        CHOIR_CHECK(is_done(&sent));
        CHOIR_CHECK_STATUS(sent.status, CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(sent.error.text, rows[i].text);
        close_mesh();
    }
}

/* Says that it has read what was not lent to it; or what it has sent for. */
CHOIR_TEST(read_without_a_loan)
{
    struct ch_frame frame = { .kind = CH_FRAME_READ };

    for (int how = 0; how < 2; how++) {
        CHOIR_ROW("how %d", how);
        open_mesh();
        if (how == 0)
            ch_p2p_send(mesh.p2p[0], &sent, 1, CONTEXT, 1, 0,
                        (struct iovec[]){ { out, 9 }, { out + 9, BIG - 9 } }, 2);
        else
            start_send(1, BIG);
        frame.id = sent.message->id;
        if (how == 1)
            say(&(struct ch_frame){ .kind = CH_FRAME_TAKE, .id = frame.id });
        say(&frame);
        ch_p2p_progress(mesh.p2p[0]);
        CHOIR_CHECK(is_done(&sent));
        CHOIR_CHECK_STATUS(sent.status, CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(sent.error.text, "has read what was not lent");
        close_mesh();
    }
}

/* A piece of what is being read, or has been: it was not sent for, and its receive may be gone when the bytes come. */
CHOIR_TEST(sent_without_being_asked)
{
    for (int how = 0; how < 2; how++) {
        struct ch_frame frame = { .kind = CH_FRAME_DATA, .nbytes = 64 };

        CHOIR_ROW("%s", how == 0 ? "is being read" : "has been read, and READ waits for room");
        open_mesh();
        if (how == 1)
            fill_ring_back();
        start_recv(1, BIG);
        start_send(1, BIG);
        ch_p2p_progress(mesh.p2p[1]);
        for (int i = 0; how == 1 && i < 10; i++)
            ch_p2p_progress(mesh.p2p[1]);
        CHOIR_CHECK(!is_done(&got));
        frame.rid = got.message->id;
        frame.total = got.moved;
        if (how == 1)
            frame.nbytes = 0;
        say_to(1, &frame);
        ch_p2p_progress(mesh.p2p[1]);
        CHOIR_CHECK(is_done(&got));
        CHOIR_CHECK_STATUS(got.status, CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(got.error.text, "not sent for");
        close_mesh();
    }
}

/* --- faults ------------------------------------------------------------------------------------------------- */

static choir_status read_one(void *arg)
{
    choir_status rc = mesh_try(&mesh, 2, ROOM);

    (void)arg;
    out = ch_zalloc(BIG);
    in = ch_zalloc(BIG);
    if (rc == CHOIR_OK && out != NULL && in != NULL) {
        ch_p2p_read_from(mesh.p2p[1], 0, SIZE_MAX);
        fill(out, BIG, 3);
        start_recv(1, BIG);
        start_send(1, BIG);
        mesh_settle(&mesh);
        if (is_done(&got) && got.status == CHOIR_OK)
            check_filled(in, BIG, 3);
        ch_p2p_fail_peer(mesh.p2p[0], 1, &gone);
        ch_p2p_fail_peer(mesh.p2p[1], 0, &gone);
        CHOIR_CHECK(is_done(&sent) && is_done(&got));
    }
    close_mesh();
    return rc;
}

CHOIR_TEST_TIMED(every_call_may_fail, 60)
{
    choir_test_all_faults(read_one, NULL);
}
