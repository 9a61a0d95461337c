/*
 * serve_torch_test.c - our server as PyTorch's clients see it: bytes in, bytes out, over loopback.
 *
 * The session below was taken down from PyTorch's own server; tests/torch/ has real clients.
 */
#include "../io/io_test.h"

#include <choir/choir.h>

#include "io/sock.h"
#include "store/server.h"
#include "store/torch_wire.h"

/* --- a server, and connections to it ------------------------------------------------------------- */

static struct rig rig;
static choir_store_server *server;

static void start_server(void)
{
    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_OK(choir_store_server_create(
        CHOIR_OPTS(store_server_create, .torch_bind = "127.0.0.1:0"), &server));
}

static void stop_server(void)
{
    choir_store_server_destroy(server);
    rig_fini(&rig);
}

static int connect_raw(void)
{
    struct ch_patience patience = ample(&rig);
    int fd;

    CHOIR_CHECK_OK(ch_sock_connect(choir_store_server_torch_address(server), &patience, &fd));
    return fd;
}

static void send_bytes(int fd, const void *bytes, size_t nbytes)
{
    struct ch_patience patience = ample(&rig);

    CHOIR_CHECK_OK(ch_sock_send_all(fd, bytes, nbytes, &patience));
}

static void expect_bytes(int fd, const void *want, size_t nbytes)
{
    struct ch_patience patience = ample(&rig);
    unsigned char got[4096];

    CHOIR_CHECK_LE(nbytes, sizeof(got));
    CHOIR_CHECK_OK(ch_sock_recv_all(fd, got, nbytes, &patience));
    for (size_t i = 0; i < nbytes; i++) {
        if (got[i] != ((const unsigned char *)want)[i])
            CHOIR_FAIL("byte %zu of the reply is %02x, not %02x", i, got[i],
                       ((const unsigned char *)want)[i]);
    }
}

/* Nothing is on its way to us: what the server would have sent before the reply to this PING. */
static void expect_nothing(int fd)
{
    send_bytes(fd,
               "\x0d"
               "quiet",
               5);
    expect_bytes(fd, "quie", 4);
    send_bytes(fd,
               "\x0d"
               "stillq",
               5);
    expect_bytes(fd, "stil", 4);
}

static void expect_closed(int fd)
{
    struct ch_patience patience = ample(&rig);
    unsigned char byte;

    CHOIR_CHECK_STATUS(ch_sock_recv_all(fd, &byte, 1, &patience), CHOIR_ERR_NETWORK);
    ch_sys_close(fd);
}

static int connect_valid(void)
{
    int fd = connect_raw();

    send_bytes(fd, "\x00\xce\xf7\x85\x3c", 5);
    return fd;
}

static void put(int fd, const struct ch_torch_request *request)
{
    unsigned char bytes[256];

    CHOIR_CHECK_LE(ch_torch_size(request), sizeof(bytes));
    ch_torch_put(bytes, request);
    send_bytes(fd, bytes, ch_torch_size(request));
}

static void put_key(int fd, enum ch_torch_command command, const char *key)
{
    put(fd, &(struct ch_torch_request){ .command = command, .key = choir_str(key) });
}

static void put_value(int fd, enum ch_torch_command command, const char *key, const char *value)
{
    put(fd, &(struct ch_torch_request){
                .command = command, .key = choir_str(key), .value = choir_str(value) });
}

static void put_number(int fd, enum ch_torch_command command, const char *key, int64_t number)
{
    put(fd,
        &(struct ch_torch_request){ .command = command, .key = choir_str(key), .number = number });
}

static void put_keys(int fd, enum ch_torch_command command, const char *const *keys, int count)
{
    unsigned char bytes[256];

    put(fd, &(struct ch_torch_request){ .command = command, .number = count });
    for (int i = 0; i < count; i++) {
        const struct ch_torch_request item = { .command = command, .key = choir_str(keys[i]) };

        ch_torch_put_item(bytes, &item);
        send_bytes(fd, bytes, ch_torch_item_size(&item));
    }
}

