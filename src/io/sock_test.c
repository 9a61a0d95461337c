/* sock_test.c - TCP over the loopback of both families: deadlines, exact counts, faults. */
#include "io/sock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <unistd.h>

#include "io/io_test.h"

static const int families[] = { AF_INET, AF_INET6 };

static bool has_family(int family)
{
    struct ch_addr addr = ch_addr_loopback(family, 0);
    int fd = -1;
    bool has = ch_sock_listen(&addr, &fd) == CHOIR_OK;

    ch_sys_close(fd);
    return has;
}

/* The cases below are generated for both families; what the machine lacks is skipped. */
static void need_family(int family)
{
    if (!has_family(family))
        CHOIR_SKIP("this machine has no %s loopback",
                   family == AF_INET6 ? "IPv6 (::1)" : "IPv4 (127.0.0.1)");
}

/* Two ends of one connection and the listener between. */
struct link {
    struct rig rig;
    int listener, client, server;
};

static void link_down(struct link *link)
{
    ch_sys_close(link->client);
    ch_sys_close(link->server);
    ch_sys_close(link->listener);
    rig_fini(&link->rig);
}

static choir_status link_up(struct link *link, int family)
{
    struct ch_addr addr = ch_addr_loopback(family, 0);
    struct ch_patience patience;
    choir_status rc;

    link->listener = link->client = link->server = -1;
    rc = rig_init(&link->rig);
    if (rc != CHOIR_OK)
        return rc;
    patience = ample(&link->rig);
    rc = ch_sock_listen(&addr, &link->listener);
    if (rc == CHOIR_OK)
        rc = ch_sock_local_addr(link->listener, &addr);
    if (rc == CHOIR_OK)
        rc = ch_sock_connect_addr(&addr, &patience, &link->client);
    if (rc == CHOIR_OK)
        rc = ch_sock_accept(link->listener, &patience, &link->server);
    if (rc != CHOIR_OK)
        link_down(link);
    return rc;
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);

    CHOIR_CHECK_EQ(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void check_link(int family)
{
    struct link link;
    struct ch_addr addr, other;
    char text[CH_ADDR_TEXT_MAX];

    need_family(family);
    CHOIR_CHECK_OK(link_up(&link, family));

    /* Each end's local address is the other's peer; the port is one the kernel picked. */
    CHOIR_CHECK_OK(ch_sock_local_addr(link.server, &addr));
    CHOIR_CHECK_OK(ch_sock_peer_addr(link.client, &other));
    CHOIR_CHECK(ch_addr_equal(&addr, &other));
    CHOIR_CHECK_NE(ch_addr_port(&addr), 0);
    CHOIR_CHECK_HAS(ch_addr_text(&addr, text), family == AF_INET ? "127.0.0.1:" : "[::1]:");
    CHOIR_CHECK_OK(ch_sock_local_addr(link.client, &addr));
    CHOIR_CHECK_OK(ch_sock_peer_addr(link.server, &other));
    CHOIR_CHECK(ch_addr_equal(&addr, &other));

    CHOIR_CHECK_EQ(option(link.client, IPPROTO_TCP, TCP_NODELAY), 1);
    CHOIR_CHECK_EQ(option(link.server, IPPROTO_TCP, TCP_NODELAY), 1);
    link_down(&link);
}

CHOIR_TEST(two_ends_know_each_other_ipv4)
{
    check_link(AF_INET);
}

CHOIR_TEST(two_ends_know_each_other_ipv6)
{
    check_link(AF_INET6);
}

CHOIR_TEST(a_dual_stack_listener_reports_plain_ipv4)
{
    struct rig rig;
    struct ch_addr addr;
    struct ch_patience patience;
    char text[CH_ADDR_TEXT_MAX];
    int listener, client, server;

    need_family(AF_INET6);
    need_family(AF_INET);
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    addr = ch_addr_wildcard(AF_INET6, 0);
    CHOIR_CHECK_OK(ch_sock_listen(&addr, &listener));
    CHOIR_CHECK_OK(ch_sock_local_addr(listener, &addr));
    addr = ch_addr_loopback(AF_INET, ch_addr_port(&addr));
    CHOIR_CHECK_OK(ch_sock_connect_addr(&addr, &patience, &client));
    CHOIR_CHECK_OK(ch_sock_accept(listener, &patience, &server));
    CHOIR_CHECK_OK(ch_sock_local_addr(server, &addr));
    CHOIR_CHECK_HAS(ch_addr_text(&addr, text), "127.0.0.1:");
    ch_sys_close(listener);
    ch_sys_close(client);
    ch_sys_close(server);
    rig_fini(&rig);
}

/* --- bytes ------------------------------------------------------------------------------------- */

struct transfer {
    struct link link;
    char *out, *in;
    size_t nbytes;
    choir_status sent;
};

static void *send_side(void *arg)
{
    struct transfer *t = arg;
    struct rig rig;
    struct ch_patience patience;

    if (rig_init(&rig) != CHOIR_OK)
        return NULL;
    patience = ample(&rig);
    t->sent = ch_sock_send_all(t->link.client, t->out, t->nbytes, &patience);
    rig_fini(&rig);
    return NULL;
}

static const struct {
    size_t nbytes;
    const char *why;
} sizes[] = {
    { 0, "nothing: must not wait" },
    { 1, "a byte" },
    { 4097, "more than a page" },
    { 8u << 20, "more than both sockets' buffers: both sides wait in turn" },
};

CHOIR_TEST(all_bytes_arrive_in_order)
{
    for (size_t f = 0; f < CH_ARRAY_LEN(families); f++) {
        if (!has_family(families[f]))
            continue;
        for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            struct choir_test_random random = { 1 };
            struct transfer t = { .nbytes = sizes[i].nbytes, .sent = CHOIR_ERR_STATE };
            struct ch_patience patience;
            pthread_t thread;

            CHOIR_ROW("family %d, %zu bytes: %s", families[f], sizes[i].nbytes, sizes[i].why);
            CHOIR_CHECK_OK(link_up(&t.link, families[f]));
            patience = ample(&t.link.rig);
            t.out = malloc(t.nbytes + 1);
            t.in = malloc(t.nbytes + 1);
            CHOIR_CHECK(t.out != NULL && t.in != NULL);
            for (size_t b = 0; b < t.nbytes; b++)
                t.out[b] = (char)choir_test_random(&random);
            CHOIR_CHECK_EQ(pthread_create(&thread, NULL, send_side, &t), 0);
            CHOIR_CHECK_OK(ch_sock_recv_all(t.link.server, t.in, t.nbytes, &patience));
            pthread_join(thread, NULL);
            CHOIR_CHECK_OK(t.sent);
            CHOIR_CHECK_EQ(memcmp(t.out, t.in, t.nbytes), 0);
            free(t.out);
            free(t.in);
            link_down(&t.link);
        }
    }
}

