/*
 * file_open.c - opening a file store, joining a rendezvous or beginning one anew, and the end of both.
 */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

enum { CLOSE_TRIES = 1000 }; /* to get the lock when closing, a millisecond apart */

/* --- opening ------------------------------------------------------------------------------------- */

/* What the opener asks for. */
struct wish {
    int nranks;
    const char *run_id; /* NULL: any */
};

static choir_status open_fd(struct ch_file *file)
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
static choir_status begin_anew(struct ch_file *file, const struct wish *wish)
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
    rc = ch_file_write_at(file, 0, bytes, sizeof(bytes));
    if (rc != CHOIR_OK && ch_sys_truncate(file->fd, 0) != 0)
        ch_log_warn("store %s: half a header is left in it", file->path);
    return rc;
}

/* What stands in the file, if anything does. */
static choir_status look_at_header(struct ch_file *file, bool *empty_out)
{
    unsigned char bytes[CH_LOG_HEADER_NBYTES];
    size_t got;
    choir_status rc = ch_file_read_at(file, 0, bytes, sizeof(bytes), &got);

    if (rc != CHOIR_OK)
        return rc;
    *empty_out = got == 0;
    return got == 0 ? CHOIR_OK : ch_log_read_header(bytes, got, &file->header);
}

/* Whether what stands in the file, which is used or lasts, is what we came for. */
static choir_status check_wish(const struct ch_file *file, const struct wish *wish)
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
static choir_status check_not_lasting(const struct ch_file *file)
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
static choir_status join(struct ch_file *file, const struct wish *wish, bool empty,
                         const struct ch_patience *patience)
{
    choir_status rc = ch_file_try_lock(file, F_WRLCK, CH_FILE_PRESENCE);
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
        rc = ch_file_lock(file, F_RDLCK, CH_FILE_PRESENCE, patience);
    file->present = rc == CHOIR_OK;
    return rc;
}

/* With the data lock held. */
static choir_status come_in(struct ch_file *file, const struct wish *wish,
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
static choir_status open_once(struct ch_file *file, const struct wish *wish,
                              const struct ch_patience *patience)
{
    struct stat st;
    choir_status rc = open_fd(file);

    if (rc == CHOIR_OK)
        rc = ch_file_lock(file, F_WRLCK, CH_FILE_DATA, patience);
    if (rc != CHOIR_OK)
        return rc;
    if (ch_sys_fstat(file->fd, &st) != 0)
        rc = ch_fail_errno("stat it");
    else
        rc = st.st_nlink == 0 ? CHOIR_IN_PROGRESS : come_in(file, wish, patience);
    ch_file_unlock_data(file);
    return rc;
}

static choir_status open_in_time(struct ch_file *file, const struct ch_store_place *place,
                                 const struct ch_patience *patience)
{
    struct wish wish = { place->nranks, place->run_id };
    uint64_t pause = CH_FILE_FIRST_PAUSE_NS;
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
        rc = ch_file_pause(patience, &pause, CH_FILE_LOCK_PAUSE_NS, "the file to be made anew");
        if (rc == CHOIR_OK)
            rc = open_once(file, &wish, patience);
    }
    return rc;
}

choir_status ch_file_open(void *self, const struct ch_store_place *place,
                          const struct ch_patience *patience)
{
    struct ch_file *file = self;
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
static bool path_is_ours(const struct ch_file *file)
{
    int fd = ch_sys_open(file->path, O_RDONLY | O_NONBLOCK, 0);
    struct stat there, ours;
    bool same = fd >= 0 && ch_sys_fstat(fd, &there) == 0 && ch_sys_fstat(file->fd, &ours) == 0 &&
                there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;

    ch_sys_close(fd);
    return same;
}

/* For a moment, without a caller's patience. */
static bool lock_to_close(const struct ch_file *file)
{
    for (int i = 0; i < CLOSE_TRIES; i++) {
        choir_status rc = ch_file_try_lock(file, F_WRLCK, CH_FILE_DATA);

        if (rc != CHOIR_IN_PROGRESS)
            return rc == CHOIR_OK;
        (void)!ch_sys_poll(NULL, 0, CH_MS);
    }
    return false;
}

/* The last to leave a rendezvous removes its file. Under the data lock, so that of two who leave at
 * once one sees that the other has gone. */
static void go(struct ch_file *file)
{
    if (!lock_to_close(file)) {
        ch_log_warn("store %s: the file may stay behind: its lock could not be had", file->path);
        return;
    }
    if (ch_file_try_lock(file, F_WRLCK, CH_FILE_PRESENCE) == CHOIR_OK && path_is_ours(file) &&
        ch_sys_unlink(file->path) != 0)
        ch_log_warn("store %s: remove the file: errno %d", file->path, errno);
    (void)!ch_sys_lock_byte(file->fd, F_UNLCK, CH_FILE_PRESENCE);
    ch_file_unlock_data(file);
}

void ch_file_close(void *self)
{
    struct ch_file *file = self;

    if (file->present && !ch_is_forked()) /* in a fork it is the parent that is present */
        go(file);
    ch_sys_close(file->fd);
    ch_table_destroy(file->table);
    ch_free(file->path);
    ch_lock_fini(&file->lock);
}
