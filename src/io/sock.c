/*
 * sock.c - TCP sockets. See sock.h.
 */
#include "io/sock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "base/error.h"
#include "base/sys.h"

/* How long one address of several may stay silent when the caller would wait for ever. */
#define SILENT_ADDRESS_NS (10 * (uint64_t)CH_S)

/* --- addresses of a socket --------------------------------------------------------------------- */

choir_status ch_sock_local_addr(int fd, struct ch_addr *addr_out)
{
    struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof(ss);

    if (ch_sys_getsockname(fd, (struct sockaddr *)&ss, &len) != 0)
        return ch_fail_errno("socket %d: ask for its local address", fd);
    return ch_addr_from_kernel(&ss, addr_out);
}

choir_status ch_sock_peer_addr(int fd, struct ch_addr *addr_out)
{
    struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof(ss);

    if (ch_sys_getpeername(fd, (struct sockaddr *)&ss, &len) != 0)
        return ch_fail_errno("socket %d: ask for its peer's address", fd);
    return ch_addr_from_kernel(&ss, addr_out);
}

choir_status ch_sock_route(const struct ch_addr *to, struct ch_addr *addr_out)
{
    int fd = ch_sys_socket(to->any.sa_family, SOCK_DGRAM, 0);
    choir_status rc;

    if (fd < 0)
        return ch_fail_errno("find the way to another host: socket");
    /* Connecting a datagram socket sends nothing: it only picks the way. */
    if (ch_sys_connect(fd, &to->any, to->len) != 0)
        rc = ch_fail_errno("find the way to another host");
    else
        rc = ch_sock_local_addr(fd, addr_out);
    ch_sys_close(fd);
    if (rc == CHOIR_OK)
        ch_addr_set_port(addr_out, 0);
    return rc;
}

/* One of the two in words, for an error text; leaves the error that is being put into words alone. */
static const char *addr_text(int fd, choir_status (*ask)(int, struct ch_addr *), char *buf)
{
    int keep = errno;
    choir_error before;
    struct ch_addr addr;

    ch_error_save(&before);
    if (ask(fd, &addr) != CHOIR_OK)
        addr = (struct ch_addr){ .len = 0 };
    ch_error_load(&before);
    errno = keep;
    return ch_addr_text(&addr, buf);
}

static const char *peer_text(int fd, char *buf)
{
    return addr_text(fd, ch_sock_peer_addr, buf);
}

static const char *local_text(int fd, char *buf)
{
    return addr_text(fd, ch_sock_local_addr, buf);
}

/* --- listening --------------------------------------------------------------------------------- */

static int set_int(int fd, int level, int option, int value)
{
    return ch_sys_setsockopt(fd, level, option, &value, sizeof(value));
}

static choir_status listen_on(int fd, const struct ch_addr *addr)
{
    char text[CH_ADDR_TEXT_MAX];

    ch_addr_text(addr, text);
    /* A restarted server must not wait for the old one's connections to leave TIME_WAIT. */
    if (set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0)
        return ch_fail_errno("listen on %s: SO_REUSEADDR", text);
    if (addr->any.sa_family == AF_INET6 && set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) != 0)
        return ch_fail_errno("listen on %s: clear IPV6_V6ONLY", text);
    if (ch_sys_bind(fd, &addr->any, addr->len) != 0)
        return ch_fail_errno("listen on %s: bind", text);
    if (ch_sys_listen(fd, SOMAXCONN) != 0)
        return ch_fail_errno("listen on %s", text);
    return CHOIR_OK;
}

choir_status ch_sock_listen(const struct ch_addr *addr, int *fd_out)
{
    char text[CH_ADDR_TEXT_MAX];
    int fd = ch_sys_socket(addr->any.sa_family, SOCK_STREAM, 0);
    choir_status rc;

    if (fd < 0)
        return ch_fail_errno("listen on %s: socket", ch_addr_text(addr, text));
    rc = listen_on(fd, addr);
    if (rc != CHOIR_OK) {
        ch_sys_close(fd);
        return rc;
    }
    *fd_out = fd;
    return CHOIR_OK;
}

/* accept(2) also hands out errors of a connection that has gone again; they say nothing about the
 * listener. */
static bool is_somebody_elses(int err)
{
    switch (err) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

choir_status ch_sock_accept_now(int listener, int *fd_out)
{
    char text[CH_ADDR_TEXT_MAX];
    int fd = ch_sys_accept(listener, NULL, NULL);

    if (fd < 0 && (errno == EAGAIN || is_somebody_elses(errno)))
        return CHOIR_IN_PROGRESS;
    if (fd < 0)
        return ch_fail_errno("accept on %s", local_text(listener, text));
    if (set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1) != 0) {
        choir_status rc = ch_fail_errno("accept on %s: TCP_NODELAY", local_text(listener, text));

        ch_sys_close(fd);
        return rc;
    }
    *fd_out = fd;
    return CHOIR_OK;
}

