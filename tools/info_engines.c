/*
 * info_engines.c - what could carry a group's operations out on this machine, for `choir info`.
 *
 * "host" is in the library itself. Others are libraries of other people; whether they are installed is
 * found out the way the dynamic linker would, but without loading them: that may start threads, open
 * devices or fail.
 */
#include "info_engines.h"
#include "commands.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *file;
} known[] = {
    { "nccl", "libnccl.so.2" },
    { "mpi", "libmpi.so.40" }, /* Open MPI */
    { "mpi", "libmpi.so.12" }, /* MPICH and its descendants */
    { "ucx", "libucp.so.0" },
};

enum { NKNOWN = sizeof(known) / sizeof(known[0]) };

/* Looks through folders separated by colons. */
static bool find_in(const char *folders, const char *file, char *path, size_t size)
{
    while (folders != NULL && *folders != '\0') {
        int n = (int)strcspn(folders, ":");

        snprintf(path, size, "%.*s/%s", n, folders, file);
        if (n > 0 && access(path, R_OK) == 0)
            return true;
        folders += n + (folders[n] == ':');
    }
    return false;
}

/* The linker's cache has the paths as strings, each ended by a NUL. */
static bool find_in_cache(const char *file, char *path, size_t size)
{
    FILE *cache = fopen("/etc/ld.so.cache", "re");
    size_t used = 0, length = strlen(file);
    bool found = false;
    int c = EOF;

    while (cache != NULL && !found && (c = getc(cache)) != EOF) {
        if (c != '\0' && used + 1 < size) {
            if (used > 0 || c == '/') /* the cache's own numbers come before the first path */
                path[used++] = (char)c;
            continue;
        }
        path[used] = '\0';
        found = used > length + 1 && path[used - length - 1] == '/' &&
                strcmp(path + used - length, file) == 0 && access(path, R_OK) == 0;
        used = 0;
    }
    if (cache != NULL)
        fclose(cache);
    return found;
}

/* The one that the library would ask (choir_libnccl_version()), if it was told which. */
static bool find_given(const char *name, char *path, size_t size)
{
    const char *given = strcmp(name, "nccl") == 0 ? getenv("CHOIR_LIBNCCL") : NULL;

    if (given == NULL || given[0] == '\0' || access(given, R_OK) != 0)
        return false;
    snprintf(path, size, "%s", given);
    return true;
}

static bool find_engine(int index, const char **name_out, char *path, size_t size)
{
    *name_out = known[index].name;
    return find_given(known[index].name, path, size) ||
           find_in(getenv("LD_LIBRARY_PATH"), known[index].file, path, size) ||
           find_in_cache(known[index].file, path, size) ||
           find_in("/lib:/usr/lib:/lib64:/usr/lib64:/usr/local/lib", known[index].file, path, size);
}

void choir_info_engines_text(void)
{
    const char *name, *between = "; installed, but not used for operations: ";
    char path[4096];

    printf("engines     host");
    for (int i = 0; i < NKNOWN; i++) {
        if (find_engine(i, &name, path, sizeof(path))) {
            printf("%s%s (%s)", between, name, path);
            between = ", ";
        }
    }
    printf("\n");
}

void choir_info_engines_json(void)
{
    const char *name, *between = "";
    char path[4096];

    printf(", \"engines\": [\"host\"], \"installed\": [");
    for (int i = 0; i < NKNOWN; i++) {
        if (!find_engine(i, &name, path, sizeof(path)))
            continue;
        printf("%s{\"name\": ", between);
        choir_cmd_json(stdout, name);
        printf(", \"path\": ");
        choir_cmd_json(stdout, path);
        printf("}");
        between = ", ";
    }
    printf("]");
}
