/*
 * store_torch_test.c - our client of PyTorch's protocol and servers that are slow, old, odd or gone.
 *
 * What every store promises is in store_test.c, PyTorch's real servers are in tests/torch/.
 */
#include "../io/io_test.h"

#include <pthread.h>
#include <unistd.h>

#include <choir/choir.h>

#include "io/sock.h"
#include "store/torch_wire.h"

#define K(text) choir_str(text)

static int64_t slow(int64_t ms)
{
    return ms * (int64_t)choir_test_slowness();
}

static choir_store *open_at(const char *address, int64_t timeout_ms)
{
    choir_store *store;
    char url[128];

    snprintf(url, sizeof(url), "tcp://%s?protocol=torch", address);
    CHOIR_CHECK_OK(choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = timeout_ms), &store));
    return store;
}

static choir_store_server *start_server(const char *where)
{
    choir_store_server *server;

    CHOIR_CHECK_OK(
        choir_store_server_create(CHOIR_OPTS(store_server_create, .torch_bind = where), &server));
    return server;
}

static void check_get(choir_store *store, const char *key, const char *want)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, K(key), 0, &value));
    CHOIR_CHECK_STR(value.data, want);
    choir_blob_free(&value);
}

/* --- a server that does what its script says ------------------------------------------------------- */

/* One connection, step by step. */
struct step {
    size_t request_nbytes; /* read that many */
    const char *reply;     /* NULL: the last four bytes of the request */
    size_t reply_nbytes;
    bool on_cue; /* reply when the test says so */
};

/* VALIDATE and PING. */
static const struct step greeting = { 10, NULL, 4, false };

struct script {
    const struct step *hello; /* NULL: says nothing until the client goes */
    const struct step *steps;
    int nsteps;
    int listener;
    struct rig rig;
    _Atomic int cue; /* steps on cue that may go on */
    char address[CH_ADDR_TEXT_MAX];
    pthread_t thread;
};

static bool has_cue(void *arg)
{
    return atomic_load_explicit((_Atomic int *)arg, memory_order_acquire) > 0;
}

static bool play_step(struct script *script, int fd, const struct step *step)
{
    struct ch_patience patience = ample(&script->rig);
    unsigned char bytes[512];

    CHOIR_CHECK_LE(step->request_nbytes, sizeof(bytes));
    if (ch_sock_recv_all(fd, bytes, step->request_nbytes, &patience) != CHOIR_OK)
        return false;
    if (step->on_cue) {
        wait_until(has_cue, &script->cue, "the cue");
        atomic_fetch_sub(&script->cue, 1);
    }
    return ch_sock_send_all(fd, step->reply != NULL ? step->reply : (char *)bytes + 6,
                            step->reply_nbytes, &patience) == CHOIR_OK;
}

static void *play(void *arg)
{
    struct script *script = arg;
    struct ch_patience patience = ample(&script->rig);
    unsigned char byte;
    bool goes_on;
    int fd;

    if (ch_sock_accept(script->listener, &patience, &fd) != CHOIR_OK)
        return NULL;
    goes_on = script->hello != NULL && play_step(script, fd, script->hello);
    for (int i = 0; i < script->nsteps && goes_on; i++)
        goes_on = play_step(script, fd, &script->steps[i]);
    while (script->hello == NULL && ch_sock_recv_all(fd, &byte, 1, &patience) == CHOIR_OK)
        ;
    ch_sys_close(fd);
    return NULL;
}

static void start_script(struct script *script)
{
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);

    CHOIR_CHECK_OK(rig_init(&script->rig));
    CHOIR_CHECK_OK(ch_sock_listen(&addr, &script->listener));
    CHOIR_CHECK_OK(ch_sock_local_addr(script->listener, &addr));
    ch_addr_text(&addr, script->address);
    CHOIR_CHECK_EQ(pthread_create(&script->thread, NULL, play, script), 0);
}

static void end_script(struct script *script)
{
    pthread_join(script->thread, NULL);
    ch_sys_close(script->listener);
    rig_fini(&script->rig);
}

/* --- connecting ------------------------------------------------------------------------------------ */

CHOIR_TEST(a_silent_server_is_given_up)
{
    struct script script = { .hello = NULL };
    uint64_t began = ch_now();
    choir_store *store;
    char url[128];

    start_script(&script);
    snprintf(url, sizeof(url), "tcp://%s?protocol=torch", script.address);
    CHOIR_CHECK_STATUS(choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = 100), &store),
                       CHOIR_ERR_TIMEOUT);
    check_took_about(began, 100);
    CHOIR_CHECK_HAS(choir_last_error(), script.address);
    end_script(&script);
}