choir_status ch_sock_accept(int listener, const struct ch_patience *patience, int *fd_out)
{
    char text[CH_ADDR_TEXT_MAX];

    for (;;) {
        choir_status rc = ch_sock_accept_now(listener, fd_out);

        if (rc != CHOIR_IN_PROGRESS)
            return rc;
        rc = ch_patience_wait(patience, listener, POLLIN, "a connection");
        if (rc != CHOIR_OK) {
            ch_error_prefix("accept on %s: ", local_text(listener, text));
            return rc;
        }
    }
}

/* --- connecting -------------------------------------------------------------------------------- */

/* Who connects to a port of its own host on which nobody listens may be given that very port as its
 * own and, by TCP's simultaneous open, meet itself. To us nobody answered. */
static choir_status check_not_ourselves(int fd, const char *text)
{
    struct ch_addr local, peer;
    choir_status rc = ch_sock_local_addr(fd, &local);

    if (rc == CHOIR_OK)
        rc = ch_sock_peer_addr(fd, &peer);
    if (rc == CHOIR_OK && ch_addr_equal(&local, &peer))
        rc = ch_fail(CHOIR_ERR_NETWORK, "nobody listens there, the socket met itself");
    if (rc != CHOIR_OK)
        ch_error_prefix("connect to %s: ", text);
    return rc;
}

/* One attempt on a fresh socket, up to the end of its handshake. */
static choir_status shake_hands(int fd, const struct ch_addr *addr, const char *text,
                                const struct ch_patience *patience)
{
    int err = 0;
    socklen_t len = sizeof(err);
    choir_status rc;

    while (ch_sys_connect(fd, &addr->any, addr->len) != 0 && errno != EISCONN) {
        if (errno == EINTR)
            continue; /* the next call says EALREADY, if it is under way */
        if (errno != EINPROGRESS && errno != EALREADY)
            return ch_fail_errno("connect to %s", text);
        rc = ch_patience_wait(patience, fd, POLLOUT, "the other end to answer");
        if (rc != CHOIR_OK) {
            ch_error_prefix("connect to %s: ", text);
            return rc;
        }
        if (ch_sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
            return ch_fail_errno("connect to %s: ask how it went", text);
        if (err == 0)
            break;
        errno = err;
        return ch_fail_errno("connect to %s", text);
    }
    if (set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1) != 0)
        return ch_fail_errno("connect to %s: TCP_NODELAY", text);
    return check_not_ourselves(fd, text);
}

choir_status ch_sock_connect_addr(const struct ch_addr *addr, const struct ch_patience *patience,
                                  int *fd_out)
{
    char text[CH_ADDR_TEXT_MAX];
    choir_status rc;
    int fd;

    ch_addr_text(addr, text);
    if (ch_addr_port(addr) == 0)
        return ch_fail(CHOIR_ERR_INVALID, "connect to %s: port 0 is nobody's", text);
    fd = ch_sys_socket(addr->any.sa_family, SOCK_STREAM, 0);
    if (fd < 0)
        return ch_fail_errno("connect to %s: socket", text);
    rc = shake_hands(fd, addr, text, patience);
    if (rc != CHOIR_OK) {
        ch_sys_close(fd);
        return rc;
    }
    *fd_out = fd;
    return CHOIR_OK;
}

/* A fair share of what is left for the first of `naddrs` addresses. */
static ch_deadline share_of(ch_deadline until, int naddrs)
{
    uint64_t now = ch_now();

    if (naddrs == 1 || now >= until)
        return until;
    if (until == CH_NEVER)
        return now + SILENT_ADDRESS_NS;
    return now + (until - now) / (uint64_t)naddrs;
}

/* Whether the next address may fare better. */
static bool is_worth_another(choir_status rc, const struct ch_patience *patience)
{
    if (rc == CHOIR_ERR_INTERRUPTED || rc == CHOIR_ERR_REMOTE || rc == CHOIR_ERR_FORKED)
        return false;
    return rc != CHOIR_ERR_TIMEOUT || !ch_deadline_passed(patience->until);
}

choir_status ch_sock_connect(const char *text, const struct ch_patience *patience, int *fd_out)
{
    struct ch_addr_list list;
    choir_status rc = ch_addr_lookup(text, patience, &list);

    if (rc != CHOIR_OK) {
        ch_error_prefix("connect to %s: ", text);
        return rc;
    }
    for (int i = 0; i < list.count; i++) {
        struct ch_patience share = *patience;

        share.until = share_of(patience->until, list.count - i);
        rc = ch_sock_connect_addr(&list.addrs[i], &share, fd_out);
        if (rc == CHOIR_OK)
            return CHOIR_OK;
        if (!is_worth_another(rc, patience)) {
            ch_error_prefix("%s, address %d of %d: ", text, i + 1, list.count);
            return rc;
        }
    }
    if (list.count > 1)
        ch_error_prefix("%s has %d addresses, none worked, the last: ", text, list.count);
    return rc;
}

