/*
 * flight_file.c - see flight_file.h.
 */
#include "trace/flight_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/params.h"
#include "base/sys.h"
#include "trace/flight_dump.h"
#include "trace/flight_impl.h"

enum { PATH_LENGTH_MAX = 4096 };

/* --- one file -------------------------------------------------------------------------------------- */

static choir_status write_all(int fd, const char *path, const choir_blob *blob)
{
    size_t done = 0;

    while (done < blob->nbytes) {
        ssize_t n = ch_sys_write(fd, blob->data + done, blob->nbytes - done);

        if (n <= 0)
            return ch_fail_errno("flight record: write %zu bytes to %s", blob->nbytes, path);
        done += (size_t)n;
    }
    return CHOIR_OK;
}

/* Beside the file, under a name that two writers do not share. */
static choir_status open_beside(const char *path, char *beside, size_t room, int *fd_out)
{
    uint64_t id;
    int n;

    if (ch_sys_random(&id, sizeof(id)) != 0)
        return ch_fail_errno("flight record: a random name beside %s", path);
    n = snprintf(beside, room, "%s.%016llx", path, (unsigned long long)id);
    if (n < 0 || (size_t)n >= room)
        return ch_fail(CHOIR_ERR_INVALID, "flight record: the name %.64s... is too long", path);
    *fd_out = ch_sys_open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    return *fd_out >= 0 ? CHOIR_OK : ch_fail_errno("flight record: make %s", beside);
}

choir_status ch_flight_write_file(const char *path, const choir_blob *blob)
{
    char beside[PATH_LENGTH_MAX];
    choir_status rc;
    int fd = -1;

    rc = open_beside(path, beside, sizeof(beside), &fd);
    if (rc != CHOIR_OK)
        return rc;
    rc = write_all(fd, path, blob);
    ch_sys_close(fd);
    if (rc == CHOIR_OK && ch_sys_rename(beside, path) != 0)
        rc = ch_fail_errno("flight record: rename %s to %s", beside, path);
    if (rc != CHOIR_OK && ch_sys_unlink(beside) != 0)
        ch_log_warn("flight record: %s is left behind, half written", beside);
    return rc;
}

/* --- where it is asked for ------------------------------------------------------------------------- */

static const char *torch_prefix(void)
{
    const char *prefix = getenv("TORCH_FR_DUMP_TEMP_FILE");

    if (prefix == NULL || *prefix == '\0')
        prefix = getenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    return prefix != NULL && *prefix != '\0' ? prefix : NULL;
}

static choir_status leave_one(uint64_t which, choir_trace_format format, const char *why,
                              const char *path)
{
    choir_blob blob = { NULL, 0 };
    choir_status rc = ch_flight_dump(which, format, why, &blob);

    if (rc == CHOIR_OK)
        rc = ch_flight_write_file(path, &blob);
    ch_free(blob.data);
    if (rc == CHOIR_OK)
        ch_log_warn("flight record left in %s (%s)", path, why);
    return rc;
}

static choir_status leave(uint64_t which, int rank, const char *why)
{
    const char *folder = ch_params()->trace_dir, *prefix = torch_prefix();
    choir_status rc = CHOIR_OK, also = CHOIR_OK;
    char path[PATH_LENGTH_MAX];

    if (*folder != '\0') {
        snprintf(path, sizeof(path), "%s/rank_%d.json", folder, rank);
        rc = leave_one(which, CHOIR_TRACE_JSON, why, path);
    }
    if (prefix != NULL) {
        snprintf(path, sizeof(path), "%s%d", prefix, rank);
        also = leave_one(which, CHOIR_TRACE_PICKLE, why, path);
    }
    return rc != CHOIR_OK ? rc : also;
}

choir_status ch_flight_leave(struct ch_flight *flight, const char *why)
{
    return flight != NULL ? leave(flight->id, flight->rank, why) : CHOIR_OK;
}

choir_status ch_flight_leave_all(const char *why)
{
    choir_status rc = CHOIR_OK;
    uint64_t which = 0;
    int rank;

    while ((which = ch_flight_next(which, &rank)) != 0) {
        choir_status one = leave(which, rank, why);

        rc = rc != CHOIR_OK ? rc : one;
    }
    return rc;
}

void ch_flight_failed(struct ch_flight_group *group, const choir_error *why)
{
    char words[sizeof(why->text) + 256];
    choir_error kept;

    /* Relaxed: it only elects who writes. */
    if (group == NULL || atomic_exchange_explicit(&group->failed, true, memory_order_relaxed))
        return;
    ch_error_save(&kept); /* the failure itself, which the caller is about to report */
    snprintf(words, sizeof(words), "group \"%.160s\" failed: %s: %s", group->name,
             choir_status_name(why->code), why->text);
    if (ch_flight_leave(group->flight, words) != CHOIR_OK)
        ch_log_warn("%s", choir_last_error());
    ch_error_load(&kept);
}
