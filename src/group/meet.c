/*
 * meet.c - see meet.h.
 *
 * Three kinds of place. A store that stands already (the launcher's, a file): open it. A place where
 * rank 0 is to serve: it does, the others keep trying until it is there. And a place that can only
 * hold a message (torchrun's store, the key-value space of mpirun or srun, what the caller carries): rank 0
 * makes a token, serves a store of ours, and leaves address and token there.
 */
#include "group/meet.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sys.h"
#include "group/kvs.h"
#include "group/roster.h"
#include "io/sock.h"

/* Where rank 0 serves and the token one needs there, as text: "tcp://10.0.0.1:4711 0123...". */
enum { MESSAGE_MAX = 256 };

static int64_t left_ms(const struct ch_patience *patience)
{
    int64_t left = ch_deadline_left_ns(patience->until);

    return left < 0 ? -1 : left / (int64_t)CH_MS + 1;
}

/* --- addresses ---------------------------------------------------------------------------------- */

static void keep_host(struct ch_meeting_place *place, const struct ch_addr *addr)
{
    char text[CH_ADDR_TEXT_MAX], *colon;

    ch_addr_text(addr, text);
    colon = strrchr(text, ':');
    snprintf(place->address, sizeof(place->address), "%.*s",
             (int)(colon != NULL ? colon - text : (ptrdiff_t)strlen(text)), text);
}

/* Our end of the way to `target` ("host:port", NULL for anywhere): the address that others' packets
 * can reach. Without a way there is only this host. */
static choir_status find_own_address(const char *target, const struct ch_patience *patience,
                                     struct ch_addr *addr_out)
{
    struct ch_addr_list list;
    choir_status rc;

    /* An address for documentation (RFC 5737): nobody is asked, only the routing table. */
    rc = ch_addr_lookup(target != NULL ? target : "192.0.2.1:9", patience, &list);
    if (rc != CHOIR_OK)
        return rc;
    if (ch_sock_route(&list.addrs[0], addr_out) != CHOIR_OK)
        *addr_out = ch_addr_loopback(AF_INET, 0);
    return CHOIR_OK;
}

/* The "host:port" of "tcp://host:port?query". */
static void target_of(const char *url, char *out, size_t size)
{
    const char *where = strstr(url, "://");

    where = where != NULL ? where + 3 : url;
    snprintf(out, size, "%.*s", (int)strcspn(where, "?"), where);
}

/* --- the token ---------------------------------------------------------------------------------- */

/* *token_out is `buf`, or NULL if there is none. */
static choir_status find_token(const struct ch_whereabouts *where, choir_token *buf,
                               const choir_token **token_out, const char **from_out)
{
    choir_status rc = CHOIR_OK;

    *token_out = NULL;
    *from_out = "no token";
    if (where->token_fd >= 0) {
        rc = choir_token_read_fd(where->token_fd, buf);
        *from_out = "token from an inherited descriptor";
    } else if (where->token_file != NULL) {
        rc = choir_token_read(where->token_file, buf);
        *from_out = "token from a file";
    } else {
        return CHOIR_OK;
    }
    if (rc == CHOIR_OK)
        *token_out = buf;
    return rc;
}

static void write_message(const char *address, const choir_token *token, char *out)
{
    int at = snprintf(out, MESSAGE_MAX, "tcp://%s ", address);

    for (size_t i = 0; i < sizeof(token->bytes); i++)
        at += snprintf(out + at, MESSAGE_MAX - (size_t)at, "%02x", token->bytes[i]);
}

static choir_status read_message(const char *text, char *url_out, choir_token *token_out)
{
    const char *blank = strchr(text, ' ');
    size_t length = blank != NULL ? (size_t)(blank - text) : 0;

    if (length == 0 || length >= MESSAGE_MAX || strlen(blank + 1) != 2 * sizeof(token_out->bytes) ||
        strspn(blank + 1, "0123456789abcdef") != 2 * sizeof(token_out->bytes))
        return ch_fail(CHOIR_ERR_PROTO,
                       "rank 0's message says \"%.40s\", expected an address and "
                       "a token",
                       text);
    snprintf(url_out, MESSAGE_MAX, "%.*s", (int)length, text);
    for (size_t i = 0; i < sizeof(token_out->bytes); i++) {
        unsigned byte;

        (void)sscanf(blank + 1 + 2 * i, "%2x", &byte);
        token_out->bytes[i] = (unsigned char)byte;
    }
    return CHOIR_OK;
}

