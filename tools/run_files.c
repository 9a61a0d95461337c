/*
 * run_files.c - --output DIR: what each rank prints, as it is, in files of its own.
 *
 * DIR/rank.N.out has its standard output, DIR/rank.N.err its standard error; the latter is made when
 * there is something to put into it.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool choir_run_files_open(const char *folder)
{
    struct stat st;

    if (mkdir(folder, 0777) == 0)
        return true;
    if (errno == EEXIST && stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        errno = ENOTDIR;
    return errno == EEXIST;
}

bool choir_run_files_write(const char *folder, struct run_feed *feed, const char *bytes,
                           size_t nbytes)
{
    char path[4096];

    if (feed->file < 0) {
        snprintf(path, sizeof(path), "%s/rank.%d.%s", folder, feed->rank, feed->suffix);
        feed->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (feed->file < 0)
            return false;
    }
    while (nbytes > 0) {
        ssize_t done = write(feed->file, bytes, nbytes);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        bytes += done;
        nbytes -= (size_t)done;
    }
    return true;
}
