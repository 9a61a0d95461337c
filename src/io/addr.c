/*
 * addr.c - addresses in text and in numbers, and asking for the numbers of a name. See addr.h.
 */
#include "io/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sys.h"

enum { HOST_MAX = 254 }; /* a domain name has at most 253 characters */

struct ch_addr ch_addr_loopback(int family, uint16_t port)
{
    struct ch_addr addr = ch_addr_wildcard(family, port);

    if (family == AF_INET6)
        addr.v6.sin6_addr = in6addr_loopback;
    else
        addr.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

struct ch_addr ch_addr_wildcard(int family, uint16_t port)
{
    struct ch_addr addr;

    memset(&addr, 0, sizeof(addr));
    addr.any.sa_family = (sa_family_t)family;
    if (family == AF_INET6) {
        addr.v6.sin6_port = htons(port);
        addr.len = sizeof(addr.v6);
    } else {
        addr.v4.sin_port = htons(port);
        addr.len = sizeof(addr.v4);
    }
    return addr;
}

uint16_t ch_addr_port(const struct ch_addr *addr)
{
    return ntohs(addr->any.sa_family == AF_INET6 ? addr->v6.sin6_port : addr->v4.sin_port);
}

bool ch_addr_is_loopback(const struct ch_addr *addr)
{
    if (addr->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&addr->v6.sin6_addr);
    return addr->any.sa_family == AF_INET && ntohl(addr->v4.sin_addr.s_addr) >> 24 == 127;
}

void ch_addr_set_port(struct ch_addr *addr, uint16_t port)
{
    if (addr->any.sa_family == AF_INET6)
        addr->v6.sin6_port = htons(port);
    else
        addr->v4.sin_port = htons(port);
}

bool ch_addr_is_wildcard(const struct ch_addr *addr)
{
    struct ch_addr wildcard = ch_addr_wildcard(addr->any.sa_family, ch_addr_port(addr));

    return ch_addr_equal(addr, &wildcard);
}

bool ch_addr_equal(const struct ch_addr *a, const struct ch_addr *b)
{
    if (a->any.sa_family != b->any.sa_family || ch_addr_port(a) != ch_addr_port(b))
        return false;
    if (a->any.sa_family == AF_INET6)
        return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr)) == 0 &&
               a->v6.sin6_scope_id == b->v6.sin6_scope_id;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

const char *ch_addr_text(const struct ch_addr *addr, char *buf)
{
    char host[INET6_ADDRSTRLEN] = "?", scope[16] = "";

    if (addr->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &addr->v4.sin_addr, host, sizeof(host));
        snprintf(buf, CH_ADDR_TEXT_MAX, "%s:%u", host, ch_addr_port(addr));
    } else if (addr->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &addr->v6.sin6_addr, host, sizeof(host));
        if (addr->v6.sin6_scope_id != 0)
            snprintf(scope, sizeof(scope), "%%%u", addr->v6.sin6_scope_id);
        snprintf(buf, CH_ADDR_TEXT_MAX, "[%s%s]:%u", host, scope, ch_addr_port(addr));
    } else {
        snprintf(buf, CH_ADDR_TEXT_MAX, "(no address)");
    }
    return buf;
}

choir_status ch_addr_from_kernel(const struct sockaddr_storage *from, struct ch_addr *addr_out)
{
    struct ch_addr addr;

    memset(&addr, 0, sizeof(addr));
    if (from->ss_family == AF_INET) {
        memcpy(&addr.v4, from, sizeof(addr.v4));
        addr.len = sizeof(addr.v4);
    } else if (from->ss_family == AF_INET6) {
        memcpy(&addr.v6, from, sizeof(addr.v6));
        addr.len = sizeof(addr.v6);
        if (IN6_IS_ADDR_V4MAPPED(&addr.v6.sin6_addr)) {
            struct ch_addr plain = ch_addr_wildcard(AF_INET, ch_addr_port(&addr));

            memcpy(&plain.v4.sin_addr, &addr.v6.sin6_addr.s6_addr[12], 4);
            addr = plain;
        }
    } else {
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "address family %d is neither IPv4 nor IPv6",
                       from->ss_family);
    }
    *addr_out = addr;
    return CHOIR_OK;
}

/* --- text -------------------------------------------------------------------------------------- */

struct host_port {
    char host[HOST_MAX];
    uint16_t port;
    bool bracketed; /* so it is IPv6 and nothing else */
};

/* Digits and nothing else, at most `max`. */
static bool parse_number(const char *text, unsigned long max, unsigned long *value_out)
{
    unsigned long value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned long)(*text - '0');
        if (value > max)
            return false;
    }
    *value_out = value;
    return true;
}

