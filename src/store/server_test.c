/* server_test.c - the server among strangers, slow clients, many clients, and too few descriptors. */
#include "store/server.h"

#include "choir_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/log.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sys.h"
#include "store/conn.h"
#include "store/hello.h"
#include "store/wire.h"

#define K(text) choir_str(text)

static int64_t slow(int64_t n)
{
    return n * (int64_t)choir_test_slowness();
}

/* --- servers and raw clients --------------------------------------------------------------------- */

static const choir_token token = { { 1, 2, 3 } };

static choir_store_server *serve(const choir_token *with)
{
    choir_store_server *server;

    CHOIR_CHECK_OK(
        choir_store_server_create(CHOIR_OPTS(store_server_create, .token = with), &server));
    return server;
}

static uint16_t port_of(const choir_store_server *server)
{
    return (uint16_t)atoi(strrchr(choir_store_server_address(server), ':') + 1);
}

static choir_store *open_store(const choir_store_server *server, const choir_token *with)
{
    choir_store *store;
    char url[128];

    snprintf(url, sizeof(url), "tcp://%s", choir_store_server_address(server));
    CHOIR_CHECK_OK(choir_store_open(
        url, CHOIR_OPTS(store_open, .timeout_ms = slow(10000), .token = with), &store));
    return store;
}

/* Blocking sockets of the test's own, with an end to every wait; not the library's, so also for
 * children that never use it. `host` picks one of the loopback addresses, so that ports do not run
 * out. */
