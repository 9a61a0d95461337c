/*
 * store_file.c - file:///path: a log of changes in a file that all processes see (file_log.h).
 *
 * Every user keeps a table of its own and replays what the file has more than it knew. Who changes
 * something does so in the table's terms, and appends a record. Three locks, on bytes far behind the
 * content, of the open file (so the kernel drops them with a process that dies):
 *
 *   DATA      shared while reading the file, exclusive while writing it
 *   LINE      shared by those who wait for DATA: whoever comes while somebody does lets him go first,
 *             or one who uses the store in a loop would keep the others out for ever
 *   PRESENCE  shared for the life of every user of a rendezvous (nranks > 0): content of a rendezvous
 *             where nobody is present was left by a run that is over, and is never believed
 *
 * Nobody can be woken through a file, so whoever waits looks again, after 10 ms at most.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "store/bytes.h"
#include "store/file_log.h"
#include "store/table.h"

enum {
    FILE_MAX_NBYTES = 256 << 20, /* all of it; no compaction, so this is the sum of all changes */
    CHUNK_NBYTES = 64 << 10,     /* read at once, unless a record is longer */
    FIRST_PAUSE_NS = 50 * CH_US, /* between two looks: doubled each time, up to one of these */
    LOCK_PAUSE_NS = 1 * CH_MS,
    KEY_PAUSE_NS = 10 * CH_MS,
    CLOSE_TRIES = 1000, /* to get the lock when closing, a millisecond apart */
};

static const off_t data_lock = (off_t)1 << 62, presence_lock = ((off_t)1 << 62) + 1,
                   line_lock = ((off_t)1 << 62) + 2;

struct file {
    struct ch_lock lock; /* guards the next two */
    int nwaiting;        /* threads in line; with the first of them we hold LINE */
    bool busy;           /* a thread is inside, and all that follows is its own */
    char *path;
    int fd;
    bool present; /* holds the presence lock */
    struct ch_log_header header;
    struct ch_table *table;
    uint64_t end;  /* what the table knows of the file */
    uint64_t size; /* the file's, when last inside; more than `end`: its last record is torn */
};

/* --- waiting and locks --------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Wait a moment before the next look: *pause_io, which is doubled, up to `most`. */
static choir_status pause_until_next(const struct ch_patience *patience, uint64_t *pause_io,
                                     uint64_t most, const char *what)
{
    uint64_t next = ch_now() + *pause_io;
    struct ch_wait wait = { .waiter = patience->waiter,
                            .ready = never,
                            .until = next < patience->until ? next : patience->until,
                            .poison = patience->poison,
                            .what = what };
    choir_status rc = ch_wait(&wait);

    *pause_io = *pause_io * 2 < most ? *pause_io * 2 : most;
    if (rc != CHOIR_ERR_TIMEOUT)
        return rc;
    if (!ch_deadline_passed(patience->until))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_TIMEOUT, "waiting for %s: the deadline passed", what);
}

/* CHOIR_IN_PROGRESS if another has it. */
static choir_status try_lock(const struct file *file, int type, off_t place)
{
    if (ch_sys_lock_byte(file->fd, type, place) == 0)
        return CHOIR_OK;
    if (errno == EAGAIN || errno == EACCES)
        return CHOIR_IN_PROGRESS;
    return ch_fail_errno("lock it");
}

static choir_status lock_in_time(const struct file *file, int type, off_t place,
                                 const struct ch_patience *patience)
{
    uint64_t pause = FIRST_PAUSE_NS;
    choir_status rc = try_lock(file, type, place);

    while (rc == CHOIR_IN_PROGRESS) {
        rc = pause_until_next(patience, &pause, LOCK_PAUSE_NS, "the lock of the file");
        if (rc == CHOIR_OK)
            rc = try_lock(file, type, place);
    }
    return rc;
}

/* Tried again: others would wait for us until we close it. */
static void unlock_data(const struct file *file)
{
    if (ch_sys_lock_byte(file->fd, F_UNLCK, data_lock) != 0 &&
        ch_sys_lock_byte(file->fd, F_UNLCK, data_lock) != 0)
        ch_log_warn("store %s: unlock it: errno %d", file->path, errno);
}

