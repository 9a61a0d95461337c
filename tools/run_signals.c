/*
 * run_signals.c - the launcher's signals come through a descriptor, in turn with everything else.
 */
#include "run.h"

#include <sys/signalfd.h>

/* What nohup, or a shell that starts us in the background, has made us ignore stays ignored: a blocked
 * signal would come through the descriptor all the same. */
static void add_unless_ignored(sigset_t *set, int sig)
{
    struct sigaction now;

    if (sigaction(sig, NULL, &now) != 0 || now.sa_handler != SIG_IGN)
        sigaddset(set, sig);
}

int choir_run_signals_open(struct run_job *job)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
    sigset_t ours;

    sigemptyset(&ours);
    add_unless_ignored(&ours, SIGINT);
    add_unless_ignored(&ours, SIGTERM);
    add_unless_ignored(&ours, SIGHUP);
    add_unless_ignored(&ours, SIGQUIT);
    if (sigprocmask(SIG_BLOCK, &ours, &job->mask) != 0 || sigaction(SIGPIPE, &ignore, &old) != 0)
        return -1;
    job->pipe_ignored = old.sa_handler == SIG_IGN;
    return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}
