/*
 * store_file_test.c - what only a file store has to stand: stale files, torn records, other people's
 * files, users that are killed. What all stores promise is in store_test.c.
 */
#include "choir_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <choir/log.h>
#include <choir/store.h>

#include "store/file_log.h"

#define K(text) choir_str(text)

static char path[256], url[272];

static void choose_path(void)
{
    const char *folder = getenv("TMPDIR");

    snprintf(path, sizeof(path), "%s/choir-file-test-%d", folder != NULL ? folder : "/tmp",
             (int)getpid());
    snprintf(url, sizeof(url), "file://%s", path);
    (void)!unlink(path);
}

static choir_status open_for(int nranks, const char *run_id, choir_store **store_out)
{
    return choir_store_open(
        url, CHOIR_OPTS(store_open, .nranks = nranks, .run_id = run_id, .timeout_ms = 10000),
        store_out);
}

static choir_store *opened(int nranks)
{
    choir_store *store;

    CHOIR_CHECK_OK(open_for(nranks, NULL, &store));
    return store;
}

static void check_value(choir_store *store, const char *key, const char *want)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, K(key), 0, &value));
    CHOIR_CHECK_STR(value.data, want);
    choir_blob_free(&value);
}

static int64_t count(choir_store *store)
{
    int64_t n;

    CHOIR_CHECK_OK(choir_store_count(store, &n));
    return n;
}

/* The file's bytes: how many, and a copy that the caller frees. */
static size_t read_file(unsigned char **bytes_out)
{
    int fd = open(path, O_RDONLY);
    struct stat st;

    CHOIR_CHECK(fd >= 0 && fstat(fd, &st) == 0);
    *bytes_out = malloc((size_t)st.st_size + 1);
    CHOIR_CHECK(*bytes_out != NULL);
    CHOIR_CHECK_EQ(read(fd, *bytes_out, (size_t)st.st_size), (ssize_t)st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

static void write_file(const void *bytes, size_t nbytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHOIR_CHECK(fd >= 0);
    CHOIR_CHECK_EQ(write(fd, bytes, nbytes), (ssize_t)nbytes);
    close(fd);
}

static bool exists(void)
{
    return access(path, F_OK) == 0;
}

/* --- how long a file lasts ----------------------------------------------------------------------- */

CHOIR_TEST(without_nranks_it_lasts)
{
    choir_store *store;
    struct stat st;

    choose_path();
    store = opened(0);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    choir_store_close(store);
    CHOIR_CHECK(stat(path, &st) == 0);
    CHOIR_CHECK_EQ((unsigned)st.st_mode & 0777u, 0600u); /* it may hold a job's secret */
    store = opened(0);
    check_value(store, "k", "v");
    choir_store_close(store);
    unlink(path);
}

CHOIR_TEST(the_last_of_a_run_removes_it)
{
    choir_store *first, *second, *clone;

    choose_path();
    first = opened(2);
    second = opened(2);
    CHOIR_CHECK_OK(choir_store_clone(second, &clone));
    CHOIR_CHECK_OK(choir_store_set(first, K("k"), K("v")));
    choir_store_close(first);
    CHOIR_CHECK(exists());
    choir_store_close(second);
    CHOIR_CHECK(exists());
    check_value(clone, "k", "v");
    choir_store_close(clone);
    CHOIR_CHECK(!exists());
}

/* Two that leave at the same moment: one of them is the last. */
static void open_wait_close(void *arg)
{
    choir_store *store = opened(4);

    (void)arg;
    CHOIR_CHECK_OK(choir_store_barrier(store, K("all here"), 4, 0));
    choir_store_close(store);
}

CHOIR_TEST(one_of_all_who_leave_at_once_removes_it)
{
    int rounds = choir_test_slowness() > 1 ? 4 : 20;

    choose_path();
    for (int round = 0; round < rounds; round++) {
        int pids[4];

        for (int i = 0; i < 4; i++)
            pids[i] = choir_test_fork(open_wait_close, NULL);
        for (int i = 0; i < 4; i++)
            choir_test_join(pids[i]);
        CHOIR_ROW("round %d", round);
        CHOIR_CHECK(!exists());
    }
}

/* --- stale files --------------------------------------------------------------------------------- */

static void set_and_die(void *arg)
{
    choir_store *store;

    (void)arg;
    CHOIR_CHECK_OK(open_for(2, "monday", &store));
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("of a run that crashed")));
    raise(SIGKILL);
}

