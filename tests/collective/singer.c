/*
 * singer.c - a rank for tests of what happens when something breaks.
 *
 *   singer load [COUNT]    all-reduce after all-reduce of COUNT floats, each checked; "singing" when the first is
 *                          done, "rounds N" now and then. Ends when rank 0's standard input does, or when
 *                          a call fails: then says how and when, and what the next call says
 *   singer fork            the same, while another thread forks a child, whose calls must fail; the child then
 *                          lives on until its standard input ends
 *   singer late MS         rank 1 is late by that much; the others say what waiting cost them
 *   singer skip N MS [grow] some all-reduces, of which rank 2 leaves out number N; grow: each is longer than the one
 *                          before. Rank 2 is then busy until its standard input ends ("busy"); others wait for it
 *                          ("waiting") for MS at most
 *
 * The last line is JSON; times are of CLOCK_MONOTONIC.
 */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <choir/choir.h>
#include <choir/coll.h>

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* As JSON wants it. */
static void print_string(const char *name, const char *text)
{
    printf(", \"%s\": \"", name);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < ' ')
            printf("\\u%04x", *text);
        else
            putchar(*text);
    }
    putchar('"');
}

static choir_group *join(void)
{
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "choir_init: %s\n", choir_last_error());
        exit(3);
    }
    return group;
}

/* --- load ------------------------------------------------------------------------------------------------ */