static int dial(uint16_t port, unsigned host)
{
    struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    struct timeval patience = { .tv_sec = slow(20) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    CHOIR_CHECK(fd >= 0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host % 200);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof(one));
    CHOIR_CHECK_EQ(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        CHOIR_FAIL("connect: %s", strerror(errno));
    return fd;
}

/* False if the server has closed. */
static bool say(int fd, const void *bytes, size_t nbytes)
{
    return send(fd, bytes, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes;
}

/* How many of `nbytes` came before the end. */
static size_t hear(int fd, void *bytes, size_t nbytes)
{
    size_t done = 0;

    while (done < nbytes) {
        ssize_t n = recv(fd, (char *)bytes + done, nbytes - done, 0);

        if (n < 0 && errno != ECONNRESET)
            CHOIR_FAIL("the server neither answers nor closes: %s", strerror(errno));
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static bool is_closed(int fd)
{
    char byte;

    return hear(fd, &byte, 1) == 0;
}

/* Shake hands by hand. */
static int join_with(uint16_t port, const choir_token *with, unsigned host)
{
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES], proof[CH_PROOF_NBYTES];
    struct ch_hello_limits limits;
    int fd = dial(port, host);

    CHOIR_CHECK_OK(ch_hello_make(with, hello));
    CHOIR_CHECK(say(fd, hello, sizeof(hello)));
    CHOIR_CHECK_EQ(hear(fd, challenge, sizeof(challenge)), sizeof(challenge));
    CHOIR_CHECK_OK(ch_hello_answer(with, hello, challenge, &limits, proof));
    CHOIR_CHECK(say(fd, proof, sizeof(proof)));
    return fd;
}

static void send_request(int fd, enum ch_op op, uint32_t id, const char *key)
{
    unsigned char bytes[CH_WIRE_HEAD_NBYTES + CH_WIRE_LENGTH_NBYTES + 64];
    struct ch_wire_head head = { .id = id, .code = op };

    if (key != NULL) {
        head.nitems = 1;
        head.body_nbytes = (uint32_t)(CH_WIRE_LENGTH_NBYTES + strlen(key));
        ch_put32(bytes + CH_WIRE_HEAD_NBYTES, (uint32_t)strlen(key));
        memcpy(bytes + CH_WIRE_HEAD_NBYTES + CH_WIRE_LENGTH_NBYTES, key, strlen(key));
    }
    ch_wire_put_head(bytes, &head);
    CHOIR_CHECK(say(fd, bytes, CH_WIRE_HEAD_NBYTES + head.body_nbytes));
}

static struct ch_wire_head hear_reply(int fd)
{
    unsigned char bytes[CH_WIRE_HEAD_NBYTES], body[4096];
    struct ch_wire_head head;

    CHOIR_CHECK_EQ(hear(fd, bytes, sizeof(bytes)), sizeof(bytes));
    ch_wire_get_head(bytes, &head);
    for (size_t left = head.body_nbytes; left > 0;) {
        size_t n = left < sizeof(body) ? left : sizeof(body);

        CHOIR_CHECK_EQ(hear(fd, body, n), n);
        left -= n;
    }
    return head;
}

/* --- what is logged ------------------------------------------------------------------------------ */

static struct {
    _Atomic int lines;
    char last[512];
    pthread_mutex_t lock;
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void count_line(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    pthread_mutex_lock(&logged.lock);
    snprintf(logged.last, sizeof(logged.last), "%s", line);
    pthread_mutex_unlock(&logged.lock);
    logged.lines++;
}

/* --- where it listens ---------------------------------------------------------------------------- */

static const struct {
    const char *bind;
    choir_status rc;
    const char *says;
} binds[] = {
    { "0.0.0.0:0", CHOIR_ERR_PERMISSION, "it has no token" },
    { "[::]:0", CHOIR_ERR_PERMISSION, "loopback addresses only" },
    { "192.0.2.1:4711", CHOIR_ERR_PERMISSION, "it has no token" },
    { "nonsense", CHOIR_ERR_INVALID, "nonsense" },
    { "127.0.0.1:99999", CHOIR_ERR_INVALID, "99999" },
    { "", CHOIR_ERR_INVALID, "store server on" },
};

CHOIR_TEST(without_a_token_only_loopback)
{
    choir_store_server *server;

    for (size_t i = 0; i < CH_ARRAY_LEN(binds); i++) {
        CHOIR_ROW("%s", binds[i].bind);
        CHOIR_CHECK_STATUS(choir_store_server_create(
                               CHOIR_OPTS(store_server_create, .bind = binds[i].bind), &server),
                           binds[i].rc);
        CHOIR_CHECK_HAS(choir_last_error(), binds[i].says);
    }
    server = serve(NULL);
    CHOIR_CHECK_HAS(choir_store_server_address(server), "127.0.0.1:");
    CHOIR_CHECK(choir_store_server_torch_address(server) == NULL);
    choir_store_server_destroy(server);
    CHOIR_CHECK_OK(choir_store_server_create(
        CHOIR_OPTS(store_server_create, .bind = "0.0.0.0:0", .token = &token), &server));
    choir_store_server_destroy(server);
    choir_store_server_destroy(NULL);
}

CHOIR_TEST(options_are_checked)
{
    choir_store_server_create_opts opts = { .size = 3 };
    choir_store_server *server;

    CHOIR_CHECK_STATUS(choir_store_server_create(&opts, &server), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "opts->size is 3");
    opts = (choir_store_server_create_opts){ .size = offsetof(choir_store_server_create_opts,
                                                              token) };
    CHOIR_CHECK_OK(choir_store_server_create(&opts, &server));
    choir_store_server_destroy(server);
}

/* --- strangers ----------------------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    size_t nbytes;
    const char *says;
} strange[] = {
    { "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, "HTTP" },
    { "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, "TLS" },
    { "\xff\xfe\xfd\xfc\xfb", 5, "something else (the first bytes are ff fe fd fc fb)" },
    { "CHOIR\r\n\0\2\0\0\0\0\0\0\0................................", 48, "version 2" },
};

CHOIR_TEST(strangers_cost_one_line_of_log)
{
    enum { TIMES = 50 };

    choir_log_set_sink(count_line, NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(strange); i++) {
        choir_store_server *server = serve(&token);
        uint64_t began = ch_now();

        CHOIR_ROW("%s", strange[i].says);
        logged.lines = 0;
        for (int n = 0; n < TIMES; n++) {
            unsigned char challenge[CH_CHALLENGE_NBYTES];
            int fd = dial(port_of(server), 0);

            CHOIR_CHECK(say(fd, strange[i].bytes, strange[i].nbytes));
            (void)hear(fd, challenge, sizeof(challenge)); /* another version is told ours */
            CHOIR_CHECK(is_closed(fd));
            close(fd);
        }
        choir_store_server_destroy(server);
        CHOIR_CHECK_LE(1, logged.lines);
        CHOIR_CHECK_LE(logged.lines, 1 + (int)((ch_now() - began) / (5 * (uint64_t)CH_S)));
        CHOIR_CHECK_HAS(logged.last, strange[i].says);
        CHOIR_CHECK_HAS(logged.last, "127.0.0.1:");
    }
    choir_log_set_sink(NULL, NULL);
}

/* Half a hello, none, or a hello without its proof. */
CHOIR_TEST(a_hello_has_two_seconds)
{
    choir_store_server *server = serve(&token);
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES];
    uint64_t began = ch_now(), took;
    int fds[3];

    choir_log_set_sink(count_line, NULL);
    CHOIR_CHECK_OK(ch_hello_make(&token, hello));
    for (int i = 0; i < 3; i++)
        fds[i] = dial(port_of(server), 0);
    CHOIR_CHECK(say(fds[0], hello, 20));
    CHOIR_CHECK(say(fds[1], hello, sizeof(hello)));
    CHOIR_CHECK_EQ(hear(fds[1], challenge, sizeof(challenge)), sizeof(challenge));
    for (int i = 0; i < 3; i++) {
        CHOIR_CHECK(is_closed(fds[i]));
        took = (ch_now() - began) / CH_MS;
        CHOIR_CHECK_LE((uint64_t)1990, took);
        CHOIR_CHECK_LE(took, (uint64_t)(2000 + slow(2000)));
        close(fds[i]);
    }
    choir_store_server_destroy(server);
    choir_log_set_sink(NULL, NULL);
}

