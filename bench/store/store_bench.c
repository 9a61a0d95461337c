/*
 * store_bench.c - our side of bench/store/compare_stores: a server, or a client that does as it is told.
 *
 * usage: store serve              prints where it listens, ends with its standard input
 *        store client ADDRESS ID  reads lines "CALL COUNT", does that many, answers in ns per call
 *
 * What a call needs (a value to read, elements to pop) is made before the clock starts. Calls that are
 * not waited for are followed by one that is, within the time: so they have arrived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <choir/choir.h>

enum { NKEYS = 8 }; /* of multi_get */

static choir_store *store;
static char key[64], names[NKEYS][80];

static void check(choir_status rc)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "store bench: %s\n", choir_last_error());
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- calls --------------------------------------------------------------------------------------- */

static choir_bytes value(void)
{
    return choir_str("0123456789abcdef");
}

static choir_bytes own(void)
{
    return choir_str(key);
}

/* One of many keys. */
static choir_bytes nth(long i)
{
    static char text[96];

    snprintf(text, sizeof(text), "%s/%ld", key, i);
    return choir_str(text);
}

static void round_trip(void)
{
    choir_bytes k = own();
    bool all;

    check(choir_store_check(store, &k, 1, &all));
}

static void do_set(long i)
{
    (void)i;
    check(choir_store_set(store, own(), value()));
}

static void set_nth(long i)
{
    check(choir_store_set(store, nth(i), value()));
}

static void do_get(long i)
{
    choir_blob blob;

    (void)i;
    check(choir_store_get(store, own(), 0, &blob));
    choir_blob_free(&blob);
}

static void do_add(long i)
{
    int64_t sum;

    (void)i;
    check(choir_store_add(store, choir_str(names[0]), 1, &sum));
}

static void reset_number(long i)
{
    (void)i;
    check(choir_store_set(store, choir_str(names[0]), choir_str("0")));
}

static void do_compare_set(long i)
{
    choir_blob blob;

    (void)i;
    check(choir_store_compare_set(store, own(), value(), value(), &blob));
    choir_blob_free(&blob);
}

static void do_check(long i)
{
    (void)i;
    round_trip();
}

static void do_wait(long i)
{
    choir_bytes k = own();

    (void)i;
    check(choir_store_wait(store, &k, 1, 0));
}

static void set_all(long i)
{
    (void)i;
    for (int n = 0; n < NKEYS; n++)
        check(choir_store_set(store, choir_str(names[n]), value()));
}

static void do_multi_get(long i)
{
    choir_bytes keys[NKEYS];
    choir_blob *list;

    (void)i;
    for (int n = 0; n < NKEYS; n++)
        keys[n] = choir_str(names[n]);
    check(choir_store_multi_get(store, keys, NKEYS, 0, &list));
    choir_blob_free_list(list, NKEYS);
}

static void do_append(long i)
{
    (void)i;
    check(choir_store_append(store, own(), value()));
}

static void do_delete(long i)
{
    bool removed;

    check(choir_store_delete(store, nth(i), &removed));
}

static void do_push(long i)
{
    (void)i;
    check(choir_store_queue_push(store, own(), value()));
}

static void do_pop(long i)
{
    choir_blob blob;

    (void)i;
    check(choir_store_queue_pop(store, own(), 0, &blob));
    choir_blob_free(&blob);
}

static void do_count(long i)
{
    int64_t count;

    (void)i;
    check(choir_store_count(store, &count));
}

static void do_list(long i)
{
    choir_blob *list;
    size_t count;

    (void)i;
    check(choir_store_list(store, &list, &count));
    choir_blob_free_list(list, count);
}

/* `before` runs once, `each` and `after` as often as the call, but only `call` is timed. */
static const struct {
    const char *name;
    void (*before)(long i), (*each)(long i), (*call)(long i), (*after)(long i);
    bool quiet; /* not waited for */
} calls[] = {
    { "set", NULL, NULL, do_set, NULL, true },
    { "get", do_set, NULL, do_get, NULL, false },
    { "add", reset_number, NULL, do_add, NULL, false },
    { "compare_set", do_set, NULL, do_compare_set, NULL, false },
    { "check", do_set, NULL, do_check, NULL, false },
    { "wait", do_set, NULL, do_wait, NULL, false },
    { "multi_get", set_all, NULL, do_multi_get, NULL, false },
    { "append", do_set, NULL, do_append, NULL, true },
    { "delete", NULL, set_nth, do_delete, NULL, false },
    { "queue_push", NULL, NULL, do_push, do_pop, true },
    { "queue_pop", NULL, do_push, do_pop, NULL, false },
    { "num_keys", do_set, NULL, do_count, NULL, false },
    { "list_keys", set_all, NULL, do_list, NULL, false },
};

static double run(const char *name, long count)
{
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        uint64_t began, took;

        if (strcmp(calls[c].name, name) != 0)
            continue;
        if (calls[c].before != NULL)
            calls[c].before(0);
        for (long i = 0; calls[c].each != NULL && i < count; i++)
            calls[c].each(i);
        round_trip();
        began = now_ns();
        for (long i = 0; i < count; i++)
            calls[c].call(i);
        if (calls[c].quiet)
            round_trip();
        took = now_ns() - began;
        for (long i = 0; calls[c].after != NULL && i < count; i++)
            calls[c].after(i);
        return (double)took / (double)count;
    }
    fprintf(stderr, "store bench: no call \"%s\"\n", name);
    exit(2);
}

/* --- roles --------------------------------------------------------------------------------------- */

static int serve(void)
{
    choir_store_server *server;

    check(choir_store_server_create(NULL, &server));
    printf("%s\n", choir_store_server_address(server));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    choir_store_server_destroy(server);
    return 0;
}

static int client(const char *address, const char *id)
{
    char url[128], name[32];
    long count;

    snprintf(url, sizeof(url), "tcp://%s", address);
    snprintf(key, sizeof(key), "bench/%s", id);
    for (int n = 0; n < NKEYS; n++)
        snprintf(names[n], sizeof(names[n]), "%s/many/%d", key, n);
    check(choir_store_open(url, NULL, &store));
    printf("ready\n");
    fflush(stdout);
    while (scanf("%31s %ld", name, &count) == 2) {
        printf("%.1f\n", run(name, count));
        fflush(stdout);
    }
    choir_store_close(store);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return serve();
    if (argc == 4 && strcmp(argv[1], "client") == 0)
        return client(argv[2], argv[3]);
    fprintf(stderr, "usage: store serve | store client ADDRESS ID\n");
    return 2;
}
