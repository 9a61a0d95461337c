/*
 * run_loop.c - the launcher's loop: everything that can happen during a run, in one poll().
 *
 *   WAITING --[world known: GO]--> RUNNING --[keeper: nothing is left]--> DRAINING --> the end
 *                                     |
 *                                     +--[first cause: choir_run_stop()]--> asked --[grace, or a second
 *                                                                            signal]--> killed
 */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_NBYTES = 65536,
    INPUT_FULL = 65536,
    FRONT_EXTRA_MS = 2000, /* the hosts' launchers kill their ranks before we kill them */
    GIVE_UP_MS = 2000      /* for output that nobody takes, when the run was ended from outside */
};

int64_t choir_run_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void choir_run_say(struct run *run, const char *fmt, ...)
{
    char line[2048];
    va_list args;
    int n;

    n = snprintf(line, sizeof(line), "choir run: ");
    va_start(args, fmt);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
    va_end(args);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    choir_run_sink_break(&run->err);
    choir_run_sink_put(&run->err, line, (size_t)n);
    choir_run_sink_flush(&run->err);
}

/* --- ending ---------------------------------------------------------------------------------------------- */

static void order(struct run *run, enum run_order_kind kind)
{
    struct run_order message = { .kind = kind, .world = run->world };

    if (run->keeper >= 0)
        send(run->keeper, &message, sizeof(message), MSG_NOSIGNAL);
}

static void write_file(struct run *run, struct run_feed *feed, const char *bytes, size_t nbytes)
{
    if (run->options.output == NULL || !run->job.are_ranks ||
        choir_run_files_write(run->options.output, feed, bytes, nbytes))
        return;
    choir_run_break(run, "cannot write what rank %d prints to folder \"%.200s\": %s", feed->rank,
                    run->options.output, strerror(errno));
}

void choir_run_go(struct run *run)
{
    run->going = true;
    for (int i = 0; run->job.are_ranks && i < 2 * run->job.count; i++) {
        struct run_feed *feed = &run->feeds[i];

        feed->rank = run->world.first_rank + feed->local;
        feed->shown = feed->shown && choir_run_in(&run->options.shown, feed->rank);
        if (!feed->shown && feed->sink->fold != NULL)
            choir_run_fold_leave(feed->sink->fold, feed->local);
        if (feed->sink == &run->out)
            write_file(run, feed, "", 0); /* there is one for each rank, printing or not */
    }
    if (run->cause == RUN_FINE)
        order(run, RUN_GO);
}

void choir_run_kill(struct run *run)
{
    if (run->killed)
        return;
    run->killed = true;
    if (!run->job.are_ranks)
        choir_run_hosts_tell(run, RUN_FRAME_KILL, SIGKILL);
    order(run, RUN_KILL);
}

void choir_run_stop(struct run *run, enum run_cause cause, int code, int culprit, int value)
{
    char text[512];

    if (run->cause != RUN_FINE)
        return;
    run->cause = cause;
    run->code = code;
    run->culprit = culprit;
    run->value = value;
    run->kill_at = choir_run_now() + run->options.grace_ms;
    if (run->job.are_ranks) {
        order(run, RUN_ASK);
    } else {
        run->kill_at += FRONT_EXTRA_MS;
        choir_run_hosts_tell(run, RUN_FRAME_ASK, cause == RUN_SIGNALLED ? value : SIGTERM);
    }
    if (run->link != NULL && cause != RUN_ENDED_ELSEWHERE) {
        choir_run_describe(run, text, sizeof(text));
        choir_run_link_fail(run->link, code, text);
    }
}

void choir_run_break(struct run *run, const char *fmt, ...)
{
    va_list args;

    if (run->cause != RUN_FINE)
        return; /* `elsewhere` may tell of the first cause */
    va_start(args, fmt);
    vsnprintf(run->elsewhere, sizeof(run->elsewhere), fmt, args);
    va_end(args);
    choir_run_stop(run, RUN_BROKEN, EXIT_FAILURE, 0, 0);
}

static void on_signal(struct run *run)
{
    struct signalfd_siginfo info;

    while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int sig = (int)info.ssi_signo;

        if (run->over)
            run->given_up = true; /* only output is left, and somebody is impatient */
        else if (run->cause != RUN_FINE)
            choir_run_kill(run);
        else
            choir_run_stop(run, RUN_SIGNALLED, EXIT_SIGNAL_BASE + sig, 0, sig);
    }
}

