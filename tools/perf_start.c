/*
 * perf_start.c - ranks of our own: this very command, started again by `choir run`.
 */
#include "perf.h"
#include "commands.h"

#include <limits.h>
#include <unistd.h>

bool choir_perf_is_rank(void)
{
    /* A batch script of Slurm has the first two of its three as well, and is no rank. */
    static const char *const marks[][3] = { { "CHOIR_RANK", "CHOIR_SIZE", NULL },
                                            { "RANK", "WORLD_SIZE", NULL },
                                            { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID" },
                                            { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                              NULL },
                                            { "PMI_RANK", "PMI_SIZE", NULL } };

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        bool all = true;

        for (size_t k = 0; k < 3 && marks[i][k] != NULL; k++) {
            const char *value = getenv(marks[i][k]);

            all = all && value != NULL && value[0] != '\0';
        }
        if (all)
            return true;
    }
    return false;
}

/* As if by hand: choir run -n N --no-prefix --no-fold --bind none -- choir perf ... The first word is our own: the
 * keeper of the ranks writes its name there. */
int choir_perf_start(const char *command, int argc, char **argv, int nranks)
{
    char exe[PATH_MAX], number[16], terminal[PATH_MAX] = "";
    const char *head[] = { argv[0], "--no-prefix", "--no-fold", "--bind", "none",       "-n",
                           number,  "--",          exe,         command,  "--terminal", terminal };
    size_t nhead = sizeof(head) / sizeof(head[0]);
    char **words = calloc(nhead + (size_t)argc + 1, sizeof(*words));
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    int code;

    if (words == NULL || n < 0) {
        fprintf(stderr, "choir %s: cannot start ranks: %m\n", command);
        free(words);
        return EXIT_FAILURE;
    }
    exe[n] = '\0';
    snprintf(number, sizeof(number), "%d", nranks);
    if (!isatty(STDERR_FILENO) || ttyname_r(STDERR_FILENO, terminal, sizeof(terminal)) != 0)
        nhead -= 2;
    memcpy(words, head, nhead * sizeof(*head));
    memcpy(words + nhead, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
    code = choir_cmd_run((int)nhead + argc - 1, words);
    free(words);
    return code;
}
