/*
 * bytes.h - making the blobs that a store hands out. The types are in choir/store.h.
 */
#ifndef CH_BYTES_H
#define CH_BYTES_H

#include <choir/store.h>

choir_status ch_blob_init(choir_blob *blob, const void *data, size_t nbytes);

#endif