static void leave_stale_file(void)
{
    int pid = choir_test_fork(set_and_die, NULL), status;

    CHOIR_CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHOIR_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHOIR_CHECK(exists());
}

CHOIR_TEST(a_crashed_run_is_not_believed)
{
    static const char *const ids[] = { NULL, "tuesday", "monday" };

    for (size_t i = 0; i < CH_ARRAY_LEN(ids); i++) {
        choir_store *store;

        CHOIR_ROW("run id %s", ids[i] != NULL ? ids[i] : "not given");
        choose_path();
        leave_stale_file();
        CHOIR_CHECK_OK(open_for(2, ids[i], &store));
        CHOIR_CHECK_EQ(count(store), 0);
        choir_store_close(store);
        CHOIR_CHECK(!exists());
    }
}

/* But it can be looked at. */
CHOIR_TEST(a_crashed_run_can_be_examined)
{
    choir_store *store;

    choose_path();
    leave_stale_file();
    store = opened(0);
    check_value(store, "k", "of a run that crashed");
    choir_store_close(store);
    CHOIR_CHECK(exists());
    unlink(path);
}

CHOIR_TEST(who_examines_is_told_when_a_run_begins)
{
    choir_store *onlooker, *rank;
    int64_t n;

    choose_path();
    leave_stale_file();
    onlooker = opened(0);
    CHOIR_CHECK_EQ(count(onlooker), 1);
    CHOIR_CHECK_OK(open_for(2, "tuesday", &rank));
    CHOIR_CHECK_STATUS(choir_store_count(onlooker, &n), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "\"tuesday\" has begun the file anew");
    CHOIR_CHECK_HAS(choir_last_error(), "\"monday\"");
    choir_store_close(rank);
    CHOIR_CHECK_STATUS(choir_store_count(onlooker, &n), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "removed");
    choir_store_close(onlooker);
}

CHOIR_TEST(a_run_does_not_join_another)
{
    choir_store *monday, *other;

    choose_path();
    CHOIR_CHECK_OK(open_for(2, "monday", &monday));
    CHOIR_CHECK_STATUS(open_for(2, "tuesday", &other), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "\"monday\"");
    CHOIR_CHECK_HAS(choir_last_error(), "\"tuesday\"");
    CHOIR_CHECK_HAS(choir_last_error(), path);
    CHOIR_CHECK_STATUS(open_for(3, "monday", &other), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "2 ranks");
    CHOIR_CHECK_HAS(choir_last_error(), "expects 3");
    CHOIR_CHECK_STATUS(open_for(0, "tuesday", &other), CHOIR_ERR_STATE);
    CHOIR_CHECK_OK(open_for(2, NULL, &other)); /* which run does not matter to it */
    choir_store_close(other);
    choir_store_close(monday);
}

CHOIR_TEST(a_lasting_store_is_not_taken_over)
{
    choir_store *store;

    choose_path();
    choir_store_close(opened(0));
    choir_store_close(opened(2)); /* nothing in it: nothing is lost */
    store = opened(0);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    choir_store_close(store);
    CHOIR_CHECK_STATUS(open_for(2, NULL, &store), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "lasting");
    store = opened(0);
    check_value(store, "k", "v");
    choir_store_close(store);
    unlink(path);
}

/* --- torn records -------------------------------------------------------------------------------- */

