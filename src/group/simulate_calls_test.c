/*
 * simulate_calls_test.c - choir_simulate() and machine files: what is refused, and what is done without memory.
 */
#include <choir/simulate.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "choir_test.h"

static const struct {
    const char *operation;
    int nranks;
    choir_simulate_opts opts;
    const char *complaint;
} refused[] = {
    { "sum", 4, { .size = sizeof(choir_simulate_opts) }, "no operation \"sum\"" },
    { "allreduce", 1, { .size = sizeof(choir_simulate_opts) }, "1 ranks" },
    { "allreduce", 65537, { .size = sizeof(choir_simulate_opts) }, "65537 ranks" },
    { "allreduce", 4, { .size = 1 }, "opts->size is 1" },
    { "allreduce", 4, { .size = sizeof(choir_simulate_opts), .type = (choir_type)99 }, "type 99" },
    { "reduce", 4, { .size = sizeof(choir_simulate_opts), .root = 4 }, "root 4" },
};

CHOIR_TEST(what_makes_no_sense_is_refused)
{
    choir_simulated rows[CHOIR_SIMULATED_MOST];
    choir_machine m;
    size_t n = 77;

    choir_machine_init(&m);
    for (size_t i = 0; i < CH_ARRAY_LEN(refused); i++) {
        CHOIR_ROW("%s", refused[i].complaint);
        CHOIR_CHECK_STATUS(choir_simulate(refused[i].operation, refused[i].nranks, 8, &m,
                                          &refused[i].opts, rows, &n, NULL),
                           CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), refused[i].complaint);
        CHOIR_CHECK_EQ(n, 77u);
    }
    CHOIR_CHECK_STATUS(choir_simulate(NULL, 2, 8, &m, NULL, rows, &n, NULL), CHOIR_ERR_INVALID);
    m.size = 3;
    CHOIR_CHECK_STATUS(choir_simulate("reduce", 2, 8, &m, NULL, rows, &n, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_machine_print(&m, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_machine_load(NULL, &m), CHOIR_ERR_INVALID);
    choir_machine_init(&m);
    m.points[0].copy_gbs = 0;
    CHOIR_CHECK_STATUS(choir_simulate("reduce", 2, 8, &m, NULL, rows, &n, NULL), CHOIR_ERR_INVALID);
}

/* Every algorithm has its row, whether it can be played or not. */
CHOIR_TEST(every_algorithm_is_there)
{
    choir_simulated rows[CHOIR_SIMULATED_MOST];
    choir_machine m;
    size_t n, played = 0;

    choir_machine_init(&m);
    m.ranks_per_host = 0;
    CHOIR_CHECK_OK(choir_simulate("allreduce", 8, 1 << 20, &m, NULL, rows, &n, NULL));
    for (size_t i = 0; i < n; i++)
        played += rows[i].objection == NULL && rows[i].us > 0;
    CHOIR_CHECK(n >= 6 && played >= 5);
}

static choir_status write_load_simulate(void *arg)
{
    choir_simulated rows[CHOIR_SIMULATED_MOST];
    choir_machine m;
    choir_blob text = { 0 };
    size_t n;
    choir_status rc = choir_machine_load(arg, &m);

    if (rc == CHOIR_OK)
        rc = choir_simulate("broadcast", 5, 4096, &m, NULL, rows, &n, NULL);
    if (rc == CHOIR_OK)
        rc = choir_machine_print(&m, &text);
    choir_blob_free(&text);
    return rc;
}

CHOIR_TEST(faults_leave_nothing_behind)
{
    char path[] = "machine";
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHOIR_CHECK(fd >= 0 && write(fd, "wait_us 1\n", 10) == 10);
    close(fd);
    choir_test_all_faults(write_load_simulate, path);
    unlink(path);
}
