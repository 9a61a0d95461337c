/*
 * run_keeper.c - the process between launcher and ranks, whose only aim is that nothing is left.
 *
 * It is a process of its own because the launcher may be killed at any time: then the socket to it
 * closes, and the keeper kills everything that descends from it before it ends itself. It starts the
 * ranks, as only a parent learns how a process ended; it is a reaper, so that the ranks' orphans become
 * its children; it has a session and a name of its own, so that what is aimed at the launcher (its
 * terminal's signals, `pkill -f "choir run"`) misses it. It has one thread and no secrets.
 *
 *   WAITING --[GO]--> STARTING --[last child started]--> RUNNING --[last child reaped]--> CLEARING
 *      |                 |                                  |                                |
 *      +-----------------+---[KILL, or the launcher died]---+-------> killing until nothing is left
 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LEFTOVERS_MS = 500, /* what ranks leave is asked to end, and killed after this */
    GIVE_UP_MS = 10000, /* what cannot be killed (another user's) is left after this */
    KILL_EVERY_MS = 5
};

struct keeper {
    struct run_job *job;
    struct run_world world;
    int launcher; /* -1: it is gone */
    int signals;  /* SIGCHLD */
    int next;     /* the child to start next */
    int nrunning;
    bool going;    /* GO has come */
    bool stopping; /* start no more */
    bool killing;
    int leftovers;
    int64_t clearing_since; /* 0: ranks still run */
    int64_t killing_since;
};

/* What others see of it in lists of processes: not the launcher's name and arguments. The strings of
 * argv lie in one block, which is ours to write to; the command's own name comes before them. */
static void take_name(char **argv)
{
    static const char name[] = "rank-keeper";
    char *first = argv[0];
    size_t size = 0;

    if (program_invocation_name + strlen(program_invocation_name) + 1 == argv[0])
        first = program_invocation_name;
    for (int i = 0; argv[i] != NULL && (i == 0 || argv[i] == first + size); i++)
        size = (size_t)(argv[i] - first) + strlen(argv[i]) + 1;
    memset(first, 0, size);
    if (size > sizeof(name))
        memcpy(first, name, sizeof(name));
    prctl(PR_SET_NAME, name);
}

static void tell(struct keeper *keeper, enum run_event_kind kind, int child, int value)
{
    struct run_event event = { .kind = kind, .child = child, .value = value };

    if (keeper->launcher < 0)
        return;
    while (send(keeper->launcher, &event, sizeof(event), MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return; /* it is gone: the next read says so */
    }
}

static void close_ends(struct run_child *child)
{
    if (child->in >= 0)
        close(child->in);
    close(child->out);
    close(child->err);
}

/* Fork one child. Returns 0, or errno of what failed before its program ran. */
static int start(struct keeper *keeper, int index)
{
    struct run_child *child = &keeper->job->children[index];
    int parent = getpid(), report[2], error = 0, pid;
    ssize_t got;

    if (pipe2(report, O_CLOEXEC) != 0)
        return errno;
    pid = fork();
    if (pid == 0) {
        /* Should the keeper be killed, its children are. It may have been before this line. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_FAILURE);
        choir_run_become(keeper->job, index, &keeper->world, report[1]);
    }
    if (pid < 0)
        error = errno;
    close(report[1]);
    /* Closed by exec, or carries what went wrong. */
    while (pid > 0 && (got = read(report[0], &error, sizeof(error))) < 0 && errno == EINTR)
        continue;
    close(report[0]);
    if (error != 0) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return error;
    }
    child->pid = pid;
    return 0;
}

static void start_next(struct keeper *keeper)
{
    int index = keeper->next++;
    int error = start(keeper, index);

    close_ends(&keeper->job->children[index]);
    if (error != 0) {
        keeper->stopping = true;
        tell(keeper, RUN_NOT_STARTED, index, error);
        return;
    }
    keeper->nrunning++;
    tell(keeper, RUN_STARTED, index, keeper->job->children[index].pid);
}

/* To the groups of those who have not been reaped: until then a number is not used again. */
static void signal_groups(const struct keeper *keeper, int sig)
{
    for (int i = 0; i < keeper->next; i++) {
        if (keeper->job->children[i].pid > 0)
            kill(-keeper->job->children[i].pid, sig);
    }
}

static void ask(struct keeper *keeper)
{
    keeper->stopping = true;
    signal_groups(keeper, SIGTERM);
    signal_groups(keeper, SIGCONT); /* one that is stopped would not notice */
}

static void begin_killing(struct keeper *keeper)
{
    keeper->stopping = true;
    if (!keeper->killing)
        keeper->killing_since = choir_run_now();
    keeper->killing = true;
}

static void take_order(struct keeper *keeper)
{
    struct run_order order;
    ssize_t got = recv(keeper->launcher, &order, sizeof(order), MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got != (ssize_t)sizeof(order)) {
        close(keeper->launcher);
        keeper->launcher = -1;
        begin_killing(keeper);
        return;
    }
    switch (order.kind) {
    case RUN_GO:
        keeper->world = order.world;
        keeper->going = true;
        break;
    case RUN_ASK:
        ask(keeper);
        break;
    case RUN_KILL:
        begin_killing(keeper);
        break;
    }
}

/* True when no child is left at all, so no descendant either. */
static bool reap(struct keeper *keeper)
{
    int pid, status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < keeper->next; i++) {
            if (keeper->job->children[i].pid != pid)
                continue;
            keeper->job->children[i].pid = 0;
            keeper->nrunning--;
            tell(keeper, RUN_ENDED, i, status);
        }
    }
    return pid < 0 && errno == ECHILD;
}