/* One thread of this process at a time: the file's lock keeps out other openings only. */
static bool try_busy(struct file *file)
{
    bool mine;

    ch_lock(&file->lock);
    mine = !file->busy;
    file->busy = true;
    ch_unlock(&file->lock);
    return mine;
}

static void end_busy(struct file *file)
{
    ch_lock(&file->lock);
    file->busy = false;
    ch_unlock(&file->lock);
}

static bool somebody_waits(struct file *file)
{
    bool one_of_us;

    ch_lock(&file->lock);
    one_of_us = file->nwaiting > 0;
    ch_unlock(&file->lock);
    return one_of_us || ch_sys_byte_is_locked(file->fd, line_lock) == 1;
}

/* Should these fail we have less of a claim, or others leave us more time than we need: no harm. */
static void stand_in_line(struct file *file)
{
    ch_lock(&file->lock);
    if (file->nwaiting++ == 0)
        (void)!ch_sys_lock_byte(file->fd, F_RDLCK, line_lock);
    ch_unlock(&file->lock);
}

static void leave_line(struct file *file)
{
    ch_lock(&file->lock);
    if (--file->nwaiting == 0)
        (void)!ch_sys_lock_byte(file->fd, F_UNLCK, line_lock);
    ch_unlock(&file->lock);
}

/* --- reading ------------------------------------------------------------------------------------- */

