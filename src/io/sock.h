/*
 * sock.h - TCP sockets: nonblocking, with a deadline on everything that waits.
 *
 * Two kinds of call. Those that take a ch_patience wait on the caller's thread, and can be
 * interrupted and poisoned like every wait. Those that end in _now never wait and return
 * CHOIR_IN_PROGRESS where they would have to: for event loops.
 *
 * Errors name what was tried, the other end's address and what was seen. A peer that closed or
 * reset is CHOIR_ERR_NETWORK. Every connection has TCP_NODELAY: we send whole messages.
 *
 * What a rank tells others about itself is the local end of a connection it already has
 * (ch_sock_local_addr()), which the others' packets are known to reach; a host's own name looked up
 * is often 127.0.1.1, or another network's.
 */
#ifndef CH_SOCK_H
#define CH_SOCK_H

#include <stddef.h>

#include <choir/status.h>

#include "io/addr.h"
#include "io/patience.h"

/* Listen on `addr`; with port 0 the kernel picks one, which ch_sock_local_addr() tells. "[::]" takes
 * IPv4 connections too. *fd_out is the caller's, to end with ch_sys_close(), as everywhere here. */
choir_status ch_sock_listen(const struct ch_addr *addr, int *fd_out);

choir_status ch_sock_local_addr(int fd, struct ch_addr *addr_out);
choir_status ch_sock_peer_addr(int fd, struct ch_addr *addr_out);

/* Our address on the way to `to`, without asking anybody but the routing table; its port is 0. */
choir_status ch_sock_route(const struct ch_addr *to, struct ch_addr *addr_out);

/* The next connection. One that was given up before we took it is passed over. */
choir_status ch_sock_accept(int listener, const struct ch_patience *patience, int *fd_out);
choir_status ch_sock_accept_now(int listener, int *fd_out);

/* Connect to "host:port": to every address of it in turn, until one answers or patience ends; an
 * address that says nothing gets its share of the time left, not all of it. */
choir_status ch_sock_connect(const char *text, const struct ch_patience *patience, int *fd_out);

/* The same to one address. */
choir_status ch_sock_connect_addr(const struct ch_addr *addr, const struct ch_patience *patience,
                                  int *fd_out);

/* Exactly `nbytes`, or an error. After an error it is unknown how many bytes went. */
choir_status ch_sock_send_all(int fd, const void *buf, size_t nbytes,
                              const struct ch_patience *patience);
choir_status ch_sock_recv_all(int fd, void *buf, size_t nbytes, const struct ch_patience *patience);

/* As many as go now, at least one of the `nbytes` asked for (or CHOIR_IN_PROGRESS). */
choir_status ch_sock_send_now(int fd, const void *buf, size_t nbytes, size_t *done_out);
choir_status ch_sock_recv_now(int fd, void *buf, size_t nbytes, size_t *done_out);

/* Have the kernel end the connection with ETIMEDOUT when the other host has not been heard of for
 * about that long (whole seconds, three to an hour): keepalive while idle, TCP_USER_TIMEOUT while data
 * is under way. */
choir_status ch_sock_detect_loss(int fd, int within_ms);

#endif