static void put_wait(int fd, const char *key)
{
    put_keys(fd, CH_TORCH_WAIT, &key, 1);
}

/* Everything sent on `fd` so far has been carried out. */
static void sync_with(int fd)
{
    expect_nothing(fd);
}

/* --- the session --------------------------------------------------------------------------------- */

static const struct {
    const char *what, *request, *reply; /* hexadecimal */
} session[] = {
    { "VALIDATE", "00 cef7853c", "" },
    { "PING 0x1234", "0d 34120000", "34120000" },
    { "SET /k=v", "01 0200000000000000 2f6b 0100000000000000 76", "" },
    { "WAIT [/k]", "06 0100000000000000 0200000000000000 2f6b", "00" },
    { "GET /k", "03 0200000000000000 2f6b", "0100000000000000 76" },
    { "ADD /n 5", "04 0200000000000000 2f6e 0500000000000000", "0500000000000000" },
    { "ADD /n -7", "04 0200000000000000 2f6e f9ffffffffffffff", "feffffffffffffff" },
    { "ADD init/ 1", "04 0500000000000000 696e69742f 0100000000000000", "0100000000000000" },
    { "COMPARE_SET /c ''->x", "02 0200000000000000 2f63 0000000000000000 0100000000000000 78",
      "0100000000000000 78" },
    { "COMPARE_SET /d x->y", "02 0200000000000000 2f64 0100000000000000 78 0100000000000000 79",
      "0100000000000000 78" },
    { "CHECK [/k]", "05 0100000000000000 0200000000000000 2f6b", "00" },
    { "CHECK [/d]", "05 0100000000000000 0200000000000000 2f64", "01" },
    { "CHECK []", "05 0000000000000000", "00" },
    { "WAIT []", "06 0000000000000000", "00" },
    { "GETNUMKEYS", "07", "0400000000000000" },
    { "DELETE_KEY /k", "08 0200000000000000 2f6b", "0100000000000000" },
    { "DELETE_KEY /k again", "08 0200000000000000 2f6b", "0000000000000000" },
    { "APPEND /k w", "09 0200000000000000 2f6b 0100000000000000 77", "" },
    { "MULTI_SET a=1 b=22",
      "0b 0200000000000000 0200000000000000 2f61 0100000000000000 31 0200000000000000 2f62 "
      "0200000000000000 3232",
      "" },
    { "MULTI_GET [/a,/b]", "0a 0200000000000000 0200000000000000 2f61 0200000000000000 2f62",
      "0100000000000000 31 0200000000000000 3232" },
    { "MULTI_GET []", "0a 0000000000000000", "" },
    { "SET /e=''", "01 0200000000000000 2f65 0000000000000000", "" },
    { "GET /e", "03 0200000000000000 2f65", "0000000000000000" },
    { "WAIT [/d]", "06 0100000000000000 0200000000000000 2f64", "" },
    { "CANCEL_WAIT", "0c", "01" },
    { "CANCEL_WAIT of nothing", "0c", "01" },
    { "QUEUE_PUSH /q z", "0e 0200000000000000 2f71 0100000000000000 7a", "" },
    { "QUEUE_LEN /q", "10 0200000000000000 2f71", "0100000000000000" },
    { "QUEUE_POP /q", "0f 0200000000000000 2f71", "0100000000000000 0100000000000000 7a" },
    { "QUEUE_POP /q, empty", "0f 0200000000000000 2f71", "0000000000000000" },
    { "QUEUE_LEN /q, empty", "10 0200000000000000 2f71", "0000000000000000" },
};

static size_t from_hex(const char *text, unsigned char *out)
{
    size_t n = 0;
    unsigned byte;
    int used;

    while (sscanf(text, " %2x%n", &byte, &used) == 1) {
        out[n++] = (unsigned char)byte;
        text += used;
    }
    return n;
}

