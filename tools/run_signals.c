/*
 * run_signals.c - the launcher's signals come through a descriptor, in turn with everything else.
 */
#include "run.h"

#include <sys/signalfd.h>

int choir_run_signals_open(struct run_job *job)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
    sigset_t ours;

    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    sigaddset(&ours, SIGQUIT);
    if (sigprocmask(SIG_BLOCK, &ours, &job->mask) != 0 || sigaction(SIGPIPE, &ignore, &old) != 0)
        return -1;
    job->pipe_ignored = old.sa_handler == SIG_IGN;
    return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}
