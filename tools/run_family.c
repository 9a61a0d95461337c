/*
 * run_family.c - find all processes that descend from this one, and end them.
 *
 * The keeper and the launcher are reapers (PR_SET_CHILD_SUBREAPER): whoever among their descendants
 * loses its parent becomes their child, daemons included. So "no child left" means that no descendant
 * is left either; until then killing is repeated, as a process may fork between look and kill.
 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct process {
    int pid, parent;
    bool ours, zombie;
};

/* "1234 (any) thing) S 1 ..." */
static bool read_process(int pid, struct process *out)
{
    char path[32], text[512], *end;
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    end = strrchr(text, ')');
    if (end == NULL || strlen(end) < 5)
        return false;
    *out = (struct process){ .pid = pid,
                             .parent = atoi(end + 4),
                             .zombie = end[2] == 'Z' || end[2] == 'X' };
    return true;
}

static struct process *read_all(size_t *count_out)
{
    struct process *all = NULL, *grown;
    size_t count = 0, size = 0;
    struct dirent *entry;
    DIR *dir = opendir("/proc");

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        int pid = atoi(entry->d_name);

        if (pid <= 0)
            continue;
        if (count == size) {
            size = size == 0 ? 256 : size * 2;
            grown = realloc(all, size * sizeof(*all));
            if (grown == NULL)
                break; /* those found so far; the caller comes again */
            all = grown;
        }
        if (read_process(pid, &all[count]))
            count++;
    }
    if (dir != NULL)
        closedir(dir);
    *count_out = count;
    return all;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* A parent may have a higher number than its child: go on until nothing changes. */
static void mark_ours(struct process *all, size_t count)
{
    int self = getpid();
    bool changed = true;

    qsort(all, count, sizeof(*all), by_pid);
    while (changed) {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            struct process key = { .pid = all[i].parent };
            const struct process *parent = bsearch(&key, all, count, sizeof(*all), by_pid);

            if (all[i].ours || (all[i].parent != self && (parent == NULL || !parent->ours)))
                continue;
            all[i].ours = changed = true;
        }
    }
}

/* By a descriptor, and with a second look, so that a number that was reused meanwhile is safe. */
static void signal_one(const struct process *seen, int sig)
{
    int fd = (int)syscall(SYS_pidfd_open, seen->pid, 0);
    struct process now;

    if (fd < 0) {
        if (errno == ENOSYS)
            kill(seen->pid, sig);
        return;
    }
    /* Its parent may have died since: then it is our child by now. */
    if (read_process(seen->pid, &now) && (now.parent == seen->parent || now.parent == getpid()))
        syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    close(fd);
}

int choir_run_signal_family(int sig)
{
    size_t count;
    struct process *all = read_all(&count);
    int found = 0;

    if (all == NULL)
        return -1;
    mark_ours(all, count);
    for (size_t i = 0; i < count; i++) {
        if (!all[i].ours || all[i].zombie)
            continue;
        signal_one(&all[i], sig);
        found++;
    }
    free(all);
    return found;
}

bool choir_run_end_family(int64_t limit_ms)
{
    int64_t until = choir_run_now() + limit_ms;

    for (;;) {
        int pid = waitpid(-1, NULL, WNOHANG);

        if (pid < 0 && errno == ECHILD)
            return true;
        if (pid > 0)
            continue;
        if (choir_run_now() > until)
            return false;
        choir_run_signal_family(SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
}