CHOIR_TEST(nobody_there_is_said_with_the_tries)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    uint64_t began;
    choir_store *store;
    char url[128];

    snprintf(url, sizeof(url), "tcp://%s?protocol=torch", choir_store_server_torch_address(server));
    choir_store_server_destroy(server);
    began = ch_now();
    CHOIR_CHECK_STATUS(choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = 100), &store),
                       CHOIR_ERR_TIMEOUT);
    check_took_about(began, 100);
    CHOIR_CHECK_HAS(choir_last_error(), "ECONNREFUSED");
    CHOIR_CHECK_HAS(choir_last_error(), "tried ");
    CHOIR_CHECK_HAS(choir_last_error(), url);
}

CHOIR_TEST(what_is_no_tcpstore_is_refused_at_once)
{
    static const struct step http = { 10, "HTTP", 4, false };
    struct script script = { .hello = &http };
    choir_store *store;
    char url[128];

    start_script(&script);
    snprintf(url, sizeof(url), "tcp://%s?protocol=torch", script.address);
    CHOIR_CHECK_STATUS(choir_store_open(url, NULL, &store), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "no TCPStore");
    end_script(&script);
}

struct opening {
    const char *address;
    choir_store *store;
};

static void *open_in_thread(void *arg)
{
    struct opening *opening = arg;

    opening->store = open_at(opening->address, slow(20000));
    return NULL;
}

CHOIR_TEST(a_server_may_come_later)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    struct opening opening;
    pthread_t thread;
    char address[CH_ADDR_TEXT_MAX];

    snprintf(address, sizeof(address), "%s", choir_store_server_torch_address(server));
    choir_store_server_destroy(server);
    opening.address = address;
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, open_in_thread, &opening), 0);
    usleep(
        20000); /* most likely it has been refused by now; if not, the test is weaker, not wrong */
    server = start_server(address);
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(choir_store_set(opening.store, K("k"), K("v")));
    check_get(opening.store, "k", "v");
    choir_store_close(opening.store);
    choir_store_server_destroy(server);
}

CHOIR_TEST(a_token_is_refused)
{
    choir_token token = { { 1 } };
    choir_store *store;

    CHOIR_CHECK_STATUS(choir_store_open("tcp://127.0.0.1:1?protocol=torch",
                                        CHOIR_OPTS(store_open, .token = &token), &store),
                       CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "token");
}

/* --- a server that goes ---------------------------------------------------------------------------- */

CHOIR_TEST(a_server_that_has_gone_is_said_and_may_come_back)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    char address[CH_ADDR_TEXT_MAX];
    int64_t sum;

    snprintf(address, sizeof(address), "%s", choir_store_server_torch_address(server));
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, &sum));
    choir_store_server_destroy(server);
    CHOIR_CHECK_STATUS(choir_store_set(store, K("k"), K("v")), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), address);
    CHOIR_CHECK_HAS(choir_last_error(), "\"k\"");
    CHOIR_CHECK_STATUS(choir_store_add(store, K("n"), 1, &sum), CHOIR_ERR_NETWORK);
    server = start_server(address);
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, &sum));
    CHOIR_CHECK_EQ(sum, 1); /* another server: what was stored is gone, and we heard of it */
    choir_store_close(store);
    choir_store_server_destroy(server);
}

CHOIR_TEST(what_may_be_lost_is_said)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    bool all;

    CHOIR_CHECK_OK(choir_store_set(store, K("a"), K("1")));
    CHOIR_CHECK_OK(choir_store_set(store, K("b"), K("2")));
    choir_store_server_destroy(server);
    CHOIR_CHECK_STATUS(choir_store_check(store, &(choir_bytes){ "a", 1 }, 1, &all),
                       CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "2 earlier requests");
    choir_store_close(store);
}

CHOIR_TEST(adding_to_no_number_costs_that_call_only)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    int64_t sum;

    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("no number")));
    CHOIR_CHECK_STATUS(choir_store_add(store, K("k"), 1, &sum), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "not a number");
    check_get(store, "k", "no number");
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 7, &sum));
    CHOIR_CHECK_EQ(sum, 7);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- replies that come late or wrong ---------------------------------------------------------------- */

/* ADD "/n" 1, and what it says. */
#define FIVE "\x05\0\0\0\0\0\0\0"
#define SIX  "\x06\0\0\0\0\0\0\0"

