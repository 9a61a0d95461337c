/*
 * fdpass.c - passing descriptors, and not believing what arrives. See fdpass.h.
 */
#include "io/fdpass.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/sys.h"

/* --- who is there ------------------------------------------------------------------------------ */

static choir_status peer_of(int sock, struct ucred *cred_out)
{
    socklen_t len = sizeof(*cred_out);

    if (ch_sys_getsockopt(sock, SOL_SOCKET, SO_PEERCRED, cred_out, &len) != 0)
        return ch_fail_errno("descriptor passing: ask who the peer is");
    return CHOIR_OK;
}

static choir_status check_peer(int sock)
{
    struct ucred cred;
    choir_status rc = peer_of(sock, &cred);

    if (rc == CHOIR_OK && cred.uid != geteuid())
        rc = ch_fail(CHOIR_ERR_PERMISSION,
                     "descriptor passing: the peer, process %d, is of user %u, not of ours, %u",
                     (int)cred.pid, (unsigned)cred.uid, (unsigned)geteuid());
    return rc;
}

/* Put the peer in front of an error text; the text stays as it is if the kernel does not say. */
static choir_status blame_peer(int sock, choir_status rc)
{
    choir_error why;
    struct ucred cred;

    ch_error_save(&why);
    if (peer_of(sock, &cred) != CHOIR_OK) {
        ch_error_load(&why);
        return rc;
    }
    ch_error_load(&why);
    ch_error_prefix("descriptors from process %d: ", (int)cred.pid);
    return rc;
}

/* --- meeting ----------------------------------------------------------------------------------- */

