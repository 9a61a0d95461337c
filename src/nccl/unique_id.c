/*
 * unique_id.c - see unique_id.h.
 *
 * NCCL starts a thread and a listener for each id. Here one store serves all ids of a process, from the first on:
 * an id that nobody uses costs nothing, and one may be used again.
 */
#include "nccl/unique_id.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/lock.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "base/wait.h"
#include "io/sock.h"

enum {
    VERSION = 1,
    VERSION_AT = 8,
    NAME_AT = 16,
    TOKEN_AT = 32,
    ADDRESS_AT = 64,
    SUM_AT = 124,
    FIRST_TRY_MS = 1000,  /* after which it is asked whether anybody is there at all */
    PROBE_MS = 10 * 1000, /* for whoever made an id to take a connection */
};

static const char magic[8] = { 'c', 'h', 'o', 'i', 'r', '-', 'i', 'd' };

/* Where the ranks of this process's ids meet. */
static struct {
    struct ch_lock lock;
    choir_store_server *server; /* under lock, as all here: written once */
    choir_token token;
    char address[CH_ID_ADDRESS_MAX];
} the_door = { .lock = CH_LOCK_INIT(CH_LOCK_COMM) };

/* --- bytes ---------------------------------------------------------------------------------------- */

static void checksum(const choir_unique_id *id, unsigned char out[4])
{
    unsigned char all[CH_SHA256_NBYTES];
    struct ch_sha256 hash;

    ch_sha256_init(&hash);
    ch_sha256_add(&hash, id->bytes, SUM_AT);
    ch_sha256_end(&hash, all);
    memcpy(out, all, 4);
}

choir_status ch_unique_id_read(const choir_unique_id *id, struct ch_id_parts *out)
{
    unsigned char sum[4];
    unsigned version;

    if (memcmp(id->bytes, magic, sizeof(magic)) != 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "id: it does not begin as an id of Choir's does; was it made by "
                       "another library, or sent as text?");
    version = id->bytes[VERSION_AT] | (unsigned)id->bytes[VERSION_AT + 1] << 8;
    if (version != VERSION)
        return ch_fail(CHOIR_ERR_INVALID, "id: its version is %u, expected %d", version, VERSION);
    checksum(id, sum);
    if (memcmp(sum, id->bytes + SUM_AT, sizeof(sum)) != 0 || id->bytes[SUM_AT - 1] != 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "id: its checksum is wrong; bytes were lost or changed on the way");
    for (size_t i = 0; i < CH_ID_NAME_NBYTES; i++)
        snprintf(out->name + 2 * i, 3, "%02x", id->bytes[NAME_AT + i]);
    memcpy(out->token.bytes, id->bytes + TOKEN_AT, sizeof(out->token.bytes));
    memcpy(out->address, id->bytes + ADDRESS_AT, sizeof(out->address));
    return CHOIR_OK;
}

/* --- the process that makes ids ---------------------------------------------------------------------- */

/* Our end of the way to the world, or loopback if there is none. */
static void own_address(char *out)
{
    struct ch_addr world, own;
    choir_error last;

    ch_error_save(&last);
    /* An address for documentation (RFC 5737): nobody is asked, only the routing table. */
    if (ch_addr_parse("192.0.2.1:9", &world) != CHOIR_OK || ch_sock_route(&world, &own) != CHOIR_OK)
        own = ch_addr_loopback(AF_INET, 0);
    ch_addr_text(&own, out);
    ch_error_load(&last);
}

static choir_status serve(choir_store_server **server_out, choir_token *token_out,
                          char *address_out)
{
    char own[CH_ADDR_TEXT_MAX];
    const char *listens;
    choir_status rc = choir_token_make(token_out);

    if (rc != CHOIR_OK)
        return rc;
    own_address(own);
    rc = choir_store_server_create(CHOIR_OPTS(store_server_create, .bind = own, .token = token_out),
                                   server_out);
    if (rc != CHOIR_OK)
        return rc;
    listens = choir_store_server_address(*server_out);
    if (strlen(listens) >= CH_ID_ADDRESS_MAX)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "the address %s is too long for an id", listens);
    memset(address_out, 0, CH_ID_ADDRESS_MAX);
    memcpy(address_out, listens, strlen(listens));
    return CHOIR_OK;
}

