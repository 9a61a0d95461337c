/*
 * run_bind.c - --bind core: every rank of this host gets processors of its own.
 *
 * Those that the launcher itself may use are shared out in the order of packages and cores. As long as
 * there is a core for each rank, cores are not split between ranks.
 */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/info.h>

struct processor {
    int number, package, core;
};

static int read_topology(int processor, const char *what, int fallback)
{
    char path[96];
    FILE *file;
    int value;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", processor, what);
    file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%d", &value) != 1)
        value = fallback;
    if (file != NULL)
        fclose(file);
    return value;
}

static int by_place(const void *a, const void *b)
{
    const struct processor *x = a, *y = b;

    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* The mask of this process, whatever its size; NULL with errno. */
static cpu_set_t *allowed(int *max_out, size_t *size_out)
{
    for (int max = 1024; max <= 1 << 20; max *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)max);

        *size_out = CPU_ALLOC_SIZE((size_t)max);
        *max_out = max;
        if (set == NULL || sched_getaffinity(0, *size_out, set) == 0)
            return set;
        CPU_FREE(set);
        if (errno != EINVAL)
            return NULL;
    }
    return NULL;
}

static struct processor *list_processors(const cpu_set_t *set, size_t size, int max, int *count_out)
{
    struct processor *list = calloc((size_t)CPU_COUNT_S(size, set), sizeof(*list));
    int count = 0;

    for (int i = 0; list != NULL && i < max; i++) {
        if (!CPU_ISSET_S((size_t)i, size, set))
            continue;
        list[count++] = (struct processor){ .number = i,
                                            .package = read_topology(i, "physical_package_id", 0),
                                            .core = read_topology(i, "core_id", i) };
    }
    if (list != NULL)
        qsort(list, (size_t)count, sizeof(*list), by_place);
    *count_out = count;
    return list;
}

/* starts[i] is where core i begins in the list; returns how many cores there are. */
static int find_cores(const struct processor *list, int count, int *starts)
{
    int ncores = 0;

    for (int i = 0; i < count; i++) {
        if (i == 0 || list[i].core != list[i - 1].core || list[i].package != list[i - 1].package)
            starts[ncores++] = i;
    }
    starts[ncores] = count;
    return ncores;
}

/* Processors [*first, *end) of the list for rank i of n. */
static void share(int i, int n, int count, int ncores, const int *starts, int *first, int *end)
{
    if (n <= ncores) {
        *first = starts[(int64_t)i * ncores / n];
        *end = starts[(int64_t)(i + 1) * ncores / n];
    } else if (n <= count) {
        *first = (int)((int64_t)i * count / n);
        *end = (int)((int64_t)(i + 1) * count / n);
    } else {
        *first = i % count;
        *end = *first + 1;
    }
}

static bool pin(struct run_child *child, const struct processor *list, int first, int end, int max)
{
    child->cpus = CPU_ALLOC((size_t)max);
    child->cpus_size = CPU_ALLOC_SIZE((size_t)max);
    if (child->cpus == NULL)
        return false;
    CPU_ZERO_S(child->cpus_size, child->cpus);
    for (int i = first; i < end; i++)
        CPU_SET_S((size_t)list[i].number, child->cpus_size, child->cpus);
    child->pinned = true;
    return true;
}

static void tell(struct run *run, const struct processor *list, int local, int first, int end)
{
    char text[512];
    size_t used = 0;

    for (int i = first; i < end && used + 16 < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %d", list[i].number);
    choir_run_say(run, "rank %d of this host: processor%s%s", local, end - first > 1 ? "s" : "",
                  text);
}

static bool pin_all(struct run *run, const struct processor *list, int count, int max)
{
    int *starts = calloc((size_t)count + 1, sizeof(*starts));
    int ncores, first, end;
    bool ok = starts != NULL;

    ncores = ok ? find_cores(list, count, starts) : 0;
    for (int i = 0; ok && i < run->job.count; i++) {
        share(i, run->job.count, count, ncores, starts, &first, &end);
        ok = pin(&run->job.children[i], list, first, end, max);
        if (ok && run->options.verbose)
            tell(run, list, i, first, end);
    }
    free(starts);
    return ok;
}

bool choir_run_bind(struct run *run)
{
    int max, count, usable = choir_processors();
    struct processor *list;
    size_t size;
    cpu_set_t *set;
    bool ok;

    if (run->options.bind == RUN_BIND_NONE)
        return true;
    set = allowed(&max, &size);
    list = set != NULL ? list_processors(set, size, max, &count) : NULL;
    ok = list != NULL;
    if (ok && run->options.bind == RUN_BIND_AUTO &&
        (run->job.count > count || run->job.count > usable)) {
        if (run->options.verbose)
            choir_run_say(run, "ranks are not pinned: %d of them, %d processors", run->job.count,
                          usable < count ? usable : count);
    } else if (ok) {
        ok = pin_all(run, list, count, max);
    }
    free(list);
    if (set != NULL)
        CPU_FREE(set);
    return ok;
}