static bool input_has_ended(void)
{
    struct pollfd fd = { .fd = 0, .events = POLLIN };
    char byte;

    return poll(&fd, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

/* Element 0 tells whether to stop; element i is rank + i + round, summed over all ranks. */
static void write_inputs(float *values, size_t count, int rank, long round, bool stop)
{
    values[0] = stop ? 1 : 0;
    for (size_t i = 1; i < count; i++)
        values[i] = (float)(rank + (int)(i % 100) + (int)(round % 100));
}

static void check_sums(const float *values, size_t count, int nranks, long round)
{
    int ranks = nranks * (nranks - 1) / 2;

    for (size_t i = 1; i < count; i++) {
        float want = (float)(ranks + nranks * ((int)(i % 100) + (int)(round % 100)));

        if (values[i] != want) {
            fprintf(stderr, "round %ld element %zu is %g, not %g\n", round, i, values[i], want);
            exit(4);
        }
    }
}

static void tell_failure(choir_group *group, long round, double failed, choir_error first,
                         int descriptors_before)
{
    float value = 0;
    double began = now(), took;
    choir_error again = { .culprit = CHOIR_NO_RANK };
    choir_status rc = choir_allreduce(group, CHOIR_BUF(&value, 1, CHOIR_F32), NULL, NULL);
    int rank = choir_group_rank(group);

    took = now() - began;
    if (rc != CHOIR_OK)
        again = *choir_last_error_record();
    choir_group_destroy(group);
    printf("{\"rank\": %d, \"round\": %ld, \"failed\": %.6f, \"code\": \"%s\", \"culprit\": %d",
           rank, round, failed, choir_status_name(first.code), first.culprit);
    print_string("operation", first.operation);
    print_string("text", first.text);
    printf(", \"again_code\": \"%s\", \"again_culprit\": %d, \"again_took\": %.6f, \"left\": %d",
           choir_status_name(rc), again.culprit, took, open_descriptors() - descriptors_before);
    print_string("again_text", again.text);
    printf("}\n");
}

static int load(size_t count)
{
    int before = open_descriptors();
    choir_group *group = join();
    int rank = choir_group_rank(group), nranks = choir_group_size(group);
    float *values = malloc(count * sizeof(*values));
    double told = now();
    bool stop = false;
    long round;

    if (values == NULL)
        return 3;
    for (round = 0; !stop; round++) {
        write_inputs(values, count, rank, round, rank == 0 && input_has_ended());
        if (choir_allreduce(group, CHOIR_BUF(values, count, CHOIR_F32), NULL, NULL) != CHOIR_OK) {
            double failed = now();

            tell_failure(group, round, failed, *choir_last_error_record(), before);
            free(values);
            return 0;
        }
        stop = values[0] != 0;
        check_sums(values, count, nranks, round);
        if (round == 0)
            puts("singing");
        if (now() - told > 0.1) {
            told = now();
            printf("rounds %ld\n", round);
        }
        fflush(stdout);
    }
    choir_group_destroy(group);
    free(values);
    printf("{\"rank\": %d, \"round\": %ld, \"code\": \"CHOIR_OK\", \"left\": %d}\n", rank, round,
           open_descriptors() - before);
    return 0;
}

/* --- fork ------------------------------------------------------------------------------------------------ */

struct forker {
    choir_group *group;
    _Atomic int result; /* 0: under way, 1: as it must be, 2: not */
};

/* The child of a fork: what it calls fails at once, and it goes on. */
static void be_child(choir_group *group)
{
    float value = 1;
    choir_status rcs[3];
    choir_group *again;
    char byte;

    rcs[0] = choir_allreduce(group, CHOIR_BUF(&value, 1, CHOIR_F32), NULL, NULL);
    rcs[1] = choir_barrier(group, NULL, NULL);
    rcs[2] = choir_init(&again, NULL);
    printf("child %d: %s %s %s: %s\n", (int)getpid(), choir_status_name(rcs[0]),
           choir_status_name(rcs[1]), choir_status_name(rcs[2]), choir_last_error());
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}

static void *fork_child(void *arg)
{
    choir_group *group = arg;

    if (fork() == 0)
        be_child(group);
    return NULL;
}

static int sing_and_fork(void)
{
    choir_group *group = join();
    int rank = choir_group_rank(group), nranks = choir_group_size(group);
    enum { COUNT = 100000, FORK_AT = 20 };
    float *values = malloc(COUNT * sizeof(*values));
    pthread_t thread;

    if (values == NULL)
        return 3;
    for (long round = 0;; round++) {
        write_inputs(values, COUNT, rank, round, false);
        if (rank == 1 && round == FORK_AT && pthread_create(&thread, NULL, fork_child, group) != 0)
            return 3;
        if (choir_allreduce(group, CHOIR_BUF(values, COUNT, CHOIR_F32), NULL, NULL) != CHOIR_OK) {
            double failed = now();

            tell_failure(group, round, failed, *choir_last_error_record(), 0);
            free(values);
            return 0;
        }
        check_sums(values, COUNT, nranks, round);
        if (round % 50 == 0)
            printf("rounds %ld\n", round);
        fflush(stdout);
    }
}

/* --- late ------------------------------------------------------------------------------------------------ */

static double cpu_ms(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-3;
}

enum waiting { IN_ALLREDUCE, IN_BARRIER, FOR_WORK, IN_RECV, NWAITINGS };

static choir_status meet(choir_group *group, enum waiting how)
{
    float values[16] = { 0 };
    choir_buf buf = CHOIR_BUF(values, 16, CHOIR_F32);
    choir_work *work;
    choir_status rc;

    switch (how) {
    case IN_ALLREDUCE:
        return choir_allreduce(group, buf, NULL, NULL);
    case IN_BARRIER:
        return choir_barrier(group, NULL, NULL);
    case FOR_WORK:
        rc = choir_allreduce(group, buf, NULL, &work);
        if (rc == CHOIR_OK) {
            rc = choir_work_wait(work, 0);
            choir_work_unref(work);
        }
        return rc;
    case IN_RECV:
        if (choir_group_rank(group) == 1)
            return choir_send(group, buf, 0, 5, NULL, NULL);
        return choir_group_rank(group) == 0 ? choir_recv(group, buf, 1, 5, NULL, NULL) : CHOIR_OK;
    case NWAITINGS:
        break;
    }
    return CHOIR_ERR_INVALID;
}

static int late(long ms)
{
    choir_group *group = join();
    int rank = choir_group_rank(group);
    struct timespec lateness = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    double used[NWAITINGS], waited[NWAITINGS];

    for (int how = 0; how < NWAITINGS; how++) {
        double began, cpu;

        if (choir_barrier(group, NULL, NULL) != CHOIR_OK)
            return 3;
        if (rank == 1)
            nanosleep(&lateness, NULL);
        began = now();
        cpu = cpu_ms();
        if (meet(group, (enum waiting)how) != CHOIR_OK) {
            fprintf(stderr, "%s\n", choir_last_error());
            return 3;
        }
        used[how] = cpu_ms() - cpu;
        waited[how] = (now() - began) * 1e3;
    }
    choir_group_destroy(group);
    printf(
        "{\"rank\": %d, \"used\": [%.3f, %.3f, %.3f, %.3f], \"waited\": [%.1f, %.1f, %.1f, %.1f]}\n",
        rank, used[0], used[1], used[2], used[3], waited[0], waited[1], waited[2], waited[3]);
    return 0;
}

/* --- skip ------------------------------------------------------------------------------------------------ */

static int skip(long skipped, long timeout_ms, bool grow)
{
    enum { COUNT = 1000, MORE = 3 };
    choir_group *group = join();
    int rank = choir_group_rank(group);
    float values[COUNT] = { 0 };
    choir_status rc = choir_group_set_timeout(group, timeout_ms);

    for (long round = 0; rc == CHOIR_OK && round <= skipped + MORE; round++) {
        if (rank == 2 && round == skipped)
            continue;
        if (rank != 2 && round == skipped + MORE) {
            puts("waiting");
            fflush(stdout);
        }
        rc = choir_allreduce(
            group, CHOIR_BUF(values, grow ? (size_t)(100 + round) : 100, CHOIR_F32), NULL, NULL);
    }
    if (rank == 2 && rc == CHOIR_OK) {
        puts("busy");
        fflush(stdout);
        while (!input_has_ended())
            nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
        rc = choir_barrier(group, NULL, NULL);
    }
    printf("{\"rank\": %d, \"code\": \"%s\"", rank, choir_status_name(rc));
    print_string("text", rc == CHOIR_OK ? "" : choir_last_error());
    printf("}\n");
    choir_group_destroy(group);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "load") == 0)
        return load(argc > 2 ? (size_t)atol(argv[2]) : 50000);
    if (argc == 2 && strcmp(argv[1], "fork") == 0)
        return sing_and_fork();
    if (argc == 3 && strcmp(argv[1], "late") == 0)
        return late(atol(argv[2]));
    if (argc >= 4 && strcmp(argv[1], "skip") == 0)
        return skip(atol(argv[2]), atol(argv[3]), argc > 4);
    fprintf(stderr, "usage: singer load [COUNT] | fork | late MS | skip N MS [grow]\n");
    return 2;
}