/* The door is open after this. No lock is held while it is being made: who is second throws his away. */
static choir_status open_door(void)
{
    choir_store_server *server = NULL;
    char address[CH_ID_ADDRESS_MAX];
    choir_token token;
    choir_status rc;
    bool is_open;

    ch_lock(&the_door.lock);
    is_open = the_door.server != NULL;
    ch_unlock(&the_door.lock);
    if (is_open)
        return CHOIR_OK;
    rc = serve(&server, &token, address);
    if (rc == CHOIR_OK) {
        ch_lock(&the_door.lock);
        if (the_door.server == NULL) {
            the_door.server = server;
            the_door.token = token;
            memcpy(the_door.address, address, sizeof(address));
            server = NULL;
        }
        ch_unlock(&the_door.lock);
    }
    choir_store_server_destroy(server);
    return rc;
}

void ch_unique_id_stop(void)
{
    choir_store_server *server;

    ch_lock(&the_door.lock);
    server = the_door.server;
    the_door.server = NULL;
    ch_unlock(&the_door.lock);
    choir_store_server_destroy(server);
}

static choir_status write_id(choir_unique_id *out)
{
    choir_unique_id id = { { 0 } };

    memcpy(id.bytes, magic, sizeof(magic));
    id.bytes[VERSION_AT] = VERSION;
    if (ch_sys_random(id.bytes + NAME_AT, CH_ID_NAME_NBYTES) != 0)
        return ch_fail_errno("random bytes for an id");
    ch_lock(&the_door.lock);
    memcpy(id.bytes + TOKEN_AT, the_door.token.bytes, sizeof(the_door.token.bytes));
    memcpy(id.bytes + ADDRESS_AT, the_door.address, sizeof(the_door.address));
    ch_unlock(&the_door.lock);
    checksum(&id, id.bytes + SUM_AT);
    *out = id;
    return CHOIR_OK;
}

choir_status choir_unique_id_make(choir_unique_id *id_out)
{
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && id_out == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "id_out: is NULL");
    if (rc == CHOIR_OK)
        rc = open_door();
    if (rc == CHOIR_OK)
        rc = write_id(id_out);
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_unique_id_make: ");
    return rc;
}

/* --- the processes that have one ------------------------------------------------------------------- */

/* A store that is not there yet is tried again and again; this one was there, so who refuses is gone. */
static choir_status knock(const struct ch_addr *addr, struct ch_waiter *waiter, ch_deadline until)
{
    ch_deadline probe = ch_deadline_ms(PROBE_MS);
    struct ch_patience patience = { .waiter = waiter, .until = probe < until ? probe : until };
    int fd;
    choir_status rc = ch_sock_connect_addr(addr, &patience, &fd);

    if (rc == CHOIR_OK)
        ch_sys_close(fd);
    return rc;
}

static choir_status check_maker(const char *address, ch_deadline until)
{
    struct ch_bell_word word = { 0 };
    struct ch_waiter waiter = { .epfd = -1, .bell = { .fd = -1 } };
    struct ch_addr addr;
    choir_status rc = ch_addr_parse(address, &addr);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_waiter_init(&waiter, &word);
    if (rc == CHOIR_OK)
        rc = knock(&addr, &waiter, until);
    ch_waiter_fini(&waiter);
    if (rc == CHOIR_ERR_NETWORK || rc == CHOIR_ERR_TIMEOUT)
        ch_error_prefix(
            "the process that made this id does not answer; ranks meet in it, so it must "
            "live until they have: ");
    return rc;
}

static int64_t left_ms(ch_deadline until)
{
    int64_t left = ch_deadline_left_ns(until);

    return left < 0 ? -1 : left / (int64_t)CH_MS + 1;
}

static choir_status connect_store(const struct ch_id_parts *parts, int64_t timeout_ms,
                                  choir_store **store_out)
{
    char url[CH_ID_ADDRESS_MAX + 8];

    snprintf(url, sizeof(url), "tcp://%s", parts->address);
    return choir_store_open(
        url, CHOIR_OPTS(store_open, .timeout_ms = timeout_ms, .token = &parts->token), store_out);
}

choir_status ch_unique_id_open(const struct ch_id_parts *parts, ch_deadline until,
                               choir_store **store_out)
{
    int64_t left = left_ms(until);
    choir_store *all = NULL;
    choir_status rc = connect_store(parts, left >= 0 && left < FIRST_TRY_MS ? left : FIRST_TRY_MS,
                                    &all);

    if (rc == CHOIR_ERR_TIMEOUT) {
        rc = check_maker(parts->address, until);
        if (rc == CHOIR_OK)
            rc = connect_store(parts, left_ms(until), &all);
    }
    if (rc == CHOIR_OK)
        rc = choir_store_set_timeout(all, left_ms(until)); /* not that of the first try */
    if (rc == CHOIR_OK)
        rc = choir_store_prefix(all, choir_str(parts->name), store_out);
    choir_store_close(all);
    return rc;
}
