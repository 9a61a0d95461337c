/*
 * run_control.c - how `choir run --hosts` talks to the launchers it starts, through their input.
 *
 * Frames: a letter, the payload's length (four bytes, little-endian), the payload. First the folder,
 * the token and the arguments, so that a remote shell has nothing to expand and nobody else anything to
 * see; then where the store is, rank 0's input, and the wish to end. When the channel closes, the one
 * who asked for the run is gone, and everything ends.
 */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void choir_run_frame_head(unsigned char head[RUN_FRAME_HEAD], enum run_frame_kind kind,
                          size_t nbytes)
{
    head[0] = (unsigned char)kind;
    for (int i = 0; i < 4; i++)
        head[1 + i] = (unsigned char)(nbytes >> (8 * i));
}

size_t choir_run_frame_size(const unsigned char head[RUN_FRAME_HEAD])
{
    return (size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
}

/* --- sending ------------------------------------------------------------------------------------------ */

bool choir_run_queue_put(struct run_queue *queue, const void *bytes, size_t nbytes)
{
    size_t size = queue->size;

    if (queue->head > 0) {
        memmove(queue->bytes, queue->bytes + queue->head, queue->used);
        queue->head = 0;
    }
    while (size < queue->used + nbytes)
        size = size * 2 + 4096;
    if (size > queue->size) {
        char *grown = realloc(queue->bytes, size);

        if (grown == NULL)
            return false;
        queue->bytes = grown;
        queue->size = size;
    }
    if (nbytes > 0)
        memcpy(queue->bytes + queue->used, bytes, nbytes);
    queue->used += nbytes;
    return true;
}

bool choir_run_queue_frame(struct run_queue *queue, enum run_frame_kind kind, const void *bytes,
                           size_t nbytes)
{
    unsigned char head[RUN_FRAME_HEAD];

    choir_run_frame_head(head, kind, nbytes);
    return choir_run_queue_put(queue, head, sizeof(head)) &&
           choir_run_queue_put(queue, bytes, nbytes);
}

void choir_run_queue_close(struct run_queue *queue)
{
    if (queue->fd >= 0)
        close(queue->fd);
    free(queue->bytes);
    *queue = (struct run_queue){ .fd = -1 };
}

void choir_run_queue_send(struct run_queue *queue)
{
    while (queue->fd >= 0 && queue->used > 0) {
        ssize_t done = write(queue->fd, queue->bytes + queue->head, queue->used);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN)
            return;
        if (done < 0) {
            choir_run_queue_close(queue);
            return;
        }
        queue->head += (size_t)done;
        queue->used -= (size_t)done;
    }
}

/* --- the first frames, at the other end ------------------------------------------------------------------ */

static bool read_all(void *out, size_t nbytes)
{
    char *at = out;

    while (nbytes > 0) {
        ssize_t got = read(STDIN_FILENO, at, nbytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        nbytes -= (size_t)got;
    }
    return true;
}

/* A frame of this kind, with a NUL behind it; NULL if something else came. */
static char *read_frame(enum run_frame_kind kind, size_t *nbytes_out)
{
    unsigned char head[RUN_FRAME_HEAD];
    char *payload;
    size_t nbytes;

    if (!read_all(head, sizeof(head)) || head[0] != (unsigned char)kind)
        return NULL;
    nbytes = choir_run_frame_size(head);
    if (nbytes > RUN_FRAME_MAX)
        return NULL;
    payload = malloc(nbytes + 1);
    if (payload == NULL || !read_all(payload, nbytes)) {
        free(payload);
        return NULL;
    }
    payload[nbytes] = '\0';
    *nbytes_out = nbytes;
    return payload;
}

int choir_run_control_begin(char **args_out, size_t *args_nbytes_out, choir_token *token_out)
{
    size_t nbytes;
    char *folder = read_frame(RUN_FRAME_FOLDER, &nbytes), *token = NULL;
    int rc = -1;

    if (folder != NULL)
        token = read_frame(RUN_FRAME_TOKEN, &nbytes);
    if (token != NULL && nbytes == sizeof(token_out->bytes))
        *args_out = read_frame(RUN_FRAME_ARGS, args_nbytes_out);
    if (*args_out == NULL) {
        fprintf(stderr,
                "choir run: --controlled is for choir run --hosts, which did not write to us\n");
    } else if (chdir(folder) != 0) {
        fprintf(stderr, "choir run: cannot change to folder \"%s\": %s\n", folder, strerror(errno));
    } else {
        memcpy(token_out->bytes, token, sizeof(token_out->bytes));
        rc = 0;
    }
    free(folder);
    free(token);
    return rc;
}