/* The keys may come in any order: each of them once. */
static void check_list(int fd)
{
    static const char *const keys[] = { "/n", "init/", "/c", "/k", "/a", "/b", "/e" };
    struct ch_patience patience = ample(&rig);
    unsigned seen = 0;

    send_bytes(fd, "\x11", 1);
    expect_bytes(fd, "\x07\0\0\0\0\0\0\0", 8);
    for (size_t i = 0; i < CH_ARRAY_LEN(keys); i++) {
        unsigned char length[8];
        char key[16] = "";

        CHOIR_CHECK_OK(ch_sock_recv_all(fd, length, 8, &patience));
        CHOIR_CHECK_LT(ch_torch_number(length), 16);
        CHOIR_CHECK_OK(ch_sock_recv_all(fd, key, (size_t)ch_torch_number(length), &patience));
        for (unsigned k = 0; k < CH_ARRAY_LEN(keys); k++)
            seen |= strcmp(key, keys[k]) == 0 ? 1u << k : 0;
    }
    CHOIR_CHECK_EQ(seen, 0x7fu);
}

static void check_barriers(int fd)
{
    int other = connect_valid();

    put_number(fd, CH_TORCH_BARRIER, "/x", 1);
    expect_bytes(fd, "\0", 1);
    put_number(fd, CH_TORCH_BARRIER, "/y", 2);
    sync_with(fd);
    put_number(other, CH_TORCH_BARRIER, "/y", 2);
    expect_bytes(fd, "\0", 1);
    expect_bytes(other, "\0", 1);
    ch_sys_close(other);
}

/* `piece` bytes in each write, everything of one request if 0. */
static void run_session(size_t piece)
{
    unsigned char request[128], reply[64];
    int fd;

    start_server();
    fd = connect_raw();
    for (size_t i = 0; i < CH_ARRAY_LEN(session); i++) {
        size_t nbytes = from_hex(session[i].request, request);

        CHOIR_ROW("%s, pieces of %zu", session[i].what, piece);
        for (size_t at = 0; at < nbytes; at += piece == 0 ? nbytes : piece) {
            size_t n = piece == 0 || nbytes - at < piece ? nbytes - at : piece;

            send_bytes(fd, request + at, n);
            if (piece != 0)
                sched_yield(); /* a chance for the server to see it alone */
        }
        expect_bytes(fd, reply, from_hex(session[i].reply, reply));
    }
    check_list(fd);
    check_barriers(fd);
    expect_nothing(fd);
    ch_sys_close(fd);
    stop_server();
}

CHOIR_TEST(the_session)
{
    run_session(0);
}

CHOIR_TEST(the_session_byte_by_byte)
{
    run_session(1);
    run_session(3);
}

/* All requests in one write; all replies come, in order. */
CHOIR_TEST(the_session_at_once)
{
    unsigned char requests[2048], replies[1024];
    size_t nrequests = 0, nreplies = 0;
    int fd;

    for (size_t i = 0; i < CH_ARRAY_LEN(session); i++) {
        nrequests += from_hex(session[i].request, requests + nrequests);
        nreplies += from_hex(session[i].reply, replies + nreplies);
    }
    start_server();
    fd = connect_raw();
    send_bytes(fd, requests, nrequests);
    expect_bytes(fd, replies, nreplies);
    ch_sys_close(fd);
    stop_server();
}

/* --- who is sent away ------------------------------------------------------------------------------ */

static const struct {
    const char *why, *bytes;
    size_t nbytes;
    bool after_validate;
} refused[] = {
    { "no VALIDATE first", "\x07", 1, false },
    { "HTTP", "GET / HTTP/1.1\r\n\r\n", 18, false },
    { "TLS", "\x16\x03\x01\x02\x00\x01", 6, false },
    { "the wrong magic", "\x00\xce\xf7\x85\x3d", 5, false },
    { "VALIDATE twice", "\x00\xce\xf7\x85\x3c", 5, true },
    { "an unknown command", "\x13", 1, true },
    { "a key too long", "\x03\x01\x20\0\0\0\0\0\0", 9, true },
    { "a list too long", "\x06\x01\0\x02\0\0\0\0\0", 9, true },
    { "a long key in a list", "\x06\x01\0\0\0\0\0\0\0\x01\x20\0\0\0\0\0\0", 17, true },
};

