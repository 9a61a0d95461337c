/*
 * growth.c - groups made and destroyed over and over: nothing may grow.
 *
 *   choir run -n N growth GROUPS SPLITS
 *
 * Descriptors, maps and memory of the process are taken when a tenth is done, and compared at the end.
 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>
#include <choir/coll.h>

struct footprint {
    long descriptors, maps, heap_kib;
};

static long count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    long n = 0;
    int c;

    while (file != NULL && (c = getc(file)) != EOF)
        n += c == '\n';
    if (file != NULL)
        fclose(file);
    return n;
}

static long count_entries(const char *path)
{
    DIR *dir = opendir(path);
    long n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static struct footprint footprint(void)
{
    return (struct footprint){ count_entries("/proc/self/fd"), count_lines("/proc/self/maps"),
                               (long)(mallinfo2().uordblks / 1024) };
}

static int judge(const char *what, int rank, struct footprint before, struct footprint after)
{
    printf("rank %d, %s: descriptors %ld to %ld, maps %ld to %ld, heap %ld to %ld KiB\n", rank,
           what, before.descriptors, after.descriptors, before.maps, after.maps, before.heap_kib,
           after.heap_kib);
    /* A thread's stack or an arena of malloc's may come and go; nothing may come with every group. */
    if (after.descriptors > before.descriptors || after.maps > before.maps + 4 ||
        after.heap_kib > before.heap_kib + 64) {
        fprintf(stderr, "FAILED rank %d: %s grew\n", rank, what);
        return 1;
    }
    return 0;
}

static choir_group *join(void)
{
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "FAILED: choir_init: %s\n", choir_last_error());
        exit(1);
    }
    return group;
}

static void use(choir_group *group)
{
    float values[100] = { 1 };

    if (choir_allreduce(group, CHOIR_BUF(values, 100, CHOIR_F32), NULL, NULL) != CHOIR_OK) {
        fprintf(stderr, "FAILED: %s\n", choir_last_error());
        exit(1);
    }
}

static int grow_groups(int ngroups)
{
    struct footprint before = { 0 };
    int rank = 0;

    for (int i = 0; i < ngroups; i++) {
        choir_group *group = join();

        rank = choir_group_rank(group);
        use(group);
        choir_group_destroy(group);
        if (i == ngroups / 10)
            before = footprint();
    }
    return judge("groups", rank, before, footprint());
}

/* Halves and the whole, in turn. */
static int grow_splits(int nsplits)
{
    choir_group *world = join(), *child;
    int rank = choir_group_rank(world), nranks = choir_group_size(world), failed;
    int *ranks = malloc((size_t)nranks * sizeof(*ranks));
    struct footprint before = { 0 };

    if (ranks == NULL)
        return 1;
    for (int i = 0; i < nsplits; i++) {
        size_t n = 0;

        for (int r = 0; r < nranks; r++) {
            if (i % 2 == 0 || (r < nranks / 2) == (rank < nranks / 2))
                ranks[n++] = r;
        }
        if (choir_group_split(world, ranks, n, NULL, &child) != CHOIR_OK) {
            fprintf(stderr, "FAILED: split %d: %s\n", i, choir_last_error());
            return 1;
        }
        use(child);
        choir_group_destroy(child);
        if (i == nsplits / 10)
            before = footprint();
    }
    failed = judge("splits", rank, before, footprint());
    free(ranks);
    choir_group_destroy(world);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: growth GROUPS SPLITS\n");
        return 2;
    }
    return grow_groups(atoi(argv[1])) != 0 || grow_splits(atoi(argv[2])) != 0;
}