/* As much of `nbytes` as there is. */
static choir_status read_at(const struct file *file, uint64_t place, unsigned char *bytes,
                            size_t nbytes, size_t *nbytes_out)
{
    size_t got = 0;

    while (got < nbytes) {
        ssize_t n = ch_sys_pread(file->fd, bytes + got, nbytes - got, (off_t)(place + got));

        if (n < 0)
            return ch_fail_errno("read %zu bytes at %llu", nbytes, (unsigned long long)place);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    *nbytes_out = got;
    return CHOIR_OK;
}

/* Apply the records in `bytes`, which stand at file->end. *need_out is how many bytes from the new
 * file->end on have to be read to get further; 0: no further, what follows is torn. */
static choir_status apply_records(struct file *file, const unsigned char *bytes, size_t nbytes,
                                  size_t *need_out)
{
    struct ch_log_record record;
    size_t at = 0, used;

    for (;;) {
        enum ch_log_found found = ch_log_read_record(&file->header, file->end, bytes + at,
                                                     nbytes - at, &record, &used);
        choir_status rc;

        if (found != CH_LOG_RECORD) {
            bool there = found == CH_LOG_SHORT && used <= file->size - file->end;

            *need_out = there ? used : 0;
            return CHOIR_OK;
        }
        rc = ch_log_apply(&record, file->table);
        if (rc != CHOIR_OK) {
            ch_error_prefix("the change at byte %llu: ", (unsigned long long)file->end);
            return rc;
        }
        at += used;
        file->end += used;
    }
}

static choir_status replay(struct file *file)
{
    unsigned char *bytes = NULL, *more;
    size_t need = CHUNK_NBYTES, room = 0, got;
    choir_status rc = CHOIR_OK;

    while (rc == CHOIR_OK && need > 0 && file->end < file->size) {
        uint64_t left = file->size - file->end;
        size_t want = need > CHUNK_NBYTES ? need : CHUNK_NBYTES;

        want = want < left ? want : (size_t)left;
        if (want > room) {
            more = ch_regrow(bytes, want, 1);
            if (more == NULL) {
                rc = ch_fail(CHOIR_ERR_NOMEM, "no memory to read %zu bytes of it", want);
                break;
            }
            bytes = more;
            room = want;
        }
        rc = read_at(file, file->end, bytes, want, &got);
        if (rc == CHOIR_OK)
            rc = apply_records(file, bytes, got, &need);
        if (rc == CHOIR_OK && got < want)
            break; /* shorter than it said: somebody meddles, and the next look will tell */
    }
    ch_free(bytes);
    return rc;
}

/* Whether the file still is the one we opened. Somebody may have removed it; or this is a rendezvous
 * at which nobody is present (we do not count: nranks 0), and another run has begun it anew. */
static choir_status still_ours(struct file *file)
{
    unsigned char bytes[CH_LOG_HEADER_NBYTES];
    struct ch_log_header header;
    struct stat st;
    size_t got;
    choir_status rc;

    if (ch_sys_fstat(file->fd, &st) != 0)
        return ch_fail_errno("stat it");
    if (st.st_nlink == 0)
        return ch_fail(CHOIR_ERR_STATE, "the file was removed while it was in use");
    rc = read_at(file, 0, bytes, sizeof(bytes), &got);
    if (rc == CHOIR_OK)
        rc = ch_log_read_header(bytes, got, &header);
    if (rc != CHOIR_OK)
        return rc;
    if (memcmp(&header, &file->header, sizeof(header)) != 0)
        return ch_fail(CHOIR_ERR_STATE,
                       "run \"%s\" has begun the file anew; this handle belongs to run \"%s\"",
                       header.run_id, file->header.run_id);
    if ((uint64_t)st.st_size < file->end)
        return ch_fail(CHOIR_ERR_PROTO, "the file has shrunk to %lld bytes, %llu were known",
                       (long long)st.st_size, (unsigned long long)file->end);
    file->size = (uint64_t)st.st_size;
    return CHOIR_OK;
}

/* --- inside: where the table is as the file is --------------------------------------------------- */

static void leave(struct file *file)
{
    unlock_data(file);
    end_busy(file);
}

static choir_status try_enter(struct file *file, int type)
{
    choir_status rc;

    if (!try_busy(file))
        return CHOIR_IN_PROGRESS;
    rc = try_lock(file, type, data_lock);
    if (rc != CHOIR_OK) {
        end_busy(file);
        return rc;
    }
    rc = still_ours(file);
    if (rc == CHOIR_OK)
        rc = replay(file);
    if (rc != CHOIR_OK)
        leave(file);
    return rc;
}

static choir_status enter_in_turn(struct file *file, int type, uint64_t pause,
                                  const struct ch_patience *patience)
{
    choir_status rc = CHOIR_IN_PROGRESS;

    stand_in_line(file);
    while (rc == CHOIR_IN_PROGRESS) {
        rc = pause_until_next(patience, &pause, LOCK_PAUSE_NS, "the lock of the file");
        if (rc == CHOIR_OK)
            rc = try_enter(file, type);
    }
    leave_line(file);
    return rc;
}

/* To read (F_RDLCK) or to write (F_WRLCK). */
static choir_status enter(struct file *file, int type, const struct ch_patience *patience)
{
    choir_status rc;

    if (somebody_waits(file))
        return enter_in_turn(file, type, LOCK_PAUSE_NS, patience);
    rc = try_enter(file, type);
    return rc == CHOIR_IN_PROGRESS ? enter_in_turn(file, type, FIRST_PAUSE_NS, patience) : rc;
}

/* Whether a look could show anything new since the file had `size` bytes and none of them were torn. */
static bool may_have_changed(const struct file *file, uint64_t size)
{
    struct stat st;

    return ch_sys_fstat(file->fd, &st) != 0 || (uint64_t)st.st_size != size || st.st_nlink == 0;
}

/* Enter again and again until look() says true; then the caller is inside. */
static choir_status enter_when(struct file *file, int type, bool (*look)(struct file *, void *),
                               void *arg, const struct ch_patience *patience, const char *what)
{
    uint64_t pause = FIRST_PAUSE_NS;

    for (;;) {
        uint64_t known = UINT64_MAX;
        choir_status rc = enter(file, type, patience);

        if (rc != CHOIR_OK || look(file, arg))
            return rc;
        if (file->end == file->size)
            known = file->size;
        leave(file);
        do
            rc = pause_until_next(patience, &pause, KEY_PAUSE_NS, what);
        while (rc == CHOIR_OK && !may_have_changed(file, known));
        if (rc != CHOIR_OK)
            return rc;
    }
}

/* --- writing ------------------------------------------------------------------------------------- */

static choir_status write_at(const struct file *file, uint64_t place, const unsigned char *bytes,
                             size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = ch_sys_pwrite(file->fd, bytes + done, nbytes - done, (off_t)(place + done));

        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return ch_fail_errno("write %zu bytes at %llu", nbytes, (unsigned long long)place);
        done += (size_t)n;
    }
    return CHOIR_OK;
}