/* As many as want to: who says hello gets in all the same. */
CHOIR_TEST(silent_strangers_make_room)
{
    choir_store_server *server = serve(&token);
    int fds[CH_STRANGERS + 50];
    choir_store *store;

    choir_log_set_sink(count_line, NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(fds); i++)
        fds[i] = dial(port_of(server), 0);
    store = open_store(server, &token);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    choir_store_close(store);
    for (size_t i = 0; i < CH_ARRAY_LEN(fds); i++)
        close(fds[i]);
    choir_store_server_destroy(server);
    choir_log_set_sink(NULL, NULL);
}

/* --- the attack ---------------------------------------------------------------------------------- */

static void random_bytes(struct choir_test_random *r, void *bytes, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)choir_test_random(r);
}

/* An honest exchange as somebody on the way would have seen it. */
struct recording {
    unsigned char hello[CH_HELLO_NBYTES], proof[CH_PROOF_NBYTES];
};

/* One forged hello. True if the server took it for an honest one: it then answers a ping. */
static bool attack(uint16_t port, int kind, const struct recording *seen, unsigned host,
                   struct choir_test_random *r)
{
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES] = { 0 };
    unsigned char tail[CH_PROOF_NBYTES + CH_WIRE_HEAD_NBYTES] = { 0 };
    struct ch_wire_head ping = { .id = 1, .code = CH_OP_PING };
    int fd = dial(port, host);
    size_t heard;

    memcpy(hello, seen->hello, sizeof(hello)); /* a hello as it should be, but for its nonce */
    if (kind != 1)
        random_bytes(r, hello + 16, 32);
    if (kind == 2)
        hello[12] = 0; /* has no token */
    if (kind == 3)
        random_bytes(r, hello + choir_test_random(r) % 40, 8);
    (void)say(fd, hello, kind == 4 ? 1 + choir_test_random(r) % 47 : sizeof(hello));
    if (kind == 4) { /* in the middle of its hello it has had enough */
        close(fd);
        return false;
    }
    heard = hear(fd, challenge, sizeof(challenge));
    if (kind == 0)
        random_bytes(r, tail, CH_PROOF_NBYTES);
    else if (kind == 1)
        memcpy(tail, seen->proof, CH_PROOF_NBYTES); /* the whole of it again */
    else if (kind == 5)
        memcpy(tail, challenge + 64, CH_PROOF_NBYTES); /* the server's own proof */
    ch_wire_put_head(tail + CH_PROOF_NBYTES, &ping);
    (void)say(fd, tail, sizeof(tail));
    heard = hear(fd, challenge, 1);
    close(fd);
    return heard > 0;
}