static choir_status split(const char *text, struct host_port *out)
{
    const char *host = text, *host_end, *colon;
    unsigned long port;

    out->bracketed = text[0] == '[';
    if (out->bracketed) {
        host = text + 1;
        host_end = strchr(host, ']');
        if (host_end == NULL)
            return ch_fail(CHOIR_ERR_INVALID, "address \"%s\": \"[\" without \"]\"", text);
        colon = host_end + 1;
    } else {
        colon = host_end = strrchr(text, ':');
        if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL)
            return ch_fail(CHOIR_ERR_INVALID,
                           "address \"%s\": an IPv6 address goes in brackets: [::1]:4711", text);
    }
    if (colon == NULL || *colon != ':')
        return ch_fail(CHOIR_ERR_INVALID, "address \"%s\": no \":port\" at its end", text);
    if (!parse_number(colon + 1, UINT16_MAX, &port))
        return ch_fail(CHOIR_ERR_INVALID, "address \"%s\": \"%s\" is not a port, 0 to 65535", text,
                       colon + 1);
    if (host_end == host)
        return ch_fail(CHOIR_ERR_INVALID, "address \"%s\": the host is empty", text);
    if ((size_t)(host_end - host) >= sizeof(out->host))
        return ch_fail(CHOIR_ERR_INVALID,
                       "address \"%.40s...\": the host has more than %d characters", text,
                       HOST_MAX - 1);
    memcpy(out->host, host, (size_t)(host_end - host));
    out->host[host_end - host] = '\0';
    out->port = (uint16_t)port;
    return CHOIR_OK;
}

