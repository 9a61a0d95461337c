/* link_test.c - the client over TCP: whom it believes, whom it waits for, what it reports when. */
#include "store/link.h"

#include "choir_test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/log.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/server.h"

#define K(text) choir_str(text)

static const choir_token token = { { 1, 2, 3 } }, other = { { 4, 5, 6 } };

static int64_t slow(int64_t n)
{
    return n * (int64_t)choir_test_slowness();
}

static void hush(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    (void)line;
}

static choir_status open_at(const char *address, const choir_token *with, int64_t timeout_ms,
                            choir_store **store_out)
{
    char url[128];

    snprintf(url, sizeof(url), "tcp://%s", address);
    return choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = timeout_ms, .token = with),
                            store_out);
}

static choir_store *open_store(const choir_store_server *server)
{
    choir_store *store;

    CHOIR_CHECK_OK(open_at(choir_store_server_address(server), NULL, slow(10000), &store));
    return store;
}

static choir_store_server *serve(void)
{
    choir_store_server *server;

    CHOIR_CHECK_OK(choir_store_server_create(NULL, &server));
    return server;
}

/* --- whom it believes ---------------------------------------------------------------------------- */

static const struct {
    const choir_token *server, *client;
    const char *says;
} tokens[] = {
    { &token, &other, "does not hold the same token" },
    { &token, NULL, "the server wants a token and none was given" },
    { NULL, &token, "a token was given and the server has none" },
};

CHOIR_TEST(both_must_hold_the_same_token)
{
    choir_log_set_sink(hush, NULL);
    for (size_t i = 0; i < CH_ARRAY_LEN(tokens); i++) {
        choir_store_server *server;
        choir_store *store;
        uint64_t began = ch_now();

        CHOIR_ROW("%s", tokens[i].says);
        CHOIR_CHECK_OK(choir_store_server_create(
            CHOIR_OPTS(store_server_create, .token = tokens[i].server), &server));
        CHOIR_CHECK_STATUS(
            open_at(choir_store_server_address(server), tokens[i].client, slow(10000), &store),
            CHOIR_ERR_PERMISSION);
        CHOIR_CHECK_HAS(choir_last_error(), tokens[i].says);
        CHOIR_CHECK_HAS(choir_last_error(), choir_store_server_address(server));
        CHOIR_CHECK_LT((ch_now() - began) / CH_MS,
                       (uint64_t)slow(5000)); /* it does not try again */
        choir_store_server_destroy(server);
    }
    choir_log_set_sink(NULL, NULL);
}

/* Something else listens there: it answers with `words`, or closes at once if there are none. */
struct impostor {
    int listener;
    const char *words;
    size_t nbytes;
    char address[32];
    pthread_t thread;
};