/* An abstract name starts with a NUL and has no other end than the length. */
static socklen_t abstract_address(const char *name, struct sockaddr_un *un_out)
{
    size_t len = strlen(name);

    memset(un_out, 0, sizeof(*un_out));
    un_out->sun_family = AF_UNIX;
    memcpy(un_out->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static choir_status random_name(char *name)
{
    unsigned char bits[16];
    size_t at = strlen(CH_FDPASS_PREFIX);

    if (ch_sys_random(bits, sizeof(bits)) != 0)
        return ch_fail_errno("descriptor passing: random bits for a socket's name");
    memcpy(name, CH_FDPASS_PREFIX, at);
    for (size_t i = 0; i < sizeof(bits); i++, at += 2)
        snprintf(name + at, CH_FDPASS_NAME_MAX - at, "%02x", bits[i]);
    return CHOIR_OK;
}

static bool is_name(const char *name)
{
    size_t prefix = strlen(CH_FDPASS_PREFIX);

    return strncmp(name, CH_FDPASS_PREFIX, prefix) == 0 && strlen(name) == CH_FDPASS_NAME_MAX - 1 &&
           strspn(name + prefix, "0123456789abcdef") == CH_FDPASS_NAME_MAX - 1 - prefix;
}

choir_status ch_fdpass_listen(struct ch_fdpass_listener *listener_out)
{
    struct ch_fdpass_listener listener = { .fd = -1 };
    struct sockaddr_un un;
    socklen_t len;
    choir_status rc = random_name(listener.name);

    if (rc != CHOIR_OK)
        return rc;
    len = abstract_address(listener.name, &un);
    listener.fd = ch_sys_socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (listener.fd < 0)
        return ch_fail_errno("descriptor passing: socket");
    if (ch_sys_bind(listener.fd, (struct sockaddr *)&un, len) != 0)
        rc = ch_fail_errno("descriptor passing: bind @%s", listener.name);
    else if (ch_sys_listen(listener.fd, SOMAXCONN) != 0)
        rc = ch_fail_errno("descriptor passing: listen on @%s", listener.name);
    if (rc != CHOIR_OK) {
        ch_fdpass_unlisten(&listener);
        return rc;
    }
    *listener_out = listener;
    return CHOIR_OK;
}

void ch_fdpass_unlisten(struct ch_fdpass_listener *listener)
{
    ch_sys_close(listener->fd);
    listener->fd = -1;
}

/* Hand the socket out if its other end is of our user, close it otherwise. */
static choir_status vet(int sock, int *fd_out)
{
    choir_status rc = check_peer(sock);

    if (rc != CHOIR_OK)
        ch_sys_close(sock);
    else
        *fd_out = sock;
    return rc;
}

choir_status ch_fdpass_accept(const struct ch_fdpass_listener *listener,
                              const struct ch_patience *patience, int *fd_out)
{
    for (;;) {
        int sock = ch_sys_accept(listener->fd, NULL, NULL);
        choir_status rc;

        if (sock >= 0)
            return vet(sock, fd_out);
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return ch_fail_errno("descriptor passing: accept on @%s", listener->name);
        rc = ch_patience_wait(patience, listener->fd, POLLIN, "a peer to connect");
        if (rc != CHOIR_OK) {
            ch_error_prefix("descriptor passing: accept on @%s: ", listener->name);
            return rc;
        }
    }
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* A unix socket whose listener's queue is full says EAGAIN, and no poll tells when to try again. */
static choir_status pause_a_little(const struct ch_patience *patience)
{
    ch_deadline next = ch_now() + CH_MS;
    struct ch_wait wait = { .waiter = patience->waiter,
                            .ready = never,
                            .until = next < patience->until ? next : patience->until,
                            .poison = patience->poison,
                            .what = "a place in the listener's queue" };
    choir_status rc = ch_wait(&wait);

    return rc == CHOIR_ERR_TIMEOUT && !ch_deadline_passed(patience->until) ? CHOIR_OK : rc;
}

choir_status ch_fdpass_connect(const char *name, const struct ch_patience *patience, int *fd_out)
{
    struct sockaddr_un un;
    socklen_t len;
    int sock;

    if (!is_name(name))
        return ch_fail(CHOIR_ERR_INVALID, "descriptor passing: \"%.60s\" is not a socket's name",
                       name);
    len = abstract_address(name, &un);
    sock = ch_sys_socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (sock < 0)
        return ch_fail_errno("descriptor passing to @%s: socket", name);
    while (ch_sys_connect(sock, (struct sockaddr *)&un, len) != 0) {
        choir_status rc = CHOIR_OK;

        if (errno == EAGAIN)
            rc = pause_a_little(patience);
        else if (errno != EINTR)
            rc = ch_fail_errno("connect");
        if (rc != CHOIR_OK) {
            ch_error_prefix("descriptor passing to @%s: ", name);
            ch_sys_close(sock);
            return rc;
        }
    }
    return vet(sock, fd_out);
}

bool ch_fdpass_is_gone(const char *name)
{
    struct sockaddr_un un;
    socklen_t len;
    bool gone;
    int sock;

    if (!is_name(name))
        return false;
    len = abstract_address(name, &un);
    sock = ch_sys_socket(AF_UNIX, SOCK_SEQPACKET, 0); /* which does not block */
    if (sock < 0)
        return false;
    gone = ch_sys_connect(sock, (struct sockaddr *)&un, len) != 0 && errno == ECONNREFUSED;
    ch_sys_close(sock);
    return gone;
}

choir_status ch_fdpass_pair(int fds_out[2])
{
    if (ch_sys_socketpair(AF_UNIX, SOCK_SEQPACKET, fds_out) != 0)
        return ch_fail_errno("descriptor passing: socket pair");
    return CHOIR_OK;
}

/* --- sending ----------------------------------------------------------------------------------- */

/* Room for the descriptors of one message, aligned as the kernel wants it. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * CH_FDPASS_FDS_MAX)];
};

static void attach_fds(struct msghdr *msg, union control *control, const int *fds, int nfds)
{
    size_t nbytes = sizeof(int) * (size_t)nfds;
    struct cmsghdr *cmsg;

    if (nfds == 0)
        return;
    memset(control, 0, sizeof(*control));
    msg->msg_control = control;
    msg->msg_controllen = CMSG_SPACE(nbytes);
    cmsg = CMSG_FIRSTHDR(msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(nbytes);
    memcpy(CMSG_DATA(cmsg), fds, nbytes);
}

choir_status ch_fdpass_send(int sock, const void *bytes, size_t nbytes, const int *fds, int nfds,
                            const struct ch_patience *patience)
{
    struct ch_fdpass_header header = { .magic = CH_FDPASS_MAGIC,
                                       .version = CH_FDPASS_VERSION,
                                       .nfds = (uint16_t)nfds,
                                       .nbytes = (uint32_t)nbytes };
    struct iovec iov[] = { { .iov_base = &header, .iov_len = sizeof(header) },
                           { .iov_base = (void *)(uintptr_t)bytes, .iov_len = nbytes } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = CH_ARRAY_LEN(iov) };
    union control control;

    if (nbytes > CH_FDPASS_BYTES_MAX || nfds < 0 || nfds > CH_FDPASS_FDS_MAX)
        return ch_fail(CHOIR_ERR_INVALID,
                       "descriptor passing: %zu bytes and %d descriptors, at most %d and %d",
                       nbytes, nfds, CH_FDPASS_BYTES_MAX, CH_FDPASS_FDS_MAX);
    attach_fds(&msg, &control, fds, nfds);
    while (ch_sys_sendmsg(sock, &msg) < 0) {
        choir_status rc;

        if (errno != EAGAIN && errno != EINTR)
            return ch_fail_errno("descriptor passing: send %d descriptors", nfds);
        rc = ch_patience_wait(patience, sock, POLLOUT, "room to send descriptors");
        if (rc != CHOIR_OK)
            return rc;
    }
    return CHOIR_OK;
}

/* --- receiving --------------------------------------------------------------------------------- */

/* What one recvmsg() brought, whether it was wanted or not. */
struct parcel {
    struct ch_fdpass_header header;
    ssize_t nbytes; /* with header */
    int flags;
    int nfds;
    int fds[sizeof(union control) / sizeof(int)]; /* as many as the kernel could put there */
    bool kept;                                    /* every one of them could be adopted */
};

static void close_all(const int *fds, int nfds)
{
    for (int i = 0; i < nfds; i++)
        ch_sys_close(fds[i]);
}

/* From here on every descriptor that came is ours, to use or to close. One that cannot be adopted
 * is closed already. */
static void unpack_fds(struct msghdr *msg, struct parcel *parcel)
{
    parcel->nfds = 0;
    parcel->kept = true;
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(fd));
            if (ch_sys_adopt_fd(fd))
                parcel->fds[parcel->nfds++] = fd;
            else
                parcel->kept = false;
        }
    }
}