/* "fe80::1%2": the scope as a number. As an interface's name it takes a look-up. */
static bool parse_v6(const char *host, uint16_t port, struct ch_addr *addr_out)
{
    struct ch_addr addr = ch_addr_wildcard(AF_INET6, port);
    char digits[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t len = percent != NULL ? (size_t)(percent - host) : strlen(host);
    unsigned long scope = 0;

    if (len >= sizeof(digits))
        return false;
    memcpy(digits, host, len);
    digits[len] = '\0';
    if (inet_pton(AF_INET6, digits, &addr.v6.sin6_addr) != 1)
        return false;
    if (percent != NULL && !parse_number(percent + 1, UINT32_MAX, &scope))
        return false;
    addr.v6.sin6_scope_id = (uint32_t)scope;
    *addr_out = addr;
    return true;
}

static bool parse_numeric(const struct host_port *hp, struct ch_addr *addr_out)
{
    struct ch_addr addr = ch_addr_wildcard(AF_INET, hp->port);

    if (hp->bracketed)
        return parse_v6(hp->host, hp->port, addr_out);
    if (inet_pton(AF_INET, hp->host, &addr.v4.sin_addr) != 1)
        return false;
    *addr_out = addr;
    return true;
}

choir_status ch_addr_parse(const char *text, struct ch_addr *addr_out)
{
    struct host_port hp;
    choir_status rc = split(text, &hp);

    if (rc != CHOIR_OK)
        return rc;
    if (!parse_numeric(&hp, addr_out))
        return ch_fail(CHOIR_ERR_INVALID, "address \"%s\": not an %s address in numbers", text,
                       hp.bracketed ? "IPv6" : "IPv4");
    return CHOIR_OK;
}

/* --- names ------------------------------------------------------------------------------------- */

/* The answer, as it travels from the thread that looks up to the one that waits. Both are of this
 * process: the layout is nobody else's business. */
struct answer {
    int why;   /* EAI_ code when count is negative */
    int error; /* errno, for EAI_SYSTEM */
    int count;
    struct sockaddr_storage addrs[CH_ADDR_LIST_MAX];
};

/* What the looking thread owns. It shares no memory with the waiting one, which may be gone by the
 * time a name server answers: the answer goes through a socket pair, and closing their end is all
 * either of them has to do to be rid of the other. Closing cannot fail. */
struct lookup {
    int fd;
    char host[HOST_MAX];
};

static void *look_up(void *arg)
{
    struct lookup *lookup = arg;
    struct answer answer;
    struct iovec iov = { .iov_base = &answer, .iov_len = sizeof(answer) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    memset(&answer, 0, sizeof(answer));
    answer.why = EAI_SYSTEM;
    answer.count = ch_sys_lookup(lookup->host, answer.addrs, CH_ADDR_LIST_MAX, &answer.why);
    answer.error = errno;
    (void)!ch_sys_sendmsg(lookup->fd, &msg); /* fails if nobody waits any more, as it should */
    ch_sys_close(lookup->fd);
    ch_free(lookup);
    return NULL;
}

/* *fd_out becomes readable when there is an answer, or the end of it. */
static choir_status start_lookup(const char *host, int *fd_out)
{
    struct lookup *lookup = ch_zalloc(sizeof(*lookup));
    int fds[2];
    pthread_t thread;

    if (lookup == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "look up \"%s\": no memory for the question", host);
    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    if (ch_sys_socketpair(AF_UNIX, SOCK_SEQPACKET, fds) != 0) {
        ch_free(lookup);
        return ch_fail_errno("look up \"%s\": socket pair for the answer", host);
    }
    lookup->fd = fds[1];
    if (ch_sys_thread_create(&thread, look_up, lookup) != 0) {
        choir_status rc = ch_fail_errno("look up \"%s\": start a thread for it", host);

        ch_sys_close(fds[0]);
        ch_sys_close(fds[1]);
        ch_free(lookup);
        return rc;
    }
    pthread_detach(thread);
    *fd_out = fds[0];
    return CHOIR_OK;
}

static choir_status receive_answer(const char *host, int fd, const struct ch_patience *patience,
                                   struct answer *answer_out)
{
    struct iovec iov = { .iov_base = answer_out, .iov_len = sizeof(*answer_out) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    for (;;) {
        choir_status rc = ch_patience_wait(patience, fd, POLLIN, "the addresses of a name");
        ssize_t n;

        if (rc != CHOIR_OK) {
            ch_error_prefix("look up \"%s\": ", host);
            return rc;
        }
        n = ch_sys_recvmsg(fd, &msg);
        if (n == (ssize_t)sizeof(*answer_out))
            return CHOIR_OK;
        if (n >= 0)
            return ch_fail(CHOIR_ERR_SYSTEM, "look up \"%s\": its thread ended without an answer",
                           host);
        if (errno != EAGAIN && errno != EINTR)
            return ch_fail_errno("look up \"%s\": receive the answer", host);
    }
}

static choir_status read_answer(const struct host_port *hp, const struct answer *answer,
                                struct ch_addr_list *list)
{
    if (answer->count < 0 && answer->why == EAI_SYSTEM) {
        errno = answer->error;
        return ch_fail_errno("look up \"%s\"", hp->host);
    }
    if (answer->count < 0)
        return ch_fail(CHOIR_ERR_NETWORK, "look up \"%s\": %s", hp->host,
                       gai_strerror(answer->why));
    for (int i = 0; i < answer->count; i++) {
        struct ch_addr *addr = &list->addrs[list->count];

        if (ch_addr_from_kernel(&answer->addrs[i], addr) != CHOIR_OK)
            continue;
        if (addr->any.sa_family == AF_INET6)
            addr->v6.sin6_port = htons(hp->port);
        else
            addr->v4.sin_port = htons(hp->port);
        list->count++;
    }
    if (list->count == 0)
        return ch_fail(CHOIR_ERR_NETWORK, "look up \"%s\": it has no IPv4 or IPv6 address",
                       hp->host);
    return CHOIR_OK;
}

static choir_status ask(const struct host_port *hp, const struct ch_patience *patience,
                        struct ch_addr_list *list)
{
    struct answer answer;
    choir_status rc;
    int fd = -1;

    rc = start_lookup(hp->host, &fd);
    if (rc != CHOIR_OK)
        return rc;
    rc = receive_answer(hp->host, fd, patience, &answer);
    ch_sys_close(fd);
    return rc == CHOIR_OK ? read_answer(hp, &answer, list) : rc;
}

choir_status ch_addr_lookup(const char *text, const struct ch_patience *patience,
                            struct ch_addr_list *list_out)
{
    struct ch_addr_list list = { .count = 0 };
    struct host_port hp;
    choir_status rc = split(text, &hp);

    if (rc != CHOIR_OK)
        return rc;
    if (parse_numeric(&hp, &list.addrs[0])) {
        list.count = 1;
    } else if (!hp.bracketed && strcasecmp(hp.host, "localhost") == 0) {
        /* RFC 6761: always the loopback; a name server's word on it is worth nothing. */
        list.addrs[0] = ch_addr_loopback(AF_INET, hp.port);
        list.addrs[1] = ch_addr_loopback(AF_INET6, hp.port);
        list.count = 2;
    } else if (hp.bracketed && strchr(hp.host, '%') == NULL) {
        return ch_addr_parse(text, &list.addrs[0]); /* for its words */
    } else {
        rc = ask(&hp, patience, &list);
    }
    if (rc == CHOIR_OK)
        *list_out = list;
    return rc;
}