static choir_status check_room(const struct file *file, const struct ch_log_record *record)
{
    size_t most_key = ch_table_default_limits.key_nbytes;

    if (record->key.nbytes > most_key)
        return ch_fail(CHOIR_ERR_INVALID, "a key of %zu bytes, at most %zu are allowed",
                       record->key.nbytes, most_key);
    if (record->value.nbytes > FILE_MAX_NBYTES ||
        file->end + ch_log_record_nbytes(record) > FILE_MAX_NBYTES)
        return ch_fail(CHOIR_ERR_INVALID,
                       "the file is full: %llu bytes, at most %d are allowed, %zu more are wanted",
                       (unsigned long long)file->end, FILE_MAX_NBYTES, record->value.nbytes);
    return CHOIR_OK;
}

/* Append a record at file->end. A torn one there is cut off first: longer than ours, its end would be
 * taken for what follows. */
static choir_status append_bytes(struct file *file, const unsigned char *bytes, size_t nbytes)
{
    choir_status rc;

    if (file->size > file->end && ch_sys_truncate(file->fd, (off_t)file->end) != 0)
        return ch_fail_errno("cut off the record at %llu, torn by a crash",
                             (unsigned long long)file->end);
    rc = write_at(file, file->end, bytes, nbytes);
    /* If it cannot be cut off now, whoever comes next takes it for torn, and does it. */
    if (rc != CHOIR_OK && ch_sys_truncate(file->fd, (off_t)file->end) != 0)
        ch_log_debug("store %s: a record at %llu stays torn", file->path,
                     (unsigned long long)file->end);
    return rc;
}

/* Make a change, in the file and then in the table. Once it is in the file it has happened: should
 * there be no memory for it in our table, the next look finds it in the file. */
static choir_status change(struct file *file, enum ch_log_kind kind, choir_bytes key,
                           choir_bytes value)
{
    struct ch_log_record record = { .kind = kind, .key = key, .value = value };
    size_t nbytes = ch_log_record_nbytes(&record);
    unsigned char *bytes;
    choir_status rc = check_room(file, &record);

    if (rc != CHOIR_OK)
        return rc;
    bytes = ch_alloc(nbytes);
    if (bytes == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a record of %zu bytes", nbytes);
    ch_log_write_record(&file->header, file->end, &record, bytes);
    rc = append_bytes(file, bytes, nbytes);
    if (rc == CHOIR_OK) {
        file->size = file->end + nbytes;
        if (ch_log_apply(&record, file->table) == CHOIR_OK)
            file->end = file->size;
    }
    ch_free(bytes);
    return rc;
}

/* --- operations ---------------------------------------------------------------------------------- */

/* A change that needs no look at what is there. */
static choir_status plain_change(void *self, enum ch_log_kind kind, choir_bytes key,
                                 choir_bytes value, const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc = enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = change(file, kind, key, value);
    leave(file);
    return rc;
}

static choir_status file_set(void *self, choir_bytes key, choir_bytes value,
                             const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_SET, key, value, patience);
}

static choir_status file_append(void *self, choir_bytes key, choir_bytes more,
                                const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_APPEND, key, more, patience);
}

static choir_status file_queue_push(void *self, choir_bytes key, choir_bytes value,
                                    const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_PUSH, key, value, patience);
}

struct several {
    const choir_bytes *keys;
    size_t count;
};

static bool all_exist(struct file *file, void *arg)
{
    const struct several *several = arg;

    for (size_t i = 0; i < several->count; i++) {
        if (!ch_table_exists(file->table, several->keys[i]))
            return false;
    }
    return true;
}

static choir_status file_wait(void *self, const choir_bytes *keys, size_t count,
                              const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = enter_when(self, F_RDLCK, all_exist, &several, patience, "the key");

    if (rc == CHOIR_OK)
        leave(self);
    return rc;
}