/* --- opening and serving -------------------------------------------------------------------------- */

static choir_status open_store(const char *url, const struct ch_whereabouts *where,
                               const choir_token *token, const struct ch_patience *patience,
                               choir_store **store_out)
{
    return choir_store_open(url,
                            CHOIR_OPTS(store_open, .timeout_ms = left_ms(patience), .token = token,
                                       .nranks = where->nranks, .run_id = where->run_id),
                            store_out);
}

static choir_status serve(const char *bind, const choir_token *token,
                          struct ch_meeting_place *place)
{
    return choir_store_server_create(CHOIR_OPTS(store_server_create, .bind = bind, .token = token),
                                     &place->server);
}

/* "host:port" as numbers, for a listener. */
static choir_status numeric(const char *target, const struct ch_patience *patience, char *out)
{
    struct ch_addr_list list;
    choir_status rc = ch_addr_lookup(target, patience, &list);

    if (rc == CHOIR_OK)
        ch_addr_text(&list.addrs[0], out);
    return rc;
}

/* --- the places ----------------------------------------------------------------------------------- */

static choir_status meet_alone(struct ch_meeting_place *place)
{
    snprintf(place->address, sizeof(place->address), "127.0.0.1");
    snprintf(place->story, sizeof(place->story), "alone");
    return choir_store_open("hash://", NULL, &place->store);
}

static choir_status meet_in_store(const struct ch_whereabouts *where,
                                  const struct ch_patience *patience,
                                  struct ch_meeting_place *place)
{
    char target[CH_URL_MAX];
    bool is_file = strncmp(where->url, "file:", 5) == 0;
    choir_token buf;
    const choir_token *token;
    struct ch_addr own;
    const char *from;
    choir_status rc = find_token(where, &buf, &token, &from);

    target_of(where->url, target, sizeof(target));
    if (rc == CHOIR_OK)
        rc = find_own_address(is_file ? NULL : target, patience, &own);
    if (rc != CHOIR_OK)
        return rc;
    keep_host(place, &own);
    snprintf(place->story, sizeof(place->story), "met at %.160s, %s", where->url,
             is_file ? "whoever may open that file" : from);
    return open_store(where->url, where, token, patience, &place->store);
}

static choir_status meet_at_rank0(const struct ch_whereabouts *where,
                                  const struct ch_patience *patience,
                                  struct ch_meeting_place *place)
{
    char target[CH_URL_MAX], bind[CH_ADDR_TEXT_MAX];
    choir_token buf;
    const choir_token *token;
    struct ch_addr own;
    const char *from;
    choir_status rc = find_token(where, &buf, &token, &from);

    target_of(where->url, target, sizeof(target));
    if (rc == CHOIR_OK && where->rank == 0) {
        rc = numeric(target, patience, bind);
        if (rc == CHOIR_OK)
            rc = serve(where->bind != NULL ? where->bind : bind, token, place);
    }
    if (rc == CHOIR_OK)
        rc = find_own_address(target, patience, &own);
    if (rc != CHOIR_OK)
        return rc;
    keep_host(place, &own);
    snprintf(place->story, sizeof(place->story), "met at %.160s, served by rank 0, %s", where->url,
             from);
    return open_store(where->url, where, token, patience, &place->store);
}

/* Rank 0 of a job whose launcher can only carry a message: make a token, serve, and write it. */
static choir_status serve_with_new_token(const struct ch_whereabouts *where,
                                         const struct ch_addr *own, struct ch_meeting_place *place,
                                         char *message_out)
{
    char text[CH_ADDR_TEXT_MAX];
    struct ch_addr addr;
    choir_token token;
    choir_status rc = choir_token_make(&token);

    if (rc != CHOIR_OK)
        return rc;
    rc = serve(where->bind != NULL ? where->bind : ch_addr_text(own, text), &token, place);
    if (rc == CHOIR_OK)
        rc = ch_addr_parse(choir_store_server_address(place->server), &addr);
    if (rc != CHOIR_OK)
        return rc;
    if (ch_addr_is_wildcard(&addr)) { /* CHOIR_STORE_BIND asked for it: others need a real one */
        uint16_t port = ch_addr_port(&addr);

        addr = *own;
        ch_addr_set_port(&addr, port);
    }
    write_message(ch_addr_text(&addr, text), &token, message_out);
    return CHOIR_OK;
}

