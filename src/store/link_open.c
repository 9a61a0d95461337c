/*
 * link_open.c - connecting to a server of Choir's own protocol: try until it is there, then say hello.
 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sys.h"
#include "io/sock.h"
#include "store/link.h"
#include "store/link_call.h"

enum {
    FIRST_PAUSE_MS = 10,
    LONGEST_PAUSE_MS = 250,
    LOSS_MS = 30 * 1000, /* a server's host that is silent for so long is gone */
    /* A server with too many strangers sends some of them away; one of another protocol does it
     * always. So often it may be the former. */
    TURNED_AWAY_MAX = 20,
};

/* What a connection was tried for. */
struct attempt {
    struct ch_link *link;
    const choir_token *token;
    const struct ch_patience *patience;
    int tries;
    int turned_away; /* how often it was closed before any answer */
    uint64_t began;
};

/* --- hello --------------------------------------------------------------------------------------- */

static choir_status receive_challenge(const struct attempt *attempt, int fd,
                                      unsigned char challenge[CH_CHALLENGE_NBYTES])
{
    size_t done = 0;

    while (done < CH_CHALLENGE_NBYTES) {
        size_t n = 0;
        choir_status rc = ch_sock_recv_now(fd, challenge + done, CH_CHALLENGE_NBYTES - done, &n);

        if (rc == CHOIR_IN_PROGRESS)
            rc = ch_patience_wait(attempt->patience, fd, POLLIN,
                                  "the server's answer to our hello");
        done += n;
        if (rc == CHOIR_OK && n > 0)
            rc = ch_hello_begins(challenge, done);
        if (rc == CHOIR_ERR_PROTO)
            ch_error_prefix("what listens there is not a Choir store: it answered ");
        if (rc != CHOIR_OK)
            return rc;
    }
    return CHOIR_OK;
}

/* The server may have sent us away while our proof was under way, for want of room: only a reply shows
 * that we are in. So a first request goes along. */
static choir_status prove(const struct attempt *attempt, int fd,
                          const unsigned char proof[CH_PROOF_NBYTES])
{
    unsigned char bytes[CH_PROOF_NBYTES + CH_WIRE_HEAD_NBYTES], reply[CH_WIRE_HEAD_NBYTES];
    struct ch_wire_head ping = { .id = 0, .code = CH_OP_PING }, head;
    choir_status rc;

    memcpy(bytes, proof, CH_PROOF_NBYTES);
    ch_wire_put_head(bytes + CH_PROOF_NBYTES, &ping);
    rc = ch_sock_send_all(fd, bytes, sizeof(bytes), attempt->patience);
    if (rc == CHOIR_OK)
        rc = ch_sock_recv_all(fd, reply, sizeof(reply), attempt->patience);
    if (rc != CHOIR_OK)
        return rc;
    ch_wire_get_head(reply, &head);
    if (head.id != ping.id || head.code != CHOIR_OK || head.body_nbytes != 0)
        return ch_fail(CHOIR_ERR_PROTO, "the server's first reply has code %d and %u bytes",
                       (int)head.code, head.body_nbytes);
    return CHOIR_OK;
}

/* A server that holds another token gets our proof all the same: so it can say so in its log. */
static choir_status say_farewell(const struct attempt *attempt, int fd,
                                 const unsigned char proof[CH_PROOF_NBYTES])
{
    choir_error why;

    ch_error_save(&why);
    (void)ch_sock_send_all(fd, proof, CH_PROOF_NBYTES, attempt->patience);
    return ch_error_load(&why);
}