CHOIR_TEST(a_late_reply_is_not_taken_for_the_next_one)
{
    static const struct step steps[] = { { 19, FIVE, 8, true }, { 19, SIX, 8, false } };
    struct script script = { .hello = &greeting, .steps = steps, .nsteps = 2 };
    choir_store *store;
    int64_t sum = 0;

    start_script(&script);
    store = open_at(script.address, slow(10000));
    CHOIR_CHECK_OK(choir_store_set_timeout(store, 50));
    CHOIR_CHECK_STATUS(choir_store_add(store, K("n"), 1, &sum), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_OK(choir_store_set_timeout(store, slow(10000)));
    atomic_fetch_add(&script.cue, 1);
    CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, &sum));
    CHOIR_CHECK_EQ(sum, 6);
    choir_store_close(store);
    end_script(&script);
}

static const struct {
    const char *why, *reply;
    size_t nbytes;
    choir_status want;
} wrong[] = {
    { "closed in the middle", "\x05\0\0", 3, CHOIR_ERR_NETWORK },
    { "closed instead of a reply", "", 0, CHOIR_ERR_NETWORK },
    { "more than the reply has", FIVE "x", 9, CHOIR_ERR_PROTO },
};

CHOIR_TEST(wrong_replies_are_errors)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(wrong); i++) {
        const struct step step = { 19, wrong[i].reply, wrong[i].nbytes, false };
        struct script script = { .hello = &greeting, .steps = &step, .nsteps = 1 };
        choir_store *store;
        int64_t sum;

        CHOIR_ROW("%s", wrong[i].why);
        start_script(&script);
        store = open_at(script.address, slow(10000));
        CHOIR_CHECK_STATUS(choir_store_add(store, K("n"), 1, &sum), wrong[i].want);
        choir_store_close(store);
        end_script(&script);
    }
}

/* QUEUE_POP and others in a row: a length beyond belief is refused before memory is asked for. */
CHOIR_TEST(lengths_beyond_belief_are_refused)
{
    static const struct step steps[] = {
        { 28, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, false },
    };
    struct script script = { .hello = &greeting, .steps = steps, .nsteps = 1 };
    choir_store *store;
    choir_blob value;

    start_script(&script);
    store = open_at(script.address, slow(10000));
    CHOIR_CHECK_STATUS(choir_store_compare_set(store, K("c"), K(""), K("x"), &value),
                       CHOIR_ERR_PROTO);
    choir_store_close(store);
    end_script(&script);
}

/* --- an older server ------------------------------------------------------------------------------- */

/*
 * A go-between in front of our own server that closes at commands which PyTorch's older servers do not
 * know. It takes the first byte of what comes at once for the command: our client sends one request at
 * a time, and small ones in one piece.
 */
enum { PAIRS = 32 };

struct elder {
    enum ch_torch_command unknown_from;
    char behind[CH_ADDR_TEXT_MAX], address[CH_ADDR_TEXT_MAX];
    int listener, stop[2];
    int fds[PAIRS][2]; /* client, server */
    struct rig rig;
    pthread_t thread;
};

static void elder_accept(struct elder *elder)
{
    struct ch_patience patience = ample(&elder->rig);
    int i = 0;

    while (i < PAIRS && elder->fds[i][0] >= 0)
        i++;
    CHOIR_CHECK_LT(i, PAIRS);
    if (ch_sock_accept_now(elder->listener, &elder->fds[i][0]) != CHOIR_OK)
        return;
    CHOIR_CHECK_OK(ch_sock_connect(elder->behind, &patience, &elder->fds[i][1]));
}

static void elder_close(struct elder *elder, int i)
{
    for (int end = 0; end < 2; end++) {
        ch_sys_close(elder->fds[i][end]);
        elder->fds[i][end] = -1;
    }
}

static void elder_forward(struct elder *elder, int i, int from)
{
    struct ch_patience patience = ample(&elder->rig);
    unsigned char bytes[65536];
    size_t n;
    choir_status rc = ch_sock_recv_now(elder->fds[i][from], bytes, sizeof(bytes), &n);

    if (rc == CHOIR_IN_PROGRESS)
        return;
    if (rc == CHOIR_OK && !(from == 0 && bytes[0] >= (int)elder->unknown_from))
        rc = ch_sock_send_all(elder->fds[i][!from], bytes, n, &patience);
    else
        rc = CHOIR_ERR_NETWORK;
    if (rc != CHOIR_OK)
        elder_close(elder, i);
}

