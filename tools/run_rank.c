/*
 * run_rank.c - from the keeper's fork() to the program: what a child sets up for itself.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Noreturn void fail(int report, int error)
{
    /* The keeper waits at the other end; if it does not, there is nobody to tell. */
    ssize_t told = write(report, &error, sizeof(error));

    (void)told;
    _exit(EXIT_NOT_FOUND);
}

/* The descriptors 0, 1 and 2; what is given lies above them. */
static bool set_streams(const struct run_child *child)
{
    int in = child->in >= 0 ? child->in : open("/dev/null", O_RDONLY | O_CLOEXEC);

    return in >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(child->out, STDOUT_FILENO) >= 0 &&
           dup2(child->err, STDERR_FILENO) >= 0;
}

/* As the launcher found them; SIGPIPE is the only one it ignores. */
static void restore_signals(const struct run_job *job)
{
    signal(SIGPIPE, job->pipe_ignored ? SIG_IGN : SIG_DFL);
    sigprocmask(SIG_SETMASK, &job->mask, NULL);
}

void choir_run_become(const struct run_job *job, int index, const struct run_world *world,
                      int report)
{
    const struct run_child *child = &job->children[index];
    char **env = environ;

    /* A group of its own: one number for all it starts. Not a session of its own: the kernel shares processors out
     * between sessions first (sched_autogroup), and then a rank that yields does not let another one run. There are
     * no signals from our terminal either way, as the keeper's session has none. */
    setpgid(0, 0);
    if (!set_streams(child))
        fail(report, errno);
    if (job->are_ranks) {
        env = choir_run_environment(job, index, world);
        if (env == NULL)
            fail(report, ENOMEM);
        if (job->token_fd >= 0 && fcntl(job->token_fd, F_SETFD, 0) != 0)
            fail(report, errno);
    }
    if (child->pinned && sched_setaffinity(0, child->cpus_size, child->cpus) != 0)
        fail(report, errno);
    setrlimit(RLIMIT_NOFILE, &job->files);
    restore_signals(job);
    execvpe(child->argv[0], child->argv, env);
    fail(report, errno);
}
