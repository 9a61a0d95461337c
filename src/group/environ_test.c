/* environ_test.c - who tells a rank its place, and what is refused. */
#include "choir_test.h"

#include <string.h>

#include <choir/log.h>

#include "group/environ.h"

/* An environment of "NAME=value" strings. */
static const char *fake_get(void *arg, const char *name)
{
    size_t length = strlen(name);

    for (const char *const *entry = arg; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    }
    return NULL;
}

static choir_status find(const choir_init_opts *opts, const char *const *vars,
                         struct ch_whereabouts *out)
{
    choir_init_opts none = { .size = sizeof(none) };
    struct ch_environ env = { fake_get, (void *)(uintptr_t)vars };

    return ch_whereabouts_find(opts != NULL ? opts : &none, &env, out);
}

enum { VARS_MAX = 12 };

CHOIR_TEST(each_launcher_is_understood)
{
    static const struct {
        const char *why;
        const char *vars[VARS_MAX];
        int rank, nranks, local_rank, local_nranks;
        enum ch_meeting meeting;
        const char *url, *source;
    } rows[] = {
        { "nobody: a program of its own",
          { NULL },
          0,
          1,
          -1,
          -1,
          CH_MEET_ALONE,
          "hash://",
          "no launcher" },
        { "choir run",
          { "CHOIR_RANK=2", "CHOIR_SIZE=4", "CHOIR_LOCAL_RANK=0", "CHOIR_LOCAL_SIZE=2",
            "CHOIR_STORE=tcp://127.0.0.1:40000", "CHOIR_TOKEN_FD=3", "RANK=2", "WORLD_SIZE=4",
            "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "TORCHELASTIC_USE_AGENT_STORE=True" },
          2,
          4,
          0,
          2,
          CH_MEET_STORE,
          "tcp://127.0.0.1:40000",
          "choir run" },
        { "torchrun, whose agent keeps the store",
          { "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=alpha",
            "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True" },
          1,
          2,
          1,
          2,
          CH_MEET_AGENT,
          "tcp://alpha:29500?protocol=torch",
          "torchrun" },
        { "torch's variables without an agent: rank 0 serves",
          { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=alpha", "MASTER_PORT=29500",
            "TORCHELASTIC_USE_AGENT_STORE=False" },
          1,
          2,
          -1,
          -1,
          CH_MEET_SERVE,
          "tcp://alpha:29500",
          "torchrun" },
        { "an IPv6 address as PyTorch users write it",
          { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fe80::1", "MASTER_PORT=29500" },
          0,
          2,
          -1,
          -1,
          CH_MEET_SERVE,
          "tcp://[fe80::1]:29500",
          "torchrun" },
        { "srun",
          { "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1" },
          5,
          8,
          1,
          -1,
          CH_MEET_LAUNCHER,
          "",
          "Slurm" },
        { "srun with a place to meet",
          { "SLURM_PROCID=5", "SLURM_NTASKS=8", "MASTER_ADDR=a", "MASTER_PORT=1" },
          5,
          8,
          -1,
          -1,
          CH_MEET_SERVE,
          "tcp://a:1",
          "Slurm" },
        { "mpirun",
          { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_RANK=1",
            "OMPI_COMM_WORLD_LOCAL_SIZE=3", "PMIX_RANK=1" },
          1,
          3,
          1,
          3,
          CH_MEET_LAUNCHER,
          "",
          "Open MPI" },
        { "mpiexec",
          { "PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2" },
          0,
          2,
          0,
          2,
          CH_MEET_LAUNCHER,
          "",
          "MPICH" },
        { "one rank under mpirun meets nobody",
          { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1" },
          0,
          1,
          -1,
          -1,
          CH_MEET_ALONE,
          "hash://",
          "Open MPI" },
        { "an empty variable is not set",
          { "RANK=", "WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=1" },
          0,
          1,
          -1,
          -1,
          CH_MEET_ALONE,
          "hash://",
          "MPICH" },
        { "a local rank that cannot be is no hint",
          { "CHOIR_RANK=0", "CHOIR_SIZE=1", "CHOIR_LOCAL_RANK=7", "CHOIR_LOCAL_SIZE=x" },
          0,
          1,
          -1,
          -1,
          CH_MEET_ALONE,
          "hash://",
          "choir run" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        struct ch_whereabouts where;

        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_OK(find(NULL, rows[i].vars, &where));
        CHOIR_CHECK_EQ(where.rank, rows[i].rank);
        CHOIR_CHECK_EQ(where.nranks, rows[i].nranks);
        CHOIR_CHECK_EQ(where.local_rank, rows[i].local_rank);
        CHOIR_CHECK_EQ(where.local_nranks, rows[i].local_nranks);
        CHOIR_CHECK_EQ((int)where.meeting, (int)rows[i].meeting);
        CHOIR_CHECK_STR(where.url, rows[i].url);
        CHOIR_CHECK_HAS(where.source, rows[i].source);
    }
}

CHOIR_TEST(urls_and_arguments_come_before_the_environment)
{
    static const char *const torchrun[] = { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=alpha",
                                            "MASTER_PORT=1", NULL };
    static const struct {
        const char *why, *url;
        int rank, nranks; /* as arguments */
        int want_rank, want_nranks;
        enum ch_meeting meeting;
        const char *want_url;
    } rows[] = {
        { "arguments win", NULL, 3, 5, 3, 5, CH_MEET_SERVE, "tcp://alpha:1" },
        { "a URL takes the rank from the environment", "tcp://beta:7", 0, 0, 1, 2, CH_MEET_SERVE,
          "tcp://beta:7" },
        { "a URL's query wins too", "tcp://beta:7?rank=4&world_size=6", 0, 0, 4, 6, CH_MEET_SERVE,
          "tcp://beta:7" },
        { "IPv6", "tcp://[::1]:7", 0, 0, 1, 2, CH_MEET_SERVE, "tcp://[::1]:7" },
        { "a store of PyTorch's", "tcp://beta:7?protocol=torch&rank=0&world_size=1", 0, 0, 0, 1,
          CH_MEET_STORE, "tcp://beta:7?protocol=torch" },
        { "a file", "file:///tmp/x?rank=0&world_size=3", 0, 0, 0, 3, CH_MEET_STORE,
          "file:///tmp/x" },
        { "env:// is the default said aloud", "env://", 0, 0, 1, 2, CH_MEET_SERVE,
          "tcp://alpha:1" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        choir_init_opts opts = {
            .size = sizeof(opts), .url = rows[i].url, .rank = rows[i].rank, .nranks = rows[i].nranks
        };
        struct ch_whereabouts where;

        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_OK(find(&opts, torchrun, &where));
        CHOIR_CHECK_EQ(where.rank, rows[i].want_rank);
        CHOIR_CHECK_EQ(where.nranks, rows[i].want_nranks);
        CHOIR_CHECK_EQ((int)where.meeting, (int)rows[i].meeting);
        CHOIR_CHECK_STR(where.url, rows[i].want_url);
    }
}

CHOIR_TEST(nonsense_is_refused_by_name)
{
    static const struct {
        const char *vars[VARS_MAX];
        const char *url;
        int nranks;
        const char *text;
    } rows[] = {
        { { "RANK=x", "WORLD_SIZE=2" }, NULL, 0, "RANK is \"x\"" },
        { { "RANK=-1", "WORLD_SIZE=2" }, NULL, 0, "RANK is \"-1\"" },
        { { "RANK=0", "WORLD_SIZE=0" }, NULL, 0, "WORLD_SIZE is \"0\"" },
        { { "RANK=99999999999999999999", "WORLD_SIZE=2" }, NULL, 0, "RANK is \"9999" },
        { { "RANK=2", "WORLD_SIZE=2" }, NULL, 0, "rank 2 of 2 ranks" },
        { { "RANK=1" }, NULL, 0, "WORLD_SIZE expected, but not set" },
        { { "CHOIR_SIZE=2" }, NULL, 0, "CHOIR_RANK expected, but not set" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a" },
          NULL,
          0,
          "MASTER_PORT expected, but not set" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_PORT=1" },
          NULL,
          0,
          "MASTER_ADDR expected, but not set" },
        { { "RANK=1", "WORLD_SIZE=2" }, "env://", 0, "MASTER_ADDR expected, but not set" },
        { { "RANK=1", "WORLD_SIZE=2" }, NULL, 0, "no place to meet" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000" },
          NULL,
          0,
          "MASTER_PORT is \"70000\"" },
        { { "CHOIR_RANK=1", "CHOIR_SIZE=2", "CHOIR_STORE=a:1" },
          NULL,
          0,
          "CHOIR_STORE is \"a:1\"" },
        { { NULL }, "tcp://a:1", 0, "rank parameter missing" },
        { { NULL }, "tcp://a:1?rank=1", 0, "world size (world_size=N) parameter missing" },
        { { NULL }, "tcp://a:1?world_size=2", 0, "rank (rank=R) parameter missing" },
        { { NULL }, "tcp://a:1?rank=2&world_size=2", 0, "rank 2 of 2" },
        { { NULL }, "tcp://a:1?rank=0&world_size=2", 2, "node-specific arguments" },
        { { NULL }, "tcp://a?rank=0&world_size=2", 0, "port number missing" },
        { { NULL }, "tcp://[::1]?rank=0&world_size=2", 0, "port number missing" },
        { { NULL }, "tcp://a:?rank=0&world_size=2", 0, "port number missing" },
        { { NULL }, "tcp://a:99999?rank=0&world_size=2", 0, "from 0 to 65535" },
        { { NULL }, "file://?rank=0&world_size=2", 0, "path missing" },
        { { NULL }, "udp://a:1", 0, "not a place to meet" },
        { { NULL }, "", 0, "not a place to meet" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        choir_init_opts opts = { .size = sizeof(opts),
                                 .url = rows[i].url,
                                 .nranks = rows[i].nranks };
        struct ch_whereabouts where;

        CHOIR_ROW("row %zu: %s", i, rows[i].text);
        CHOIR_CHECK_STATUS(find(&opts, rows[i].vars, &where), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), rows[i].text);
    }
}

/* --- two that disagree -------------------------------------------------------------------------- */

struct heard {
    int lines;
    char last[512];
};

static void hear(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    struct heard *heard = arg;

    (void)subsystem;

    if (level != CHOIR_LOG_WARN)
        return;
    heard->lines++;
    snprintf(heard->last, sizeof(heard->last), "%s", line);
}

CHOIR_TEST(two_that_disagree_cost_one_warning)
{
    static const char *const agree[] = { "RANK=0", "WORLD_SIZE=1", "PMI_RANK=0", "PMI_SIZE=1",
                                         NULL };
    static const char *const differ[] = { "CHOIR_RANK=0", "CHOIR_SIZE=1", "RANK=1", "WORLD_SIZE=2",
                                          "PMI_RANK=2",   "PMI_SIZE=3",   NULL };
    struct ch_whereabouts where;
    struct heard heard = { 0 };

    choir_log_set_sink(hear, &heard);
    CHOIR_CHECK_OK(find(NULL, agree, &where));
    CHOIR_CHECK_EQ(heard.lines, 0);
    CHOIR_CHECK_OK(find(NULL, differ, &where));
    CHOIR_CHECK_EQ(heard.lines, 1);
    CHOIR_CHECK_HAS(heard.last, "choir run");
    CHOIR_CHECK_HAS(heard.last, "rank 0 of 1");
    CHOIR_CHECK_HAS(heard.last, "torchrun");
    CHOIR_CHECK_HAS(heard.last, "rank 1 of 2");
    choir_log_set_sink(NULL, NULL);
}