/* The ranks are through, and something is left of them. */
static void clear(struct keeper *keeper)
{
    if (keeper->clearing_since == 0) {
        keeper->clearing_since = choir_run_now();
        keeper->leftovers = choir_run_signal_family(SIGTERM);
        choir_run_signal_family(SIGCONT);
    } else if (choir_run_now() - keeper->clearing_since > LEFTOVERS_MS) {
        begin_killing(keeper);
    }
}

static bool is_done_starting(const struct keeper *keeper)
{
    return keeper->stopping || (keeper->going && keeper->next == keeper->job->count);
}

/* One turn; false when it is all over. */
static bool turn(struct keeper *keeper)
{
    bool alone = reap(keeper);

    if (is_done_starting(keeper) && alone)
        return false;
    if (keeper->killing) {
        signal_groups(keeper, SIGKILL);
        choir_run_signal_family(SIGKILL);
        if (choir_run_now() - keeper->killing_since > GIVE_UP_MS)
            return false;
    } else if (is_done_starting(keeper) && keeper->nrunning == 0) {
        clear(keeper);
    } else if (keeper->going && !is_done_starting(keeper)) {
        start_next(keeper);
    }
    return true;
}

static int patience(const struct keeper *keeper)
{
    if (keeper->going && !is_done_starting(keeper))
        return 0;
    return keeper->killing || keeper->clearing_since != 0 ? KILL_EVERY_MS : -1;
}

static _Noreturn void keep(struct keeper *keeper)
{
    struct signalfd_siginfo info;
    ssize_t got;

    while (turn(keeper)) {
        struct pollfd fds[2] = { { .fd = keeper->launcher, .events = POLLIN },
                                 { .fd = keeper->signals, .events = POLLIN } };

        if (poll(fds, 2, patience(keeper)) < 0)
            continue;
        if (fds[0].revents != 0)
            take_order(keeper);
        while (fds[1].revents != 0 && (got = read(keeper->signals, &info, sizeof(info))) > 0)
            continue;
    }
    tell(keeper, RUN_OVER, 0, keeper->leftovers);
    _exit(EXIT_SUCCESS);
}

/* The keeper neither reads nor prints, and must not keep a reader of our output waiting. */
static void let_streams_go(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; null >= 0 && fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
}

static bool is_needed(const struct run_job *job, int launcher, int fd)
{
    if (fd <= 2 || fd == launcher || fd == job->token_fd)
        return true;
    for (int i = 0; i < job->count; i++) {
        const struct run_child *child = &job->children[i];

        if (fd == child->in || fd == child->out || fd == child->err)
            return true;
    }
    return false;
}

/* The launcher's ends of pipes and its other descriptors must not stay open here: their readers would
 * never see the end. What has no close-on-exec mark the user wants ranks to have. */
static void close_others(const struct run_job *job, int launcher)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (fd != dirfd(dir) && !is_needed(job, launcher, fd) &&
            (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0)
            close(fd);
    }
    if (dir != NULL)
        closedir(dir);
}

static _Noreturn void run_keeper(struct run_job *job, int launcher)
{
    struct keeper keeper = { .job = job, .launcher = launcher };
    sigset_t all, child;

    close_others(job, launcher);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* whoever started us may ignore it */
    keeper.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (keeper.signals < 0)
        _exit(EXIT_FAILURE);
    let_streams_go();
    take_name(job->argv);
    keep(&keeper);
}

int choir_run_keeper_start(struct run_job *job, int *pid_out)
{
    int ends[2], pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        run_keeper(job, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -1;
    }
    *pid_out = pid;
    return ends[0];
}