static void *pretend(void *arg)
{
    struct impostor *impostor = arg;
    char hello[CH_HELLO_NBYTES];
    int fd;

    while ((fd = accept(impostor->listener, NULL, NULL)) >= 0) {
        if (impostor->words != NULL && recv(fd, hello, sizeof(hello), 0) > 0)
            (void)send(fd, impostor->words, impostor->nbytes, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void start_impostor(struct impostor *impostor, const char *words, size_t nbytes)
{
    struct sockaddr_in addr = { .sin_family = AF_INET };
    socklen_t len = sizeof(addr);

    impostor->words = words;
    impostor->nbytes = nbytes;
    impostor->listener = socket(AF_INET, SOCK_STREAM, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHOIR_CHECK_EQ(bind(impostor->listener, (struct sockaddr *)&addr, len), 0);
    CHOIR_CHECK_EQ(listen(impostor->listener, 16), 0);
    CHOIR_CHECK_EQ(getsockname(impostor->listener, (struct sockaddr *)&addr, &len), 0);
    snprintf(impostor->address, sizeof(impostor->address), "127.0.0.1:%d", ntohs(addr.sin_port));
    CHOIR_CHECK_EQ(pthread_create(&impostor->thread, NULL, pretend, impostor), 0);
}

static void stop_impostor(struct impostor *impostor)
{
    shutdown(impostor->listener, SHUT_RDWR);
    pthread_join(impostor->thread, NULL);
    close(impostor->listener);
}

static const struct {
    const char *words;
    size_t nbytes;
    choir_status rc;
    const char *says;
} impostors[] = {
    { "HTTP/1.1 400 Bad Request\r\n\r\n", 28, CHOIR_ERR_PROTO, "not a Choir store: it answered" },
    { "\x15\x03\x01\x00\x02\x02\x46", 7, CHOIR_ERR_PROTO, "TLS" },
    { "CHOIR\r\n\0\7\0\0\0\0\0\0\0................................"
      "................................................",
      96, CHOIR_ERR_UNSUPPORTED, "the server speaks version 7 of the protocol" },
    { NULL, 0, CHOIR_ERR_PROTO, "instead of answering a hello" },
};

CHOIR_TEST(what_is_no_store_is_told_apart)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(impostors); i++) {
        struct impostor impostor;
        choir_store *store;

        CHOIR_ROW("%s", impostors[i].says);
        start_impostor(&impostor, impostors[i].words, impostors[i].nbytes);
        CHOIR_CHECK_STATUS(open_at(impostor.address, &token, slow(20000), &store), impostors[i].rc);
        CHOIR_CHECK_HAS(choir_last_error(), impostors[i].says);
        CHOIR_CHECK_HAS(choir_last_error(), impostor.address);
        stop_impostor(&impostor);
    }
}

/* --- a server that is not there ------------------------------------------------------------------- */

/* A port on which nobody listens, and which nobody else can be given meanwhile; a server that asks for
 * it by number can have it. */
static int hold_port(char *address, size_t nbytes)
{
    struct sockaddr_in addr = { .sin_family = AF_INET };
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHOIR_CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    CHOIR_CHECK_EQ(bind(fd, (struct sockaddr *)&addr, len), 0);
    CHOIR_CHECK_EQ(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(address, nbytes, "127.0.0.1:%d", ntohs(addr.sin_port));
    return fd;
}

CHOIR_TEST(nobody_there_is_tried_until_the_deadline)
{
    char address[64];
    choir_store *store;
    uint64_t began, took;
    int held = hold_port(address, sizeof(address));

    began = ch_now();
    CHOIR_CHECK_STATUS(open_at(address, NULL, 300, &store), CHOIR_ERR_TIMEOUT);
    took = (ch_now() - began) / CH_MS;
    CHOIR_CHECK_LE((uint64_t)299, took);
    CHOIR_CHECK_LE(took, (uint64_t)(300 + slow(1000)));
    CHOIR_CHECK_HAS(choir_last_error(), "tried ");
    CHOIR_CHECK_HAS(choir_last_error(), "refused");
    CHOIR_CHECK_HAS(choir_last_error(), address);
    close(held);
}

struct late_comer {
    char address[64];
    choir_store_server *server;
};

static void *come_late(void *arg)
{
    struct late_comer *late = arg;

    usleep(100000); /* so that the client has been refused; if not, nothing is shown, nor wrong */
    CHOIR_CHECK_OK(choir_store_server_create(CHOIR_OPTS(store_server_create, .bind = late->address),
                                             &late->server));
    return NULL;
}

CHOIR_TEST(a_server_may_come_late)
{
    struct late_comer late = { .server = NULL };
    int held = hold_port(late.address, sizeof(late.address));
    choir_store *store;
    pthread_t thread;

    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, come_late, &late), 0);
    CHOIR_CHECK_OK(open_at(late.address, NULL, slow(10000), &store));
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    choir_store_close(store);
    choir_store_server_destroy(late.server);
    close(held);
}

/* --- a server that goes -------------------------------------------------------------------------- */

struct serving_child {
    int address_to[2];
};

static void serve_until_killed(void *arg)
{
    struct serving_child *child = arg;
    choir_store_server *server = serve();
    char address[64] = { 0 };

    snprintf(address, sizeof(address), "%s", choir_store_server_address(server));
    CHOIR_CHECK_EQ(write(child->address_to[1], address, sizeof(address)), (ssize_t)sizeof(address));
    for (;;)
        pause();
}

struct waiting_get {
    choir_store *store;
    const char *key;
    choir_status rc;
    char words[512];
    pthread_t thread;
};

static void *get_in_thread(void *arg)
{
    struct waiting_get *get = arg;
    choir_blob value;

    get->rc = choir_store_get(get->store, K(get->key), slow(20000), &value);
    if (get->rc == CHOIR_OK)
        choir_blob_free(&value);
    else
        snprintf(get->words, sizeof(get->words), "%s", choir_last_error());
    return NULL;
}

/* All who wait and all who come later, at once, with address and key. */
CHOIR_TEST(a_killed_server_ends_every_call)
{
    enum { WAITING = 4 };
    struct waiting_get gets[WAITING];
    struct serving_child child;
    choir_store *store, *clone;
    choir_blob value;
    char address[64];
    uint64_t began;
    int64_t sum;
    int pid;

    CHOIR_CHECK_EQ(pipe(child.address_to), 0);
    pid = choir_test_fork(serve_until_killed, &child);
    CHOIR_CHECK_EQ(read(child.address_to[0], address, sizeof(address)), (ssize_t)sizeof(address));
    CHOIR_CHECK_OK(open_at(address, NULL, slow(10000), &store));
    CHOIR_CHECK_OK(choir_store_clone(store, &clone));
    for (int i = 0; i < WAITING; i++) {
        gets[i] = (struct waiting_get){ .store = i % 2 == 0 ? store : clone, .key = "never" };
        CHOIR_CHECK_EQ(pthread_create(&gets[i].thread, NULL, get_in_thread, &gets[i]), 0);
    }
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, &sum)); /* while they wait */
    began = ch_now();
    CHOIR_CHECK_EQ(kill(pid, SIGKILL), 0);
    CHOIR_CHECK_EQ(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < WAITING; i++) {
        pthread_join(gets[i].thread, NULL);
        CHOIR_CHECK_STATUS(gets[i].rc, CHOIR_ERR_NETWORK);
        CHOIR_CHECK_HAS(gets[i].words, address);
        CHOIR_CHECK_HAS(gets[i].words, "never");
    }
    CHOIR_CHECK_LT((ch_now() - began) / CH_MS, (uint64_t)slow(1000));
    CHOIR_CHECK_STATUS(choir_store_get(clone, K("k"), 0, &value), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), address);
    CHOIR_CHECK_STATUS(choir_store_set(store, K("k"), K("v")), CHOIR_ERR_NETWORK);
    choir_store_close(clone);
    choir_store_close(store);
    close(child.address_to[0]);
    close(child.address_to[1]);
}

