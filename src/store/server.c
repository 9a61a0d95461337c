/*
 * server.c - choir_store_server_create(): listeners, tables, and the thread that serves them.
 * What happens on a connection is in conn.c, what its bytes mean in serve_choir.c and serve_torch.c.
 */
#include "store/server.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "io/sock.h"
#include "store/conn.h"

enum {
    ACCEPT_BATCH = 64,   /* then those who are connected have their turn */
    FULL_PAUSE_MS = 5,   /* before looking again for a stranger's place */
    FAIL_PAUSE_MS = 100, /* after an accept that failed: descriptors do not come back at once */
};

struct listener {
    choir_store_server *server;
    struct ch_watch watch;
    struct ch_timer pause; /* running: it does not accept until then */
    struct ch_service_point point;
    int fd; /* -1: not in use */
};

struct choir_store_server {
    struct ch_loop *loop;
    pthread_t thread;
    bool started;
    choir_token token;
    struct ch_conns conns;
    struct listener ours, torch;

    /* ch_store_server_stop_listening(): the task, and what tells that it has run. */
    struct ch_task deafen;
    struct ch_bell *deafened_bell;
    _Atomic uint64_t deafened;
};

/* --- accepting ---------------------------------------------------------------------------------- */

static void pause_accepting(struct listener *listener, int64_t ms)
{
    if (ch_watch_modify(&listener->watch, 0) != CHOIR_OK)
        return; /* asked again at once; the next failure tries again to rest */
    ch_timer_start(ch_loop_timers(listener->server->loop), &listener->pause, ch_deadline_ms(ms));
}

static void accept_again(struct ch_timer *timer)
{
    struct listener *listener = CH_CONTAINER(timer, struct listener, pause);

    if (ch_watch_modify(&listener->watch, EPOLLIN) != CHOIR_OK)
        ch_timer_start(ch_loop_timers(listener->server->loop), timer,
                       ch_deadline_ms(FAIL_PAUSE_MS));
}

/* False if it has to rest, or nobody is left who wants in. */
static bool accept_one(struct listener *listener)
{
    struct ch_conns *conns = &listener->server->conns;
    choir_status rc;
    int fd;

    if (!ch_conns_make_room(conns)) {
        pause_accepting(listener, FULL_PAUSE_MS);
        return false;
    }
    rc = ch_sock_accept_now(listener->fd, &fd);
    if (rc == CHOIR_IN_PROGRESS)
        return false;
    if (rc == CHOIR_OK)
        rc = ch_conns_add(conns, &listener->point, fd);
    if (rc == CHOIR_OK)
        return true;
    /* Out of descriptors, most likely. The one that wants in stays in the queue: without a rest the
     * loop would spin on it. */
    ch_conns_complain(conns, &listener->point, "somebody", choir_last_error());
    pause_accepting(listener, FAIL_PAUSE_MS);
    return false;
}

static void listener_ready(struct ch_watch *watch, uint32_t events)
{
    struct listener *listener = CH_CONTAINER(watch, struct listener, watch);

    (void)events;
    for (int i = 0; i < ACCEPT_BATCH && accept_one(listener); i++)
        ;
}

/* --- listening ---------------------------------------------------------------------------------- */

static choir_status learn_address(struct listener *listener)
{
    struct ch_addr addr;
    choir_status rc = ch_sock_local_addr(listener->fd, &addr);

    if (rc == CHOIR_OK)
        ch_addr_text(&addr, listener->point.address);
    return rc;
}

static choir_status start_listening(struct listener *listener, const struct ch_addr *addr,
                                    const struct ch_table_limits *limits)
{
    choir_status rc = ch_table_create(limits, &listener->point.table);

    if (rc == CHOIR_OK)
        rc = ch_sock_listen(addr, &listener->fd);
    if (rc == CHOIR_OK)
        rc = learn_address(listener);
    if (rc == CHOIR_OK)
        rc = ch_watch_add(listener->server->loop, &listener->watch, listener->fd, EPOLLIN,
                          listener_ready);
    return rc;
}

static choir_status listen_to(struct listener *listener, const char *where, bool to_anybody,
                              const struct ch_table_limits *limits)
{
    struct ch_addr addr;
    choir_status rc = ch_addr_parse(where, &addr);

    if (rc == CHOIR_OK && !to_anybody && listener->point.token == NULL &&
        !ch_addr_is_loopback(&addr))
        rc = ch_fail(CHOIR_ERR_PERMISSION,
                     "it has no token, and without one it listens on loopback addresses only");
    if (rc == CHOIR_OK && listener->point.protocol->received == NULL)
        rc = ch_fail(CHOIR_ERR_UNSUPPORTED, "the %s protocol is not served by this build",
                     listener->point.protocol->name);
    if (rc == CHOIR_OK)
        rc = start_listening(listener, &addr, limits);
    if (rc != CHOIR_OK)
        ch_error_prefix("store server on \"%s\": ", where);
    return rc;
}

/* Who is connected stays. */
static void stop_listening(struct listener *listener)
{
    ch_timer_stop(&listener->pause);
    ch_watch_remove(&listener->watch);
    ch_sys_close(listener->fd);
    listener->fd = -1;
}

static void end_listener(struct listener *listener)
{
    stop_listening(listener);
    ch_table_destroy(listener->point.table);
}

