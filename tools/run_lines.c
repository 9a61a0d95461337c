/*
 * run_lines.c - what a rank prints becomes whole lines with its number in front.
 *
 * A line is printed when its end has come, so that lines of several ranks do not mix; bytes are never
 * changed. Two exceptions, in both of which the line then stands open, others wait, and its rest
 * follows without a second prefix:
 *   - a line longer than LINE_MAX is passed on in pieces;
 *   - on a terminal a beginning is shown after BEGINNING_MS: it may be a question.
 * If another rank has something to print meanwhile, the open line is broken: on a terminal at once,
 * elsewhere after OPEN_MS in which its rank printed nothing, as they may be waiting for each other.
 */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_NBYTES = 1024 * 1024, BEGINNING_MS = 100, OPEN_MS = 5000 };

/* --- prefixes --------------------------------------------------------------------------------------- */

void choir_run_sink_prefix(struct run_sink *sink, const struct run_style *style, const char *ranks,
                           int color_of)
{
    /* Legible on dark and on light ground: no black, no white. */
    static const char colors[][8] = { "\033[36m", "\033[32m", "\033[35m",
                                      "\033[33m", "\033[34m", "\033[31m" };
    enum { NCOLORS = sizeof(colors) / sizeof(colors[0]) };
    char text[64];

    if (!style->prefix)
        return;
    if (sink->color)
        choir_run_sink_put(sink, colors[color_of % NCOLORS], strlen(colors[0]));
    if (style->node >= 0) {
        snprintf(text, sizeof(text), "%d:", style->node);
        choir_run_sink_put(sink, text, strlen(text));
    }
    choir_run_sink_put(sink, ranks, strlen(ranks));
    choir_run_sink_put(sink, ":", 1);
    if (sink->color)
        choir_run_sink_put(sink, "\033[0m", 4);
    choir_run_sink_put(sink, " ", 1);
}

void choir_run_sink_break(struct run_sink *sink)
{
    if (sink->open == NULL)
        return;
    choir_run_sink_put(sink, "\n", 1);
    sink->open = NULL;
}

/* --- printing --------------------------------------------------------------------------------------- */

/* A part of a line, from its beginning if this feed's line does not stand open. */
static void print(struct run_feed *feed, const char *bytes, size_t nbytes, bool ends)
{
    struct run_sink *sink = feed->sink;
    char rank[16];

    if (sink->open != feed) {
        choir_run_sink_break(sink);
        snprintf(rank, sizeof(rank), "%d", feed->rank);
        choir_run_sink_prefix(sink, feed->style, rank, feed->rank);
    }
    choir_run_sink_put(sink, bytes, nbytes);
    if (ends)
        choir_run_sink_put(sink, "\n", 1);
    sink->open = ends ? NULL : feed;
}

/* A whole line, or the end of one. */
static void print_line(struct run_feed *feed, const char *line, size_t nbytes, int64_t now)
{
    struct run_sink *sink = feed->sink;

    if (feed->filter != NULL && feed->filter(feed, line, nbytes))
        return;
    if (sink->fold != NULL && sink->open != feed &&
        choir_run_fold_add(sink, feed, line, nbytes, now))
        return;
    print(feed, line, nbytes, true);
}

/* Print the beginning of a line; its rest will follow. */
static void print_open(struct run_feed *feed)
{
    if (feed->sink->fold != NULL)
        choir_run_fold_flush(feed->sink, feed->style, 0, true);
    print(feed, feed->line, feed->used, false);
    feed->used = 0;
}

/* --- taking bytes ------------------------------------------------------------------------------------ */

static void keep_beginning(struct run_feed *feed, const char *bytes, size_t nbytes)
{
    size_t size = feed->size;

    while (size < feed->used + nbytes)
        size = size * 2 + 256;
    if (size > feed->size) {
        char *grown = realloc(feed->line, size);

        if (grown == NULL) { /* pass it on in pieces: nothing is lost */
            print_open(feed);
            print(feed, bytes, nbytes, false);
            return;
        }
        feed->line = grown;
        feed->size = size;
    }
    memcpy(feed->line + feed->used, bytes, nbytes);
    feed->used += nbytes;
    if (feed->used > LINE_MAX_NBYTES || feed->sink->open == feed)
        print_open(feed);
}

void choir_run_feed_take(struct run_feed *feed, const char *bytes, size_t nbytes, int64_t now)
{
    const char *end = bytes + nbytes;

    feed->last_ms = now;
    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));

        if (newline == NULL) {
            keep_beginning(feed, bytes, (size_t)(end - bytes));
            return;
        }
        if (feed->used > 0) {
            keep_beginning(feed, bytes, (size_t)(newline - bytes));
            print_line(feed, feed->line, feed->used, now);
            feed->used = 0;
        } else {
            print_line(feed, bytes, (size_t)(newline - bytes), now);
        }
        bytes = newline + 1;
    }
}

void choir_run_feed_tail(struct run_feed *feed, const char *bytes, size_t nbytes)
{
    size_t kept;

    if (feed->tail == NULL)
        return;
    if (nbytes > RUN_TAIL) {
        bytes += nbytes - RUN_TAIL;
        nbytes = RUN_TAIL;
    }
    kept = feed->tail_used + nbytes > RUN_TAIL ? RUN_TAIL - nbytes : feed->tail_used;
    memmove(feed->tail, feed->tail + feed->tail_used - kept, kept);
    memcpy(feed->tail + kept, bytes, nbytes);
    feed->tail_used = kept + nbytes;
}

/* A last line without an end gets one, but not where bytes go through as they are: there only if
 * something follows. */
void choir_run_feed_end(struct run_feed *feed)
{
    if (feed->used > 0 && !feed->style->prefix)
        print_open(feed);
    else if (feed->used > 0)
        print_line(feed, feed->line, feed->used, feed->last_ms);
    else if (feed->sink->open == feed && feed->style->prefix)
        choir_run_sink_break(feed->sink);
    feed->used = 0;
    feed->last_ms = INT64_MIN / 2; /* whose line stands open waits for nothing now */
    if (feed->sink->fold != NULL)
        choir_run_fold_leave(feed->sink->fold, feed->local);
}

/* --- time ------------------------------------------------------------------------------------------- */

bool choir_run_feed_ready(const struct run_feed *feed, int64_t now)
{
    const struct run_feed *open = feed->sink->open;

    return open == NULL || open == feed || feed->sink->terminal || now - open->last_ms >= OPEN_MS;
}

int64_t choir_run_feed_due(const struct run_feed *feed, int64_t now)
{
    /* Once only: after that the others are not held up any more. */
    if (feed->sink->open == feed)
        return feed->last_ms + OPEN_MS > now ? feed->last_ms + OPEN_MS : INT64_MAX;
    return feed->used > 0 && feed->sink->terminal ? feed->last_ms + BEGINNING_MS : INT64_MAX;
}

void choir_run_feed_tick(struct run_feed *feed, int64_t now)
{
    if (feed->used > 0 && feed->sink->terminal && feed->sink->open != feed &&
        now >= feed->last_ms + BEGINNING_MS)
        print_open(feed);
}

void choir_run_feed_fini(struct run_feed *feed)
{
    free(feed->line);
    free(feed->tail);
    feed->line = feed->tail = NULL;
}