/* A store of two values, its bytes, and where the last record begins. */
static size_t two_values(unsigned char **bytes_out, size_t *last_out)
{
    choir_store *store;
    struct stat st;

    choose_path();
    store = opened(0);
    CHOIR_CHECK_OK(choir_store_set(store, K("first"), K("whole")));
    CHOIR_CHECK(stat(path, &st) == 0);
    *last_out = (size_t)st.st_size;
    CHOIR_CHECK_OK(choir_store_set(store, K("second"), K("torn in the middle of it")));
    choir_store_close(store);
    return read_file(bytes_out);
}

/* Cut off at every byte: what is whole is read, what is not never happened, and the next change is
 * appended where it stood. */
CHOIR_TEST(a_torn_record_never_happened)
{
    unsigned char *bytes;
    size_t last, nbytes = two_values(&bytes, &last);

    for (size_t cut = last; cut < nbytes; cut++) {
        choir_store *store, *late;

        CHOIR_ROW("cut at %zu of %zu", cut, nbytes);
        write_file(bytes, cut);
        store = opened(0);
        CHOIR_CHECK_EQ(count(store), 1);
        check_value(store, "first", "whole");
        CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("")));
        late = opened(0);
        CHOIR_CHECK_EQ(count(late), 2);
        check_value(late, "k", "");
        choir_store_close(late);
        choir_store_close(store);
    }
    free(bytes);
    unlink(path);
}

/* The same for a record of which a byte is wrong: a page that never reached the disk. */
CHOIR_TEST(a_damaged_record_never_happened)
{
    unsigned char *bytes;
    size_t last, nbytes = two_values(&bytes, &last);

    for (size_t i = last; i < nbytes; i++) {
        choir_store *store;

        CHOIR_ROW("byte %zu", i - last);
        bytes[i] ^= 0x40;
        write_file(bytes, nbytes);
        bytes[i] ^= 0x40;
        store = opened(0);
        CHOIR_CHECK_EQ(count(store), 1);
        choir_store_close(store);
    }
    free(bytes);
    unlink(path);
}

/* A reader who already knows the file sees what comes after the torn record as well. */
CHOIR_TEST(a_waiting_reader_passes_a_torn_record)
{
    choir_store *reader, *writer;
    int fd;

    choose_path();
    reader = opened(0);
    CHOIR_CHECK_EQ(count(reader), 0);
    fd = open(path, O_WRONLY | O_APPEND);
    CHOIR_CHECK_EQ(write(fd, "crec\1\0\0\0\4\0\0\0", 12), 12);
    close(fd);
    CHOIR_CHECK_EQ(count(reader), 0);
    writer = opened(0);
    CHOIR_CHECK_OK(choir_store_set(writer, K("k"), K("v")));
    check_value(reader, "k", "v");
    choir_store_close(writer);
    choir_store_close(reader);
    unlink(path);
}

/* --- other people's files ------------------------------------------------------------------------ */

