/*
 * addr.h - where a TCP socket is: an IPv4 or IPv6 address and a port.
 *
 * In text "10.0.0.2:4711", "[fe80::1%2]:4711" or "host:4711". An address printed by ch_addr_text()
 * is parsed back by ch_addr_parse() to the same address. Parsing asks nobody; only ch_addr_lookup()
 * may ask a name server, and it does so within a deadline.
 */
#ifndef CH_ADDR_H
#define CH_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <choir/status.h>

#include "io/patience.h"

enum {
    CH_ADDR_TEXT_MAX = 80, /* "[", 45 of address, "%" and 10 of scope, "]:65535", and some air */
    CH_ADDR_LIST_MAX = 16, /* how many addresses of one name are tried */
};

struct ch_addr {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t len;
};

struct ch_addr_list {
    int count;
    struct ch_addr addrs[CH_ADDR_LIST_MAX];
};

/* The loopback address and any address, of IPv4 (AF_INET) or IPv6 (AF_INET6). */
struct ch_addr ch_addr_loopback(int family, uint16_t port);
struct ch_addr ch_addr_wildcard(int family, uint16_t port);

/* Numbers only. CHOIR_ERR_INVALID, saying which part is wrong, for anything else. */
choir_status ch_addr_parse(const char *text, struct ch_addr *addr_out);

/* What the kernel filled in. An IPv4 address that came through an IPv6 socket (::ffff:10.0.0.2)
 * becomes plain IPv4. CHOIR_ERR_UNSUPPORTED if it is neither. */
choir_status ch_addr_from_kernel(const struct sockaddr_storage *from, struct ch_addr *addr_out);

/* Into `buf` of CH_ADDR_TEXT_MAX, which is returned. */
const char *ch_addr_text(const struct ch_addr *addr, char *buf);

uint16_t ch_addr_port(const struct ch_addr *addr);
bool ch_addr_is_loopback(const struct ch_addr *addr); /* 127.0.0.0/8, ::1 */
void ch_addr_set_port(struct ch_addr *addr, uint16_t port);
bool ch_addr_is_wildcard(const struct ch_addr *addr);
bool ch_addr_equal(const struct ch_addr *a, const struct ch_addr *b);

/*
 * All addresses of "host:port", best first. Numbers and "localhost" are answered without asking.
 * Blocks:  until the answer or the end of patience. The system's own look-up knows no deadline: it
 *          runs on a thread of its own, which after a time-out ends by itself and frees what it has.
 * Errors:  CHOIR_ERR_INVALID for bad text, CHOIR_ERR_NETWORK if the name has no address, and those of
 *          ch_wait().
 */
choir_status ch_addr_lookup(const char *text, const struct ch_patience *patience,
                            struct ch_addr_list *list_out);

#endif