struct attacker {
    int port_from[2]; /* a pipe: where to, when it begins */
    int count, number;
};

static void attacker_main(void *arg)
{
    const struct attacker *a = arg;
    struct choir_test_random r = { .state = 88172645463325252u + (uint64_t)a->number };
    unsigned char challenge[CH_CHALLENGE_NBYTES];
    struct ch_hello_limits limits;
    struct recording seen;
    uint16_t port;
    int fd, kinds = 6;

    CHOIR_CHECK_EQ(read(a->port_from[0], &port, sizeof(port)), (ssize_t)sizeof(port));
    fd = dial(port, 0);
    CHOIR_CHECK_OK(ch_hello_make(&token, seen.hello));
    CHOIR_CHECK(say(fd, seen.hello, sizeof(seen.hello)));
    CHOIR_CHECK_EQ(hear(fd, challenge, sizeof(challenge)), sizeof(challenge));
    CHOIR_CHECK_OK(ch_hello_answer(&token, seen.hello, challenge, &limits, seen.proof));
    close(fd);
    for (int i = 0; i < a->count; i++) {
        if (attack(port, i % kinds, &seen, (unsigned)(i + a->number * 100), &r))
            CHOIR_FAIL("attack %d of kind %d was accepted", i, i % kinds);
    }
}

/* Then resident memory says little. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEPS_WHAT_IS_FREED = 1 };
#else
enum { KEEPS_WHAT_IS_FREED = 0 };
#endif

static size_t resident_nbytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    CHOIR_CHECK(f != NULL);
    CHOIR_CHECK_EQ(fscanf(f, "%*u %lu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Honest clients meanwhile: one that stays and some that come and go. */
static int serve_honest(const choir_store_server *server, choir_store *resident, uint64_t *worst)
{
    uint64_t began = ch_now(), took;
    choir_store *guest = open_store(server, &token);
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(guest, K("k"), 0, &value));
    choir_blob_free(&value);
    choir_store_close(guest);
    CHOIR_CHECK_OK(choir_store_get(resident, K("k"), 0, &value));
    choir_blob_free(&value);
    took = ch_now() - began;
    *worst = took > *worst ? took : *worst;
    return 1;
}

static int ended(int pid)
{
    siginfo_t info = { .si_pid = 0 };

    CHOIR_CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid != 0;
}