/* --- requests that are not waited for --------------------------------------------------------------- */

CHOIR_TEST(what_is_refused_later_is_reported_later)
{
    struct ch_table_limits limits = { .key_nbytes = 100,
                                      .value_nbytes = 1000,
                                      .total_nbytes = 5000 };
    static char value[1001];
    choir_store_server *server;
    choir_store *store;
    choir_status rc = CHOIR_OK;
    choir_blob blob;
    int64_t count;

    CHOIR_CHECK_OK(ch_store_server_create(NULL, &limits, &server));
    store = open_store(server);
    /* What the client can know it refuses itself. */
    CHOIR_CHECK_STATUS(choir_store_set(store, K("k"), (choir_bytes){ value, 1001 }),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "at most 1000");
    CHOIR_CHECK_STATUS(choir_store_set(store, (choir_bytes){ value, 101 }, K("v")),
                       CHOIR_ERR_INVALID);
    /* That it is full the server knows. */
    for (int i = 0; i < 100 && rc == CHOIR_OK; i++) {
        char key[16];

        snprintf(key, sizeof(key), "%d", i);
        rc = choir_store_set(store, K(key), (choir_bytes){ value, 1000 });
        if (rc == CHOIR_OK)
            rc = choir_store_count(store, &count);
    }
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "full");
    CHOIR_CHECK_HAS(choir_last_error(), "an earlier request");
    CHOIR_CHECK_HAS(choir_last_error(), "set \"4\": ");
    CHOIR_CHECK_OK(choir_store_count(store, &count)); /* told once */
    CHOIR_CHECK_LE(count, (int64_t)5);
    /* Who waits for what could not be set is told, too. */
    CHOIR_CHECK_OK(choir_store_set(store, K("too much"), (choir_bytes){ value, 1000 }));
    CHOIR_CHECK_STATUS(choir_store_get(store, K("too much"), slow(10000), &blob),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "full");
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* Set and gone: it arrives all the same, also if the server is slow to take it. */
CHOIR_TEST(closing_waits_for_what_was_sent)
{
    enum { LARGE = 4 << 20, COUNT = 50 };
    choir_store_server *server = serve();
    choir_store *store = open_store(server), *check = open_store(server);
    char *value = calloc(1, LARGE);
    choir_blob blob;
    int64_t count;

    CHOIR_CHECK(value != NULL);
    for (int i = 0; i < COUNT; i++) {
        char key[16];

        snprintf(key, sizeof(key), "%d", i);
        CHOIR_CHECK_OK(choir_store_set(store, K(key), K("v")));
    }
    CHOIR_CHECK_OK(choir_store_set(store, K("large"), (choir_bytes){ value, LARGE }));
    choir_store_close(store);
    CHOIR_CHECK_OK(choir_store_count(check, &count));
    CHOIR_CHECK_EQ(count, (int64_t)COUNT + 1);
    CHOIR_CHECK_OK(choir_store_get(check, K("large"), 0, &blob));
    CHOIR_CHECK_EQ(blob.nbytes, (size_t)LARGE);
    choir_blob_free(&blob);
    choir_store_close(check);
    choir_store_server_destroy(server);
    free(value);
}

