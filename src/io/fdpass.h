/*
 * fdpass.h - pass descriptors to another process of this host: segments, doorbells, pidfds.
 *
 * Over AF_UNIX sockets with SCM_RIGHTS. Processes that do not share a parent meet at an abstract
 * socket (no file, nothing to clean up) whose name is 128 random bits, announced through the store.
 * Whoever answers or calls must be of our own user: the kernel says who it is (SO_PEERCRED), the peer
 * is not asked. What it then sends is still not believed: it must be one whole message of our
 * version, not longer than expected, with exactly the number of descriptors expected. Anything else
 * is an error, within the deadline, and every descriptor that came with it is closed.
 *
 * A message (SOCK_SEQPACKET keeps it in one piece), in the host's byte order, as it never leaves it:
 *
 *   offset  bytes  field
 *        0      4  magic    CH_FDPASS_MAGIC
 *        4      2  version  CH_FDPASS_VERSION
 *        6      2  nfds     descriptors that come along, at most CH_FDPASS_FDS_MAX
 *        8      4  nbytes   bytes that follow, at most CH_FDPASS_BYTES_MAX
 *       12      4  zero
 *       16 nbytes  the caller's
 */
#ifndef CH_FDPASS_H
#define CH_FDPASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "io/patience.h"

#define CH_FDPASS_MAGIC  UINT32_C(0x73664843) /* "CHfs" */
#define CH_FDPASS_PREFIX "choir-"

enum {
    CH_FDPASS_VERSION = 1,
    CH_FDPASS_FDS_MAX = 48,
    CH_FDPASS_BYTES_MAX = 4096,
    CH_FDPASS_NAME_MAX = sizeof(CH_FDPASS_PREFIX) + 32, /* prefix, 32 hexadecimal digits, NUL */
};

struct ch_fdpass_header {
    uint32_t magic;
    uint16_t version;
    uint16_t nfds;
    uint32_t nbytes;
    uint32_t zero;
};
_Static_assert(sizeof(struct ch_fdpass_header) == 16, "as in the table above");
_Static_assert(offsetof(struct ch_fdpass_header, nbytes) == 8, "as in the table above");

/* --- meeting ----------------------------------------------------------------------------------- */

struct ch_fdpass_listener {
    int fd;
    char name[CH_FDPASS_NAME_MAX]; /* what peers pass to ch_fdpass_connect() */
};

choir_status ch_fdpass_listen(struct ch_fdpass_listener *listener_out);
void ch_fdpass_unlisten(struct ch_fdpass_listener *listener);

/* Whether nobody listens there any more: whoever announced the name has ended, or does not wait. False if it
 * cannot be known. Does not block. */
bool ch_fdpass_is_gone(const char *name);

/* The next peer of our own user. Another user's is turned away: CHOIR_ERR_PERMISSION, and the caller
 * may ask for the next. *fd_out ends with ch_sys_close(), as all descriptors here. */
choir_status ch_fdpass_accept(const struct ch_fdpass_listener *listener,
                              const struct ch_patience *patience, int *fd_out);

/* `name` comes from a peer, through the store, and is checked like everything that does. */
choir_status ch_fdpass_connect(const char *name, const struct ch_patience *patience, int *fd_out);

/* Two ends at once, for a child that will inherit one. */
choir_status ch_fdpass_pair(int fds_out[2]);

/* --- messages ---------------------------------------------------------------------------------- */

/* Send `nbytes` and copies of `nfds` descriptors; ours stay open. */
choir_status ch_fdpass_send(int sock, const void *bytes, size_t nbytes, const int *fds, int nfds,
                            const struct ch_patience *patience);

/* Receive a message of at most `max` bytes and exactly `nfds` descriptors.
 * Errors: CHOIR_ERR_PROTO for any other message, CHOIR_ERR_NETWORK for a peer that closed. */
choir_status ch_fdpass_recv(int sock, void *bytes, size_t max, size_t *nbytes_out, int *fds_out,
                            int nfds, const struct ch_patience *patience);

#endif