CHOIR_TEST(other_files_are_left_alone)
{
    static const struct {
        const char *bytes;
        size_t nbytes;
        const char *says;
    } files[] = {
        { "#!/bin/sh\necho hello\n", 21, "something else" },
        { "C", 1, "cut short, 1 bytes of 128" },
        { "ChoirLog\1\0\0\0", 12, "cut short, 12 bytes" },
        { "ChoirLog\2\0\0\0", 12, "format 2, this is a Choir for format 1" },
        { "ChoirLag\1\0\0\0", 12, "something else" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(files); i++) {
        for (int nranks = 0; nranks < 3; nranks += 2) {
            unsigned char *after;
            choir_store *store;

            CHOIR_ROW("file %zu for %d ranks", i, nranks);
            choose_path();
            write_file(files[i].bytes, files[i].nbytes);
            CHOIR_CHECK_STATUS(open_for(nranks, NULL, &store), CHOIR_ERR_PROTO);
            CHOIR_CHECK_HAS(choir_last_error(), files[i].says);
            CHOIR_CHECK_HAS(choir_last_error(), path);
            CHOIR_CHECK_EQ(read_file(&after), files[i].nbytes);
            CHOIR_CHECK(memcmp(after, files[i].bytes, files[i].nbytes) == 0);
            free(after);
        }
    }
    unlink(path);
}

CHOIR_TEST(a_damaged_header_is_an_error)
{
    unsigned char *bytes;
    size_t last, nbytes = two_values(&bytes, &last);

    for (size_t i = 0; i < CH_LOG_HEADER_NBYTES; i++) {
        choir_store *store;

        CHOIR_ROW("byte %zu", i);
        bytes[i] ^= 1;
        write_file(bytes, nbytes);
        bytes[i] ^= 1;
        CHOIR_CHECK_STATUS(open_for(0, NULL, &store), CHOIR_ERR_PROTO);
    }
    free(bytes);
    unlink(path);
}

CHOIR_TEST(what_is_no_file_is_refused)
{
    choir_store *store;
    char long_id[65];

    memset(long_id, 'x', 64);
    long_id[64] = '\0';
    choose_path();
    CHOIR_CHECK_STATUS(open_for(0, long_id, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK(!exists());
    CHOIR_CHECK_STATUS(choir_store_open("file://", NULL, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "path is missing");
    CHOIR_CHECK_STATUS(choir_store_open("file:///no/such/folder/x", NULL, &store),
                       CHOIR_ERR_SYSTEM);
    CHOIR_CHECK_HAS(choir_last_error(), "ENOENT");
    CHOIR_CHECK_EQ(mkdir(path, 0700), 0);
    CHOIR_CHECK(open_for(0, NULL, &store) < 0);
    CHOIR_CHECK_HAS(choir_last_error(), "EISDIR");
    CHOIR_CHECK_EQ(rmdir(path), 0);
    CHOIR_CHECK_EQ(mkfifo(path, 0600), 0);
    CHOIR_CHECK_STATUS(open_for(0, NULL, &store), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "not a regular file");
    unlink(path);
}

CHOIR_TEST(a_file_of_another_user_is_refused)
{
    choir_store *store;

    if (geteuid() != 0)
        CHOIR_SKIP("only root can give a file away");
    choose_path();
    write_file("", 0);
    CHOIR_CHECK_EQ(chown(path, 12345, 12345), 0);
    CHOIR_CHECK_STATUS(open_for(2, NULL, &store), CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "12345");
    unlink(path);
}

CHOIR_TEST(a_file_cut_short_or_removed_in_use_is_an_error)
{
    choir_store *store;
    choir_blob value;

    choose_path();
    store = opened(0);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("v")));
    CHOIR_CHECK_EQ(truncate(path, CH_LOG_HEADER_NBYTES), 0);
    CHOIR_CHECK_STATUS(choir_store_get(store, K("k"), 0, &value), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "shrunk");
    unlink(path);
    CHOIR_CHECK_STATUS(choir_store_set(store, K("k"), K("v")), CHOIR_ERR_STATE);
    CHOIR_CHECK_HAS(choir_last_error(), "removed");
    choir_store_close(store);
}

/* There is a limit to all that is written, and what would exceed it is not begun. */
CHOIR_TEST(a_full_file_is_an_error)
{
    choir_bytes too_big = { calloc(1, 256 << 20), (256 << 20) - CH_LOG_HEADER_NBYTES };
    choir_store *store;
    struct stat st;

    CHOIR_CHECK(too_big.data != NULL);
    choose_path();
    store = opened(0);
    CHOIR_CHECK_STATUS(choir_store_set(store, K("k"), too_big), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "full");
    CHOIR_CHECK(stat(path, &st) == 0);
    CHOIR_CHECK_EQ(st.st_size, CH_LOG_HEADER_NBYTES);
    CHOIR_CHECK_OK(choir_store_set(store, K("k"), K("small")));
    check_value(store, "k", "small");
    choir_store_close(store);
    free((void *)too_big.data);
    unlink(path);
}

/* --- killed in the middle ------------------------------------------------------------------------ */

enum { WRITERS = 3, VALUE_NBYTES = 6000 };

/* Writes values of one letter each, and counts them, until it is killed. */
static void write_until_killed(void *arg)
{
    choir_store *store = opened(0);
    char key[8], *value = malloc(VALUE_NBYTES);
    int number = *(const int *)arg;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nor longer than the test */
    snprintf(key, sizeof(key), "w%d", number);
    for (int i = 0;; i++) {
        memset(value, 'a' + i % 26, VALUE_NBYTES);
        CHOIR_CHECK_OK(choir_store_set(store, K(key), (choir_bytes){ value, VALUE_NBYTES }));
        CHOIR_CHECK_OK(choir_store_add(store, K("n"), 1, NULL));
    }
}

static void check_whole(choir_store *store, const char *key)
{
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_get(store, K(key), 0, &value));
    CHOIR_CHECK_EQ(value.nbytes, VALUE_NBYTES);
    for (size_t i = 1; i < value.nbytes; i++)
        CHOIR_CHECK_EQ(value.data[i], value.data[0]);
    choir_blob_free(&value);
}

/* Wait until somebody has counted further than `from`. */
static int64_t until_beyond(choir_store *store, int64_t from)
{
    int64_t n = 0;

    do
        CHOIR_CHECK_OK(choir_store_add(store, K("n"), 0, &n));
    while (n <= from);
    return n;
}

/* Whoever is killed while writing leaves the file whole for all others, and its lock free. */
CHOIR_TEST_TIMED(killed_writers_do_no_harm, 60)
{
    struct choir_test_random random = { 4711 };
    int pids[WRITERS], numbers[WRITERS];
    choir_store *reader;
    int64_t n = 0;
    char key[8];

    choose_path();
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        pids[i] = choir_test_fork(write_until_killed, &numbers[i]);
    }
    reader = opened(0);
    for (int i = 0; i < WRITERS; i++) {
        struct timespec a_moment = { 0, (long)(choir_test_random(&random) % 3000000) };

        snprintf(key, sizeof(key), "w%d", i);
        CHOIR_CHECK_OK(choir_store_wait(reader, &(choir_bytes){ key, strlen(key) }, 1, 0));
        n = until_beyond(reader, n + 10 + (int64_t)(choir_test_random(&random) % 40));
        nanosleep(&a_moment, NULL);
        CHOIR_CHECK_EQ(kill(pids[i], SIGKILL), 0);
        CHOIR_CHECK_EQ(waitpid(pids[i], NULL, 0), pids[i]);
        check_whole(reader, key);
    }
    choir_store_close(reader);
    reader = opened(0); /* from the beginning */
    for (int i = 0; i < WRITERS; i++) {
        snprintf(key, sizeof(key), "w%d", i);
        check_whole(reader, key);
    }
    CHOIR_CHECK_LE(n, until_beyond(reader, 0));
    choir_store_close(reader);
    unlink(path);
}

/* --- faults -------------------------------------------------------------------------------------- */

static choir_status be_two_ranks(void *arg)
{
    choir_store *first = NULL, *second = NULL;
    choir_blob value = { NULL, 0 };
    choir_status rc = open_for(2, "faults", &first);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = open_for(2, "faults", &second);
    if (rc == CHOIR_OK)
        rc = choir_store_set(first, K("k"), K("v"));
    if (rc == CHOIR_OK)
        rc = choir_store_get(second, K("k"), 0, &value);
    choir_blob_free(&value);
    choir_store_close(first);
    choir_store_close(second);
    unlink(path);
    return rc;
}

static void hush(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    (void)line;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    choose_path();
    choir_log_set_sink(hush, NULL);
    choir_test_all_faults(be_two_ranks, NULL);
}