static choir_status follow_message(const struct ch_whereabouts *where, const char *message,
                                   const char *through, const struct ch_patience *patience,
                                   struct ch_meeting_place *place)
{
    char url[MESSAGE_MAX], target[MESSAGE_MAX];
    choir_token token;
    struct ch_addr own;
    choir_status rc = read_message(message, url, &token);

    if (rc == CHOIR_OK) {
        target_of(url, target, sizeof(target));
        rc = find_own_address(target, patience, &own);
    }
    if (rc != CHOIR_OK)
        return rc;
    keep_host(place, &own);
    snprintf(place->story, sizeof(place->story),
             "met at %.100s, served by rank 0, token made by rank 0 and passed through %s", url,
             through);
    return open_store(url, where, &token, patience, &place->store);
}

static choir_status pass_through_agent(choir_store *round, const struct ch_whereabouts *where,
                                       const struct ch_patience *patience,
                                       struct ch_meeting_place *place, choir_blob *message_out)
{
    char target[CH_URL_MAX], message[MESSAGE_MAX];
    struct ch_addr own;
    choir_status rc = CHOIR_OK;

    target_of(where->url, target, sizeof(target));
    if (where->rank == 0) {
        rc = find_own_address(target, patience, &own);
        if (rc == CHOIR_OK)
            rc = serve_with_new_token(where, &own, place, message);
        if (rc == CHOIR_OK)
            rc = choir_store_set(round, choir_str("store"), choir_str(message));
    }
    if (rc == CHOIR_OK)
        rc = choir_store_get(round, choir_str("store"), left_ms(patience), message_out);
    return rc;
}

static choir_status meet_through_agent(const struct ch_whereabouts *where,
                                       const struct ch_patience *patience,
                                       struct ch_meeting_place *place)
{
    choir_store *agent = NULL, *round = NULL;
    choir_blob message = { NULL, 0 };
    choir_status rc = open_store(where->url, where, NULL, patience, &agent);

    /* torchrun keeps one store for all attempts, with what we left in it before. */
    if (rc == CHOIR_OK)
        rc = ch_roster_round(agent, "agent", where->attempt, where->nranks, &round);
    if (rc == CHOIR_OK)
        rc = pass_through_agent(round, where, patience, place, &message);
    if (rc == CHOIR_OK)
        rc = follow_message(where, message.data, "torchrun's store", patience, place);
    choir_blob_free(&message);
    choir_store_close(round);
    choir_store_close(agent);
    return rc;
}

/* One host: loopback will do, and nobody outside can even try. */
static choir_status own_address_for_launcher(const struct ch_whereabouts *where,
                                             const struct ch_patience *patience,
                                             struct ch_addr *own_out)
{
    if (where->local_nranks != where->nranks)
        return find_own_address(NULL, patience, own_out);
    *own_out = ch_addr_loopback(AF_INET, 0);
    return CHOIR_OK;
}

static choir_status pass_through_launcher(struct ch_kvs *kvs, const struct ch_whereabouts *where,
                                          const struct ch_patience *patience,
                                          struct ch_meeting_place *place, char *message)
{
    struct ch_addr own;
    choir_status rc = CHOIR_OK;

    if (ch_kvs_rank(kvs) != where->rank || ch_kvs_size(kvs) != where->nranks)
        return ch_fail(CHOIR_ERR_INVALID,
                       "the launcher (%s) says rank %d of %d, %s says rank %d of "
                       "%d",
                       ch_kvs_name(kvs), ch_kvs_rank(kvs), ch_kvs_size(kvs), where->source,
                       where->rank, where->nranks);
    if (where->rank == 0) {
        rc = own_address_for_launcher(where, patience, &own);
        if (rc == CHOIR_OK)
            rc = serve_with_new_token(where, &own, place, message);
    }
    if (rc == CHOIR_OK)
        rc = ch_kvs_share(kvs, "choir-store", where->rank == 0 ? message : NULL, message,
                          MESSAGE_MAX, patience);
    return rc;
}