/* --- the reader's role --------------------------------------------------------------------------- */

/* The first to wait reads for all; it gives up, and the next one must take over. */
CHOIR_TEST(when_the_reader_gives_up_another_reads)
{
    enum { WAITING = 3 };
    struct waiting_get gets[WAITING];
    choir_store_server *server = serve();
    choir_store *store = open_store(server), *away = open_store(server), *handles[WAITING];

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < WAITING; i++) {
            CHOIR_CHECK_OK(choir_store_clone(store, &handles[i]));
            gets[i] = (struct waiting_get){ .store = handles[i], .key = i == 0 ? "never" : "k" };
            CHOIR_CHECK_EQ(pthread_create(&gets[i].thread, NULL, get_in_thread, &gets[i]), 0);
        }
        choir_store_interrupt(handles[0]);
        pthread_join(gets[0].thread, NULL);
        CHOIR_CHECK_STATUS(gets[0].rc, CHOIR_ERR_INTERRUPTED);
        CHOIR_CHECK_OK(choir_store_set(away, K("k"), K("v")));
        for (int i = 1; i < WAITING; i++) {
            pthread_join(gets[i].thread, NULL);
            CHOIR_CHECK_STATUS(gets[i].rc, CHOIR_OK);
        }
        CHOIR_CHECK_OK(choir_store_delete(away, K("k"), &(bool){ false }));
        for (int i = 0; i < WAITING; i++)
            choir_store_close(handles[i]);
    }
    choir_store_close(away);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

struct mixed {
    choir_store *store;
    int number, rounds;
    pthread_t thread;
};

/* Small and large, quiet and not, waiting and not, all over one connection. */
static void *mix(void *arg)
{
    struct mixed *m = arg;
    size_t large = 200 * 1024 + (size_t)m->number * 1000;
    char *value = malloc(large), key[32], go[32];

    CHOIR_CHECK(value != NULL);
    memset(value, 'a' + m->number, large);
    snprintf(key, sizeof(key), "large/%d", m->number);
    for (int i = 0; i < m->rounds; i++) {
        choir_blob blob;
        int64_t sum;

        snprintf(go, sizeof(go), "go/%d/%d", i, m->number);
        CHOIR_CHECK_OK(choir_store_set(m->store, K(key), (choir_bytes){ value, large }));
        CHOIR_CHECK_OK(choir_store_set(m->store, K(go), K("1")));
        CHOIR_CHECK_OK(choir_store_add(m->store, K("n"), 1, &sum));
        snprintf(go, sizeof(go), "go/%d/%d", i, (m->number + 1) % 4); /* somebody else's */
        CHOIR_CHECK_OK(choir_store_get(m->store, K(go), 0, &blob));
        choir_blob_free(&blob);
        CHOIR_CHECK_OK(choir_store_get(m->store, K(key), 0, &blob));
        CHOIR_CHECK_EQ(blob.nbytes, large);
        CHOIR_CHECK_EQ(memcmp(blob.data, value, large), 0);
        choir_blob_free(&blob);
    }
    free(value);
    return NULL;
}