/* One whole message, unchecked. The kernel may find the queue empty, and then the peer gone, which sent a message
 * in between: it says "end" (seen once in 20,000 times). So the end is only believed the second time. */
static choir_status take_parcel(int sock, void *bytes, size_t max,
                                const struct ch_patience *patience, struct parcel *parcel_out)
{
    bool ended = false;

    for (;;) {
        union control control;
        struct iovec iov[] = { { .iov_base = &parcel_out->header,
                                 .iov_len = sizeof(parcel_out->header) },
                               { .iov_base = bytes, .iov_len = max } };
        struct msghdr msg = { .msg_iov = iov,
                              .msg_iovlen = CH_ARRAY_LEN(iov),
                              .msg_control = &control,
                              .msg_controllen = sizeof(control) };
        choir_status rc;

        parcel_out->nbytes = ch_sys_recvmsg(sock, &msg);
        if (parcel_out->nbytes == 0 && msg.msg_controllen == 0 && !ended) {
            ended = true;
            continue;
        }
        if (parcel_out->nbytes >= 0) {
            parcel_out->flags = msg.msg_flags;
            unpack_fds(&msg, parcel_out);
            return CHOIR_OK;
        }
        if (errno != EAGAIN && errno != EINTR)
            return ch_fail_errno("receive");
        rc = ch_patience_wait(patience, sock, POLLIN, "descriptors");
        if (rc != CHOIR_OK)
            return rc;
    }
}

static choir_status check_parcel(const struct parcel *p, size_t max, int nfds)
{
    const struct ch_fdpass_header *h = &p->header;

    if (p->nbytes == 0 && p->nfds == 0)
        return ch_fail(CHOIR_ERR_NETWORK, "closed by the peer");
    if ((size_t)p->nbytes < sizeof(*h))
        return ch_fail(CHOIR_ERR_PROTO, "%zd bytes, a header has %zu", p->nbytes, sizeof(*h));
    if (h->magic != CH_FDPASS_MAGIC)
        return ch_fail(CHOIR_ERR_PROTO, "magic 0x%08x, expected 0x%08x: not one of us", h->magic,
                       CH_FDPASS_MAGIC);
    if (h->version != CH_FDPASS_VERSION || h->zero != 0)
        return ch_fail(CHOIR_ERR_PROTO, "message version %u, ours is %d", h->version,
                       CH_FDPASS_VERSION);
    if (h->nbytes > max || (p->flags & MSG_TRUNC) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "%u bytes announced, at most %zu expected", h->nbytes, max);
    if ((size_t)p->nbytes != sizeof(*h) + h->nbytes)
        return ch_fail(CHOIR_ERR_PROTO, "%zu bytes, %u announced", (size_t)p->nbytes - sizeof(*h),
                       h->nbytes);
    if ((p->flags & MSG_CTRUNC) != 0)
        return ch_fail(CHOIR_ERR_PROTO,
                       "not all descriptors arrived: more than %d, or no number free for them here",
                       CH_FDPASS_FDS_MAX);
    if (!p->kept)
        return ch_fail(CHOIR_ERR_SYSTEM, "a descriptor that came cannot be kept: number too high");
    if (p->nfds != h->nfds || p->nfds != nfds)
        return ch_fail(CHOIR_ERR_PROTO, "%d descriptors came, %u announced, %d expected", p->nfds,
                       h->nfds, nfds);
    return CHOIR_OK;
}

choir_status ch_fdpass_recv(int sock, void *bytes, size_t max, size_t *nbytes_out, int *fds_out,
                            int nfds, const struct ch_patience *patience)
{
    struct parcel parcel;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK)
        rc = take_parcel(sock, bytes, max, patience, &parcel);
    if (rc != CHOIR_OK)
        return blame_peer(sock, rc);
    rc = check_parcel(&parcel, max, nfds);
    if (rc != CHOIR_OK) {
        close_all(parcel.fds, parcel.nfds);
        return blame_peer(sock, rc);
    }
    if (nfds > 0) /* fds_out may be NULL otherwise */
        memcpy(fds_out, parcel.fds, sizeof(int) * (size_t)nfds);
    *nbytes_out = parcel.header.nbytes;
    return CHOIR_OK;
}
