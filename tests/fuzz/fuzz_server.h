/*
 * fuzz_server.h - one connection of a server of our own protocol, driven to its end by what a client
 * sends; without a thread.
 */
#ifndef CH_FUZZ_SERVER_H
#define CH_FUZZ_SERVER_H

#include <stdio.h>

#include <choir/log.h>

#include "base/mem.h"
#include "fuzz_wire.h"
#include "store/conn.h"

struct fuzz_server {
    struct ch_loop *loop;
    struct ch_conns conns;
    struct ch_service_point point;
};

static void fuzz_hush(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    (void)line;
}

/* An empty one; small, so that the fuzzer finds its limits. */
static inline void fuzz_server_renew(struct fuzz_server *server)
{
    static const struct ch_table_limits limits = { .key_nbytes = 64,
                                                   .value_nbytes = 512,
                                                   .total_nbytes = 8192 };

    ch_table_destroy(server->point.table);
    fuzz_check(ch_table_create(&limits, &server->point.table) == CHOIR_OK);
}

static inline void fuzz_server_open(struct fuzz_server *server, const choir_token *token)
{
    memset(server, 0, sizeof(*server));
    choir_log_set_sink(fuzz_hush, NULL);
    fuzz_install();
    server->point = (struct ch_service_point){ .protocol = &ch_protocol_choir, .token = token };
    snprintf(server->point.address, sizeof(server->point.address), "fuzz");
    fuzz_server_renew(server);
    fuzz_check(ch_loop_create(&server->loop) == CHOIR_OK);
    fuzz_check(ch_conns_init(&server->conns, server->loop, ch_protocol_choir.state_size) ==
               CHOIR_OK);
}

/* Until the server has closed the connection. */
static inline void fuzz_server_run(struct fuzz_server *server, const unsigned char *bytes,
                                   size_t nbytes, unsigned pace)
{
    int fd = fuzz_connect(bytes, nbytes, pace);

    fuzz_check(ch_conns_add(&server->conns, &server->point, fd) == CHOIR_OK);
    while (server->conns.nfree < CH_STRANGERS || !ch_list_empty(&server->conns.admitted))
        fuzz_check(ch_loop_run_once(server->loop, CH_NEVER) == CHOIR_OK);
}

#endif