/* --- waiting for what does not come -------------------------------------------------------------- */

static choir_status accept_nobody(struct link *link, const struct ch_patience *patience)
{
    int fd;

    return ch_sock_accept(link->listener, patience, &fd);
}

static choir_status recv_nothing(struct link *link, const struct ch_patience *patience)
{
    char byte;

    return ch_sock_recv_all(link->server, &byte, 1, patience);
}

static choir_status send_without_room(struct link *link, const struct ch_patience *patience)
{
    static char much[32 << 20]; /* more than the kernel lets any socket's buffers grow to */

    return ch_sock_send_all(link->client, much, sizeof(much), patience);
}

static const struct {
    choir_status (*call)(struct link *link, const struct ch_patience *patience);
    const char *says, *why;
} waits[] = {
    { accept_nobody, "accept on 127.0.0.1:", "nobody connects" },
    { recv_nothing, "receive from 127.0.0.1:", "the peer says nothing" },
    { send_without_room, "send to 127.0.0.1:", "the peer does not read" },
};

CHOIR_TEST(every_wait_ends_with_its_deadline_poison_or_interrupt)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(waits); i++) {
        _Atomic uint32_t poison = 0;
        struct link link;
        struct ch_patience patience;
        uint64_t began;

        CHOIR_ROW("%s", waits[i].why);
        CHOIR_CHECK_OK(link_up(&link, AF_INET));
        patience = patience_ms(&link.rig, 50);
        began = ch_now();
        CHOIR_CHECK_STATUS(waits[i].call(&link, &patience), CHOIR_ERR_TIMEOUT);
        check_took_about(began, 50);
        CHOIR_CHECK_HAS(choir_last_error(), waits[i].says);

        patience = ample(&link.rig);
        patience.poison = &poison;
        atomic_store(&poison, 1);
        CHOIR_CHECK_STATUS(waits[i].call(&link, &patience), CHOIR_ERR_REMOTE);
        atomic_store(&poison, 0);
        ch_waiter_interrupt(&link.rig.waiter);
        CHOIR_CHECK_STATUS(waits[i].call(&link, &patience), CHOIR_ERR_INTERRUPTED);
        link_down(&link);
    }
}

