/*
 * perf_file.c - files that are there when they are whole: written beside their place, then put there. What was there before stays until then.
 */
#include "perf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool complain(const struct perf_file *f)
{
    fprintf(stderr, "choir %s: %s: %s\n", f->command, f->name, strerror(errno));
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

FILE *choir_perf_file_begin(struct perf_file *f, const char *command, const char *name)
{
    *f = (struct perf_file){ .command = command, .name = name };
    if (!find_place(f))
        return NULL;
    snprintf(f->draft, sizeof(f->draft), "%s.%d", f->path, (int)getpid());
    f->file = fopen(f->straight ? f->path : f->draft, "we");
    if (f->file == NULL)
        complain(f);
    return f->file;
}

bool choir_perf_file_end(struct perf_file *f)
{
    bool good = ferror(f->file) == 0;

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

    if (!find_place(&f))
        return false;
    if (f.straight)
        return access(f.path, W_OK) == 0 || complain(&f);
    if (choir_perf_file_begin(&f, command, name) == NULL)
        return false;
    fclose(f.file);
    unlink(f.draft);
    return true;
}