/* --- the keeper -------------------------------------------------------------------------------------------- */

static void on_ended(struct run *run, const struct run_event *event)
{
    struct run_child *child = &run->job.children[event->child];
    int status = event->value;

    child->ended = true;
    child->status = status;
    child->ended_at = choir_run_now();
    run->nended++;
    if (run->cause != RUN_FINE)
        run->ended_by_us++;
    else if (status != 0)
        choir_run_stop(run, RUN_CHILD_FAILED,
                       WIFSIGNALED(status) ? EXIT_SIGNAL_BASE + WTERMSIG(status)
                                           : WEXITSTATUS(status),
                       event->child, 0);
    if (!run->job.are_ranks)
        choir_run_queue_close(&run->controls[event->child]);
    else if (event->child == 0)
        choir_run_queue_close(&run->input);
}

static void on_over(struct run *run, int leftovers)
{
    run->over = true;
    if (leftovers > 0 && run->options.verbose)
        choir_run_say(run, "%d processes that ranks had left were ended", leftovers);
    if (run->link != NULL && run->cause == RUN_FINE)
        choir_run_link_done(run->link);
}

/* It never ends before it says that all is over. */
static void on_keeper_lost(struct run *run)
{
    close(run->keeper);
    run->keeper = -1;
    if (run->over)
        return;
    choir_run_end_family(GIVE_UP_MS);
    choir_run_break(run, "the process that keeps the ranks was killed, and they with it");
    run->over = true;
}

/* If it ended with an order of ours unread, that is told first, as an error, and its last news after. */
static ssize_t receive(int keeper, struct run_event *event)
{
    ssize_t got = recv(keeper, event, sizeof(*event), MSG_DONTWAIT);

    return got < 0 && errno == ECONNRESET ? recv(keeper, event, sizeof(*event), MSG_DONTWAIT) : got;
}

static void on_keeper(struct run *run)
{
    struct run_event event;
    ssize_t got;

    while ((got = receive(run->keeper, &event)) == (ssize_t)sizeof(event)) {
        switch (event.kind) {
        case RUN_STARTED:
            run->job.children[event.child].pid = event.value;
            run->nstarted++;
            break;
        case RUN_NOT_STARTED:
            choir_run_stop(run, RUN_CHILD_NOT_STARTED,
                           event.value == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE,
                           event.child, event.value);
            break;
        case RUN_ENDED:
            on_ended(run, &event);
            break;
        case RUN_OVER:
            on_over(run, event.value);
            break;
        }
    }
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        on_keeper_lost(run);
}

/* --- other hosts --------------------------------------------------------------------------------------------- */

static void on_end(struct run *run, int code, const char *text)
{
    char own[512] = "";

    run->settled = true;
    if (run->cause != RUN_FINE)
        choir_run_describe(run, own, sizeof(own));
    if (code == 0 || strncmp(own, text, 400) == 0)
        return;
    /* Another cause came first: all launchers tell the same. */
    snprintf(run->elsewhere, sizeof(run->elsewhere), "%s", text);
    if (run->cause != RUN_FINE) {
        run->cause = RUN_ENDED_ELSEWHERE;
        run->code = code;
    }
    choir_run_stop(run, RUN_ENDED_ELSEWHERE, code, 0, 0);
}

static void on_news(struct run *run)
{
    char text[512];
    uint64_t count;
    int code;
    ssize_t got = read(run->bell, &count, sizeof(count));

    (void)got;
    for (;;) {
        switch (choir_run_link_news(run->link, &run->world, &code, text, sizeof(text))) {
        case RUN_NEWS_NONE:
            return;
        case RUN_NEWS_WORLD:
            if (run->cause == RUN_FINE)
                choir_run_go(run);
            break;
        case RUN_NEWS_END:
            on_end(run, code, text);
            return;
        case RUN_NEWS_LOST:
            run->settled = true;
            if (run->cause == RUN_FINE)
                snprintf(run->elsewhere, sizeof(run->elsewhere), "%s", text);
            choir_run_stop(run, RUN_ENDED_ELSEWHERE, code, 0, 0);
            return;
        }
    }
}

