/*
 * mpi_exchange.c - what the scripts beside this start under mpirun and mpiexec.
 *
 *   mpi_exchange WORD...
 *
 * Does the words in turn: share (an exchange through the launcher's key-value space), lonely (the same by
 * all but the last rank, with a short deadline: must time out), stagger (rank 0 goes on at once, others
 * wait a second), exit=N; and, if built with USE_MPI: mpi-init, mpi-sum, mpi-finalize. Prints one line
 * per word that has something to say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "group/kvs.h"

#ifdef USE_MPI
#include <mpi.h>
#endif

static struct ch_bell_word word;
static struct ch_waiter waiter;
static int rank = -1, nshares;

_Noreturn static void failed(const char *what)
{
    printf("%s: %s\n", what, choir_last_error());
    exit(EXIT_FAILURE);
}

static struct ch_patience patience(int64_t ms)
{
    return (struct ch_patience){ .waiter = &waiter, .until = ch_deadline_ms(ms) };
}

static struct ch_kvs *open_kvs(void)
{
    struct ch_patience long_enough = patience(60000);
    struct ch_kvs *kvs;

    if (ch_kvs_open(NULL, &long_enough, &kvs) != CHOIR_OK)
        failed("open");
    rank = ch_kvs_rank(kvs);
    return kvs;
}

/* Awkward on purpose: what separates words and fields for the launchers. */
static void share(void)
{
    struct ch_patience long_enough = patience(60000);
    char value[CH_KVS_VALUE_MAX], got[CH_KVS_VALUE_MAX] = "";
    struct ch_kvs *kvs = open_kvs();

    snprintf(value, sizeof(value), "number=%d; key=[::1]:1 %%s \"%0200d\"", nshares, nshares);
    if (ch_kvs_share(kvs, "test", rank == 0 ? value : NULL, got, sizeof(got), &long_enough) !=
        CHOIR_OK)
        failed("share");
    if (strcmp(got, value) != 0) {
        printf("got %s\n", got);
        exit(EXIT_FAILURE);
    }
    printf("shared %d by %s, rank %d of %d\n", nshares++, ch_kvs_name(kvs), rank, ch_kvs_size(kvs));
    ch_kvs_close(kvs);
}

/* Ranks that cannot meet by the launcher any more meet by files in the working directory. */
static void leave_file(void)
{
    char name[32];
    FILE *file;

    snprintf(name, sizeof(name), "gave_up_%d", rank);
    file = fopen(name, "w");
    if (file != NULL)
        fclose(file);
}

static void await_files(int count)
{
    ch_deadline until = ch_deadline_ms(60000);

    for (int i = 0; i < count && !ch_deadline_passed(until); usleep(1000)) {
        char name[32];

        snprintf(name, sizeof(name), "gave_up_%d", i);
        i += access(name, F_OK) == 0;
    }
}

static void lonely(void)
{
    struct ch_kvs *kvs = open_kvs();
    int size = ch_kvs_size(kvs);
    struct ch_patience soon = patience(300);
    char got[CH_KVS_VALUE_MAX];
    choir_status rc;

    if (rank == size - 1) {
        ch_kvs_close(kvs);
        await_files(size - 1);
        printf("absent\n");
        return;
    }
    rc = ch_kvs_share(kvs, "test", rank == 0 ? "value" : NULL, got, sizeof(got), &soon);
    printf("lonely: %s: %s\n", choir_status_name(rc), choir_last_error());
    ch_kvs_close(kvs);
    rc = ch_kvs_open(NULL, &soon, &kvs);
    printf("again: %s\n", choir_status_name(rc));
    leave_file();
}

#ifdef USE_MPI
static void mpi_sum(void)
{
    int one = 1, sum = 0;

    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("sum %d\n", sum);
}
#endif

static void act(const char *what)
{
    if (strcmp(what, "share") == 0)
        share();
    else if (strcmp(what, "lonely") == 0)
        lonely();
    else if (strcmp(what, "stagger") == 0)
        sleep(rank == 0 ? 0 : 1);
    else if (strncmp(what, "exit=", 5) == 0)
        exit(atoi(what + 5));
#ifdef USE_MPI
    else if (strcmp(what, "mpi-init") == 0)
        MPI_Init(NULL, NULL);
    else if (strcmp(what, "mpi-sum") == 0)
        mpi_sum();
    else if (strcmp(what, "mpi-finalize") == 0)
        MPI_Finalize();
#endif
    else {
        printf("mpi_exchange: unknown word %s\n", what);
        exit(2);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (ch_waiter_init(&waiter, &word) != CHOIR_OK)
        failed("waiter");
    for (int i = 1; i < argc; i++)
        act(argv[i]);
    ch_waiter_fini(&waiter);
    return EXIT_SUCCESS;
}
