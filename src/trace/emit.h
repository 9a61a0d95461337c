/*
 * emit.h - a document of dictionaries, lists and values, written as JSON or as a Python pickle (protocol 2).
 *
 *   ch_emit_dict(&emit);
 *   ch_emit_key(&emit, "version");
 *   ch_emit_text(&emit, "2.10");
 *   ch_emit_end(&emit);
 *   rc = ch_emit_finish(&emit, &blob);
 *
 * A failure is remembered and told at the end. Texts are valid UTF-8.
 */
#ifndef CH_EMIT_H
#define CH_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>
#include <choir/store.h>
#include <choir/trace.h>

enum { CH_EMIT_DEPTH_MAX = 16 };

struct ch_emit {
    choir_trace_format format;
    char *data;
    size_t used, room;
    choir_status failure;
    int depth;
    struct {
        char kind;  /* '{', '[' or '(' */
        size_t n;   /* values so far */
        bool keyed; /* a key is waiting for its value */
    } stack[CH_EMIT_DEPTH_MAX];
};

void ch_emit_init(struct ch_emit *emit, choir_trace_format format);

void ch_emit_dict(struct ch_emit *emit);
void ch_emit_list(struct ch_emit *emit);
void ch_emit_tuple(struct ch_emit *emit); /* JSON knows only lists */
void ch_emit_end(struct ch_emit *emit);   /* of whichever was begun last */

void ch_emit_key(struct ch_emit *emit, const char *key);
void ch_emit_text(struct ch_emit *emit, const char *text);
void ch_emit_int(struct ch_emit *emit, int64_t value);
void ch_emit_real(struct ch_emit *emit, double value);
void ch_emit_bool(struct ch_emit *emit, bool value);
void ch_emit_none(struct ch_emit *emit);

/* *out is the caller's, for choir_blob_free(). Ends the document, also on failure. */
choir_status ch_emit_finish(struct ch_emit *emit, choir_blob *out);

#endif