/* 100,000 hellos that are forged, replayed, reflected or cut short. */
CHOIR_TEST_TIMED(forged_hellos_are_worth_nothing, 120)
{
    enum { ATTACKERS = 2 };
    int count = (int)(100000 / ATTACKERS / slow(1)), honest = 0, pids[ATTACKERS];
    struct attacker attackers[ATTACKERS];
    choir_store_server *server;
    choir_store *resident;
    uint64_t worst = 0, began = ch_now();
    size_t before, after;
    struct ch_mem_count heap_before, heap_after;
    uint16_t port;

    for (int i = 0; i < ATTACKERS; i++) { /* before the server: they know nothing of it */
        attackers[i] = (struct attacker){ .count = count, .number = i };
        CHOIR_CHECK_EQ(pipe(attackers[i].port_from), 0);
        pids[i] = choir_test_fork(attacker_main, &attackers[i]);
        close(attackers[i].port_from[0]);
    }
    choir_log_set_sink(count_line, NULL);
    server = serve(&token);
    port = port_of(server);
    resident = open_store(server, &token);
    CHOIR_CHECK_OK(choir_store_set(resident, K("k"), K("v")));
    honest += serve_honest(server, resident, &worst);
    before = resident_nbytes();
    heap_before = ch_mem_count(CH_SUB_STORE);
    for (int i = 0; i < ATTACKERS; i++)
        CHOIR_CHECK_EQ(write(attackers[i].port_from[1], &port, sizeof(port)),
                       (ssize_t)sizeof(port));
    while (!ended(pids[0]) || !ended(pids[1])) {
        honest += serve_honest(server, resident, &worst);
        usleep(1000); /* honest clients, not a third attacker */
    }
    for (int i = 0; i < ATTACKERS; i++) {
        choir_test_join(pids[i]);
        close(attackers[i].port_from[1]);
    }
    serve_honest(server, resident, &worst);
    after = resident_nbytes();
    heap_after = ch_mem_count(CH_SUB_STORE);
    printf("  %d hellos in %llu ms, %d lines of log; %d honest clients meanwhile, the slowest took "
           "%llu ms; resident memory %+ld KiB\n",
           count * ATTACKERS, (unsigned long long)((ch_now() - began) / CH_MS), logged.lines,
           honest, (unsigned long long)(worst / CH_MS), ((long)after - (long)before) / 1024);
    CHOIR_CHECK_LE(heap_after.live_bytes, heap_before.live_bytes + 64 * 1024);
    if (!KEEPS_WHAT_IS_FREED && choir_test_slowness() == 1)
        CHOIR_CHECK_LT(after, before + (1 << 20));
    CHOIR_CHECK_LT(worst / CH_MS, (uint64_t)slow(5000));
    CHOIR_CHECK_LE(2, honest);
    choir_store_close(resident);
    choir_store_server_destroy(server);
    choir_log_set_sink(NULL, NULL);
}

/* --- many clients, slow clients ------------------------------------------------------------------ */

static bool raise_descriptors(rlim_t wanted)
{
    struct rlimit limit;

    CHOIR_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur >= wanted)
        return true;
    limit.rlim_cur = wanted;
    if (limit.rlim_max < wanted)
        limit.rlim_max = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

CHOIR_TEST_TIMED(two_thousand_clients, 60)
{
    enum { CLIENTS = 2000 };
    choir_store_server *server;
    choir_store *store;
    int *fds = calloc(CLIENTS, sizeof(*fds));

    CHOIR_CHECK(fds != NULL);
    if (!raise_descriptors(2 * CLIENTS + 100)) {
        free(fds);
        CHOIR_SKIP("no permission for %d descriptors", 2 * CLIENTS + 100);
    }
    server = serve(&token);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = join_with(port_of(server), &token, (unsigned)i);
    for (int i = 0; i < CLIENTS; i++) /* all of them wait for one key */
        send_request(fds[i], CH_OP_GET, (uint32_t)i, "k");
    store = open_store(server, &token);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    for (int i = 0; i < CLIENTS; i++) {
        struct ch_wire_head reply = hear_reply(fds[i]);

        CHOIR_ROW("client %d", i);
        CHOIR_CHECK_EQ(reply.id, (uint32_t)i);
        CHOIR_CHECK_EQ(reply.code, (uint32_t)CHOIR_OK);
        CHOIR_CHECK_EQ(reply.body_nbytes, 5u);
    }
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    choir_store_close(store);
    choir_store_server_destroy(server);
    free(fds);
}

struct newcomer {
    const choir_store_server *server;
    pthread_t thread;
};

static void *come_in(void *arg)
{
    struct newcomer *newcomer = arg;
    choir_store *store = open_store(newcomer->server, &token);
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_add(store, K("here"), 1, &sum));
    choir_store_close(store);
    return NULL;
}