/* A key that is only a queue has an empty value. */
static choir_status fetch(const struct file *file, choir_bytes key, choir_blob *value_out)
{
    choir_bytes value = { NULL, 0 };

    (void)ch_table_get(file->table, key, &value);
    return ch_blob_init(value_out, value.data, value.nbytes);
}

static choir_status file_get(void *self, choir_bytes key, choir_blob *value_out,
                             const struct ch_patience *patience)
{
    struct several several = { &key, 1 };
    choir_status rc = enter_when(self, F_RDLCK, all_exist, &several, patience, "the key");

    if (rc != CHOIR_OK)
        return rc;
    rc = fetch(self, key, value_out);
    leave(self);
    return rc;
}

static choir_status file_multi_get(void *self, const choir_bytes *keys, size_t count,
                                   choir_blob *values_out, const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = enter_when(self, F_RDLCK, all_exist, &several, patience, "the keys");
    size_t got = 0;

    if (rc != CHOIR_OK)
        return rc;
    while (rc == CHOIR_OK && got < count) {
        rc = fetch(self, keys[got], &values_out[got]);
        got += rc == CHOIR_OK;
    }
    leave(self);
    while (rc != CHOIR_OK && got > 0)
        choir_blob_free(&values_out[--got]);
    return rc;
}

static choir_status file_multi_set(void *self, const choir_bytes *keys, const choir_bytes *values,
                                   size_t count, const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc = enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    for (size_t i = 0; i < count && rc == CHOIR_OK; i++) {
        rc = change(file, CH_LOG_SET, keys[i], values[i]);
        /* One that is in the file but not in our table must not be taken for torn by the next. */
        if (rc == CHOIR_OK && file->end < file->size)
            rc = replay(file);
    }
    leave(file);
    return rc;
}

static choir_status file_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                             const struct ch_patience *patience)
{
    char text[CH_TABLE_SUM_NBYTES];
    struct file *file = self;
    int64_t sum;
    choir_status rc = enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_sum(file->table, key, delta, &sum, text);
    if (rc == CHOIR_OK)
        rc = change(file, CH_LOG_SET, key, choir_str(text));
    if (rc == CHOIR_OK)
        *sum_out = sum;
    leave(file);
    return rc;
}

/* Whether compare_set stores, and what it answers. */
static bool compares(const struct file *file, choir_bytes key, choir_bytes expected,
                     choir_bytes desired, choir_bytes *answer_out)
{
    choir_bytes current;
    bool there = ch_table_get(file->table, key, &current), same = expected.nbytes == 0;

    if (there)
        same = current.nbytes == expected.nbytes &&
               (current.nbytes == 0 || memcmp(current.data, expected.data, current.nbytes) == 0);
    *answer_out = same ? desired : there ? current : expected;
    return same;
}

static choir_status file_compare_set(void *self, choir_bytes key, choir_bytes expected,
                                     choir_bytes desired, choir_blob *value_out,
                                     const struct ch_patience *patience)
{
    struct file *file = self;
    choir_bytes answer;
    choir_blob copy;
    bool store;
    choir_status rc = enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    store = compares(file, key, expected, desired, &answer);
    rc = ch_blob_init(&copy, answer.data, answer.nbytes);
    if (rc == CHOIR_OK && store) {
        rc = change(file, CH_LOG_SET, key, desired);
        if (rc != CHOIR_OK)
            choir_blob_free(&copy);
    }
    if (rc == CHOIR_OK)
        *value_out = copy;
    leave(file);
    return rc;
}

static choir_status file_remove(void *self, choir_bytes key, bool *removed_out,
                                const struct ch_patience *patience)
{
    struct file *file = self;
    choir_bytes value;
    bool there;
    choir_status rc = enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    there = ch_table_get(file->table, key, &value);
    if (there)
        rc = change(file, CH_LOG_REMOVE, key, (choir_bytes){ NULL, 0 });
    if (rc == CHOIR_OK)
        *removed_out = there;
    leave(file);
    return rc;
}