static choir_status meet_through_launcher(const struct ch_whereabouts *where,
                                          const struct ch_patience *patience,
                                          struct ch_meeting_place *place)
{
    char message[MESSAGE_MAX] = "", through[64];
    struct ch_kvs *kvs = NULL;
    choir_status rc = ch_kvs_open(NULL, patience, &kvs);

    if (rc != CHOIR_OK) {
        ch_error_prefix("the ranks have no place to meet but their launcher's key-value space (or "
                        "set MASTER_ADDR, MASTER_PORT and CHOIR_TOKEN_FILE): ");
        return rc;
    }
    snprintf(through, sizeof(through), "the launcher's key-value space (%s)", ch_kvs_name(kvs));
    rc = pass_through_launcher(kvs, where, patience, place, message);
    ch_kvs_close(kvs);
    if (rc == CHOIR_OK)
        rc = follow_message(where, message, through, patience, place);
    return rc;
}

choir_status ch_meet(const struct ch_whereabouts *where, const struct ch_patience *patience,
                     struct ch_meeting_place *place)
{
    choir_status rc = CHOIR_ERR_STATE;

    place->kept_by_rank0 = where->meeting == CH_MEET_SERVE || where->meeting == CH_MEET_AGENT ||
                           where->meeting == CH_MEET_LAUNCHER;
    switch (where->meeting) {
    case CH_MEET_ALONE:
        rc = meet_alone(place);
        break;
    case CH_MEET_STORE:
        rc = meet_in_store(where, patience, place);
        break;
    case CH_MEET_SERVE:
        rc = meet_at_rank0(where, patience, place);
        break;
    case CH_MEET_AGENT:
        rc = meet_through_agent(where, patience, place);
        break;
    case CH_MEET_LAUNCHER:
        rc = meet_through_launcher(where, patience, place);
        break;
    }
    if (rc == CHOIR_OK)
        ch_log_info("rank %d of %d, from %s; %s", where->rank, where->nranks, where->source,
                    place->story);
    return rc;
}

/* The part of rank 0, who serves before anybody is told, or of one who is told. */
static choir_status carry(const struct ch_whereabouts *where, const choir_init_opts *opts,
                          const struct ch_patience *patience, struct ch_meeting_place *place,
                          char *word)
{
    char target[CH_URL_MAX];
    struct ch_addr own;
    choir_status rc = CHOIR_OK;

    if (where->rank == 0) {
        if (opts->url != NULL)
            target_of(opts->url, target, sizeof(target));
        rc = find_own_address(opts->url != NULL ? target : NULL, patience, &own);
        if (rc == CHOIR_OK)
            rc = serve_with_new_token(where, &own, place, word);
    }
    if (rc != CHOIR_OK)
        return rc;
    rc = opts->carry(opts->carry_arg, word, MESSAGE_MAX, left_ms(patience));
    if (rc != CHOIR_OK)
        return ch_fail(rc, "the caller's carry() of rank 0's word: %s", choir_status_text(rc));
    word[MESSAGE_MAX - 1] = '\0';
    return CHOIR_OK;
}

choir_status ch_meet_carried(const struct ch_whereabouts *where, const choir_init_opts *opts,
                             const struct ch_patience *patience, struct ch_meeting_place *place)
{
    char word[MESSAGE_MAX] = "";
    choir_status rc;

    if (where->nranks == 1)
        return meet_alone(place);
    place->kept_by_rank0 = true;
    rc = carry(where, opts, patience, place, word);
    if (rc == CHOIR_OK)
        rc = follow_message(where, word, "the caller", patience, place);
    return rc;
}

void ch_part(struct ch_meeting_place *place)
{
    choir_store_close(place->store);
    choir_store_server_destroy(place->server);
    place->store = NULL;
    place->server = NULL;
}
