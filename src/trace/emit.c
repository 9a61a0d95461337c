/*
 * emit.c - see emit.h. Pickles: https://docs.python.org/3/library/pickletools.html names the codes.
 */
#include "trace/emit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/mem.h"

enum { NBYTES_MAX = 1 << 30, NBYTES_FIRST = 1 << 16 };

/* --- bytes ---------------------------------------------------------------------------------------- */

static bool grow(struct ch_emit *emit, size_t more)
{
    size_t room = emit->room > 0 ? emit->room : NBYTES_FIRST;
    char *data;

    while (room < emit->used + more && room <= NBYTES_MAX)
        room *= 2;
    data = room <= NBYTES_MAX ? ch_regrow(emit->data, room, 1) : NULL;
    if (data == NULL) {
        emit->failure = ch_fail(CHOIR_ERR_NOMEM, "flight record: no memory for %zu bytes of it",
                                emit->used + more);
        return false;
    }
    emit->data = data;
    emit->room = room;
    return true;
}

static void put(struct ch_emit *emit, const void *bytes, size_t nbytes)
{
    if (emit->failure != CHOIR_OK)
        return;
    if (nbytes > emit->room - emit->used && !grow(emit, nbytes))
        return;
    memcpy(emit->data + emit->used, bytes, nbytes);
    emit->used += nbytes;
}

static void put_char(struct ch_emit *emit, char c)
{
    put(emit, &c, 1);
}

static void put_word(struct ch_emit *emit, const char *word)
{
    put(emit, word, strlen(word));
}

/* --- JSON ----------------------------------------------------------------------------------------- */

/* How many bytes from `text` on can stand in a string as they are. */
static size_t plain_length(const char *text)
{
    size_t n = 0;

    while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\' && text[n] != 0x7f)
        n++;
    return n;
}

static void json_text(struct ch_emit *emit, const char *text)
{
    put_char(emit, '"');
    for (;;) {
        size_t n = plain_length(text);
        char escape[8];

        put(emit, text, n);
        text += n;
        if (*text == '\0')
            break;
        if (*text == '"' || *text == '\\')
            snprintf(escape, sizeof(escape), "\\%c", *text);
        else
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)*text);
        put_word(emit, escape);
        text++;
    }
    put_char(emit, '"');
}

/* --- pickle --------------------------------------------------------------------------------------- */

static void put_le(struct ch_emit *emit, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        put_char(emit, (char)(value >> (8 * i)));
}

static void pickle_text(struct ch_emit *emit, const char *text)
{
    size_t nbytes = strlen(text);

    put_char(emit, 'X'); /* BINUNICODE */
    put_le(emit, nbytes, 4);
    put(emit, text, nbytes);
}

static void pickle_int(struct ch_emit *emit, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        put_char(emit, 'J'); /* BININT */
        put_le(emit, (uint64_t)value, 4);
    } else {
        put_word(emit, "\x8a\x08"); /* LONG1 of 8 bytes */
        put_le(emit, (uint64_t)value, 8);
    }
}

static void pickle_real(struct ch_emit *emit, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put_char(emit, 'G'); /* BINFLOAT, the highest byte first */
    for (int i = 7; i >= 0; i--)
        put_char(emit, (char)(bits >> (8 * i)));
}

/* --- documents ------------------------------------------------------------------------------------ */

static bool is_json(const struct ch_emit *emit)
{
    return emit->format == CHOIR_TRACE_JSON;
}

void ch_emit_init(struct ch_emit *emit, choir_trace_format format)
{
    *emit = (struct ch_emit){ .format = format };
    if (!is_json(emit))
        put_word(emit, "\x80\x02"); /* PROTO 2 */
}

/* Before a value: what separates it from the one in front. Entries stand on lines of their own. */
static void begin_value(struct ch_emit *emit)
{
    int top = emit->depth - 1;

    if (top < 0)
        return;
    ch_assert(emit->stack[top].kind != '{' || emit->stack[top].keyed);
    if (emit->stack[top].keyed)
        emit->stack[top].keyed = false;
    else if (is_json(emit) && emit->stack[top].n > 0)
        put_word(emit, emit->depth <= 2 ? ",\n" : ", ");
    emit->stack[top].n++;
}

