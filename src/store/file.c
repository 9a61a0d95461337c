/*
 * file.c - the way into a file store and out: wait for the lock, read what is new, append what changes.
 */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

enum {
    CHUNK_NBYTES = 64 << 10,   /* read at once, unless a record is longer */
    KEY_PAUSE_NS = 10 * CH_MS, /* the longest between two looks for a key */
};

/* --- waiting and locks --------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Wait a moment before the next look: *pause_io, which is doubled, up to `most`. */
choir_status ch_file_pause(const struct ch_patience *patience, uint64_t *pause_io, uint64_t most,
                           const char *what)
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
choir_status ch_file_try_lock(const struct ch_file *file, int type, off_t place)
{
    if (ch_sys_lock_byte(file->fd, type, place) == 0)
        return CHOIR_OK;
    if (errno == EAGAIN || errno == EACCES)
        return CHOIR_IN_PROGRESS;
    return ch_fail_errno("lock it");
}

choir_status ch_file_lock(const struct ch_file *file, int type, off_t place,
                          const struct ch_patience *patience)
{
    uint64_t pause = CH_FILE_FIRST_PAUSE_NS;
    choir_status rc = ch_file_try_lock(file, type, place);

    while (rc == CHOIR_IN_PROGRESS) {
        rc = ch_file_pause(patience, &pause, CH_FILE_LOCK_PAUSE_NS, "the lock of the file");
        if (rc == CHOIR_OK)
            rc = ch_file_try_lock(file, type, place);
    }
    return rc;
}

/* Tried again: others would wait for us until we close it. */
void ch_file_unlock_data(const struct ch_file *file)
{
    if (ch_sys_lock_byte(file->fd, F_UNLCK, CH_FILE_DATA) != 0 &&
        ch_sys_lock_byte(file->fd, F_UNLCK, CH_FILE_DATA) != 0)
        ch_log_warn("store %s: unlock it: errno %d", file->path, errno);
}

/* One thread of this process at a time: the file's lock keeps out other openings only. */
static bool try_busy(struct ch_file *file)
{
    bool mine;

    ch_lock(&file->lock);
    mine = !file->busy;
    file->busy = true;
    ch_unlock(&file->lock);
    return mine;
}

static void end_busy(struct ch_file *file)
{
    ch_lock(&file->lock);
    file->busy = false;
    ch_unlock(&file->lock);
}

static bool somebody_waits(struct ch_file *file)
{
    bool one_of_us;

    ch_lock(&file->lock);
    one_of_us = file->nwaiting > 0;
    ch_unlock(&file->lock);
    return one_of_us || ch_sys_byte_is_locked(file->fd, CH_FILE_LINE) == 1;
}

/* Should these fail we have less of a claim, or others leave us more time than we need: no harm. */
static void stand_in_line(struct ch_file *file)
{
    ch_lock(&file->lock);
    if (file->nwaiting++ == 0)
        (void)!ch_sys_lock_byte(file->fd, F_RDLCK, CH_FILE_LINE);
    ch_unlock(&file->lock);
}

static void leave_line(struct ch_file *file)
{
    ch_lock(&file->lock);
    if (--file->nwaiting == 0)
        (void)!ch_sys_lock_byte(file->fd, F_UNLCK, CH_FILE_LINE);
    ch_unlock(&file->lock);
}

/* --- reading ------------------------------------------------------------------------------------- */