CHOIR_TEST(threads_share_a_connection)
{
    enum { THREADS = 4, ROUNDS = 30 };
    choir_store_server *server = serve();
    choir_store *store = open_store(server), *clone;
    struct mixed mixed[THREADS];
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_clone(store, &clone));
    for (int i = 0; i < THREADS; i++) {
        mixed[i] = (struct mixed){ .store = i % 2 == 0 ? store : clone,
                                   .number = i,
                                   .rounds = ROUNDS };
        CHOIR_CHECK_EQ(pthread_create(&mixed[i].thread, NULL, mix, &mixed[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(mixed[i].thread, NULL);
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 0, &sum));
    CHOIR_CHECK_EQ(sum, (int64_t)THREADS * ROUNDS);
    choir_store_close(clone);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- giving up a pop ------------------------------------------------------------------------------- */

struct popper {
    choir_store *store;
    _Atomic int *popped;
    _Atomic bool *stop;
    pthread_t thread;
};

/* Impatient: half of its pops end by their deadline, many of them just when an element comes. */
static void *pop_impatiently(void *arg)
{
    struct popper *p = arg;
    choir_blob element;

    while (!*p->stop) {
        choir_status rc = choir_store_queue_pop(p->store, K("q"), 1, &element);

        if (rc == CHOIR_OK) {
            (*p->popped)++;
            choir_blob_free(&element);
        } else {
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
        }
    }
    return NULL;
}

CHOIR_TEST(an_element_that_crosses_a_deadline_is_not_lost)
{
    enum { POPPERS = 3, PUSHED = 400 };
    choir_store_server *server = serve();
    choir_store *store = open_store(server), *pusher = open_store(server);
    struct popper poppers[POPPERS];
    _Atomic bool stop = false;
    _Atomic int popped = 0;
    struct choir_test_random r = { .state = 4711 };
    int64_t left;

    for (int i = 0; i < POPPERS; i++) {
        poppers[i] = (struct popper){ .store = store, .popped = &popped, .stop = &stop };
        CHOIR_CHECK_EQ(pthread_create(&poppers[i].thread, NULL, pop_impatiently, &poppers[i]), 0);
    }
    for (int i = 0; i < PUSHED; i++) {
        usleep((useconds_t)(choir_test_random(&r) % 1500));
        CHOIR_CHECK_OK(choir_store_queue_push(pusher, K("q"), K("element")));
    }
    CHOIR_CHECK_OK(choir_store_queue_length(pusher, K("q"), &left));
    stop = true;
    for (int i = 0; i < POPPERS; i++)
        pthread_join(poppers[i].thread, NULL);
    CHOIR_CHECK_OK(choir_store_queue_length(pusher, K("q"), &left));
    CHOIR_CHECK_EQ(popped + left, (int64_t)PUSHED);
    choir_store_close(pusher);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- faults -------------------------------------------------------------------------------------- */

static choir_status use_link(choir_store *store)
{
    static char large[100 * 1024];
    choir_blob value;
    choir_status rc = choir_store_set(store, K("k"), (choir_bytes){ large, sizeof(large) });

    if (rc == CHOIR_OK)
        rc = choir_store_get(store, K("k"), slow(2000), &value);
    if (rc == CHOIR_OK)
        choir_blob_free(&value);
    if (rc == CHOIR_OK)
        rc = choir_store_queue_pop(store, K("q"), 1,
                                   &value); /* cancelled, and the answer awaited */
    rc = rc == CHOIR_ERR_TIMEOUT ? CHOIR_OK : rc;
    if (rc == CHOIR_OK)
        rc = choir_store_set(store, K("last"), K("v")); /* closing makes sure of it */
    return rc;
}

static choir_status whole_life(void *arg)
{
    choir_store_server *server = NULL;
    choir_store *store = NULL;
    choir_status rc = choir_store_server_create(CHOIR_OPTS(store_server_create, .token = &token),
                                                &server);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = open_at(choir_store_server_address(server), &token, slow(2000), &store);
    if (rc == CHOIR_OK)
        rc = use_link(store);
    choir_store_close(store);
    choir_store_server_destroy(server);
    return rc;
}

CHOIR_TEST_TIMED(every_failing_call_is_an_error, 120)
{
    choir_log_set_sink(hush, NULL);
    choir_test_all_faults(whole_life, NULL);
    choir_log_set_sink(NULL, NULL);
}