/* More at once than there is room for strangers: nobody is left outside. */
CHOIR_TEST_TIMED(a_burst_of_clients_gets_in, 60)
{
    enum { NEWCOMERS = CH_STRANGERS + 100 };
    choir_store_server *server;
    choir_store *store;
    struct newcomer *newcomers = calloc(NEWCOMERS, sizeof(*newcomers));
    int64_t sum;

    CHOIR_CHECK(newcomers != NULL);
    if (!raise_descriptors(8 * NEWCOMERS + 100)) {
        free(newcomers);
        CHOIR_SKIP("no permission for %d descriptors", 8 * NEWCOMERS + 100);
    }
    server = serve(&token);
    for (int i = 0; i < NEWCOMERS; i++) {
        newcomers[i].server = server;
        CHOIR_CHECK_EQ(pthread_create(&newcomers[i].thread, NULL, come_in, &newcomers[i]), 0);
    }
    for (int i = 0; i < NEWCOMERS; i++)
        pthread_join(newcomers[i].thread, NULL);
    store = open_store(server, &token);
    CHOIR_CHECK_OK(choir_store_add(store, K("here"), 0, &sum));
    CHOIR_CHECK_EQ(sum, (int64_t)NEWCOMERS);
    choir_store_close(store);
    choir_store_server_destroy(server);
    free(newcomers);
}

/* A client asks for a lot and reads nothing: others are served, the server does not pile it up, and
 * when it reads it gets everything. */
CHOIR_TEST(a_slow_client_holds_nobody_up)
{
    enum { VALUE = 64 * 1024, ASKED = 400 };
    choir_store_server *server = serve(&token);
    choir_store *store = open_store(server, &token);
    char *value = calloc(1, VALUE);
    int fd;

    CHOIR_CHECK(value != NULL);
    CHOIR_CHECK_OK(choir_store_set(store, K("large"), (choir_bytes){ value, VALUE }));
    fd = join_with(port_of(server), &token, 0);
    for (uint32_t i = 0; i < ASKED; i++)
        send_request(fd, CH_OP_GET, i, "large");
    for (int i = 0; i < 100; i++) {
        int64_t sum;

        CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, &sum));
        CHOIR_CHECK_LT(ch_mem_count(CH_SUB_STORE).live_bytes, (uint64_t)(4 << 20));
    }
    for (uint32_t i = 0; i < ASKED; i++) {
        struct ch_wire_head reply = hear_reply(fd);

        CHOIR_CHECK_EQ(reply.id, i);
        CHOIR_CHECK_EQ(reply.body_nbytes, (uint32_t)(VALUE + CH_WIRE_LENGTH_NBYTES));
    }
    close(fd);
    choir_store_close(store);
    choir_store_server_destroy(server);
    free(value);
}

/* A client that sends nonsense after its hello loses its connection, and nobody else does. */
CHOIR_TEST(nonsense_closes_one_connection)
{
    choir_store_server *server = serve(&token);
    int bad = join_with(port_of(server), &token, 0), good = join_with(port_of(server), &token, 0);
    unsigned char noise[CH_WIRE_HEAD_NBYTES];

    choir_log_set_sink(count_line, NULL);
    memset(noise, 0xff, sizeof(noise));
    CHOIR_CHECK(say(bad, noise, sizeof(noise)));
    CHOIR_CHECK(is_closed(bad));
    send_request(good, CH_OP_PING, 9, NULL);
    CHOIR_CHECK_EQ(hear_reply(good).id, 9u);
    close(bad);
    close(good);
    choir_store_server_destroy(server);
    choir_log_set_sink(NULL, NULL);
}

