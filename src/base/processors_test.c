/* processors_test.c - quota files of both cgroup versions, made up in a folder of our own. */
#include "choir_test.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/info.h>

#include "base/processors.h"

static char root[256];

static void put(const char *path, const char *text)
{
    char full[512];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    file = fopen(full, "w");
    CHOIR_CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static int quota_of(const char *membership)
{
    char path[512];

    put("membership", membership);
    snprintf(path, sizeof(path), "%s/membership", root);
    return ch_cgroup_quota(path, root);
}

static const struct {
    const char *membership;
    int quota;
    const char *why;
} rows[] = {
    { "0::/job\n", 3, "2.5 processors round up" },
    { "0::/job/inner\n", 2, "an inner level is tighter" },
    { "0::/job/wide\n", 3, "the tightest level counts, here the outer one" },
    { "0::/free\n", 0, "max is no quota" },
    { "0::/nowhere\n", 0, "no such group" },
    { "4:cpu,cpuacct:/old\n", 4, "version 1" },
    { "4:cpuacct:/old\n", 0, "another controller's line" },
    { "4:cpu:/oldfree\n0::/job\n", 3, "-1 is no quota; both versions mounted" },
    { "nonsense\n", 0, "not a membership file" },
    { "", 0, "empty" },
};

CHOIR_TEST(quotas_of_both_versions)
{
    const char *tmp = getenv("TMPDIR");
    char clean[300];

    snprintf(root, sizeof(root), "%s/choir-cgroup-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHOIR_CHECK(mkdtemp(root) != NULL);
    put("job/cpu.max", "250000 100000\n");
    put("job/inner/cpu.max", "150000 100000\n");
    put("job/wide/cpu.max", "900000 100000\n");
    put("free/cpu.max", "max 100000\n");
    put("cpu/old/cpu.cfs_quota_us", "400000\n");
    put("cpu/old/cpu.cfs_period_us", "100000\n");
    put("cpu/oldfree/cpu.cfs_quota_us", "-1\n");
    put("cpu/oldfree/cpu.cfs_period_us", "100000\n");
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_EQ(quota_of(rows[i].membership), rows[i].quota);
    }
    snprintf(clean, sizeof(clean), "rm -r '%s'", root);
    CHOIR_CHECK_EQ(system(clean), 0);
}

CHOIR_TEST(affinity_and_knob)
{
    struct ch_processor_set before, set;
    cpu_set_t one;

    ch_processor_set_get(&before);
    CPU_ZERO(&one);
    CHOIR_CHECK_LE(1, choir_processors());
    CHOIR_CHECK_EQ(sched_getaffinity(0, sizeof(one), &one), 0);
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &one) && kept++ > 0)
            CPU_CLR(cpu, &one);
    }
    CHOIR_CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    CHOIR_CHECK_EQ(ch_count_processors(0), 1);
    CHOIR_CHECK_EQ(ch_count_processors(7), 7);
    ch_processor_set_get(&set);
    CHOIR_CHECK_EQ(ch_processor_set_count(&set), 1u);
    CHOIR_CHECK(ch_processor_set_within(&set, &before));
    ch_processor_set_add(&set, &before);
    CHOIR_CHECK(memcmp(&set, &before, sizeof(set)) == 0);
}