static void open_level(struct ch_emit *emit, char kind)
{
    begin_value(emit);
    ch_assert(emit->depth < CH_EMIT_DEPTH_MAX);
    emit->stack[emit->depth].kind = kind;
    emit->stack[emit->depth].n = 0;
    emit->stack[emit->depth].keyed = false;
    emit->depth++;
}

void ch_emit_dict(struct ch_emit *emit)
{
    open_level(emit, '{');
    put_word(emit, is_json(emit) ? "{" : "}("); /* EMPTY_DICT MARK */
}

void ch_emit_list(struct ch_emit *emit)
{
    open_level(emit, '[');
    put_word(emit, is_json(emit) ? "[" : "]("); /* EMPTY_LIST MARK */
}

void ch_emit_tuple(struct ch_emit *emit)
{
    open_level(emit, '(');
    put_word(emit, is_json(emit) ? "[" : "("); /* MARK */
}

void ch_emit_end(struct ch_emit *emit)
{
    char kind;

    ch_assert(emit->depth > 0);
    kind = emit->stack[--emit->depth].kind;
    if (is_json(emit))
        put_char(emit, kind == '{' ? '}' : ']');
    else
        put_char(emit, kind == '{' ? 'u' : kind == '[' ? 'e' : 't'); /* SETITEMS, APPENDS, TUPLE */
}

void ch_emit_key(struct ch_emit *emit, const char *key)
{
    int top = emit->depth - 1;

    ch_assert(top >= 0 && emit->stack[top].kind == '{' && !emit->stack[top].keyed);
    if (is_json(emit)) {
        if (emit->stack[top].n > 0)
            put_word(emit, emit->depth == 1 ? ",\n" : ", ");
        json_text(emit, key);
        put_word(emit, ": ");
    } else {
        pickle_text(emit, key);
    }
    emit->stack[top].keyed = true;
}

void ch_emit_text(struct ch_emit *emit, const char *text)
{
    begin_value(emit);
    if (is_json(emit))
        json_text(emit, text);
    else
        pickle_text(emit, text);
}

void ch_emit_int(struct ch_emit *emit, int64_t value)
{
    char text[32];

    begin_value(emit);
    snprintf(text, sizeof(text), "%lld", (long long)value);
    if (is_json(emit))
        put_word(emit, text);
    else
        pickle_int(emit, value);
}

void ch_emit_real(struct ch_emit *emit, double value)
{
    char text[40];

    begin_value(emit);
    if (!is_json(emit)) {
        pickle_real(emit, value);
        return;
    }
    /* Milliseconds to the nanosecond. A program's locale may have put a comma there. */
    snprintf(text, sizeof(text), "%.6f", value);
    for (char *p = text; *p != '\0'; p++) {
        if (*p == ',')
            *p = '.';
    }
    put_word(emit, text);
}

void ch_emit_bool(struct ch_emit *emit, bool value)
{
    begin_value(emit);
    if (is_json(emit))
        put_word(emit, value ? "true" : "false");
    else
        put_char(emit, value ? '\x88' : '\x89'); /* NEWTRUE, NEWFALSE */
}

void ch_emit_none(struct ch_emit *emit)
{
    begin_value(emit);
    put_word(emit, is_json(emit) ? "null" : "N");
}

choir_status ch_emit_finish(struct ch_emit *emit, choir_blob *out)
{
    choir_status rc;

    put_char(emit, is_json(emit) ? '\n' : '.'); /* STOP */
    put_char(emit, '\0');
    rc = emit->failure;
    if (rc == CHOIR_OK) {
        ch_assert(emit->depth == 0);
        *out = (choir_blob){ emit->data, emit->used - 1 };
        emit->data = NULL;
    }
    ch_free(emit->data);
    emit->data = NULL;
    return rc;
}