static void *be_elder(void *arg)
{
    struct elder *elder = arg;

    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS] = { { .fd = elder->listener, .events = POLLIN },
                                             { .fd = elder->stop[0], .events = POLLIN } };

        for (int i = 0; i < 2 * PAIRS; i++)
            fds[2 + i] = (struct pollfd){ .fd = elder->fds[i / 2][i % 2], .events = POLLIN };
        if (poll(fds, CH_ARRAY_LEN(fds), -1) < 0)
            continue;
        if (fds[1].revents != 0)
            break;
        if (fds[0].revents != 0)
            elder_accept(elder);
        for (int i = 0; i < 2 * PAIRS; i++) {
            if (fds[2 + i].revents != 0 && elder->fds[i / 2][0] >= 0)
                elder_forward(elder, i / 2, i % 2);
        }
    }
    for (int i = 0; i < PAIRS; i++)
        elder_close(elder, i);
    return NULL;
}

static void start_elder(struct elder *elder, choir_store_server *server,
                        enum ch_torch_command unknown_from)
{
    struct ch_addr addr = ch_addr_loopback(AF_INET, 0);

    memset(elder, 0, sizeof(*elder));
    memset(elder->fds, 0xff, sizeof(elder->fds));
    elder->unknown_from = unknown_from;
    snprintf(elder->behind, sizeof(elder->behind), "%s", choir_store_server_torch_address(server));
    CHOIR_CHECK_OK(rig_init(&elder->rig));
    CHOIR_CHECK_OK(ch_sock_listen(&addr, &elder->listener));
    CHOIR_CHECK_OK(ch_sock_local_addr(elder->listener, &addr));
    ch_addr_text(&addr, elder->address);
    CHOIR_CHECK_EQ(pipe(elder->stop), 0);
    CHOIR_CHECK_EQ(pthread_create(&elder->thread, NULL, be_elder, elder), 0);
}

static void end_elder(struct elder *elder)
{
    close(elder->stop[1]);
    pthread_join(elder->thread, NULL);
    close(elder->stop[0]);
    ch_sys_close(elder->listener);
    rig_fini(&elder->rig);
}

static void *barrier_in_thread(void *arg)
{
    CHOIR_CHECK_OK(choir_store_barrier(arg, K("b"), 3, slow(10000)));
    return NULL;
}

static void check_barrier_of_three(choir_store *store)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, barrier_in_thread, store), 0);
    CHOIR_CHECK_OK(choir_store_barrier(store, K("b"), 3, slow(10000)));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

CHOIR_TEST(an_older_server_lacks_some_calls)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    struct elder elder;
    choir_store *store;
    choir_blob value, *keys;
    int64_t length, count;
    size_t nkeys;

    start_elder(&elder, server, CH_TORCH_QUEUE_PUSH);
    store = open_at(elder.address, slow(10000));
    CHOIR_CHECK_STATUS(choir_store_queue_push(store, K("q"), K("x")), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "queues");
    CHOIR_CHECK_STATUS(choir_store_queue_pop(store, K("q"), 0, &value), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_STATUS(choir_store_queue_try_pop(store, K("q"), &value), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_STATUS(choir_store_queue_length(store, K("q"), &length), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_STATUS(choir_store_list(store, &keys, &nkeys), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "listing");
    check_barrier_of_three(store);
    CHOIR_CHECK_OK(choir_store_barrier(store, K("b"), 3, slow(10000))); /* late ones pass */
    check_get(store, "b/num_members", "4"); /* as PyTorch's clients of that time do it */
    check_get(store, "b/last_member", "1");
    CHOIR_CHECK_OK(choir_store_count(store, &count));
    CHOIR_CHECK_EQ(count, 2); /* asking what the server knows left nothing */
    choir_store_close(store);
    end_elder(&elder);
    choir_store_server_destroy(server);
}

CHOIR_TEST(what_a_server_knows_is_found_out_without_a_trace)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    choir_blob *keys;
    int64_t count;
    size_t nkeys;

    check_barrier_of_three(store);
    check_get(store, "b", "3");
    CHOIR_CHECK_OK(choir_store_list(store, &keys, &nkeys));
    CHOIR_CHECK_EQ(nkeys, 1);
    CHOIR_CHECK_STR(keys[0].data, "b");
    choir_blob_free_list(keys, nkeys);
    CHOIR_CHECK_OK(choir_store_count(store, &count));
    CHOIR_CHECK_EQ(count, 1);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- waiting --------------------------------------------------------------------------------------- */

/* A wait that gives up costs no connection, nor does the next one. */
CHOIR_TEST(connections_are_used_again)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    choir_blob value;
    int fds;

    CHOIR_CHECK_OK(choir_store_barrier(store, K("b"), 1, 0)); /* has made the connection */
    fds = ch_sys_fd_count();
    for (int i = 0; i < 20; i++) {
        CHOIR_CHECK_STATUS(choir_store_get(store, K("never"), 1, &value), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(choir_last_error(), "never");
        CHOIR_CHECK_LE(ch_sys_fd_count(), fds);
    }
    CHOIR_CHECK_OK(choir_store_set(store, K("never"), K("after all")));
    check_get(store, "never", "after all");
    choir_store_close(store);
    choir_store_server_destroy(server);
}

static void *get_slowly(void *arg)
{
    check_get(arg, "late", "value");
    return NULL;
}

/* Many threads wait at once, more than connections are kept; all are told. */
CHOIR_TEST(many_waits_at_once)
{
    enum { WAITS = 24 };
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    pthread_t threads[WAITS];
    bool all;

    for (int i = 0; i < WAITS; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, get_slowly, store), 0);
    for (int i = 0; i < 50; i++) /* nobody holds these up */
        CHOIR_CHECK_OK(choir_store_check(store, &(choir_bytes){ "late", 4 }, 1, &all));
    CHOIR_CHECK_OK(choir_store_set(store, K("late"), K("value")));
    for (int i = 0; i < WAITS; i++)
        pthread_join(threads[i], NULL);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* A value of the queue's name: the server sees nothing to wait for, and we must not spin on it. */
CHOIR_TEST(a_pop_beside_a_value_of_that_name)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    uint64_t began = ch_now();
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_set(store, K("q"), K("a value")));
    CHOIR_CHECK_STATUS(choir_store_queue_pop(store, K("q"), 50, &value), CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("an element")));
    CHOIR_CHECK_OK(choir_store_queue_pop(store, K("q"), 0, &value));
    CHOIR_CHECK_STR(value.data, "an element");
    choir_blob_free(&value);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* --- limits ---------------------------------------------------------------------------------------- */