static void on_frame(struct run *run, int kind, const char *payload, size_t nbytes)
{
    int sig = nbytes > 0 ? (unsigned char)payload[0] : SIGTERM;

    if (kind == RUN_FRAME_RDZV && run->link == NULL && nbytes < RUN_ADDRESS_MAX - 8)
        choir_run_join(run, payload, nbytes);
    else if (kind == RUN_FRAME_INPUT && nbytes == 0)
        run->input_ended = true;
    else if (kind == RUN_FRAME_INPUT && run->input.fd >= 0)
        choir_run_queue_put(&run->input, payload, nbytes);
    else if (kind == RUN_FRAME_ASK)
        choir_run_stop(run, RUN_SIGNALLED, EXIT_SIGNAL_BASE + sig, 0, sig);
    else if (kind == RUN_FRAME_KILL)
        choir_run_kill(run);
}

static void take_frames(struct run *run)
{
    struct run_queue *queue = &run->control;

    while (queue->used >= RUN_FRAME_HEAD) {
        const unsigned char *head = (const unsigned char *)queue->bytes + queue->head;
        size_t nbytes = choir_run_frame_size(head);

        if (queue->used < RUN_FRAME_HEAD + nbytes)
            return;
        on_frame(run, head[0], (const char *)head + RUN_FRAME_HEAD, nbytes);
        queue->head += RUN_FRAME_HEAD + nbytes;
        queue->used -= RUN_FRAME_HEAD + nbytes;
    }
}

/* From the launcher that started us. If it is gone, so is the reason for this run. */
static void on_control(struct run *run, short revents)
{
    char bytes[READ_NBYTES];
    ssize_t got = -1;

    if ((revents & POLLIN) != 0) {
        got = read(run->control.fd, bytes, sizeof(bytes));
        if (got > 0 && choir_run_queue_put(&run->control, bytes, (size_t)got))
            take_frames(run);
    }
    if (got > 0 || (got < 0 && (revents & (POLLHUP | POLLERR)) == 0))
        return;
    run->control.fd = -1; /* standard input stays open, as nothing else may take its number */
    choir_run_break(run, "the launcher that started this one is gone");
    choir_run_kill(run);
}

/* Our own standard input, for rank 0 on another host. */
static void on_stdin(struct run *run)
{
    char bytes[READ_NBYTES / 2];
    ssize_t got = read(run->stdin_fd, bytes, sizeof(bytes));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (run->controls[0].fd >= 0)
        choir_run_queue_frame(&run->controls[0], RUN_FRAME_INPUT, bytes, got > 0 ? (size_t)got : 0);
    if (got <= 0)
        run->stdin_fd = -1;
}

/* --- what ranks print ---------------------------------------------------------------------------------------- */

static void end_feed(struct run_feed *feed)
{
    choir_run_feed_end(feed);
    close(feed->fd);
    feed->fd = -1;
}

static void on_feed(struct run *run, struct run_feed *feed)
{
    char bytes[READ_NBYTES];
    ssize_t got = read(feed->fd, bytes, sizeof(bytes));

    if (got < 0 && errno == EINTR)
        return;
    if (got < 0 && errno == EAGAIN && !run->over)
        return;
    if (got <= 0) { /* also when it is empty and nobody of ours is left to write to it */
        end_feed(feed);
        return;
    }
    choir_run_feed_tail(feed, bytes, (size_t)got);
    write_file(run, feed, bytes, (size_t)got);
    if (feed->shown)
        choir_run_feed_take(feed, bytes, (size_t)got, choir_run_now());
}

static void on_closed(struct run *run, const struct run_sink *sink)
{
    if (sink->error == EPIPE || sink->error == EIO) { /* EIO: a terminal that was hung up */
        choir_run_stop(run, RUN_OUTPUT_CLOSED, EXIT_SIGNAL_BASE + SIGPIPE, 0, 0);
        return;
    }
    choir_run_break(run, "cannot write to standard %s: %s", sink == &run->out ? "output" : "error",
                    strerror(sink->error));
}

