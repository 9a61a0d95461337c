/*
 * processors.c - affinity mask and cgroup quota, version 1 and 2.
 */
#include "base/processors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/info.h>

#include "base/compiler.h"
#include "base/params.h"
#include "base/sys.h"

/* A whole small file as text; false if it cannot be read. */
static bool read_text(const char *path, char *out, size_t size)
{
    int fd = ch_sys_open(path, O_RDONLY, 0);
    ssize_t n;

    if (fd < 0)
        return false;
    n = ch_sys_read(fd, out, size - 1);
    ch_sys_close(fd);
    if (n < 0)
        return false;
    out[n] = '\0';
    return true;
}

/* ceil(quota / period); 0 if either is no positive number, as in "max 100000" or "-1". */
static int processors_of(const char *quota, const char *period)
{
    long long q = atoll(quota), p = atoll(period);

    if (q <= 0 || p <= 0)
        return 0;
    return (int)((q + p - 1) / p < INT_MAX ? (q + p - 1) / p : INT_MAX);
}

static int quota_v2(const char *folder)
{
    char path[PATH_MAX + 32], text[64];
    const char *period;

    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    period = strchr(text, ' ');
    return period == NULL ? 0 : processors_of(text, period);
}

static int quota_v1(const char *folder)
{
    char path[PATH_MAX + 32], quota[32], period[32];

    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (!read_text(path, quota, sizeof(quota)))
        return 0;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    return read_text(path, period, sizeof(period)) ? processors_of(quota, period) : 0;
}

/* The tightest quota from `root + path` up to `root`. */
static int tightest(const char *root, const char *path, int (*quota)(const char *folder))
{
    char folder[PATH_MAX];
    size_t root_length = strlen(root);
    int best = 0;

    /* The root's own path is "/": asked once, not as "root/" and "root". */
    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", root,
                         strcmp(path, "/") != 0 ? path : "") >= sizeof(folder))
        return 0;
    for (;;) {
        int here = quota(folder);
        char *slash = strrchr(folder, '/');

        if (here > 0 && (best == 0 || here < best))
            best = here;
        if (slash == NULL || (size_t)(slash - folder) < root_length)
            return best;
        *slash = '\0';
    }
}

/* One line of the membership file: "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1). */
static int quota_of_line(char *line, const char *mount)
{
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    char root[PATH_MAX];

    if (path == NULL)
        return 0;
    *path++ = '\0';
    controllers++;
    if (controllers[0] == '\0')
        return tightest(mount, path, quota_v2);
    for (char *rest = controllers, *name; (name = strsep(&rest, ",")) != NULL;) {
        if (strcmp(name, "cpu") == 0) {
            snprintf(root, sizeof(root), "%s/cpu", mount);
            return tightest(root, path, quota_v1);
        }
    }
    return 0;
}

int ch_cgroup_quota(const char *membership, const char *mount)
{
    char text[4096];
    int best = 0;

    if (!read_text(membership, text, sizeof(text)))
        return 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        int here = quota_of_line(line, mount);

        if (here > 0 && (best == 0 || here < best))
            best = here;
    }
    return best;
}

void ch_processor_set_get(struct ch_processor_set *out)
{
    cpu_set_t sets[sizeof(*out) / sizeof(cpu_set_t)];

    memset(sets, 0, sizeof(sets));
    if (ch_sys_getaffinity(sizeof(sets), sets) < 0)
        memset(sets, 0, sizeof(sets));
    memcpy(out, sets, sizeof(sets)); /* bits; which of a word's is which does not matter */
}

uint32_t ch_processor_set_count(const struct ch_processor_set *set)
{
    uint32_t count = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(set->words); i++)
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    return count;
}

void ch_processor_set_add(struct ch_processor_set *set, const struct ch_processor_set *more)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(set->words); i++)
        set->words[i] |= more->words[i];
}

bool ch_processor_set_within(const struct ch_processor_set *inner,
                             const struct ch_processor_set *outer)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(inner->words); i++) {
        if ((inner->words[i] & ~outer->words[i]) != 0)
            return false;
    }
    return true;
}

/* Reading the quota costs some ten files, and every waiter asks how many processors there are: once is
 * enough. Written by whoever comes first, or by several with the same number; relaxed, nothing else comes
 * with it. -1: not read yet. */
static _Atomic int the_quota = -1;

int ch_processor_quota(void)
{
    int quota = atomic_load_explicit(&the_quota, memory_order_relaxed);

    if (quota < 0) {
        quota = ch_cgroup_quota("/proc/self/cgroup", "/sys/fs/cgroup");
        atomic_store_explicit(&the_quota, quota, memory_order_relaxed);
    }
    return quota;
}

int ch_count_processors(int knob)
{
    struct ch_processor_set set;
    int count, quota;

    if (knob > 0)
        return knob;
    ch_processor_set_get(&set);
    count = (int)ch_processor_set_count(&set);
    quota = ch_processor_quota();
    if (quota > 0 && quota < count)
        count = quota;
    return count > 0 ? count : 1;
}

int ch_processors_knob(void)
{
    int64_t knob = ch_params()->processors;

    return knob > 0 && knob < INT_MAX ? (int)knob : 0;
}

int choir_processors(void)
{
    return ch_count_processors(ch_processors_knob());
}
