/*
 * run_output.c - the launcher's standard output and error: queued here, written as they take it.
 *
 * Nothing in the launcher may wait for a reader: a rank's death, a time-out or Ctrl-C must be noticed
 * also while somebody has paused `less`. So pipes and terminals are opened a second time, without
 * blocking, which leaves the description we share with others as it is. Sockets have a flag for it, and
 * files do not block. Who calls reads less from ranks when the queue is full (RUN_SINK_FULL).
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool wants_color(bool terminal, enum run_choice color)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (color != RUN_AUTO)
        return color == RUN_YES;
    return terminal && (no == NULL || no[0] == '\0') && (term == NULL || strcmp(term, "dumb") != 0);
}

void choir_run_sink_init(struct run_sink *sink, int fd, enum run_choice color)
{
    struct stat st;
    char path[32];
    int own = -1;

    *sink = (struct run_sink){ .fd = fd, .terminal = isatty(fd) == 1 };
    sink->color = wants_color(sink->terminal, color);
    if (fstat(fd, &st) != 0)
        return;
    sink->is_socket = S_ISSOCK(st.st_mode);
    if (S_ISFIFO(st.st_mode) || sink->terminal) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    if (own >= 0) {
        sink->fd = own;
        sink->owns_fd = true;
    }
}

void choir_run_sink_fini(struct run_sink *sink)
{
    if (sink->owns_fd)
        close(sink->fd);
    choir_run_fold_destroy(sink->fold);
    free(sink->bytes);
    *sink = (struct run_sink){ .fd = -1, .closed = true };
}

/* Room for `more` bytes behind those that are there. */
static bool make_room(struct run_sink *sink, size_t more)
{
    size_t size = sink->size;
    char *grown;

    if (sink->head > 0) {
        memmove(sink->bytes, sink->bytes + sink->head, sink->used);
        sink->head = 0;
    }
    while (size < sink->used + more)
        size = size * 2 + 65536;
    grown = realloc(sink->bytes, size);
    if (grown == NULL)
        return false;
    sink->bytes = grown;
    sink->size = size;
    return true;
}

void choir_run_sink_put(struct run_sink *sink, const void *bytes, size_t nbytes)
{
    if (sink->closed || nbytes == 0)
        return;
    if (sink->head + sink->used + nbytes > sink->size && !make_room(sink, nbytes)) {
        sink->closed = true;
        sink->error = ENOMEM;
        return;
    }
    memcpy(sink->bytes + sink->head + sink->used, bytes, nbytes);
    sink->used += nbytes;
}

/* Should the second opening not have worked: a pipe or terminal that says it is ready takes so much. */
static ssize_t write_some(struct run_sink *sink)
{
    const char *bytes = sink->bytes + sink->head;
    struct pollfd ready = { .fd = sink->fd, .events = POLLOUT };

    if (sink->is_socket)
        return send(sink->fd, bytes, sink->used, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sink->owns_fd)
        return write(sink->fd, bytes, sink->used);
    if (poll(&ready, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(sink->fd, bytes, sink->used < 4096 ? sink->used : 4096);
}

void choir_run_sink_flush(struct run_sink *sink)
{
    while (sink->used > 0 && !sink->closed) {
        ssize_t done = write_some(sink);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN)
            return;
        if (done < 0) {
            sink->closed = true;
            sink->error = errno;
            sink->used = sink->head = 0;
            return;
        }
        sink->head += (size_t)done;
        sink->used -= (size_t)done;
    }
    if (sink->used == 0)
        sink->head = 0;
}
