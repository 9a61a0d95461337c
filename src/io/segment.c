/*
 * segment.c - memfd segments and the table of those this process has mapped. See segment.h.
 */
#include "io/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/sys.h"

/* What keeps a segment's size as it is, and these seals on it. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Pages are asked for in pieces: a signal makes the kernel give up on a call and take its pages
 * back, and a profiler's timer would make one call for everything start over for ever. */
#define PIECE ((size_t)1 << 20)

/* From here on the machine is asked first whether it has that much. */
#define LARGE ((size_t)16 << 20)

struct ch_seg {
    struct ch_list link; /* in the_segments.mapped, if base is set; under its lock */
    unsigned refs;       /* under the same lock */
    int fd;
    dev_t dev; /* which file it is: device and inode number */
    ino_t ino;
    void *base;
    size_t nbytes;
    size_t room; /* bytes of address space at base; more than nbytes while it can grow */
    bool ours;   /* made by this process */
};

static struct {
    struct ch_lock lock;
    struct ch_list mapped; /* under lock */
} the_segments = {
    .lock = CH_LOCK_INIT(CH_LOCK_SEGMENTS),
    .mapped = CH_LIST_INIT(the_segments.mapped),
};

void *ch_seg_base(const struct ch_seg *seg)
{
    return seg->base;
}

size_t ch_seg_nbytes(const struct ch_seg *seg)
{
    return seg->nbytes;
}

int ch_seg_fd(const struct ch_seg *seg)
{
    return seg->fd;
}

bool ch_seg_is_ours(const struct ch_seg *seg)
{
    return seg->ours;
}

/* --- one mapping per file ---------------------------------------------------------------------- */

static struct ch_seg *find_locked(dev_t dev, ino_t ino) CH_REQUIRES(the_segments.lock)
{
    ch_lock_assert_held(&the_segments.lock);
    CH_LIST_EACH (link, &the_segments.mapped) {
        struct ch_seg *seg = CH_CONTAINER(link, struct ch_seg, link);

        if (seg->dev == dev && seg->ino == ino)
            return seg;
    }
    return NULL;
}

/* Map `seg`, whose size and identity are known, and put it into the table. On failure it is as
 * before. */
static choir_status map_locked(struct ch_seg *seg) CH_REQUIRES(the_segments.lock)
{
    void *base = ch_sys_map_shared(seg->fd, seg->room);

    ch_lock_assert_held(&the_segments.lock);
    if (base == NULL)
        return ch_fail_errno("segment: map %zu bytes", seg->room);
    seg->base = base;
    seg->refs = 1;
    ch_list_push_back(&the_segments.mapped, &seg->link);
    return CHOIR_OK;
}

/* Takes half-built segments, which are in no table. */
static void destroy(struct ch_seg *seg)
{
    ch_sys_unmap(seg->base, seg->room);
    ch_sys_close(seg->fd);
    ch_free(seg);
}

void ch_seg_detach(struct ch_seg *seg)
{
    bool last;

    /* In a forked child nothing is mapped, and the lock may be held by a thread that is not here. */
    if (seg == NULL || ch_is_forked())
        return;
    ch_lock(&the_segments.lock);
    last = --seg->refs == 0;
    if (last)
        ch_list_remove(&seg->link);
    ch_unlock(&the_segments.lock);
    if (last)
        destroy(seg);
}

static struct ch_seg *new_record(int fd)
{
    struct ch_seg *seg = ch_zalloc(sizeof(*seg));

    if (seg != NULL)
        seg->fd = fd;
    return seg;
}

static choir_status identify(struct ch_seg *seg)
{
    struct stat st;

    if (ch_sys_fstat(seg->fd, &st) != 0)
        return ch_fail_errno("segment: stat");
    seg->dev = st.st_dev;
    seg->ino = st.st_ino;
    seg->nbytes = seg->room = (size_t)st.st_size;
    return CHOIR_OK;
}

/* --- creating ---------------------------------------------------------------------------------- */

/* A field of /proc/meminfo in bytes; 0 if it is not there. */
static size_t meminfo_bytes(const char *text, const char *field)
{
    const char *at = strstr(text, field);

    return at != NULL ? (size_t)strtoull(at + strlen(field), NULL, 10) * 1024 : 0;
}

/* A memfd has no size limit: the kernel would hand out pages until its out-of-memory killer picks a
 * process. So large sizes are held against what the machine says it has. If it says nothing, we go
 * on and hope. */
static choir_status check_there_is_enough(size_t nbytes)
{
    char text[4096];
    size_t available;
    ssize_t n;
    int fd;

    if (nbytes < LARGE)
        return CHOIR_OK;
    fd = ch_sys_open("/proc/meminfo", O_RDONLY, 0);
    if (fd < 0)
        return ch_forked();
    n = ch_sys_read(fd, text, sizeof(text) - 1);
    ch_sys_close(fd);
    if (n <= 0)
        return CHOIR_OK;
    text[n] = '\0';
    available = meminfo_bytes(text, "MemAvailable:");
    if (available != 0 && nbytes > available + meminfo_bytes(text, "SwapFree:"))
        return ch_fail(CHOIR_ERR_NOMEM, "segment: %zu bytes asked for, %zu available", nbytes,
                       available);
    return CHOIR_OK;
}

