/* segment_test.c - memfd segments: what is refused, one mapping per process, forks, faults. */
#include "io/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "io/io_test.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* What arrives when a peer passes a descriptor: another number for the same file. */
static int copy_of(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    CHOIR_CHECK(copy >= 0);
    CHOIR_CHECK(ch_sys_adopt_fd(copy));
    return copy;
}

static const struct {
    size_t nbytes;
    const char *why;
} sizes[] = {
    { 1, "less than a page" },
    { 4096, "a page" },
    { 4097, "a page and a byte" },
    { 3 << 20, "several pieces" },
    { (1 << 20) + 1, "a piece and a byte" },
};

CHOIR_TEST(a_new_segment_is_zero_whole_and_sealed)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        struct ch_seg *seg;
        unsigned char *base;
        struct stat st;

        CHOIR_ROW("%zu bytes: %s", sizes[i].nbytes, sizes[i].why);
        CHOIR_CHECK_OK(ch_seg_create("test", sizes[i].nbytes, &seg));
        CHOIR_CHECK_EQ(ch_seg_nbytes(seg), sizes[i].nbytes);
        base = ch_seg_base(seg);
        for (size_t b = 0; b < sizes[i].nbytes; b++)
            CHOIR_CHECK_EQ(base[b], 0);
        base[0] = base[sizes[i].nbytes - 1] = 42;
        CHOIR_CHECK_EQ(fcntl(ch_seg_fd(seg), F_GET_SEALS) & SEALS, SEALS);
        CHOIR_CHECK_EQ(fstat(ch_seg_fd(seg), &st), 0);
        CHOIR_CHECK_LE(sizes[i].nbytes, (size_t)st.st_blocks * 512); /* its pages are there */
        CHOIR_CHECK_EQ(ftruncate(ch_seg_fd(seg), 0), -1);
        ch_seg_detach(seg);
    }
    ch_seg_detach(NULL);
}

static const struct {
    size_t nbytes;
    choir_status status;
    const char *why;
} refused[] = {
    { 0, CHOIR_ERR_INVALID, "nothing" },
    { SIZE_MAX, CHOIR_ERR_INVALID, "minus one, by mistake" },
    { (size_t)PTRDIFF_MAX + 1, CHOIR_ERR_INVALID, "more than a file can hold" },
    { PTRDIFF_MAX, CHOIR_ERR_NOMEM, "the largest number that is not absurd" },
    { (size_t)1 << 46, CHOIR_ERR_NOMEM, "64 TiB: more than any machine here has" },
};

CHOIR_TEST(sizes_that_cannot_be_are_refused)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(refused); i++) {
        struct ch_seg *seg = NULL;

        CHOIR_ROW("%zu bytes: %s", refused[i].nbytes, refused[i].why);
        CHOIR_CHECK_STATUS(ch_seg_create("test", refused[i].nbytes, &seg), refused[i].status);
        CHOIR_CHECK(seg == NULL);
    }
}

/* --- what peers pass ---------------------------------------------------------------------------- */

static int new_memfd(size_t nbytes, int seals)
{
    int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHOIR_CHECK(fd >= 0);
    CHOIR_CHECK_EQ(ftruncate(fd, (off_t)nbytes), 0);
    CHOIR_CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    CHOIR_CHECK(ch_sys_adopt_fd(fd));
    return fd;
}

static int good_one(void)
{
    return new_memfd(8192, SEALS);
}

static int larger_one(void)
{
    return new_memfd(1 << 20, SEALS);
}

static int unsealed(void)
{
    return new_memfd(8192, 0);
}

static int may_shrink(void)
{
    return new_memfd(8192, F_SEAL_GROW | F_SEAL_SEAL);
}

static int short_one(void)
{
    return new_memfd(8191, SEALS);
}

static int empty_one(void)
{
    return new_memfd(0, SEALS);
}

static int read_only(void)
{
    return new_memfd(8192, SEALS | F_SEAL_WRITE);
}

static int plain_file(void)
{
    return ch_sys_open("/proc/self/exe", O_RDONLY, 0);
}

static int no_file(void)
{
    return ch_sys_eventfd(0);
}

static int nothing(void)
{
    return -1;
}

static const struct {
    int (*make)(void);
    choir_status status;
    const char *says, *why;
} passed[] = {
    { good_one, CHOIR_OK, "", "as promised" },
    { larger_one, CHOIR_OK, "", "more than promised" },
    { unsealed, CHOIR_ERR_PROTO, "not sealed", "its size could change under us" },
    { may_shrink, CHOIR_ERR_PROTO, "not sealed", "sealed, but not against shrinking" },
    { short_one, CHOIR_ERR_PROTO, "8191 bytes, 8192 promised", "a byte short" },
    { empty_one, CHOIR_ERR_PROTO, "0 bytes", "nothing to map" },
    { read_only, CHOIR_ERR_PERMISSION, "map", "cannot be written to" },
    { plain_file, CHOIR_ERR_PROTO, "not a memfd", "a file somebody else may cut" },
    { no_file, CHOIR_ERR_PROTO, "not a memfd", "not even a file" },
    { nothing, CHOIR_ERR_SYSTEM, "EBADF", "no descriptor at all" },
};

CHOIR_TEST(a_peers_segment_is_checked_before_it_is_mapped)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(passed); i++) {
        struct ch_seg *seg = NULL;

        CHOIR_ROW("%s", passed[i].why);
        CHOIR_CHECK_STATUS(ch_seg_attach(passed[i].make(), 8192, &seg), passed[i].status);
        CHOIR_CHECK_EQ(seg != NULL, passed[i].status == CHOIR_OK);
        if (passed[i].status != CHOIR_OK)
            CHOIR_CHECK_HAS(choir_last_error(), passed[i].says);
        ch_seg_detach(seg);
        CHOIR_CHECK_EQ(ch_sys_fd_count(), 0); /* taken over, also on failure */
    }
}

