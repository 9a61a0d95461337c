/*
 * trace_json.h - JSON as a tree, for `choir trace`, which reads files that others may have written or cut short.
 */
#ifndef CHOIR_TRACE_JSON_H
#define CHOIR_TRACE_JSON_H

#include <stddef.h>
#include <stdint.h>

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_MAP };

struct json {
    enum json_kind kind;
    int64_t number;            /* cut off if it has a fraction; the nearest if it does not fit */
    const char *text;          /* JSON_TEXT; UTF-8, up to its first NUL */
    const char *key;           /* in a map */
    struct json *first, *next; /* what is in it; the one behind it */
};

struct json_file; /* owns a tree */

/* NULL if it is not JSON; the reason, with its place, is in `why`. The text is copied. */
struct json_file *json_parse(const char *text, size_t nbytes, char *why, size_t why_size);
const struct json *json_root(const struct json_file *file);
void json_free(struct json_file *file); /* accepts NULL */

/* What a map has under a key: NULL if there is none of that kind, or `map` is NULL or no map. */
const struct json *json_get(const struct json *map, const char *key, enum json_kind kind);
const char *json_get_text(const struct json *map, const char *key); /* NULL */
int64_t json_get_number(const struct json *map, const char *key, int64_t otherwise);

#endif