/* Bytes `from` to `end`. */
static choir_status fill(int fd, size_t from, size_t end)
{
    for (size_t done = from; done < end;) {
        size_t piece = end - done < PIECE ? end - done : PIECE;

        if (ch_sys_fallocate(fd, done, piece) != 0)
            return ch_fail_errno("segment: allocate bytes %zu to %zu of %zu", done, done + piece,
                                 end);
        done += piece;
    }
    return CHOIR_OK;
}

static choir_status seal(int fd)
{
    if (ch_sys_add_seals(fd, SEALS) != 0)
        return ch_fail_errno("segment: seal its size");
    return CHOIR_OK;
}

/* Address space beyond the file's end costs nothing and must not be touched until the file has grown. */
static choir_status create(const char *name, size_t nbytes, size_t room, struct ch_seg **seg_out)
{
    struct ch_seg *seg = new_record(-1);
    choir_status rc = CHOIR_OK;

    if (seg == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "segment: no memory for its record");
    seg->fd = ch_sys_memfd(name);
    if (seg->fd < 0)
        rc = ch_fail_errno("segment: memfd \"%s\"", name);
    if (rc == CHOIR_OK)
        rc = fill(seg->fd, 0, nbytes);
    if (rc == CHOIR_OK && room == nbytes)
        rc = seal(seg->fd);
    if (rc == CHOIR_OK)
        rc = identify(seg);
    if (rc == CHOIR_OK) {
        seg->ours = true;
        seg->room = room;
        ch_lock(&the_segments.lock);
        rc = map_locked(seg);
        ch_unlock(&the_segments.lock);
    }
    if (rc != CHOIR_OK) {
        destroy(seg);
        return rc;
    }
    *seg_out = seg;
    return CHOIR_OK;
}

choir_status ch_seg_create(const char *name, size_t nbytes, struct ch_seg **seg_out)
{
    return ch_seg_create_growing(name, nbytes, nbytes, seg_out);
}

choir_status ch_seg_create_growing(const char *name, size_t nbytes, size_t most,
                                   struct ch_seg **seg_out)
{
    choir_status rc;

    if (nbytes == 0 || nbytes > most || most > PTRDIFF_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "segment: %zu bytes is not a size it can have", nbytes);
    rc = check_there_is_enough(nbytes);
    return rc == CHOIR_OK ? create(name, nbytes, most, seg_out) : rc;
}

choir_status ch_seg_grow(struct ch_seg *seg, size_t nbytes)
{
    choir_status rc;

    if (nbytes < seg->nbytes || nbytes > seg->room)
        return ch_fail(CHOIR_ERR_INVALID, "segment: to %zu bytes, expected %zu to %zu", nbytes,
                       seg->nbytes, seg->room);
    if (ch_sys_truncate(seg->fd, (off_t)nbytes) != 0)
        return ch_fail_errno("segment: make it %zu bytes long", nbytes);
    rc = seal(seg->fd);
    if (rc == CHOIR_OK)
        seg->nbytes = nbytes; /* the creator's alone: nobody else has the descriptor yet */
    return rc;
}

choir_status ch_seg_fill(struct ch_seg *seg, size_t from, size_t nbytes)
{
    if (from > seg->nbytes || nbytes > seg->nbytes - from)
        return ch_fail(CHOIR_ERR_INVALID, "segment: bytes %zu to %zu of %zu", from, from + nbytes,
                       seg->nbytes);
    return fill(seg->fd, from, from + nbytes);
}

/* --- attaching --------------------------------------------------------------------------------- */

/* A peer's word is checked before its memory is mapped: an unsealed file could be cut short under
 * our feet, and the next read would be a SIGBUS instead of an error. */
static choir_status check_promise(struct ch_seg *seg, size_t nbytes)
{
    int seals = ch_sys_get_seals(seg->fd);
    choir_status rc;

    if (seals < 0)
        return errno == EINVAL ? ch_fail(CHOIR_ERR_PROTO, "segment from a peer: not a memfd")
                               : ch_fail_errno("segment from a peer: ask for its seals");
    if ((seals & SEALS) != SEALS)
        return ch_fail(CHOIR_ERR_PROTO, "segment from a peer: its size is not sealed (seals 0x%x)",
                       (unsigned)seals);
    rc = identify(seg);
    if (rc != CHOIR_OK)
        return rc;
    if (seg->nbytes < nbytes || seg->nbytes == 0)
        return ch_fail(CHOIR_ERR_PROTO, "segment from a peer: %zu bytes, %zu promised", seg->nbytes,
                       nbytes);
    return CHOIR_OK;
}

choir_status ch_seg_attach(int fd, size_t nbytes, struct ch_seg **seg_out)
{
    struct ch_seg *seg = new_record(fd), *known = NULL;
    choir_status rc;

    if (seg == NULL) {
        ch_sys_close(fd);
        return ch_fail(CHOIR_ERR_NOMEM, "segment from a peer: no memory for its record");
    }
    rc = ch_forked();
    if (rc == CHOIR_OK)
        rc = check_promise(seg, nbytes);
    if (rc == CHOIR_OK) {
        ch_lock(&the_segments.lock);
        known = find_locked(seg->dev, seg->ino);
        if (known != NULL)
            known->refs++;
        else
            rc = map_locked(seg);
        ch_unlock(&the_segments.lock);
    }
    if (rc != CHOIR_OK || known != NULL)
        destroy(seg); /* its record, and its descriptor */
    if (rc == CHOIR_OK)
        *seg_out = known != NULL ? known : seg;
    return rc;
}
