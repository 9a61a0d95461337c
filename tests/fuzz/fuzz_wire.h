/*
 * fuzz_wire.h - a connection whose other end is the fuzzer: what is received comes from its bytes, in
 * pieces whose sizes it chooses too, and what is sent is kept for the target to look at.
 *
 * The descriptor is an eventfd that is always readable and writable, so event loops and waits run as
 * they do in earnest; only the calls that move bytes are replaced.
 */
#ifndef CH_FUZZ_WIRE_H
#define CH_FUZZ_WIRE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

enum { FUZZ_SENT_MAX = 1 << 20 };

static struct {
    const unsigned char *bytes; /* still to be received */
    size_t left;
    unsigned pace; /* from the fuzzer: how large the pieces are */
    unsigned char sent[FUZZ_SENT_MAX];
    size_t nsent;
} wire;

static inline void fuzz_check(bool holds)
{
    if (!holds)
        abort();
}

/* Between one byte and all, different each time. */
static inline size_t fuzz_piece(size_t most)
{
    size_t n;

    wire.pace = wire.pace * 1103515245u + 12345u;
    n = wire.pace >> 16 & 1 ? most : 1 + (wire.pace >> 17) % 64;
    return n < most ? n : most;
}

static ssize_t fuzz_recvmsg(int fd, struct msghdr *msg)
{
    size_t n = msg->msg_iov[0].iov_len < wire.left ? msg->msg_iov[0].iov_len : wire.left;

    (void)fd;
    if (n > 0) {
        n = fuzz_piece(n);
        memcpy(msg->msg_iov[0].iov_base, wire.bytes, n);
        wire.bytes += n;
        wire.left -= n;
    }
    return (ssize_t)n; /* 0: the other end has closed */
}

/* What does not fit is thrown away: the target says how much it expects. */
static ssize_t fuzz_sendmsg(int fd, const struct msghdr *msg)
{
    size_t n = fuzz_piece(msg->msg_iov[0].iov_len);

    (void)fd;
    if (n <= sizeof(wire.sent) - wire.nsent) {
        memcpy(wire.sent + wire.nsent, msg->msg_iov[0].iov_base, n);
        wire.nsent += n;
    } else {
        wire.nsent = sizeof(wire.sent);
    }
    return (ssize_t)n;
}

static int fuzz_setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
    (void)fd;
    (void)level;
    (void)option;
    (void)value;
    (void)len;
    return 0;
}

static inline void fuzz_install(void)
{
    static struct ch_sys_ops ops;

    ops = ch_sys_real;
    ops.recvmsg = fuzz_recvmsg;
    ops.sendmsg = fuzz_sendmsg;
    ops.setsockopt = fuzz_setsockopt;
    ch_sys_replace(&ops);
}

/* A connection that will receive `bytes`. */
static inline int fuzz_connect(const unsigned char *bytes, size_t nbytes, unsigned pace)
{
    int fd = ch_sys_eventfd(1);

    wire.bytes = bytes;
    wire.left = nbytes;
    wire.pace = pace;
    wire.nsent = 0;
    fuzz_check(fd >= 0);
    return fd;
}

#endif
