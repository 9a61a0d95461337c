/*
 * file_fuzz.c - a file store whose bytes are anybody's.
 *
 * The first byte says whether the checksums of what follows are put right first (1): without that
 * nothing behind them would ever be reached. Whatever the bytes are, reading ends, stays within them,
 * and what was read as records is written again as the same bytes. Then, as it takes longer only if
 * the first byte says so (2), the same bytes as a file: a store opens on them and works, or says what
 * is wrong, and finds what it wrote when it opens again.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/store.h>

#include "base/sha256.h"
#include "store/file_log.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void right_sum(struct ch_sha256 *hash, unsigned char *sum_at)
{
    unsigned char sum[CH_SHA256_NBYTES];

    ch_sha256_end(hash, sum);
    memcpy(sum_at, sum, 8);
}

static void right_header(unsigned char *bytes, size_t nbytes)
{
    struct ch_sha256 hash;

    if (nbytes < CH_LOG_HEADER_NBYTES)
        return;
    ch_sha256_init(&hash);
    ch_sha256_add(&hash, bytes, CH_LOG_HEADER_NBYTES - 8);
    right_sum(&hash, bytes + CH_LOG_HEADER_NBYTES - 8);
}

/* Read what claims to be a record, and write it in its own place with the sum that fits. */
static void right_record(const struct ch_log_header *header, size_t place, unsigned char *bytes,
                         size_t nbytes)
{
    struct ch_log_record record;
    unsigned char *copy;
    uint32_t key_nbytes, value_nbytes;

    if (nbytes < CH_LOG_HEAD_NBYTES)
        return;
    memcpy(&key_nbytes, bytes + 8, 4);
    memcpy(&value_nbytes, bytes + 12, 4);
    if ((uint64_t)key_nbytes + value_nbytes > nbytes - CH_LOG_HEAD_NBYTES)
        return;
    record = (struct ch_log_record){ .kind = (enum ch_log_kind)bytes[4],
                                     .key = { bytes + CH_LOG_HEAD_NBYTES, key_nbytes },
                                     .value = { bytes + CH_LOG_HEAD_NBYTES + key_nbytes,
                                                value_nbytes } };
    copy = malloc(ch_log_record_nbytes(&record));
    check(copy != NULL);
    ch_log_write_record(header, place, &record, copy);
    memcpy(bytes, copy, ch_log_record_nbytes(&record));
    free(copy);
}

static void same_when_written(const struct ch_log_header *header, size_t place,
                              const struct ch_log_record *record, const unsigned char *bytes)
{
    size_t nbytes = ch_log_record_nbytes(record);
    unsigned char *copy = malloc(nbytes);

    check(copy != NULL);
    ch_log_write_record(header, place, record, copy);
    check(memcmp(copy, bytes, nbytes) == 0);
    free(copy);
}

static void replay(const struct ch_log_header *header, unsigned char *bytes, size_t nbytes,
                   bool put_right)
{
    static const struct ch_table_limits limits = { 1 << 10, 1 << 16, 1 << 20 };
    struct ch_table *table;

    check(ch_table_create(&limits, &table) == CHOIR_OK);
    for (size_t place = CH_LOG_HEADER_NBYTES, used; place < nbytes; place += used) {
        struct ch_log_record record;

        if (put_right)
            right_record(header, place, bytes + place, nbytes - place);
        if (ch_log_read_record(header, place, bytes + place, nbytes - place, &record, &used) !=
            CH_LOG_RECORD)
            break;
        check(used >= CH_LOG_HEAD_NBYTES && used <= nbytes - place);
        same_when_written(header, place, &record, bytes + place);
        if (ch_log_apply(&record, table) != CHOIR_OK)
            break;
    }
    ch_table_destroy(table);
}

/* --- as a file ------------------------------------------------------------------------------------ */

static char path[64], url[80];

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const unsigned char *bytes, size_t nbytes)
{
    int fd;

    if (path[0] == '\0') {
        snprintf(path, sizeof(path), "/tmp/choir-file-fuzz-%d", (int)getpid());
        snprintf(url, sizeof(url), "file://%s", path);
        atexit(remove_file);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes);
    close(fd);
}

/* NULL if it does not open, or cannot be used, and says why. */
static choir_store *open_file(void)
{
    choir_store *store;
    int64_t count;

    if (choir_store_open(url, CHOIR_OPTS(store_open, .timeout_ms = 5000), &store) != CHOIR_OK) {
        check(choir_last_error()[0] != '\0');
        return NULL;
    }
    if (choir_store_count(store, &count) == CHOIR_OK)
        return store;
    check(choir_last_error()[0] != '\0');
    choir_store_close(store);
    return NULL;
}

static void use_file(const unsigned char *bytes, size_t nbytes)
{
    choir_store *store;
    choir_blob value;

    write_file(bytes, nbytes);
    store = open_file();
    if (store == NULL)
        return;
    check(choir_store_set(store, choir_str("fuzz"), choir_str("found again")) == CHOIR_OK);
    choir_store_close(store);
    store = open_file();
    check(store != NULL);
    check(choir_store_get(store, choir_str("fuzz"), 0, &value) == CHOIR_OK);
    check(strcmp(value.data, "found again") == 0);
    choir_blob_free(&value);
    choir_store_close(store);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ch_log_header header;
    unsigned char *bytes;
    bool put_right;

    if (size == 0)
        return 0;
    put_right = data[0] & 1;
    bytes = malloc(size); /* of the exact size, so that reading beyond it is seen */
    check(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    if (put_right)
        right_header(bytes, size - 1);
    if (ch_log_read_header(bytes, size - 1, &header) == CHOIR_OK)
        replay(&header, bytes, size - 1, put_right);
    if (data[0] & 2)
        use_file(bytes, size - 1);
    free(bytes);
    return 0;
}
