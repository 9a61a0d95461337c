/*
 * perf_file.c - files that are there when they are whole: written beside their place, then put there. What was there before stays until then,
 * unless nothing can be put beside it.
 */
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 };

static bool complain(const struct perf_file *f)
{
    fprintf(stderr, "choir %s: %s: %s\n", f->command, f->name,
            errno != 0 ? strerror(errno) : "not all of it could be written");
    return false;
}

/* What a link to nothing leads to is known once it is there. */
static bool follow_dangling(struct perf_file *f)
{
    FILE *file = fopen(f->name, "we");

    if (file == NULL)
        return complain(f);
    fclose(file);
    if (realpath(f->name, f->path) == NULL)
        return complain(f);
    unlink(f->path);
    return true;
}

static bool find_place(struct perf_file *f)
{
    struct stat st;

    if (stat(f->name, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            errno = EISDIR;
            return complain(f);
        }
        f->straight = !S_ISREG(st.st_mode);
        f->was_there = true;
        f->mode = st.st_mode & 0777;
        if (!f->straight)
            return realpath(f->name, f->path) != NULL || complain(f);
    } else if (lstat(f->name, &st) == 0) {
        return follow_dangling(f);
    }
    if ((size_t)snprintf(f->path, sizeof(f->path), "%s", f->name) < sizeof(f->path))
        return true;
    errno = ENAMETOOLONG;
    return complain(f);
}

/* A new file, whoever knows or guesses its name: a link that somebody has put there is not followed. -1 without a line. */
static int open_draft(struct perf_file *f)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        uint32_t lot;

        if (getrandom(&lot, sizeof(lot), 0) != (ssize_t)sizeof(lot))
            return -1;
        snprintf(f->draft, sizeof(f->draft), "%s.%08x", f->path, (unsigned)lot);
        fd = open(f->draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, f->was_there ? 0600 : 0666);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd >= 0 && f->was_there && fchmod(fd, f->mode) != 0) {
        close(fd);
        unlink(f->draft);
        return -1;
    }
    return fd;
}

/* After open_draft() has failed. False after a line. */
static bool can_do_without(const struct perf_file *f)
{
    int why = errno;

    if (access(f->path, W_OK) == 0)
        return true;
    errno = why;
    return complain(f);
}

FILE *choir_perf_file_begin(struct perf_file *f, const char *command, const char *name)
{
    int fd = -1;

    *f = (struct perf_file){ .command = command, .name = name };
    if (!find_place(f))
        return NULL;
    if (!f->straight) {
        fd = open_draft(f);
        f->straight = fd < 0;
        if (f->straight && !can_do_without(f))
            return NULL;
    }
    f->file = f->straight ? fopen(f->path, "we") : fdopen(fd, "w");
    if (f->file == NULL)
        complain(f);
    if (f->file == NULL && !f->straight) {
        close(fd);
        unlink(f->draft);
    }
    return f->file;
}

bool choir_perf_file_end(struct perf_file *f)
{
    bool good = ferror(f->file) == 0;

    errno = 0; /* the reason of a loss some time ago is gone */
    good = fclose(f->file) == 0 && good;
    good = good && (f->straight || rename(f->draft, f->path) == 0);
    if (!good)
        complain(f);
    if (!good && !f->straight)
        unlink(f->draft);
    return good;
}

bool choir_perf_file_try(const char *command, const char *name)
{
    struct perf_file f = { .command = command, .name = name };
    int fd;

    if (!find_place(&f))
        return false;
    if (f.straight)
        return access(f.path, W_OK) == 0 || complain(&f);
    fd = open_draft(&f);
    if (fd < 0)
        return can_do_without(&f);
    close(fd);
    unlink(f.draft);
    return true;
}