/* As much of `nbytes` as there is. */
choir_status ch_file_read_at(const struct ch_file *file, uint64_t place, unsigned char *bytes,
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
static choir_status apply_records(struct ch_file *file, const unsigned char *bytes, size_t nbytes,
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

static choir_status replay(struct ch_file *file)
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
        rc = ch_file_read_at(file, file->end, bytes, want, &got);
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
static choir_status still_ours(struct ch_file *file)
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
    rc = ch_file_read_at(file, 0, bytes, sizeof(bytes), &got);
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

void ch_file_leave(struct ch_file *file)
{
    ch_file_unlock_data(file);
    end_busy(file);
}

static choir_status try_enter(struct ch_file *file, int type)
{
    choir_status rc;

    if (!try_busy(file))
        return CHOIR_IN_PROGRESS;
    rc = ch_file_try_lock(file, type, CH_FILE_DATA);
    if (rc != CHOIR_OK) {
        end_busy(file);
        return rc;
    }
    rc = still_ours(file);
    if (rc == CHOIR_OK)
        rc = replay(file);
    if (rc != CHOIR_OK)
        ch_file_leave(file);
    return rc;
}

static choir_status enter_in_turn(struct ch_file *file, int type, uint64_t pause,
                                  const struct ch_patience *patience)
{
    choir_status rc = CHOIR_IN_PROGRESS;

    stand_in_line(file);
    while (rc == CHOIR_IN_PROGRESS) {
        rc = ch_file_pause(patience, &pause, CH_FILE_LOCK_PAUSE_NS, "the lock of the file");
        if (rc == CHOIR_OK)
            rc = try_enter(file, type);
    }
    leave_line(file);
    return rc;
}

/* To read (F_RDLCK) or to write (F_WRLCK). */
choir_status ch_file_enter(struct ch_file *file, int type, const struct ch_patience *patience)
{
    choir_status rc;

    if (somebody_waits(file))
        return enter_in_turn(file, type, CH_FILE_LOCK_PAUSE_NS, patience);
    rc = try_enter(file, type);
    return rc == CHOIR_IN_PROGRESS ? enter_in_turn(file, type, CH_FILE_FIRST_PAUSE_NS, patience)
                                   : rc;
}

/* Whether a look could show anything new since the file had `size` bytes and none of them were torn. */
static bool may_have_changed(const struct ch_file *file, uint64_t size)
{
    struct stat st;

    return ch_sys_fstat(file->fd, &st) != 0 || (uint64_t)st.st_size != size || st.st_nlink == 0;
}

/* Enter again and again until look() says true; then the caller is inside. */
choir_status ch_file_enter_when(struct ch_file *file, int type,
                                bool (*look)(struct ch_file *, void *), void *arg,
                                const struct ch_patience *patience, const char *what)
{
    uint64_t pause = CH_FILE_FIRST_PAUSE_NS;

    for (;;) {
        uint64_t known = UINT64_MAX;
        choir_status rc = ch_file_enter(file, type, patience);

        if (rc != CHOIR_OK || look(file, arg))
            return rc;
        if (file->end == file->size)
            known = file->size;
        ch_file_leave(file);
        do
            rc = ch_file_pause(patience, &pause, KEY_PAUSE_NS, what);
        while (rc == CHOIR_OK && !may_have_changed(file, known));
        if (rc != CHOIR_OK)
            return rc;
    }
}

/* --- writing ------------------------------------------------------------------------------------- */

choir_status ch_file_write_at(const struct ch_file *file, uint64_t place,
                              const unsigned char *bytes, size_t nbytes)
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

static choir_status check_room(const struct ch_file *file, const struct ch_log_record *record)
{
    size_t most_key = ch_table_default_limits.key_nbytes;

    if (record->key.nbytes > most_key)
        return ch_fail(CHOIR_ERR_INVALID, "a key of %zu bytes, at most %zu are allowed",
                       record->key.nbytes, most_key);
    if (record->value.nbytes > CH_FILE_MAX_NBYTES ||
        file->end + ch_log_record_nbytes(record) > CH_FILE_MAX_NBYTES)
        return ch_fail(CHOIR_ERR_INVALID,
                       "the file is full: %llu bytes, at most %d are allowed, %zu more are wanted",
                       (unsigned long long)file->end, CH_FILE_MAX_NBYTES, record->value.nbytes);
    return CHOIR_OK;
}

/* Append a record at file->end. A torn one there is cut off first: longer than ours, its end would be
 * taken for what follows. */
static choir_status append_bytes(struct ch_file *file, const unsigned char *bytes, size_t nbytes)
{
    choir_status rc;

    if (file->size > file->end && ch_sys_truncate(file->fd, (off_t)file->end) != 0)
        return ch_fail_errno("cut off the record at %llu, torn by a crash",
                             (unsigned long long)file->end);
    rc = ch_file_write_at(file, file->end, bytes, nbytes);
    /* If it cannot be cut off now, whoever comes next takes it for torn, and does it. */
    if (rc != CHOIR_OK && ch_sys_truncate(file->fd, (off_t)file->end) != 0)
        ch_log_debug("store %s: a record at %llu stays torn", file->path,
                     (unsigned long long)file->end);
    return rc;
}

/* Once it is in the file it has happened. Should there be no memory for it in our table, it is read
 * back, now or by the next who comes in; but this caller must not go on, or it would overwrite it. */
choir_status ch_file_change(struct ch_file *file, enum ch_log_kind kind, choir_bytes key,
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
        else
            rc = replay(file);
    }
    ch_free(bytes);
    return rc;
}