static void deafen(struct ch_task *task)
{
    choir_store_server *server = CH_CONTAINER(task, choir_store_server, deafen);

    stop_listening(&server->ours);
    stop_listening(&server->torch);
    ch_post(server->deafened_bell, &server->deafened, 1);
}

choir_status ch_store_server_stop_listening(choir_store_server *server,
                                            const struct ch_patience *patience)
{
    struct ch_wait wait = { .waiter = patience->waiter,
                            .until = patience->until,
                            .poison = patience->poison,
                            .what = "the store server to stop listening" };

    server->deafen.run = deafen;
    server->deafened_bell = &patience->waiter->bell;
    ch_loop_post(server->loop, &server->deafen);
    return ch_wait_flag(&wait, &server->deafened, 1);
}

/* --- the thread --------------------------------------------------------------------------------- */

/* A loop whose wait fails can do nothing and must not burn a processor either: clients still count on
 * it, and what made it fail may pass. */
static void pause_after_failure(int failures)
{
    int64_t most = CH_S, ns = (int64_t)failures * CH_MS;

    ch_log_warn("store server's thread: %s", choir_last_error());
    (void)!ch_sys_poll(NULL, 0, ns < most ? ns : most);
}

static void *serve(void *arg)
{
    choir_store_server *server = arg;

    pthread_setname_np(pthread_self(), "choir-store");
    for (int failures = 1; ch_loop_run(server->loop) != CHOIR_OK; failures++)
        pause_after_failure(failures);
    return NULL;
}

/* --- a server's life ---------------------------------------------------------------------------- */

static void init_listener(choir_store_server *server, struct listener *listener,
                          const struct ch_protocol *protocol, const choir_token *token)
{
    listener->server = server;
    listener->fd = -1;
    listener->pause.fire = accept_again;
    listener->point.protocol = protocol;
    listener->point.token = token;
}

static choir_status start(choir_store_server *server, const choir_store_server_create_opts *opts,
                          const struct ch_table_limits *limits)
{
    const char *where = opts->bind != NULL ? opts->bind : "127.0.0.1:0";
    size_t ours = ch_protocol_choir.state_size, torch = ch_protocol_torch.state_size;
    choir_status rc = ch_loop_create(&server->loop);

    if (rc == CHOIR_OK)
        rc = ch_conns_init(&server->conns, server->loop, ours > torch ? ours : torch);
    if (rc == CHOIR_OK)
        rc = listen_to(&server->ours, where, false, limits);
    if (rc == CHOIR_OK && opts->torch_bind != NULL)
        rc = listen_to(&server->torch, opts->torch_bind, true, limits);
    if (rc == CHOIR_OK && ch_sys_thread_create(&server->thread, serve, server) != 0)
        rc = ch_fail_errno("store server: start its thread");
    server->started = rc == CHOIR_OK;
    return rc;
}

/* The fields up to and including `bind` are as old as the call; later ones may be missing. */
static choir_status read_opts(const choir_store_server_create_opts *opts,
                              choir_store_server_create_opts *out)
{
    memset(out, 0, sizeof(*out));
    if (opts == NULL)
        return CHOIR_OK;
    if (opts->size < offsetof(choir_store_server_create_opts, bind) + sizeof(opts->bind))
        return ch_fail(CHOIR_ERR_INVALID,
                       "store_server_create: opts->size is %zu; set it with CHOIR_OPTS()",
                       opts->size);
    memcpy(out, opts, opts->size < sizeof(*out) ? opts->size : sizeof(*out));
    return CHOIR_OK;
}

choir_status ch_store_server_create(const choir_store_server_create_opts *opts,
                                    const struct ch_table_limits *limits,
                                    choir_store_server **server_out)
{
    choir_store_server_create_opts known;
    choir_store_server *server;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK)
        rc = read_opts(opts, &known);
    if (rc != CHOIR_OK)
        return rc;
    server = ch_zalloc(sizeof(*server));
    if (server == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store server: no memory for it");
    if (known.token != NULL)
        server->token = *known.token;
    init_listener(server, &server->ours, &ch_protocol_choir,
                  known.token != NULL ? &server->token : NULL);
    init_listener(server, &server->torch, &ch_protocol_torch, NULL);
    rc = start(server, &known, limits);
    if (rc != CHOIR_OK) {
        choir_store_server_destroy(server);
        return rc;
    }
    *server_out = server;
    return CHOIR_OK;
}

choir_status choir_store_server_create(const choir_store_server_create_opts *opts,
                                       choir_store_server **server_out)
{
    return ch_store_server_create(opts, &ch_table_default_limits, server_out);
}

void choir_store_server_destroy(choir_store_server *server)
{
    if (server == NULL || ch_is_forked())
        return; /* in a forked child its thread does not exist, and died in the middle of things */
    if (server->started) {
        ch_loop_stop(server->loop);
        pthread_join(server->thread, NULL);
    }
    ch_conns_fini(&server->conns);
    end_listener(&server->ours);
    end_listener(&server->torch);
    ch_loop_destroy(server->loop);
    ch_free(server);
}

const char *choir_store_server_address(const choir_store_server *server)
{
    return server->ours.point.address;
}

const char *choir_store_server_torch_address(const choir_store_server *server)
{
    return server->torch.fd < 0 ? NULL : server->torch.point.address;
}
