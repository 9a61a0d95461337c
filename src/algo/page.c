/* page.c - see page.h. */
#include "algo/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* Room for `more` bytes and a NUL. */
static bool make_room(struct ch_page *page, size_t more)
{
    size_t room = page->room == 0 ? 4096 : page->room;
    char *data;

    while (room < page->used + more + 1)
        room *= 2;
    if (room == page->room)
        return true;
    if (room > CH_PAGE_MAX) {
        page->failure = CHOIR_ERR_INVALID;
        return false;
    }
    data = ch_regrow(page->data, room, 1);
    if (data == NULL) {
        page->failure = CHOIR_ERR_NOMEM;
        return false;
    }
    page->data = data;
    page->room = room;
    return true;
}

void ch_page_put(struct ch_page *page, const char *fmt, ...)
{
    va_list args, again;
    int n;

    if (page->failure != CHOIR_OK)
        return;
    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    if (n >= 0 && make_room(page, (size_t)n)) {
        vsnprintf(page->data + page->used, (size_t)n + 1, fmt, again);
        page->used += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void ch_page_put_xml(struct ch_page *page, const char *text)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "<>&\"");

        ch_page_put(page, "%.*s", (int)plain, text);
        text += plain;
        if (*text == '\0')
            break;
        ch_page_put(page, *text == '<'   ? "&lt;"
                          : *text == '>' ? "&gt;"
                          : *text == '&' ? "&amp;"
                                         : "&quot;");
        text++;
    }
}

choir_status ch_page_end(struct ch_page *page, char **text_out)
{
    char *data;

    ch_page_put(page, "%s", ""); /* an empty page is a text too */
    data = page->data;
    if (page->failure != CHOIR_OK) {
        ch_free(data);
        if (page->failure == CHOIR_ERR_NOMEM)
            return ch_fail(CHOIR_ERR_NOMEM, "no memory for a text of more than %zu bytes",
                           page->used);
        return ch_fail(page->failure, "the text would have more than %d bytes", CH_PAGE_MAX);
    }
    *text_out = data;
    return CHOIR_OK;
}
