/*
 * page.h - text that grows while it is written. A failure is remembered and told at the end.
 */
#ifndef CH_PAGE_H
#define CH_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>

#include "base/compiler.h"

enum { CH_PAGE_MAX = 64 << 20 };

/* Zeroed is empty. */
struct ch_page {
    char *data;
    size_t used, room;
    choir_status failure;
};

void ch_page_put(struct ch_page *page, const char *fmt, ...) CH_PRINTF(2, 3);

/* `text` with what XML does not take as it is. */
void ch_page_put_xml(struct ch_page *page, const char *text);

/* *text_out ends with ch_free(). Ends the page, also on failure. */
choir_status ch_page_end(struct ch_page *page, char **text_out);

#endif