static void flush(struct run *run)
{
    struct run_sink *sinks[] = { &run->out, &run->err };

    for (int i = 0; i < 2; i++) {
        bool was_open = !sinks[i]->closed;
        size_t before;

        if (sinks[i]->fold != NULL)
            choir_run_fold_flush(sinks[i], &run->style, choir_run_now(), false);
        before = sinks[i]->used;
        choir_run_sink_flush(sinks[i]);
        if (sinks[i]->used < before || run->taken_at == 0 || !run->over)
            run->taken_at = choir_run_now();
        if (was_open && sinks[i]->closed)
            on_closed(run, sinks[i]);
    }
}

/* --- time ----------------------------------------------------------------------------------------------------- */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Who ends a run does not want to wait for a reader who has fallen asleep; otherwise output waits for
 * its reader as long as that takes. */
static bool is_impatient(const struct run *run)
{
    return run->over && (run->cause == RUN_SIGNALLED || run->cause == RUN_TIMED_OUT);
}

static void on_time(struct run *run)
{
    int64_t now = choir_run_now();

    if (run->timeout_at != 0 && now >= run->timeout_at && !run->over)
        choir_run_stop(run, RUN_TIMED_OUT, EXIT_TIMED_OUT, 0, 0);
    if (run->kill_at != 0 && now >= run->kill_at && !run->over)
        choir_run_kill(run);
    if (is_impatient(run) && now >= run->taken_at + GIVE_UP_MS)
        run->given_up = true;
    for (int i = 0; i < 2 * run->job.count; i++)
        choir_run_feed_tick(&run->feeds[i], now);
}

static int patience(const struct run *run)
{
    int64_t now = choir_run_now(), next = INT64_MAX;

    if (run->timeout_at != 0 && run->cause == RUN_FINE)
        next = min64(next, run->timeout_at);
    if (run->kill_at != 0 && !run->killed)
        next = min64(next, run->kill_at);
    if (is_impatient(run))
        next = min64(next, run->taken_at + GIVE_UP_MS);
    if (run->out.fold != NULL)
        next = min64(next, choir_run_fold_due(run->out.fold));
    if (run->err.fold != NULL)
        next = min64(next, choir_run_fold_due(run->err.fold));
    for (int i = 0; i < 2 * run->job.count; i++) {
        if (run->feeds[i].fd >= 0)
            next = min64(next, choir_run_feed_due(&run->feeds[i], now));
    }
    if (next == INT64_MAX)
        return -1;
    return next <= now ? 0 : (int)min64(next - now, 60000);
}

/* --- the loop -------------------------------------------------------------------------------------------------- */

enum {
    SLOT_SIGNALS,
    SLOT_KEEPER,
    SLOT_BELL,
    SLOT_CONTROL,
    SLOT_INPUT,
    SLOT_STDIN,
    SLOT_OUT,
    SLOT_ERR,
    NSLOTS
};

static struct pollfd slot(int fd, short events)
{
    return (struct pollfd){ .fd = fd, .events = events };
}

/* May its bytes be read now without breaking a line that another has begun? */
static bool has_its_turn(const struct run_feed *feed, int64_t now)
{
    return feed->fd >= 0 && (!feed->shown || feed->sink->closed || choir_run_feed_ready(feed, now));
}

/*
 * Is it looked at at all? Room is asked for here, before a look, of all alike: asked for again while they are
 * read, the first one would take the room of every look and a slow reader would see nothing of the others.
 */
static bool is_wanted(const struct run_feed *feed, int64_t now)
{
    bool has_room = !feed->shown || feed->sink->closed || feed->sink->used < RUN_SINK_FULL;

    return has_room && has_its_turn(feed, now);
}

