/*
 * stopped.c - see stopped.h.
 *
 * A pidfd does not tell, but its entry in /proc/self/fdinfo names the process as this pid namespace does.
 */
#include "engine/stopped.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"

/* The first bytes of a file, as a string; "" if it cannot be read. */
static void read_start(const char *path, char *buf, size_t size)
{
    int fd = ch_sys_open(path, O_RDONLY, 0);
    ssize_t n = fd >= 0 ? ch_sys_read(fd, buf, size - 1) : 0;

    buf[n > 0 ? n : 0] = '\0';
    ch_sys_close(fd);
}

/* 0 or less: it has ended, or is not of our pid namespace. */
static long pid_of(int pidfd)
{
    char path[64], text[512];
    const char *line;
    long pid = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    read_start(path, text, sizeof(text));
    line = strstr(text, "\nPid:");
    if (line == NULL || sscanf(line, "\nPid: %ld", &pid) != 1)
        return 0;
    return pid;
}

bool ch_neighbour_is_stopped(const struct ch_neighbour *neighbour)
{
    char path[64], text[512];
    const char *state;
    long pid;

    if (neighbour->pidfd < 0 || ch_seg_is_ours(neighbour->seg))
        return false;
    pid = pid_of(neighbour->pidfd);
    if (pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    read_start(path, text, sizeof(text));
    state = strrchr(text, ')'); /* the name before it may hold anything */
    return state != NULL && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}