CHOIR_TEST(what_the_server_would_close_for_is_not_sent)
{
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(10000));
    static char big[CH_TORCH_VALUE_MAX + 1], key[CH_TORCH_KEY_MAX];
    choir_bytes keys[2] = { K("a"), { key, sizeof(key) } }, values[2] = { K("1"), K("2") };
    int64_t count;
    bool all;

    memset(key, 'k', sizeof(key));
    CHOIR_CHECK_STATUS(choir_store_set(store, K("v"), (choir_bytes){ big, sizeof(big) }),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_set(store, keys[1], K("v")), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_check(store, keys, 2, &all), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_store_multi_set(store, keys, values, 2), CHOIR_ERR_INVALID);
    CHOIR_CHECK_OK(choir_store_count(store, &count));
    CHOIR_CHECK_EQ(count, 0);
    CHOIR_CHECK_OK(choir_store_set(store, (choir_bytes){ key, sizeof(key) - 1 },
                                   (choir_bytes){ big, sizeof(big) - 1 }));
    CHOIR_CHECK_OK(choir_store_append(store, (choir_bytes){ key, sizeof(key) - 1 }, K("more")));
    CHOIR_CHECK_OK(choir_store_count(store, &count));
    CHOIR_CHECK_EQ(count, 1);
    choir_store_close(store);
    choir_store_server_destroy(server);
}

/* More keys than one request may have: in parts. */
CHOIR_TEST_TIMED(very_many_keys, 60)
{
    enum { COUNT = CH_TORCH_COUNT_MAX + 10 };
    choir_store_server *server = start_server("127.0.0.1:0");
    choir_store *store = open_at(choir_store_server_torch_address(server), slow(30000));
    choir_bytes *keys = malloc(COUNT * sizeof(*keys));
    char(*names)[8] = malloc(COUNT * sizeof(*names));
    choir_blob *values;
    bool all;

    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        keys[i] = K(names[i]);
    }
    CHOIR_CHECK_OK(choir_store_multi_set(store, keys, keys, COUNT));
    CHOIR_CHECK_OK(choir_store_check(store, keys, COUNT, &all));
    CHOIR_CHECK(all);
    CHOIR_CHECK_OK(choir_store_wait(store, keys, COUNT, 0));
    CHOIR_CHECK_OK(choir_store_multi_get(store, keys, COUNT, 0, &values));
    for (int i = 0; i < COUNT; i++)
        CHOIR_CHECK_STR(values[i].data, names[i]);
    choir_blob_free_list(values, COUNT);
    choir_store_close(store);
    choir_store_server_destroy(server);
    free(keys);
    free(names);
}