/* A listener whose queue is full leaves further handshakes unanswered. */
CHOIR_TEST(a_connect_nobody_answers_ends_with_its_deadline)
{
    enum { QUEUE = 8 };
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    struct rig rig;
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);
    int listener = ch_sys_socket(AF_INET, SOCK_STREAM, 0), fds[QUEUE], n = 0;
    choir_status rc = CHOIR_OK;
    uint64_t began = 0;

    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_EQ(ch_sys_bind(listener, &addr.any, addr.len), 0);
    CHOIR_CHECK_EQ(ch_sys_listen(listener, 0), 0);
    CHOIR_CHECK_EQ(ch_sys_getsockname(listener, (struct sockaddr *)&ss, &len), 0);
    CHOIR_CHECK_OK(ch_addr_from_kernel(&ss, &addr));
    while (n < QUEUE && rc == CHOIR_OK) {
        struct ch_patience patience = patience_ms(&rig, 200);

        began = ch_now();
        rc = ch_sock_connect_addr(&addr, &patience, &fds[n]);
        n += rc == CHOIR_OK;
    }
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    check_took_about(began, 200);
    CHOIR_CHECK_HAS(choir_last_error(), "connect to 127.0.0.1:");
    while (n > 0)
        ch_sys_close(fds[--n]);
    ch_sys_close(listener);
    rig_fini(&rig);
}

/* --- peers that go away -------------------------------------------------------------------------- */

CHOIR_TEST(a_peer_that_closes_is_an_error)
{
    struct link link;
    struct ch_patience patience;
    char byte = 1;
    choir_status rc;

    CHOIR_CHECK_OK(link_up(&link, AF_INET));
    patience = ample(&link.rig);
    ch_sys_close(link.client);
    CHOIR_CHECK_STATUS(ch_sock_recv_all(link.server, &byte, 1, &patience), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "closed by the peer");

    /* The first bytes to a closed peer are taken; its reset ends the connection. No SIGPIPE. */
    do
        rc = ch_sock_send_all(link.server, &byte, 1, &patience);
    while (rc == CHOIR_OK);
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_NETWORK);
    link.client = -1;
    link_down(&link);
}

static uint16_t closed_port(int family)
{
    struct ch_addr addr = ch_addr_loopback(family, 0);
    int fd;

    CHOIR_CHECK_OK(ch_sock_listen(&addr, &fd));
    CHOIR_CHECK_OK(ch_sock_local_addr(fd, &addr));
    ch_sys_close(fd);
    return ch_addr_port(&addr);
}