/* --- one mapping -------------------------------------------------------------------------------- */

CHOIR_TEST(a_process_maps_a_segment_once)
{
    struct ch_seg *mine, *same, *again, *other;

    CHOIR_CHECK_OK(ch_seg_create("test", 8192, &mine));
    CHOIR_CHECK_OK(ch_seg_create("test", 8192, &other));
    CHOIR_CHECK_OK(ch_seg_attach(copy_of(ch_seg_fd(mine)), 8192, &same));
    CHOIR_CHECK(ch_seg_base(same) == ch_seg_base(mine));
    CHOIR_CHECK(ch_seg_base(other) != ch_seg_base(mine));
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 2); /* the copy is closed */

    ch_seg_detach(mine); /* the creator goes first */
    *(char *)ch_seg_base(same) = 1;
    CHOIR_CHECK_OK(ch_seg_attach(copy_of(ch_seg_fd(same)), 100, &again));
    CHOIR_CHECK(ch_seg_base(again) == ch_seg_base(same));
    CHOIR_CHECK_STATUS(ch_seg_attach(copy_of(ch_seg_fd(same)), 8193, &mine), CHOIR_ERR_PROTO);
    ch_seg_detach(same);
    *(char *)ch_seg_base(again) = 2;
    ch_seg_detach(again);
    ch_seg_detach(other);
}

struct sharer {
    int fd;
    void *base;
};

static void *attach_and_detach(void *arg)
{
    struct sharer *sharer = arg;
    int rounds = 1000 / (int)choir_test_slowness() + 10;

    for (int i = 0; i < rounds; i++) {
        struct ch_seg *seg;
        int fd = copy_of(sharer->fd);

        CHOIR_CHECK_OK(ch_seg_attach(fd, 8192, &seg));
        *(_Atomic int *)ch_seg_base(seg) += 1;
        if (sharer->base != NULL)
            CHOIR_CHECK(ch_seg_base(seg) == sharer->base);
        ch_seg_detach(seg);
    }
    return NULL;
}

static void run_sharers(struct sharer *sharer)
{
    pthread_t threads[4];

    for (size_t i = 0; i < CH_ARRAY_LEN(threads); i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, attach_and_detach, sharer), 0);
    for (size_t i = 0; i < CH_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

/* Also with nobody holding it in between: the last detach races with the next attach. */
CHOIR_TEST(threads_share_the_mapping)
{
    struct sharer sharer = { .fd = good_one() };
    struct ch_seg *seg;

    run_sharers(&sharer);
    CHOIR_CHECK_OK(ch_seg_attach(copy_of(sharer.fd), 8192, &seg));
    sharer.base = ch_seg_base(seg);
    run_sharers(&sharer);
    ch_seg_detach(seg);
    ch_sys_close(sharer.fd);
}

/* --- forks, signals, faults --------------------------------------------------------------------- */

static void look_in_child(void *arg)
{
    struct ch_seg *seg = arg, *other = NULL;
    unsigned char resident;

    CHOIR_CHECK_EQ(mincore(ch_seg_base(seg), 4096, &resident), -1); /* nothing is mapped there */
    CHOIR_CHECK_EQ(errno, ENOMEM);
    CHOIR_CHECK_STATUS(ch_seg_create("test", 4096, &other), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_seg_create("test", (size_t)17 << 20, &other), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_seg_attach(ch_seg_fd(seg), 4096, &other), CHOIR_ERR_FORKED);
    ch_seg_detach(seg);
}

CHOIR_TEST(a_forked_child_does_not_have_it)
{
    struct ch_seg *seg;

    CHOIR_CHECK_OK(ch_seg_create("test", 8192, &seg));
    choir_test_join(choir_test_fork(look_in_child, seg));
    *(char *)ch_seg_base(seg) = 1;
    ch_seg_detach(seg);
}

static void on_signal(int number)
{
    (void)number;
}

/* A profiler's timer interrupts the kernel's allocation of pages, which then starts over. */
CHOIR_TEST(a_storm_of_signals_does_not_stop_it)
{
    struct sigaction action = { .sa_handler = on_signal };
    struct itimerval often = { { 0, 4000 }, { 0, 4000 } }, off = { { 0, 0 }, { 0, 0 } };
    struct ch_seg *seg;

    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    CHOIR_CHECK_OK(ch_seg_create("test", (size_t)48 << 20, &seg));
    setitimer(ITIMER_PROF, &off, NULL);
    ch_seg_detach(seg);
}

static choir_status whole_life(void *arg)
{
    size_t nbytes = *(size_t *)arg;
    struct ch_seg *seg, *same = NULL, *peers = NULL;
    choir_status rc = ch_seg_create("test", nbytes, &seg);
    int copy, peer;

    if (rc != CHOIR_OK)
        return rc;
    copy = fcntl(ch_seg_fd(seg), F_DUPFD_CLOEXEC, 0);
    CHOIR_CHECK(ch_sys_adopt_fd(copy));
    rc = ch_seg_attach(copy, nbytes, &same);
    peer = good_one();
    if (rc == CHOIR_OK)
        rc = ch_seg_attach(peer, 8192, &peers);
    else
        ch_sys_close(peer);
    ch_seg_detach(peers);
    ch_seg_detach(same);
    ch_seg_detach(seg);
    return rc;
}

CHOIR_TEST(every_failure_is_an_error)
{
    size_t little = 4096, much = (size_t)17 << 20; /* the latter asks /proc/meminfo first */

    choir_test_all_faults(whole_life, &little);
    choir_test_all_faults(whole_life, &much);
}