static choir_status file_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                               const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = enter(self, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *all_out = all_exist(self, &several);
    leave(self);
    return CHOIR_OK;
}

static choir_status file_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc = enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *count_out = (int64_t)ch_table_count(file->table);
    leave(file);
    return CHOIR_OK;
}

static choir_status file_list(void *self, choir_blob **keys_out, size_t *count_out,
                              const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc = enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_list(file->table, keys_out, count_out);
    leave(file);
    return rc;
}

static bool has_element(struct file *file, void *arg)
{
    return ch_table_queue_length(file->table, *(const choir_bytes *)arg) > 0;
}

static choir_status pop_inside(struct file *file, choir_bytes key, choir_blob *value_out)
{
    choir_bytes front;
    choir_blob copy;
    choir_status rc;

    if (!ch_table_queue_front(file->table, key, &front))
        return ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    rc = ch_blob_init(&copy, front.data, front.nbytes);
    if (rc != CHOIR_OK)
        return rc;
    rc = change(file, CH_LOG_POP, key, (choir_bytes){ NULL, 0 });
    if (rc == CHOIR_OK)
        *value_out = copy;
    else
        choir_blob_free(&copy);
    return rc;
}

static choir_status file_queue_pop(void *self, choir_bytes key, choir_blob *value_out,
                                   const struct ch_patience *patience)
{
    choir_status rc = enter_when(self, F_WRLCK, has_element, &key, patience, "an element");

    if (rc != CHOIR_OK)
        return rc;
    rc = pop_inside(self, key, value_out);
    leave(self);
    return rc;
}