CHOIR_TEST(a_refused_connect_names_the_address)
{
    struct rig rig;
    struct ch_addr addr;
    struct ch_patience patience;
    int fd = -7;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    addr = ch_addr_loopback(AF_INET, closed_port(AF_INET));
    CHOIR_CHECK_STATUS(ch_sock_connect_addr(&addr, &patience, &fd), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "connect to 127.0.0.1:");
    CHOIR_CHECK_HAS(choir_last_error(), "ECONNREFUSED");
    addr = ch_addr_loopback(AF_INET, 0);
    CHOIR_CHECK_STATUS(ch_sock_connect_addr(&addr, &patience, &fd), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_sock_connect("127.0.0.1", &patience, &fd), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(fd, -7);
    rig_fini(&rig);
}

/* "localhost" is 127.0.0.1 first: a server on ::1 alone is found all the same. */
CHOIR_TEST(all_addresses_of_a_name_are_tried)
{
    struct rig rig;
    struct ch_addr addr = ch_addr_loopback(AF_INET6, 0);
    struct ch_patience patience;
    char text[64];
    int listener, fd;

    need_family(AF_INET6);
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_sock_listen(&addr, &listener));
    CHOIR_CHECK_OK(ch_sock_local_addr(listener, &addr));
    snprintf(text, sizeof(text), "localhost:%u", ch_addr_port(&addr));
    CHOIR_CHECK_OK(ch_sock_connect(text, &patience, &fd));
    ch_sys_close(fd);
    ch_sys_close(listener);
    CHOIR_CHECK_STATUS(ch_sock_connect(text, &patience, &fd), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "has 2 addresses");
    rig_fini(&rig);
}

/* A socket bound to the very port it connects to meets itself: TCP allows that. */
static int bound_socket(int domain, int type, int protocol)
{
    int fd = ch_sys_real.socket(domain, type, protocol);
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);
    const char *port = getenv("SELF_PORT");

    if (fd >= 0 && domain == AF_INET && port != NULL) {
        addr = ch_addr_loopback(AF_INET, (uint16_t)atoi(port));
        (void)!bind(fd, &addr.any, addr.len);
    }
    return fd;
}

CHOIR_TEST(a_socket_that_meets_itself_is_refused)
{
    struct ch_sys_ops ops = ch_sys_real;
    struct rig rig;
    struct ch_addr addr;
    struct ch_patience patience;
    char port[16];
    int fd;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    addr = ch_addr_loopback(AF_INET, closed_port(AF_INET));
    snprintf(port, sizeof(port), "%u", ch_addr_port(&addr));
    setenv("SELF_PORT", port, 1);
    ops.socket = bound_socket;
    ch_sys_replace(&ops);
    CHOIR_CHECK_STATUS(ch_sock_connect_addr(&addr, &patience, &fd), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "met itself");
    ch_sys_replace(NULL);
    rig_fini(&rig);
}

CHOIR_TEST(a_taken_port_is_an_error)
{
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);
    int fd, second = -7;

    CHOIR_CHECK_OK(ch_sock_listen(&addr, &fd));
    CHOIR_CHECK_OK(ch_sock_local_addr(fd, &addr));
    CHOIR_CHECK_STATUS(ch_sock_listen(&addr, &second), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "listen on 127.0.0.1:");
    CHOIR_CHECK_EQ(second, -7);
    ch_sys_close(fd);
}

CHOIR_TEST(loss_detection_is_set)
{
    struct link link;

    CHOIR_CHECK_OK(link_up(&link, AF_INET));
    CHOIR_CHECK_OK(ch_sock_detect_loss(link.client, 6000));
    CHOIR_CHECK_EQ(option(link.client, SOL_SOCKET, SO_KEEPALIVE), 1);
    CHOIR_CHECK_EQ(option(link.client, IPPROTO_TCP, TCP_KEEPIDLE), 2);
    CHOIR_CHECK_EQ(option(link.client, IPPROTO_TCP, TCP_USER_TIMEOUT), 6000);
    CHOIR_CHECK_OK(ch_sock_detect_loss(link.client, 0));
    CHOIR_CHECK_OK(ch_sock_detect_loss(link.client, INT32_MAX));
    link_down(&link);
}

/* --- faults ------------------------------------------------------------------------------------- */

