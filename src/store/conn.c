/*
 * conn.c - connections of a server: bytes in, bytes out, and when to close. See conn.h and server.h.
 *
 * One event of a connection is: send what waits, or else receive once and let the protocol take
 * requests; then settle(), which sends the replies, also those that other connections waited for, and
 * closes what has come to its end. Nothing is freed before that, so a protocol may be deep inside
 * received() of a connection that is already lost.
 */
#include "store/conn.h"

#include <stdalign.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "io/sock.h"

enum {
    SCRATCH = 64 * 1024, /* received at once */
    KEEP = 64 * 1024,    /* a buffer that has grown beyond this is given back when empty */
    FULL = 256 * 1024,   /* so much unsent: no more requests are taken */
    LOSS_MS = 60 * 1000, /* a client's host that is silent for so long is gone */
    GOODBYE_MS = 2000,   /* for the last words to be sent, or to come */
    COMPLAINT_MS = 5000, /* between two lines about strangers */
};

/* What all clients together may have on their way in and out, beside what is stored. */
static const size_t buffered_max = (size_t)4 << 30;

/* Bytes from `start` to `end` wait. */
struct buffer {
    unsigned char *data; /* `fixed`, or on the heap */
    size_t start, end, room;
    unsigned char fixed[CH_CONN_FIXED];
};

struct ch_conn {
    struct ch_list link; /* in one of free, strangers, admitted */
    struct ch_list unsettled;
    struct ch_conns *all;
    const struct ch_service_point *point;
    struct ch_watch watch;
    uint32_t watching;     /* the events asked for */
    struct ch_timer timer; /* a stranger's hello, or the time for last words, either way */
    uint64_t since;
    bool admitted;
    bool served;  /* received() was called */
    bool ending;  /* nothing more is received; closed when all is sent */
    bool gone;    /* nothing more can be sent; what it asked for before is still carried out */
    bool lost;    /* nothing more can be done */
    bool stopped; /* the protocol left requests standing until the client has read */
    char peer[CH_ADDR_TEXT_MAX];
    struct buffer in, out;
    alignas(max_align_t) unsigned char state[];
};

/* --- buffers ------------------------------------------------------------------------------------ */

static void buffer_init(struct buffer *buffer)
{
    buffer->data = buffer->fixed;
    buffer->room = sizeof(buffer->fixed);
    buffer->start = buffer->end = 0;
}