/* First the fixed slots, then one for each feed, then one for each control. */
static int fill(const struct run *run, struct pollfd *fds)
{
    int64_t now = choir_run_now();
    int count = run->job.count, n = NSLOTS;

    fds[SLOT_SIGNALS] = slot(run->signals, POLLIN);
    fds[SLOT_KEEPER] = slot(run->keeper, POLLIN);
    fds[SLOT_BELL] = slot(run->settled ? -1 : run->bell, POLLIN);
    fds[SLOT_CONTROL] = slot(run->control.fd, run->input.used < INPUT_FULL ? POLLIN : 0);
    fds[SLOT_INPUT] = slot(run->input.used > 0 ? run->input.fd : -1, POLLOUT);
    fds[SLOT_STDIN] = slot(
        run->controls != NULL && run->controls[0].used < INPUT_FULL ? run->stdin_fd : -1, POLLIN);
    fds[SLOT_OUT] = slot(run->out.used > 0 && !run->out.closed ? run->out.fd : -1, POLLOUT);
    fds[SLOT_ERR] = slot(run->err.used > 0 && !run->err.closed ? run->err.fd : -1, POLLOUT);
    for (int i = 0; i < 2 * count; i++) {
        const struct run_feed *feed = &run->feeds[i];

        fds[n++] = slot(is_wanted(feed, now) ? feed->fd : -1, POLLIN);
    }
    for (int i = 0; run->controls != NULL && i < count; i++)
        fds[n++] = slot(run->controls[i].used > 0 ? run->controls[i].fd : -1, POLLOUT);
    return n;
}

static void handle_feeds(struct run *run, const struct pollfd *fds)
{
    int64_t now = choir_run_now();

    for (int i = 0; i < 2 * run->job.count; i++) {
        bool has_news = fds[i].revents != 0 || (run->over && fds[i].fd >= 0);

        /* Asked again, as one that was read before it may have opened a line that this would break. */
        if (has_news && has_its_turn(&run->feeds[i], now))
            on_feed(run, &run->feeds[i]);
    }
}

static void handle(struct run *run, const struct pollfd *fds)
{
    int count = run->job.count;

    if (fds[SLOT_SIGNALS].revents != 0)
        on_signal(run);
    if (fds[SLOT_CONTROL].revents != 0)
        on_control(run, fds[SLOT_CONTROL].revents);
    /* Before the keeper's news: what a rank printed comes before the news of its end. */
    handle_feeds(run, fds + NSLOTS);
    if (fds[SLOT_KEEPER].revents != 0)
        on_keeper(run);
    if (fds[SLOT_BELL].revents != 0)
        on_news(run);
    if (fds[SLOT_STDIN].revents != 0)
        on_stdin(run);
    if (run->input.used > 0)
        choir_run_queue_send(&run->input);
    if (run->input_ended && run->input.used == 0)
        choir_run_queue_close(&run->input);
    for (int i = 0; run->controls != NULL && i < count; i++)
        choir_run_queue_send(&run->controls[i]);
}

static bool is_finished(const struct run *run)
{
    if (run->given_up)
        return true;
    if (!run->over || (run->out.used > 0 && !run->out.closed) ||
        (run->err.used > 0 && !run->err.closed))
        return false;
    if (run->link != NULL && run->going && !run->settled)
        return false;
    for (int i = 0; i < 2 * run->job.count; i++) {
        if (run->feeds[i].fd >= 0)
            return false;
    }
    return true;
}

/* Write what is left; waits for a slow reader, unless somebody is impatient. */
static void finish_output(struct run *run)
{
    struct run_sink *sinks[] = { &run->out, &run->err };

    for (int i = 0; i < 2; i++) {
        if (sinks[i]->fold != NULL)
            choir_run_fold_flush(sinks[i], &run->style, 0, true);
    }
    choir_run_summary(run);
    for (int i = 0; i < 2; i++) {
        choir_run_sink_flush(sinks[i]);
        while (sinks[i]->used > 0 && !sinks[i]->closed && !run->given_up) {
            struct pollfd fds[2] = { slot(sinks[i]->fd, POLLOUT), slot(run->signals, POLLIN) };

            if (poll(fds, 2, is_impatient(run) ? GIVE_UP_MS : -1) == 0)
                run->given_up = true;
            if (fds[1].revents != 0)
                on_signal(run);
            choir_run_sink_flush(sinks[i]);
        }
    }
}

void choir_run_loop(struct run *run)
{
    int most = NSLOTS + 3 * run->job.count;
    struct pollfd *fds = calloc((size_t)most, sizeof(*fds));

    if (fds == NULL) {
        choir_run_break(run, "no memory for %d descriptors", most);
        choir_run_kill(run);
        return;
    }
    while (!is_finished(run)) {
        int n = fill(run, fds);

        if (poll(fds, (nfds_t)n, run->over ? 10 : patience(run)) < 0 && errno != EINTR)
            break;
        handle(run, fds);
        on_time(run);
        flush(run);
    }
    free(fds);
    finish_output(run);
}
