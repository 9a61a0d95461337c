/* bytes.c - see bytes.h. */
#include "store/bytes.h"

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"

choir_status ch_blob_init(choir_blob *blob, const void *data, size_t nbytes)
{
    char *copy = nbytes < SIZE_MAX ? ch_alloc(nbytes + 1) : NULL;

    if (copy == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for a value of %zu bytes", nbytes);
    if (nbytes > 0)
        memcpy(copy, data, nbytes);
    copy[nbytes] = '\0';
    *blob = (choir_blob){ copy, nbytes };
    return CHOIR_OK;
}

const char *ch_bytes_text(choir_bytes bytes, char text[CH_BYTES_TEXT_MAX])
{
    const unsigned char *from = bytes.data;
    size_t used = 0, i = 0;

    for (; i < bytes.nbytes && used + 8 < CH_BYTES_TEXT_MAX; i++) {
        bool plain = from[i] >= ' ' && from[i] < 0x7f && from[i] != '"' && from[i] != '\\';

        used += (size_t)snprintf(text + used, CH_BYTES_TEXT_MAX - used, plain ? "%c" : "\\x%02x",
                                 from[i]);
    }
    snprintf(text + used, CH_BYTES_TEXT_MAX - used, "%s", i < bytes.nbytes ? "..." : "");
    return text;
}

void choir_blob_free(choir_blob *blob)
{
    ch_free(blob->data);
    *blob = (choir_blob){ NULL, 0 };
}

void choir_blob_free_list(choir_blob *list, size_t count)
{
    for (size_t i = 0; list != NULL && i < count; i++)
        choir_blob_free(&list[i]);
    ch_free(list);
}
