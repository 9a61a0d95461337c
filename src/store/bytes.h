/*
 * bytes.h - the bytes of a store: making the blobs that it hands out, and showing them in texts. The
 * types are in choir/store.h.
 */
#ifndef CH_BYTES_H
#define CH_BYTES_H

#include <choir/store.h>

choir_status ch_blob_init(choir_blob *blob, const void *data, size_t nbytes);

/* Bytes may be anything, and come from anybody; a line of an error or a log should not. What is not
 * plain text is written as \x and two digits, what is long ends in "...". Returns `text`. */
enum { CH_BYTES_TEXT_MAX = 64 };
const char *ch_bytes_text(choir_bytes bytes, char text[CH_BYTES_TEXT_MAX]);

#endif
