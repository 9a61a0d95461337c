/*
 * bytes.h - byte strings as a store takes and gives them.
 *
 * Keys and values may be empty and may hold NUL bytes, so each carries its length.
 */
#ifndef CH_BYTES_H
#define CH_BYTES_H

#include <stddef.h>
#include <string.h>

#include <choir/status.h>

/* Bytes that belong to the caller; borrowed for the call. */
struct ch_bytes {
    const void *data;
    size_t nbytes;
};

static inline struct ch_bytes ch_bytes_of(const char *text)
{
    return (struct ch_bytes){ text, strlen(text) };
}

/* Bytes that are handed out, to end with ch_blob_fini(). A NUL stands behind them, not counted, so
 * that text can be printed. */
struct ch_blob {
    char *data;
    size_t nbytes;
};

choir_status ch_blob_init(struct ch_blob *blob, const void *data, size_t nbytes);
void ch_blob_fini(struct ch_blob *blob);

#endif
