/*
 * run_summary.c - the last lines of a run that went wrong: who, how, when, and what it said last.
 */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL_LINES = 5 };

static void name_child(const struct run *run, int index, char *out, size_t size)
{
    const struct run_child *child = &run->job.children[index];
    char host[256] = "?";

    gethostname(host, sizeof(host) - 1);
    if (!run->job.are_ranks)
        snprintf(out, size, "the launcher of node %d (%s)", index, run->options.hosts[index].name);
    else if (run->world.nnodes > 1)
        snprintf(out, size, "rank %d (node %d, host %s, pid %d)", run->world.first_rank + index,
                 run->world.node, host, child->pid);
    else
        snprintf(out, size, "rank %d (pid %d)", run->world.first_rank + index, child->pid);
}

static void describe_failure(const struct run *run, char *out, size_t size)
{
    const struct run_child *child = &run->job.children[run->culprit];
    double after = (double)(child->ended_at - run->started_at) / 1000;
    char who[400];

    name_child(run, run->culprit, who, sizeof(who));
    if (WIFSIGNALED(child->status))
        snprintf(out, size, "%s was killed by signal %d (%s%s) after %.1f s", who,
                 WTERMSIG(child->status), strsignal(WTERMSIG(child->status)),
                 WCOREDUMP(child->status) ? ", core dumped" : "", after);
    else
        snprintf(out, size, "%s exited with code %d after %.1f s", who, WEXITSTATUS(child->status),
                 after);
}

/* "node 1: " where there are several. */
static void name_node(const struct run *run, char *out, size_t size)
{
    out[0] = '\0';
    if (run->options.nnodes > 1)
        snprintf(out, size, "node %d: ", run->options.node);
}

void choir_run_describe(const struct run *run, char *out, size_t size)
{
    char node[32], rank[32] = "";

    switch (run->cause) {
    case RUN_FINE:
        snprintf(out, size, "all ranks ended well");
        break;
    case RUN_CHILD_FAILED:
        describe_failure(run, out, size);
        break;
    case RUN_CHILD_NOT_STARTED:
        name_node(run, node, sizeof(node));
        if (run->job.are_ranks && run->culprit > 0) /* others run: it is not the program */
            snprintf(rank, sizeof(rank), " as rank %d", run->world.first_rank + run->culprit);
        snprintf(out, size, "%scannot start \"%s\"%s: %s", node,
                 run->job.children[run->culprit].argv[0], rank, strerror(run->value));
        break;
    case RUN_SIGNALLED:
        snprintf(out, size, "ended by signal %d (%s)", run->value, strsignal(run->value));
        break;
    case RUN_TIMED_OUT:
        snprintf(out, size, "ended after %.1f s: --timeout",
                 (double)(run->timeout_at - run->started_at) / 1000);
        break;
    case RUN_OUTPUT_CLOSED:
        snprintf(out, size, "ended: nobody reads the output any more");
        break;
    case RUN_ENDED_ELSEWHERE:
    case RUN_BROKEN:
        snprintf(out, size, "%s", run->elsewhere);
        break;
    }
}

/* Where the last lines of `tail` begin; a first one that is cut short is not told. */
static const char *last_lines(const char *tail, size_t nbytes, bool whole)
{
    const char *end = tail + nbytes, *p = end;
    int lines = 0;

    while (p > tail) {
        if (p[-1] == '\n' && p < end && ++lines == TAIL_LINES)
            return p;
        p--;
    }
    if (!whole) {
        const char *newline = memchr(tail, '\n', nbytes);

        if (newline != NULL && newline + 1 < end)
            return newline + 1;
    }
    return tail;
}

static void print_tail(struct run *run, const struct run_feed *feed)
{
    const char *end = feed->tail + feed->tail_used, *p;

    if (feed->tail_used == 0)
        return;
    choir_run_say(run, "the last it wrote to its standard error:");
    p = last_lines(feed->tail, feed->tail_used, feed->tail_used < RUN_TAIL);
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t nbytes = (size_t)((newline != NULL ? newline : end) - p);

        choir_run_sink_put(&run->err, "    ", 4);
        choir_run_sink_put(&run->err, p, nbytes);
        choir_run_sink_put(&run->err, "\n", 1);
        p += nbytes + 1;
    }
}

/* A launcher that ended with an ordinary code has already said why. */
static bool is_told_elsewhere(const struct run *run)
{
    const struct run_child *child = &run->job.children[run->culprit];

    return run->cause == RUN_CHILD_FAILED && !run->job.are_ranks && WIFEXITED(child->status) &&
           WEXITSTATUS(child->status) != 255 && run->announced;
}

void choir_run_summary(struct run *run)
{
    char text[1024], others[64] = "";

    if (run->cause == RUN_FINE || run->cause == RUN_OUTPUT_CLOSED || is_told_elsewhere(run))
        return;
    /* Under another launcher that one, or the host that failed, speaks for all. */
    if ((run->cause == RUN_ENDED_ELSEWHERE || run->cause == RUN_SIGNALLED) &&
        run->options.controlled && !run->options.verbose)
        return;
    choir_run_describe(run, text, sizeof(text));
    if (run->ended_by_us > 0 && run->job.are_ranks)
        snprintf(others, sizeof(others), "; %d %s ended for that", run->ended_by_us,
                 run->cause == RUN_CHILD_FAILED
                     ? (run->ended_by_us > 1 ? "other ranks were" : "other rank was")
                     : (run->ended_by_us > 1 ? "ranks were" : "rank was"));
    choir_run_say(run, "%s%s", text, others);
    if (run->cause == RUN_CHILD_FAILED && run->job.are_ranks)
        print_tail(run, &run->feeds[2 * run->culprit + 1]);
}