/* Everything a connection does, in one thread: the loopback's buffers hold the little that is sent. */
static choir_status whole_life(void *arg)
{
    const int *family = arg;
    char out[] = "to and fro", in[sizeof(out)];
    struct link link;
    struct ch_patience patience;
    choir_status rc = link_up(&link, *family);

    if (rc != CHOIR_OK)
        return rc;
    patience = patience_ms(&link.rig, 1000 * (int64_t)choir_test_slowness());
    rc = ch_sock_detect_loss(link.server, 6000);
    if (rc == CHOIR_OK)
        rc = ch_sock_send_all(link.client, out, sizeof(out), &patience);
    if (rc == CHOIR_OK)
        rc = ch_sock_recv_all(link.server, in, sizeof(in), &patience);
    if (rc == CHOIR_OK)
        CHOIR_CHECK_STR(in, out);
    link_down(&link);
    return rc;
}

CHOIR_TEST(every_failure_on_the_way_is_an_error)
{
    for (size_t f = 0; f < CH_ARRAY_LEN(families); f++) {
        int family = families[f];

        if (has_family(family))
            choir_test_all_faults(whole_life, &family);
    }
}

static choir_status connect_by_name(void *arg)
{
    struct rig rig;
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);
    char text[64];
    struct ch_patience patience;
    int listener = -1, fd = -1;
    choir_status rc = rig_init(&rig);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    patience = patience_ms(&rig, 1000 * (int64_t)choir_test_slowness());
    rc = ch_sock_listen(&addr, &listener);
    if (rc == CHOIR_OK)
        rc = ch_sock_local_addr(listener, &addr);
    if (rc == CHOIR_OK) {
        snprintf(text, sizeof(text), "localhost:%u", ch_addr_port(&addr));
        rc = ch_sock_connect(text, &patience, &fd);
    }
    ch_sys_close(fd);
    ch_sys_close(listener);
    rig_fini(&rig);
    return rc;
}

CHOIR_TEST(every_failure_of_a_connect_by_name_is_an_error)
{
    choir_test_all_faults(connect_by_name, NULL);
}

static const struct {
    enum ch_fault_point point;
    int err;
    const char *why;
} hiccups[] = {
    { CH_FAULT_connect, EINTR, "a signal" },
    { CH_FAULT_accept, EINTR, "a signal" },
    { CH_FAULT_accept, ECONNABORTED, "a connection given up in the queue" },
    { CH_FAULT_accept, EAGAIN, "ready, then not: another thread was quicker" },
    { CH_FAULT_sendmsg, EINTR, "a signal" },
    { CH_FAULT_sendmsg, EAGAIN, "no room" },
    { CH_FAULT_recvmsg, EINTR, "a signal" },
    { CH_FAULT_recvmsg, EAGAIN, "a spurious readiness" },
    { CH_FAULT_poll, EINTR, "a signal while asleep" },
};

CHOIR_TEST(hiccups_are_no_errors)
{
    int family = AF_INET;

    for (size_t i = 0; i < CH_ARRAY_LEN(hiccups); i++)
        check_copes_with(hiccups[i].point, hiccups[i].err, whole_life, &family);
}

/* --- fork --------------------------------------------------------------------------------------- */

static void use_in_child(void *arg)
{
    struct link *link = arg;
    struct ch_patience patience = ample(&link->rig);
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);
    char byte = 0;
    int fd;

    CHOIR_CHECK_STATUS(ch_sock_listen(&addr, &fd), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_sock_accept(link->listener, &patience, &fd), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_sock_send_all(link->client, &byte, 1, &patience), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_sock_recv_all(link->client, &byte, 1, &patience), CHOIR_ERR_FORKED);
    link_down(link);
}

CHOIR_TEST(a_forked_child_cannot_use_the_connection)
{
    struct link link;
    struct ch_patience patience;
    char byte = 7;

    CHOIR_CHECK_OK(link_up(&link, AF_INET));
    choir_test_join(choir_test_fork(use_in_child, &link));
    patience = ample(&link.rig);
    CHOIR_CHECK_OK(ch_sock_send_all(link.client, &byte, 1, &patience));
    CHOIR_CHECK_OK(ch_sock_recv_all(link.server, &byte, 1, &patience));
    link_down(&link);
}