static choir_status say_hello(struct attempt *attempt, int fd)
{
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES], proof[CH_PROOF_NBYTES];
    choir_status rc = ch_hello_make(attempt->token, hello);

    if (rc == CHOIR_OK)
        rc = ch_sock_send_all(fd, hello, sizeof(hello), attempt->patience);
    if (rc == CHOIR_OK)
        rc = receive_challenge(attempt, fd, challenge);
    if (rc != CHOIR_OK) {
        attempt->turned_away += rc == CHOIR_ERR_NETWORK;
        return rc;
    }
    rc = ch_hello_answer(attempt->token, hello, challenge, &attempt->link->limits, proof);
    if (rc == CHOIR_ERR_PERMISSION)
        return say_farewell(attempt, fd, proof);
    if (rc == CHOIR_OK)
        rc = prove(attempt, fd, proof);
    if (rc == CHOIR_OK)
        rc = ch_sock_detect_loss(fd, LOSS_MS);
    return rc;
}

/* --- connecting ---------------------------------------------------------------------------------- */

static choir_status try_once(struct attempt *attempt)
{
    int fd = -1;
    choir_status rc = ch_sock_connect(attempt->link->address, attempt->patience, &fd);

    attempt->tries++;
    if (rc != CHOIR_OK)
        return rc;
    rc = say_hello(attempt, fd);
    if (rc != CHOIR_OK) {
        ch_sys_close(fd);
        if (rc == CHOIR_ERR_NETWORK && attempt->turned_away == TURNED_AWAY_MAX) {
            ch_error_prefix("the server closed the connection %d times instead of answering a "
                            "hello; is it a Choir store? the last: ",
                            attempt->turned_away);
            rc = CHOIR_ERR_PROTO;
        }
        return rc;
    }
    attempt->link->fd = fd;
    return CHOIR_OK;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* CHOIR_ERR_TIMEOUT is what should come out of it. */
static choir_status rest(const struct attempt *attempt, int64_t ms)
{
    ch_deadline until = ch_deadline_ms(ms);
    struct ch_wait wait = { .waiter = attempt->patience->waiter,
                            .ready = never,
                            .until = until < attempt->patience->until ? until
                                                                      : attempt->patience->until,
                            .poison = attempt->patience->poison,
                            .what = "the next attempt" };

    return ch_wait(&wait);
}

static choir_status gave_up(const struct attempt *attempt, choir_status rc, const choir_error *last)
{
    if (rc == CHOIR_ERR_TIMEOUT && last->code != CHOIR_OK)
        return ch_fail(CHOIR_ERR_TIMEOUT, "tried %d times in %llu ms, the last: %s", attempt->tries,
                       (unsigned long long)((ch_now() - attempt->began) / CH_MS), last->text);
    return rc;
}

static choir_status try_until_there(struct attempt *attempt)
{
    int64_t pause_ms = FIRST_PAUSE_MS;
    choir_error last = { .code = CHOIR_OK };

    for (;;) {
        choir_status rc = try_once(attempt);

        if (rc != CHOIR_ERR_NETWORK)
            return gave_up(attempt, rc, &last);
        ch_error_save(&last);
        rc = rest(attempt, pause_ms);
        if (rc != CHOIR_ERR_TIMEOUT || ch_deadline_passed(attempt->patience->until))
            return gave_up(attempt, rc, &last);
        pause_ms = 2 * pause_ms < LONGEST_PAUSE_MS ? 2 * pause_ms : LONGEST_PAUSE_MS;
    }
}

choir_status ch_link_init(struct ch_link *link, const char *address)
{
    memset(link, 0, sizeof(*link));
    link->fd = -1;
    ch_lock_init(&link->lock, CH_LOCK_STORE);
    ch_list_init(&link->calls);
    link->address = ch_strdup(address);
    link->in = ch_alloc(CH_LINK_IN_ROOM);
    if (link->address == NULL || link->in == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store at %s: no memory for a connection", address);
    return CHOIR_OK;
}

choir_status ch_link_open(struct ch_link *link, const char *address, const choir_token *token,
                          const struct ch_patience *patience)
{
    struct attempt attempt = {
        .link = link, .token = token, .patience = patience, .began = ch_now()
    };
    choir_status rc = ch_link_init(link, address);

    if (rc != CHOIR_OK)
        return rc;
    rc = try_until_there(&attempt);
    if (rc != CHOIR_OK)
        ch_error_prefix("store at %s: ", address);
    return rc;
}