/* --- bytes ------------------------------------------------------------------------------------- */

choir_status ch_sock_send_now(int fd, const void *buf, size_t nbytes, size_t *done_out)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = nbytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    char text[CH_ADDR_TEXT_MAX];
    ssize_t n = ch_sys_sendmsg(fd, &msg);

    if (n >= 0) {
        *done_out = (size_t)n;
        return CHOIR_OK;
    }
    if (errno == EAGAIN || errno == EINTR)
        return CHOIR_IN_PROGRESS;
    return ch_fail_errno("send %zu bytes to %s", nbytes, peer_text(fd, text));
}

choir_status ch_sock_recv_now(int fd, void *buf, size_t nbytes, size_t *done_out)
{
    struct iovec iov = { .iov_base = buf, .iov_len = nbytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    char text[CH_ADDR_TEXT_MAX];
    ssize_t n = ch_sys_recvmsg(fd, &msg);

    if (n > 0 || nbytes == 0) {
        *done_out = n > 0 ? (size_t)n : 0;
        return CHOIR_OK;
    }
    if (n == 0)
        return ch_fail(CHOIR_ERR_NETWORK, "receive %zu bytes from %s: closed by the peer", nbytes,
                       peer_text(fd, text));
    if (errno == EAGAIN || errno == EINTR)
        return CHOIR_IN_PROGRESS;
    return ch_fail_errno("receive %zu bytes from %s", nbytes, peer_text(fd, text));
}

/* What a wait in the middle of a transfer adds to its error: how far it got. */
static choir_status gave_up(choir_status rc, const char *verb, int fd, size_t done, size_t nbytes)
{
    char text[CH_ADDR_TEXT_MAX];

    ch_error_prefix("%s %s: %zu of %zu bytes done: ", verb, peer_text(fd, text), done, nbytes);
    return rc;
}

choir_status ch_sock_send_all(int fd, const void *buf, size_t nbytes,
                              const struct ch_patience *patience)
{
    size_t done = 0;

    while (done < nbytes) {
        size_t n = 0;
        choir_status rc = ch_sock_send_now(fd, (const char *)buf + done, nbytes - done, &n);

        if (rc == CHOIR_IN_PROGRESS) {
            rc = ch_patience_wait(patience, fd, POLLOUT, "room to send");
            if (rc != CHOIR_OK)
                return gave_up(rc, "send to", fd, done, nbytes);
        } else if (rc != CHOIR_OK) {
            return rc;
        }
        done += n;
    }
    return CHOIR_OK;
}

choir_status ch_sock_recv_all(int fd, void *buf, size_t nbytes, const struct ch_patience *patience)
{
    size_t done = 0;

    while (done < nbytes) {
        size_t n = 0;
        choir_status rc = ch_sock_recv_now(fd, (char *)buf + done, nbytes - done, &n);

        if (rc == CHOIR_IN_PROGRESS) {
            rc = ch_patience_wait(patience, fd, POLLIN, "bytes");
            if (rc != CHOIR_OK)
                return gave_up(rc, "receive from", fd, done, nbytes);
        } else if (rc != CHOIR_OK) {
            return rc;
        }
        done += n;
    }
    return CHOIR_OK;
}

/* --- a peer that vanishes ---------------------------------------------------------------------- */

choir_status ch_sock_detect_loss(int fd, int within_ms)
{
    enum { PROBES = 2, LEAST_MS = 3000, MOST_MS = 3600 * 1000 };
    int within = within_ms < LEAST_MS ? LEAST_MS : within_ms > MOST_MS ? MOST_MS : within_ms;
    /* The first probe goes out after a third; each unanswered one costs another third. */
    int third_s = within / 1000 / (PROBES + 1);
    const struct {
        int level, option, value;
        const char *name;
    } options[] = {
        { IPPROTO_TCP, TCP_KEEPIDLE, third_s, "TCP_KEEPIDLE" },
        { IPPROTO_TCP, TCP_KEEPINTVL, third_s, "TCP_KEEPINTVL" },
        { IPPROTO_TCP, TCP_KEEPCNT, PROBES, "TCP_KEEPCNT" },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, within, "TCP_USER_TIMEOUT" },
        { SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++) {
        if (set_int(fd, options[i].level, options[i].option, options[i].value) != 0)
            return ch_fail_errno("connection %d: set %s to %d", fd, options[i].name,
                                 options[i].value);
    }
    return CHOIR_OK;
}