static choir_status file_queue_try_pop(void *self, choir_bytes key, choir_blob *value_out,
                                       const struct ch_patience *patience)
{
    choir_status rc = enter(self, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = pop_inside(self, key, value_out);
    leave(self);
    return rc;
}

static choir_status file_queue_length(void *self, choir_bytes key, int64_t *length_out,
                                      const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc = enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *length_out = (int64_t)ch_table_queue_length(file->table, key);
    leave(file);
    return CHOIR_OK;
}

/* --- opening ------------------------------------------------------------------------------------- */

/* What the opener asks for. */
struct wish {
    int nranks;
    const char *run_id; /* NULL: any */
};

static choir_status open_fd(struct file *file)
{
    struct stat st;

    ch_sys_close(file->fd);
    file->fd = ch_sys_open(file->path, O_RDWR | O_CREAT | O_NONBLOCK, 0600);
    if (file->fd < 0)
        return ch_fail_errno("open it");
    if (ch_sys_fstat(file->fd, &st) != 0)
        return ch_fail_errno("stat it");
    if (!S_ISREG(st.st_mode))
        return ch_fail(CHOIR_ERR_INVALID, "it is not a regular file");
    /* What is put into it is for us and ours; the owner of the file could read it all. */
    if (st.st_uid != geteuid())
        return ch_fail(CHOIR_ERR_PERMISSION, "the file belongs to user %u, we are user %u",
                       (unsigned)st.st_uid, (unsigned)geteuid());
    return CHOIR_OK;
}

/* A new, empty log under a new salt. */
static choir_status begin_anew(struct file *file, const struct wish *wish)
{
    unsigned char bytes[CH_LOG_HEADER_NBYTES];
    struct ch_log_header *header = &file->header;
    choir_status rc;

    *header = (struct ch_log_header){ .nranks = wish->nranks };
    if (ch_sys_random(header->salt, sizeof(header->salt)) != 0)
        return ch_fail_errno("random numbers for a new run");
    for (size_t i = 0; i < sizeof(header->salt); i++)
        snprintf(header->run_id + 2 * i, 3, "%02x", header->salt[i]);
    if (wish->run_id != NULL) {
        memset(header->run_id, 0, sizeof(header->run_id));
        memcpy(header->run_id, wish->run_id, strlen(wish->run_id)); /* its length was checked */
    }
    ch_log_write_header(header, bytes);
    if (ch_sys_truncate(file->fd, 0) != 0)
        return ch_fail_errno("empty it");
    rc = write_at(file, 0, bytes, sizeof(bytes));
    if (rc != CHOIR_OK && ch_sys_truncate(file->fd, 0) != 0)
        ch_log_warn("store %s: half a header is left in it", file->path);
    return rc;
}

/* What stands in the file, if anything does. */
static choir_status look_at_header(struct file *file, bool *empty_out)
{
    unsigned char bytes[CH_LOG_HEADER_NBYTES];
    size_t got;
    choir_status rc = read_at(file, 0, bytes, sizeof(bytes), &got);

    if (rc != CHOIR_OK)
        return rc;
    *empty_out = got == 0;
    return got == 0 ? CHOIR_OK : ch_log_read_header(bytes, got, &file->header);
}

/* Whether what stands in the file, which is used or lasts, is what we came for. */
static choir_status check_wish(const struct file *file, const struct wish *wish)
{
    const struct ch_log_header *header = &file->header;

    if (wish->run_id != NULL && strcmp(wish->run_id, header->run_id) != 0)
        return ch_fail(CHOIR_ERR_STATE, "run \"%s\" is using the file, this is run \"%s\"",
                       header->run_id, wish->run_id);
    if (wish->nranks > 0 && wish->nranks != header->nranks)
        return ch_fail(CHOIR_ERR_STATE, "it is used by %d ranks of run \"%s\", this one expects %d",
                       header->nranks, header->run_id, wish->nranks);
    return CHOIR_OK;
}

/* A lasting store that holds something is not a rendezvous that somebody left behind. */
static choir_status check_not_lasting(const struct file *file)
{
    struct stat st;

    if (file->header.nranks > 0)
        return CHOIR_OK;
    if (ch_sys_fstat(file->fd, &st) != 0)
        return ch_fail_errno("stat it");
    if (st.st_size > CH_LOG_HEADER_NBYTES)
        return ch_fail(CHOIR_ERR_STATE, "it holds a lasting store; %s",
                       "remove it, or choose another file for this run");
    return CHOIR_OK;
}

/* A user of a rendezvous: be present, and find out whether others are. */
static choir_status join(struct file *file, const struct wish *wish, bool empty,
                         const struct ch_patience *patience)
{
    choir_status rc = try_lock(file, F_WRLCK, presence_lock);
    bool alone = rc == CHOIR_OK;

    if (rc < 0)
        return rc;
    if (alone && !empty)
        rc = check_not_lasting(file);
    if (alone && rc == CHOIR_OK)
        rc = begin_anew(file, wish);
    else if (!alone)
        rc = empty ? ch_fail(CHOIR_ERR_PROTO, "somebody uses it, but it is empty")
                   : check_wish(file, wish);
    if (rc == CHOIR_OK)
        rc = lock_in_time(file, F_RDLCK, presence_lock, patience);
    file->present = rc == CHOIR_OK;
    return rc;
}

/* With the data lock held. */
static choir_status come_in(struct file *file, const struct wish *wish,
                            const struct ch_patience *patience)
{
    bool empty;
    choir_status rc = look_at_header(file, &empty);

    if (rc != CHOIR_OK)
        return rc;
    if (wish->nranks > 0)
        return join(file, wish, empty, patience);
    return empty ? begin_anew(file, wish) : check_wish(file, wish);
}

/* CHOIR_IN_PROGRESS if the last user removed the file under our feet: then it has to be made anew. */
static choir_status open_once(struct file *file, const struct wish *wish,
                              const struct ch_patience *patience)
{
    struct stat st;
    choir_status rc = open_fd(file);

    if (rc == CHOIR_OK)
        rc = lock_in_time(file, F_WRLCK, data_lock, patience);
    if (rc != CHOIR_OK)
        return rc;
    if (ch_sys_fstat(file->fd, &st) != 0)
        rc = ch_fail_errno("stat it");
    else
        rc = st.st_nlink == 0 ? CHOIR_IN_PROGRESS : come_in(file, wish, patience);
    unlock_data(file);
    return rc;
}

static choir_status open_in_time(struct file *file, const struct ch_store_place *place,
                                 const struct ch_patience *patience)
{
    struct wish wish = { place->nranks, place->run_id };
    uint64_t pause = FIRST_PAUSE_NS;
    choir_status rc;

    if (place->where[0] == '\0')
        return ch_fail(CHOIR_ERR_INVALID, "the path is missing; file:///path is one");
    if (wish.run_id != NULL && strlen(wish.run_id) >= CH_LOG_RUN_ID_NBYTES)
        return ch_fail(CHOIR_ERR_INVALID, "a run id of %zu bytes, at most %d are allowed",
                       strlen(wish.run_id), CH_LOG_RUN_ID_NBYTES - 1);
    file->path = ch_strdup(place->where);
    if (file->path == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for its path");
    rc = ch_table_create(&ch_table_default_limits, &file->table);
    if (rc == CHOIR_OK)
        rc = open_once(file, &wish, patience);
    while (rc == CHOIR_IN_PROGRESS) {
        rc = pause_until_next(patience, &pause, LOCK_PAUSE_NS, "the file to be made anew");
        if (rc == CHOIR_OK)
            rc = open_once(file, &wish, patience);
    }
    return rc;
}

static choir_status file_open(void *self, const struct ch_store_place *place,
                              const struct ch_patience *patience)
{
    struct file *file = self;
    choir_status rc;

    ch_lock_init(&file->lock, CH_LOCK_STORE);
    file->fd = -1;
    rc = open_in_time(file, place, patience);
    if (rc != CHOIR_OK) {
        ch_error_prefix("store %s: ", place->url);
        return rc;
    }
    file->end = CH_LOG_HEADER_NBYTES;
    return CHOIR_OK;
}

/* --- closing ------------------------------------------------------------------------------------- */

/* Whether the path still leads to the file we have open. */
static bool path_is_ours(const struct file *file)
{
    int fd = ch_sys_open(file->path, O_RDONLY | O_NONBLOCK, 0);
    struct stat there, ours;
    bool same = fd >= 0 && ch_sys_fstat(fd, &there) == 0 && ch_sys_fstat(file->fd, &ours) == 0 &&
                there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;

    ch_sys_close(fd);
    return same;
}

/* For a moment, without a caller's patience. */
static bool lock_to_close(const struct file *file)
{
    for (int i = 0; i < CLOSE_TRIES; i++) {
        choir_status rc = try_lock(file, F_WRLCK, data_lock);

        if (rc != CHOIR_IN_PROGRESS)
            return rc == CHOIR_OK;
        (void)!ch_sys_poll(NULL, 0, CH_MS);
    }
    return false;
}

/* The last to leave a rendezvous removes its file. Under the data lock, so that of two who leave at
 * once one sees that the other has gone. */
static void go(struct file *file)
{
    if (!lock_to_close(file)) {
        ch_log_warn("store %s: the file may stay behind: its lock could not be had", file->path);
        return;
    }
    if (try_lock(file, F_WRLCK, presence_lock) == CHOIR_OK && path_is_ours(file) &&
        ch_sys_unlink(file->path) != 0)
        ch_log_warn("store %s: remove the file: errno %d", file->path, errno);
    (void)!ch_sys_lock_byte(file->fd, F_UNLCK, presence_lock);
    unlock_data(file);
}

static void file_close(void *self)
{
    struct file *file = self;

    if (file->present && !ch_is_forked()) /* in a fork it is the parent that is present */
        go(file);
    ch_sys_close(file->fd);
    ch_table_destroy(file->table);
    ch_free(file->path);
    ch_lock_fini(&file->lock);
}

const struct ch_store_ops ch_store_file = {
    .scheme = "file",
    .help = "a file that all processes see",
    .self_size = sizeof(struct file),
    .open = file_open,
    .close = file_close,
    .set = file_set,
    .get = file_get,
    .add = file_add,
    .compare_set = file_compare_set,
    .append = file_append,
    .remove = file_remove,
    .multi_get = file_multi_get,
    .multi_set = file_multi_set,
    .check = file_check,
    .wait = file_wait,
    .count = file_count,
    .list = file_list,
    .queue_push = file_queue_push,
    .queue_pop = file_queue_pop,
    .queue_try_pop = file_queue_try_pop,
    .queue_length = file_queue_length,
};