CHOIR_TEST(strangers_and_nonsense_are_sent_away)
{
    int honest;

    start_server();
    honest = connect_valid();
    for (size_t i = 0; i < CH_ARRAY_LEN(refused); i++) {
        int fd = refused[i].after_validate ? connect_valid() : connect_raw();

        CHOIR_ROW("%s", refused[i].why);
        send_bytes(fd, refused[i].bytes, refused[i].nbytes);
        expect_closed(fd);
        expect_nothing(honest);
    }
    ch_sys_close(honest);
    stop_server();
}

static char last_line[512];

static void keep_line(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

/* What a client puts into keys and values cannot make lines of log of its own, or colours. */
CHOIR_TEST(no_line_of_log_is_a_clients)
{
    int fd;

    choir_log_set_sink(keep_line, NULL);
    start_server();
    fd = connect_valid();
    put_value(fd, CH_TORCH_SET, "/k\n\x1b[31m", "v\nchoir error: fire\x1b[0m");
    put_number(fd, CH_TORCH_ADD, "/k\n\x1b[31m", 1);
    expect_closed(fd);
    stop_server();
    choir_log_set_sink(NULL, NULL);
    CHOIR_CHECK_HAS(last_line, "ADD \"/k\\x0a\\x1b[31m\"");
    CHOIR_CHECK_HAS(last_line, "not a number");
    CHOIR_CHECK(strpbrk(last_line, "\n\x1b") == NULL);
}

/* What cannot be added to closes that connection, and nothing else; the value stays. */
CHOIR_TEST(add_to_no_number_closes_that_connection_only)
{
    static const char *const values[] = { "", "x", " - 1", "99999999999999999999" };
    int honest;

    start_server();
    honest = connect_valid();
    for (size_t i = 0; i < CH_ARRAY_LEN(values); i++) {
        int adds = connect_valid(), barrier = connect_valid();
        unsigned char length[8];

        CHOIR_ROW("\"%s\"", values[i]);
        put_value(honest, CH_TORCH_SET, "/v", values[i]);
        sync_with(honest);
        put_number(adds, CH_TORCH_ADD, "/v", 1);
        expect_closed(adds);
        put_number(barrier, CH_TORCH_BARRIER, "/v", 1);
        expect_closed(barrier);
        put_key(honest, CH_TORCH_GET, "/v");
        ch_torch_put_number(length, (int64_t)strlen(values[i]));
        expect_bytes(honest, length, 8);
        expect_bytes(honest, values[i], strlen(values[i]));
    }
    put_value(honest, CH_TORCH_SET, "/v", " 41 apples");
    put_number(honest, CH_TORCH_ADD, "/v", 1);
    expect_bytes(honest, "\x2a\0\0\0\0\0\0\0", 8);
    ch_sys_close(honest);
    stop_server();
}

/* --- waits ----------------------------------------------------------------------------------------- */

/* Each of the ways to make a key ends a wait for it. */
CHOIR_TEST(every_writing_call_wakes)
{
    static const struct {
        enum ch_torch_command command;
        bool wakes;
    } ways[] = {
        { CH_TORCH_SET, true },         { CH_TORCH_ADD, true },        { CH_TORCH_APPEND, true },
        { CH_TORCH_COMPARE_SET, true }, { CH_TORCH_QUEUE_PUSH, true }, { CH_TORCH_MULTI_SET, true },
        { CH_TORCH_BARRIER, true }, /* complete: of one */
        { CH_TORCH_GET, false },        { CH_TORCH_DELETE, false },
    };
    int waiter, writer;

    start_server();
    waiter = connect_valid();
    writer = connect_valid();
    for (size_t i = 0; i < CH_ARRAY_LEN(ways); i++) {
        struct ch_torch_request request = { .command = ways[i].command, .number = 1 };
        char key[16];

        CHOIR_ROW("%s", ch_torch_command_name(ways[i].command));
        snprintf(key, sizeof(key), "/%zu", i);
        put_wait(waiter, key);
        sync_with(waiter);
        request.key = choir_str(key);
        put(writer, &request);
        if (ways[i].command == CH_TORCH_MULTI_SET) {
            unsigned char item[64];

            send_bytes(writer, item, (size_t)(ch_torch_put_item(item, &request) - item));
        }
        if (ways[i].wakes)
            expect_bytes(waiter, "\0", 1);
        expect_nothing(waiter);
    }
    ch_sys_close(waiter);
    ch_sys_close(writer);
    stop_server();
}

CHOIR_TEST(a_wait_counts_its_keys)
{
    static const char *const keys[] = { "/a", "/b", "/a", "/there" };
    int waiter, writer;

    start_server();
    waiter = connect_valid();
    writer = connect_valid();
    put_value(writer, CH_TORCH_SET, "/there", "");
    sync_with(writer);
    put_keys(waiter, CH_TORCH_WAIT, keys, 4);
    sync_with(waiter);                         /* other requests are served meanwhile */
    put_value(writer, CH_TORCH_SET, "/a", ""); /* takes both off */
    sync_with(writer);
    put_key(writer, CH_TORCH_DELETE, "/a"); /* counts all the same */
    expect_bytes(writer, "\x01\0\0\0\0\0\0\0", 8);
    expect_nothing(waiter);
    put_value(writer, CH_TORCH_SET, "/b", "");
    expect_bytes(waiter, "\0", 1);
    expect_nothing(waiter);
    ch_sys_close(waiter);
    ch_sys_close(writer);
    stop_server();
}

CHOIR_TEST(a_push_releases_one_in_turn)
{
    static const char *const two[] = { "/q", "/later" };
    int first, second, third, writer;

    start_server();
    first = connect_valid();
    second = connect_valid();
    third = connect_valid();
    writer = connect_valid();
    put_keys(first, CH_TORCH_WAIT, two, 2);
    sync_with(first);
    put_wait(second, "/q");
    sync_with(second);
    put_wait(third, "/q");
    sync_with(third);
    put_value(writer, CH_TORCH_QUEUE_PUSH, "/q", "1"); /* counts for the first, ends the second */
    expect_bytes(second, "\0", 1);
    expect_nothing(third);
    put_value(writer, CH_TORCH_SET, "/later", "");
    expect_bytes(first, "\0", 1);
    put_value(writer, CH_TORCH_QUEUE_PUSH, "/q", "2");
    expect_bytes(third, "\0", 1);
    expect_nothing(second); /* no old registration comes to life */
    ch_sys_close(first);
    ch_sys_close(second);
    ch_sys_close(third);
    ch_sys_close(writer);
    stop_server();
}

CHOIR_TEST(a_barrier_tells_only_when_complete)
{
    int watcher, first, second, third;

    start_server();
    watcher = connect_valid();
    first = connect_valid();
    second = connect_valid();
    third = connect_valid();
    put_wait(watcher, "/b");
    sync_with(watcher);
    put_number(first, CH_TORCH_BARRIER, "/b", 3);
    sync_with(first);
    expect_nothing(watcher);
    put_key(first, CH_TORCH_GET, "/b"); /* but it is there, and counts */
    expect_bytes(first,
                 "\x01\0\0\0\0\0\0\0"
                 "1",
                 9);
    put_number(second, CH_TORCH_BARRIER, "/b", 3);
    sync_with(second);
    send_bytes(second, "\x0c", 1); /* withdraws, and stays counted */
    expect_bytes(second, "\x01", 1);
    put_number(third, CH_TORCH_BARRIER, "/b", 3);
    expect_bytes(third, "\0", 1);
    expect_bytes(first, "\0", 1);
    expect_bytes(watcher, "\0", 1);
    expect_nothing(second);
    put_number(second, CH_TORCH_BARRIER, "/b", 3); /* late ones pass */
    expect_bytes(second, "\0", 1);
    ch_sys_close(watcher);
    ch_sys_close(first);
    ch_sys_close(second);
    ch_sys_close(third);
    stop_server();
}

/* A client that goes takes its wait along, in the middle of a list too, and leaves what it set. */
CHOIR_TEST(who_leaves_leaves_what_it_set)
{
    int leaver, half, writer;

    start_server();
    leaver = connect_valid();
    half = connect_valid();
    put_wait(leaver, "/w");
    put_value(leaver, CH_TORCH_SET, "/set", "x");
    ch_sys_close(leaver); /* at once */
    put(half, &(struct ch_torch_request){ .command = CH_TORCH_WAIT, .number = 2 });
    send_bytes(half, "\x02\0\0\0\0\0\0\0/w", 10);
    ch_sys_close(half);
    writer = connect_valid();
    put_wait(writer, "/set");
    expect_bytes(writer, "\0", 1);
    put_value(writer, CH_TORCH_SET, "/w", "x");
    expect_nothing(writer);
    ch_sys_close(writer);
    stop_server();
}

/* A value of CH_TORCH_VALUE_MAX bytes. */
static void put_big_value(int fd, const char *key)
{
    const struct ch_torch_request set = { .command = CH_TORCH_SET, .key = choir_str(key) };
    unsigned char head[64], *value = calloc(CH_TORCH_VALUE_MAX, 1);

    ch_torch_put(head, &set);
    ch_torch_put_number(head + ch_torch_size(&set) - 8, CH_TORCH_VALUE_MAX);
    send_bytes(fd, head, ch_torch_size(&set));
    send_bytes(fd, value, CH_TORCH_VALUE_MAX);
    free(value);
}

/* A client that goes without having read its replies: what it asked for has come, and is done, whether
 * the server has looked at it already or not. But for pops: nobody would get the element. */
CHOIR_TEST_TIMED(who_leaves_replies_unread_leaves_what_it_set, 60)
{
    static const char *const keys[] = { "/soon", "/late" };
    int leaver, other;

    start_server();
    leaver = connect_valid();
    put_value(leaver, CH_TORCH_QUEUE_PUSH, "/q", "element");
    put_big_value(leaver, "/big");
    put_key(leaver, CH_TORCH_GET, "/big");
    put_value(leaver, CH_TORCH_SET, "/soon", "x");
    expect_bytes(leaver, "\0", 1); /* the length of 8 MiB: it is being answered */
    put_key(leaver, CH_TORCH_QUEUE_POP, "/q");
    put_value(leaver, CH_TORCH_SET, "/late", "x");
    ch_sys_close(leaver);
    other = connect_valid();
    put_keys(other, CH_TORCH_WAIT, keys, 2);
    expect_bytes(other, "\0", 1);
    put_key(other, CH_TORCH_QUEUE_LENGTH, "/q");
    expect_bytes(other, "\1\0\0\0\0\0\0\0", 8);
    ch_sys_close(other);
    stop_server();
}

/* The end of a wait does not come in the middle of the reply to a list that is under way. */
CHOIR_TEST(a_wait_ends_between_replies)
{
    int fd, other;

    start_server();
    fd = connect_valid();
    other = connect_valid();
    put_value(fd, CH_TORCH_SET, "/v", "value");
    put_wait(fd, "/w");
    put(fd, &(struct ch_torch_request){ .command = CH_TORCH_MULTI_GET, .number = 2 });
    send_bytes(fd, "\2\0\0\0\0\0\0\0/v", 10);
    expect_bytes(fd, "\5\0\0\0\0\0\0\0value", 13);
    put_value(other, CH_TORCH_SET, "/w", "x");
    sync_with(other);
    send_bytes(fd, "\2\0\0\0\0\0\0\0/v", 10);
    expect_bytes(fd, "\5\0\0\0\0\0\0\0value", 13);
    expect_bytes(fd, "\0", 1);
    expect_nothing(fd);
    ch_sys_close(fd);
    ch_sys_close(other);
    stop_server();
}

/* --- much ------------------------------------------------------------------------------------------ */

/* Values of 8 MiB, the same one many times in a list: the server answers as we read. */
CHOIR_TEST_TIMED(large_values_and_long_lists, 60)
{
    enum { TIMES = 12 };
    const size_t nbytes = CH_TORCH_VALUE_MAX;
    const struct ch_torch_request set = { .command = CH_TORCH_SET, .key = choir_str("/big") };
    struct ch_patience patience;
    const char *keys[TIMES];
    unsigned char head[32], *value = malloc(nbytes), *got = malloc(nbytes);
    int fd;

    start_server();
    patience = patience_ms(&rig, 50000);
    fd = connect_valid();
    for (size_t i = 0; i < nbytes; i++)
        value[i] = (unsigned char)(i * 2654435761u >> 24);
    ch_torch_put(head, &set);
    send_bytes(fd, head, ch_torch_size(&set) - 8);
    ch_torch_put_number(head, (int64_t)nbytes);
    send_bytes(fd, head, 8);
    CHOIR_CHECK_OK(ch_sock_send_all(fd, value, nbytes, &patience));
    for (int i = 0; i < TIMES; i++)
        keys[i] = "/big";
    put_keys(fd, CH_TORCH_MULTI_GET, keys, TIMES);
    for (int i = 0; i < TIMES; i++) {
        expect_bytes(fd, head, 8);
        CHOIR_CHECK_OK(ch_sock_recv_all(fd, got, nbytes, &patience));
        CHOIR_CHECK(memcmp(got, value, nbytes) == 0);
    }
    expect_nothing(fd);
    ch_sys_close(fd);
    stop_server();
    free(value);
    free(got);
}

/* Requests of which each asks for little, together for more than the server holds ready. */
CHOIR_TEST(pipelined_requests_are_all_answered)
{
    enum { TIMES = 2000, NBYTES = 200 };
    struct ch_patience patience;
    unsigned char request[64], *requests, got[8 + NBYTES];
    struct ch_torch_request get = { .command = CH_TORCH_GET, .key = choir_str("/v") };
    char value[NBYTES + 1];
    size_t nbytes = ch_torch_size(&get);
    int fd;

    start_server();
    patience = ample(&rig);
    fd = connect_valid();
    memset(value, 'v', NBYTES);
    value[NBYTES] = '\0';
    put_value(fd, CH_TORCH_SET, "/v", value);
    ch_torch_put(request, &get);
    requests = malloc(nbytes * TIMES);
    for (int i = 0; i < TIMES; i++)
        memcpy(requests + (size_t)i * nbytes, request, nbytes);
    CHOIR_CHECK_OK(ch_sock_send_all(fd, requests, nbytes * TIMES, &patience));
    for (int i = 0; i < TIMES; i++) {
        CHOIR_CHECK_OK(ch_sock_recv_all(fd, got, sizeof(got), &patience));
        CHOIR_CHECK_EQ(ch_torch_number(got), NBYTES);
    }
    expect_nothing(fd);
    ch_sys_close(fd);
    free(requests);
    stop_server();
}

/* A full table closes the connection of who fills it; others go on. */
CHOIR_TEST(a_full_table_is_its_fillers_trouble)
{
    const struct ch_table_limits small = { .key_nbytes = 64,
                                           .value_nbytes = 64,
                                           .total_nbytes = 4096 };
    int honest, filler;

    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_OK(ch_store_server_create(
        CHOIR_OPTS(store_server_create, .torch_bind = "127.0.0.1:0"), &small, &server));
    honest = connect_valid();
    filler = connect_valid();
    put_value(honest, CH_TORCH_SET, "/h", "stays");
    sync_with(honest);
    for (int i = 0; i < 64; i++) {
        char key[16];
        struct ch_patience patience = ample(&rig);
        unsigned char bytes[64];
        struct ch_torch_request set = { .command = CH_TORCH_SET,
                                        .value = choir_str("sixteen bytes ok") };

        snprintf(key, sizeof(key), "/%d", i);
        set.key = choir_str(key);
        ch_torch_put(bytes, &set);
        if (ch_sock_send_all(filler, bytes, ch_torch_size(&set), &patience) != CHOIR_OK)
            break; /* it was closed already */
    }
    expect_closed(filler);
    put_key(honest, CH_TORCH_GET, "/h");
    expect_bytes(honest, "\x05\0\0\0\0\0\0\0stays", 13);
    ch_sys_close(honest);
    stop_server();
}