/* What a client still waits for when it goes is forgotten; what it has sent is carried out. */
CHOIR_TEST(a_client_that_leaves_is_forgotten)
{
    choir_store_server *server = serve(&token);
    choir_store *store = open_store(server, &token);
    ch_deadline until = ch_deadline_ms(slow(10000));
    uint64_t blocks;
    int64_t length;
    int fd;

    CHOIR_CHECK_OK(choir_store_queue_length(store, K("q"), &length)); /* now it is admitted */
    blocks = ch_mem_count(CH_SUB_STORE).live_blocks;
    fd = join_with(port_of(server), &token, 0);
    send_request(fd, CH_OP_POP, 1, "q");
    send_request(fd, CH_OP_GET, 2, "never");
    send_request(fd, CH_OP_PING, 3, NULL);
    CHOIR_CHECK_EQ(hear_reply(fd).id, 3u);
    close(fd);
    while (ch_mem_count(CH_SUB_STORE).live_blocks != blocks) {
        CHOIR_CHECK(!ch_deadline_passed(until));
        usleep(1000);
    }
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("element")));
    CHOIR_CHECK_OK(choir_store_queue_length(store, K("q"), &length));
    CHOIR_CHECK_EQ(length, (int64_t)1); /* the dead client did not get it */
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- descriptors --------------------------------------------------------------------------------- */

static struct {
    _Atomic bool none;   /* no descriptors are to be had */
    _Atomic int refused; /* how often that was found out */
} descriptors;

static int accept_if_there_are_any(int fd, struct sockaddr *addr_out, socklen_t *len_io)
{
    if (!descriptors.none)
        return ch_sys_real.accept(fd, addr_out, len_io);
    descriptors.refused++;
    errno = EMFILE;
    return -1;
}

/* Somebody wants in and there is no descriptor: the server rests, and takes it when there is one. */
CHOIR_TEST(out_of_descriptors_is_no_busy_loop)
{
    struct ch_sys_ops ops = ch_sys_real;
    choir_store_server *server;
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES];
    uint64_t began;
    int fd;

    choir_log_set_sink(count_line, NULL);
    ops.accept = accept_if_there_are_any;
    ch_sys_replace(&ops);
    descriptors.none = true;
    server = serve(&token);
    CHOIR_CHECK_OK(ch_hello_make(&token, hello));
    began = ch_now();
    fd = dial(port_of(server), 0);
    while (descriptors.refused < 4) {
        CHOIR_CHECK_LT((ch_now() - began) / CH_MS, (uint64_t)slow(10000));
        usleep(1000);
    }
    CHOIR_CHECK_LE((uint64_t)299, (ch_now() - began) / CH_MS); /* it rested three times */
    descriptors.none = false;
    CHOIR_CHECK(say(fd, hello, sizeof(hello)));
    CHOIR_CHECK_EQ(hear(fd, challenge, sizeof(challenge)), sizeof(challenge));
    close(fd);
    choir_store_server_destroy(server);
    ch_sys_replace(NULL);
    choir_log_set_sink(NULL, NULL);
}

/* --- the end ------------------------------------------------------------------------------------- */

CHOIR_TEST(a_server_ends_with_clients_connected)
{
    choir_store_server *server = serve(&token);
    int waits = join_with(port_of(server), &token, 0), idle = join_with(port_of(server), &token, 0);
    int stranger = dial(port_of(server), 0);

    send_request(waits, CH_OP_GET, 1, "never");
    send_request(idle, CH_OP_PING, 2, NULL);
    CHOIR_CHECK_EQ(hear_reply(idle).id, 2u);
    choir_store_server_destroy(server);
    CHOIR_CHECK(is_closed(waits));
    CHOIR_CHECK(is_closed(idle));
    CHOIR_CHECK(is_closed(stranger));
    close(waits);
    close(idle);
    close(stranger);
}

static void destroy_in_child(void *arg)
{
    choir_store_server *server;

    choir_store_server_destroy(arg); /* the parent's, whose thread is not here */
    CHOIR_CHECK_STATUS(choir_store_server_create(NULL, &server), CHOIR_ERR_FORKED);
}

CHOIR_TEST(a_fork_leaves_its_parents_server_alone)
{
    choir_store_server *server = serve(NULL);
    choir_store *store = open_store(server, NULL);

    choir_test_join(choir_test_fork(destroy_in_child, server));
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    choir_store_close(store);
    choir_store_server_destroy(server);
}