static size_t waiting(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

static void buffer_free(struct ch_conns *all, struct buffer *buffer)
{
    if (buffer->data != buffer->fixed && buffer->data != NULL) {
        all->buffered_nbytes -= buffer->room;
        ch_free(buffer->data);
    }
    buffer_init(buffer);
}

/* The front bytes are done with. */
static void consume(struct ch_conn *conn, struct buffer *buffer, size_t nbytes)
{
    buffer->start += nbytes;
    if (buffer->start < buffer->end)
        return;
    if (buffer->room > KEEP)
        buffer_free(conn->all, buffer);
    buffer->start = buffer->end = 0;
}

/* Move to a larger block of the heap. */
static choir_status grow(struct ch_conn *conn, struct buffer *buffer, size_t room)
{
    size_t nbytes = waiting(buffer);
    unsigned char *data;

    if (!conn->admitted)
        return ch_fail(CHOIR_ERR_PROTO, "more than %d bytes before it was admitted",
                       (int)CH_CONN_FIXED);
    if (room > buffered_max - conn->all->buffered_nbytes)
        return ch_fail(CHOIR_ERR_NOMEM, "store: %zu bytes are on their way, %zu more are too many",
                       conn->all->buffered_nbytes, room);
    data = ch_alloc(room);
    if (data == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a buffer of %zu bytes", room);
    memcpy(data, buffer->data + buffer->start, nbytes);
    buffer_free(conn->all, buffer);
    conn->all->buffered_nbytes += room;
    buffer->data = data;
    buffer->end = nbytes;
    buffer->room = room;
    return CHOIR_OK;
}

/* Have room for `more` bytes behind those that wait. Doubles, so that a long message is not copied
 * again and again. */
static choir_status reserve(struct ch_conn *conn, struct buffer *buffer, size_t more)
{
    size_t need = waiting(buffer) + more;

    if (need > buffer->room)
        return grow(conn, buffer, need > 2 * buffer->room ? need : 2 * buffer->room);
    if (buffer->end + more > buffer->room) {
        memmove(buffer->data, buffer->data + buffer->start, waiting(buffer));
        buffer->end = waiting(buffer);
        buffer->start = 0;
    }
    return CHOIR_OK;
}

/* --- what protocols see ------------------------------------------------------------------------- */

void *ch_conn_state(struct ch_conn *conn)
{
    return conn->state;
}

struct ch_table *ch_conn_table(struct ch_conn *conn)
{
    return conn->point->table;
}

const choir_token *ch_conn_token(const struct ch_conn *conn)
{
    return conn->point->token;
}

const char *ch_conn_peer(const struct ch_conn *conn)
{
    return conn->peer;
}

static void unsettle(struct ch_conn *conn)
{
    if (ch_list_empty(&conn->unsettled))
        ch_list_push_back(&conn->all->unsettled, &conn->unsettled);
}

choir_status ch_conn_append(struct ch_conn *conn, const void *bytes, size_t nbytes)
{
    choir_status rc;

    if (conn->lost)
        return ch_fail(CHOIR_ERR_NETWORK, "store: the connection of %s is lost", conn->peer);
    if (conn->gone)
        return CHOIR_OK;
    unsettle(conn);
    rc = reserve(conn, &conn->out, nbytes);
    if (rc != CHOIR_OK) {
        ch_log_warn("server at %s: client %s: %s", conn->point->address, conn->peer,
                    choir_last_error());
        conn->lost = true;
        return rc;
    }
    if (nbytes > 0)
        memcpy(conn->out.data + conn->out.end, bytes, nbytes);
    conn->out.end += nbytes;
    return CHOIR_OK;
}

bool ch_conn_hears(const struct ch_conn *conn)
{
    return !conn->lost && !conn->gone;
}

bool ch_conn_is_full(const struct ch_conn *conn)
{
    return conn->lost || waiting(&conn->out) > FULL;
}

/* --- a place for strangers ---------------------------------------------------------------------- */

/* One more for the free ones. */
static choir_status make_free(struct ch_conns *conns)
{
    struct ch_conn *conn = ch_zalloc(sizeof(*conn) + conns->state_size);

    if (conn == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for another connection");
    ch_list_init(&conn->unsettled);
    conn->all = conns;
    conn->watch.fd = -1;
    ch_list_push_front(&conns->free, &conn->link);
    conns->nfree++;
    return CHOIR_OK;
}

choir_status ch_conn_admit(struct ch_conn *conn)
{
    choir_status rc;

    if (conn->admitted)
        return CHOIR_OK;
    rc = ch_sock_detect_loss(conn->watch.fd, LOSS_MS);
    if (rc == CHOIR_OK)
        rc = make_free(conn->all);
    if (rc != CHOIR_OK)
        return rc;
    ch_timer_stop(&conn->timer);
    ch_list_remove(&conn->link);
    ch_list_push_back(&conn->all->admitted, &conn->link);
    conn->admitted = true;
    ch_log_debug("server at %s: client %s admitted", conn->point->address, conn->peer);
    return CHOIR_OK;
}

static void release(struct ch_conn *conn)
{
    struct ch_conns *conns = conn->all;

    ch_list_remove(&conn->link);
    ch_list_remove(&conn->unsettled);
    if (conn->admitted) {
        ch_free(conn);
        return;
    }
    memset(conn, 0, sizeof(*conn) + conns->state_size);
    ch_list_init(&conn->unsettled);
    conn->all = conns;
    conn->watch.fd = -1;
    ch_list_push_front(&conns->free, &conn->link); /* the one last used is the one still in cache */
    conns->nfree++;
}

static void end(struct ch_conn *conn)
{
    int fd = conn->watch.fd;

    if (conn->served)
        conn->point->protocol->closed(conn);
    ch_timer_stop(&conn->timer);
    ch_watch_remove(&conn->watch);
    ch_sys_close(fd);
    buffer_free(conn->all, &conn->in);
    buffer_free(conn->all, &conn->out);
    release(conn);
}

/* --- complaints --------------------------------------------------------------------------------- */

void ch_conns_complain(struct ch_conns *conns, const struct ch_service_point *point,
                       const char *peer, const char *trouble)
{
    struct ch_complaints *c = &conns->complaints;
    uint64_t now = ch_now();

    if (c->last != 0 && now - c->last < COMPLAINT_MS * (uint64_t)CH_MS) {
        c->unsaid++;
        return;
    }
    if (c->unsaid > 0)
        ch_log_warn("server at %s: %s: %s (and %llu more such troubles before)", point->address,
                    peer, trouble, (unsigned long long)c->unsaid);
    else
        ch_log_warn("server at %s: %s: %s", point->address, peer, trouble);
    c->last = now;
    c->unsaid = 0;
}

/* --- bytes -------------------------------------------------------------------------------------- */

static void lose(struct ch_conn *conn)
{
    conn->lost = true;
    unsettle(conn);
}

/* The client does not read any more. What it had sent before may still be with us or in the kernel: a
 * client that sets a key and ends has set it. */
static void give_up_sending(struct ch_conn *conn)
{
    conn->gone = true;
    buffer_free(conn->all, &conn->out);
    unsettle(conn);
}

static void send_waiting(struct ch_conn *conn)
{
    while (!conn->lost && waiting(&conn->out) > 0) {
        size_t n = 0;
        choir_status rc = ch_sock_send_now(conn->watch.fd, conn->out.data + conn->out.start,
                                           waiting(&conn->out), &n);

        if (rc == CHOIR_IN_PROGRESS)
            return;
        if (rc != CHOIR_OK) {
            give_up_sending(conn);
            return;
        }
        consume(conn, &conn->out, n);
    }
}

/* No more is received from it, and it has a little while to take what waits for it. */
static void start_ending(struct ch_conn *conn)
{
    conn->ending = true;
    unsettle(conn);
}

static void refuse(struct ch_conn *conn)
{
    ch_conns_complain(conn->all, conn->point, conn->peer, choir_last_error());
    start_ending(conn);
}

/* Show the protocol what has come. */
static size_t show(struct ch_conn *conn, const unsigned char *bytes, size_t nbytes)
{
    const struct ch_protocol *protocol = conn->point->protocol;
    size_t most, used = 0;
    choir_status rc;

    conn->served = true;
    rc = protocol->received(conn, bytes, nbytes, &used);
    most = conn->admitted ? protocol->request_nbytes : CH_CONN_FIXED;
    conn->stopped = used < nbytes && ch_conn_is_full(conn);
    if (rc == CHOIR_OK && used == 0 && nbytes >= most && !conn->stopped)
        rc = ch_fail(CHOIR_ERR_PROTO, "%s protocol: a request of more than %zu bytes",
                     protocol->name, most);
    if (rc != CHOIR_OK)
        refuse(conn);
    return used;
}

/* Receive once, behind what has come before, and show it all. Bytes that come alone, as most requests
 * do, take no buffer of the connection's. */
static void receive(struct ch_conn *conn)
{
    struct ch_conns *all = conn->all;
    bool alone = waiting(&conn->in) == 0;
    size_t room = conn->admitted ? SCRATCH : CH_CONN_FIXED - waiting(&conn->in), n = 0;
    unsigned char *at = all->scratch;
    choir_status rc = CHOIR_OK;

    if (!alone) {
        rc = reserve(conn, &conn->in, room);
        at = conn->in.data + conn->in.end;
        room = conn->in.room - conn->in.end;
    }
    if (rc == CHOIR_OK)
        rc = ch_sock_recv_now(conn->watch.fd, at, room, &n);
    if (rc == CHOIR_IN_PROGRESS)
        return;
    if (rc != CHOIR_OK) {
        if (!conn->admitted)
            ch_conns_complain(all, conn->point, conn->peer, "left without a hello");
        lose(conn);
        return;
    }
    if (alone) {
        size_t used = show(conn, at, n);

        if (used < n && !conn->ending && reserve(conn, &conn->in, n - used) == CHOIR_OK) {
            memcpy(conn->in.data, at + used, n - used);
            conn->in.end = n - used;
        } else if (used < n && !conn->ending) {
            refuse(conn);
        }
    } else {
        conn->in.end += n;
        consume(conn, &conn->in, show(conn, conn->in.data + conn->in.start, waiting(&conn->in)));
    }
}

/* Requests that were left standing because the client had to read first. It may send no more until
 * they are answered: nothing else would remind us of them. */
static void resume(struct ch_conn *conn)
{
    if (conn->stopped && !conn->ending && !conn->lost && waiting(&conn->out) == 0)
        consume(conn, &conn->in, show(conn, conn->in.data + conn->in.start, waiting(&conn->in)));
}

static void watch_for(struct ch_conn *conn, uint32_t events)
{
    if (conn->watching == events)
        return;
    if (ch_watch_modify(&conn->watch, events) != CHOIR_OK)
        lose(conn);
    else
        conn->watching = events;
}

/* What follows from what happened: send, close, or wait for the next event. */
static void settle_one(struct ch_conn *conn)
{
    send_waiting(conn);
    resume(conn);
    if (conn->lost || (conn->ending && waiting(&conn->out) == 0)) {
        end(conn);
        return;
    }
    if ((conn->ending || conn->gone) && !ch_timer_is_running(&conn->timer))
        ch_timer_start(ch_loop_timers(conn->all->loop), &conn->timer, ch_deadline_ms(GOODBYE_MS));
    /* A client that does not read is not read from. */
    watch_for(conn, waiting(&conn->out) > 0 ? EPOLLOUT : EPOLLIN);
}

/* Whoever was touched, until nobody is: ending one may serve another. */
static void settle(struct ch_conns *conns)
{
    struct ch_list *link;

    while ((link = ch_list_pop_front(&conns->unsettled)) != NULL)
        settle_one(CH_CONTAINER(link, struct ch_conn, unsettled));
}

/* Whatever the event: the next call tells what it meant, an error or a hang-up too. */
static void conn_ready(struct ch_watch *watch, uint32_t events)
{
    struct ch_conn *conn = CH_CONTAINER(watch, struct ch_conn, watch);
    struct ch_conns *conns = conn->all;

    (void)events;
    if (waiting(&conn->out) > 0) {
        unsettle(conn); /* settling sends */
    } else {
        receive(conn);
    }
    settle(conns);
}

static void out_of_time(struct ch_timer *timer)
{
    struct ch_conn *conn = CH_CONTAINER(timer, struct ch_conn, timer);
    struct ch_conns *conns = conn->all;

    if (!conn->admitted && !conn->ending)
        ch_conns_complain(conns, conn->point, conn->peer, "no whole hello within two seconds");
    lose(conn);
    settle(conns);
}

/* --- coming ------------------------------------------------------------------------------------- */

bool ch_conns_make_room(struct ch_conns *conns)
{
    struct ch_conn *oldest;

    if (conns->nfree > 0)
        return true;
    oldest = CH_CONTAINER(conns->strangers.next, struct ch_conn, link);
    if (ch_now() - oldest->since < CH_STRANGER_REST_MS * (uint64_t)CH_MS)
        return false;
    ch_conns_complain(conns, oldest->point, oldest->peer, "sent away: too many without a hello");
    lose(oldest);
    settle(conns);
    return conns->nfree > 0;
}

/* Its own address, for log lines; a client that has gone already has none. */
static void learn_peer(struct ch_conn *conn, int fd)
{
    struct ch_addr addr;

    if (ch_sock_peer_addr(fd, &addr) == CHOIR_OK)
        ch_addr_text(&addr, conn->peer);
    else
        memcpy(conn->peer, "somebody", sizeof("somebody"));
}

choir_status ch_conns_add(struct ch_conns *conns, const struct ch_service_point *point, int fd)
{
    struct ch_conn *conn;
    choir_status rc;

    ch_assert(conns->nfree > 0);
    conn = CH_CONTAINER(ch_list_pop_front(&conns->free), struct ch_conn, link);
    conns->nfree--;
    conn->point = point;
    conn->since = ch_now();
    buffer_init(&conn->in);
    buffer_init(&conn->out);
    ch_list_push_back(&conns->strangers, &conn->link);
    learn_peer(conn, fd);
    rc = ch_watch_add(conns->loop, &conn->watch, fd, EPOLLIN, conn_ready);
    if (rc != CHOIR_OK) {
        conn->watch.fd = -1;
        ch_sys_close(fd);
        release(conn);
        return rc;
    }
    conn->watching = EPOLLIN;
    conn->timer.fire = out_of_time;
    ch_timer_start(ch_loop_timers(conns->loop), &conn->timer,
                   conn->since + CH_HELLO_MS * (uint64_t)CH_MS);
    return CHOIR_OK;
}

/* --- all of them -------------------------------------------------------------------------------- */

choir_status ch_conns_init(struct ch_conns *conns, struct ch_loop *loop, size_t state_size)
{
    choir_status rc = CHOIR_OK;

    *conns = (struct ch_conns){ .loop = loop, .state_size = state_size };
    ch_list_init(&conns->free);
    ch_list_init(&conns->strangers);
    ch_list_init(&conns->admitted);
    ch_list_init(&conns->unsettled);
    conns->scratch = ch_alloc(SCRATCH);
    if (conns->scratch == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for the server's buffer");
    while (rc == CHOIR_OK && conns->nfree < CH_STRANGERS)
        rc = make_free(conns);
    return rc;
}

static void end_all(struct ch_list *list)
{
    while (!ch_list_empty(list))
        end(CH_CONTAINER(list->next, struct ch_conn, link));
}

void ch_conns_fini(struct ch_conns *conns)
{
    struct ch_list *link;

    if (conns->free.next == NULL)
        return; /* zeroed */
    end_all(&conns->admitted);
    end_all(&conns->strangers);
    while ((link = ch_list_pop_front(&conns->free)) != NULL)
        ch_free(CH_CONTAINER(link, struct ch_conn, link));
    ch_free(conns->scratch);
    *conns = (struct ch_conns){ .loop = NULL };
}
