/*
 * trace_json.c - see trace_json.h. Strict (RFC 8259) but for bytes that are not UTF-8, which pass as they are.
 */
#include "trace_json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, BLOCK_NODES = 1024 };

/* Nodes come in blocks and go all at once. */
struct block {
    struct block *next;
    struct json nodes[BLOCK_NODES];
};

struct json_file {
    struct block *blocks;
    size_t used; /* of the first block */
    char *text;  /* strings are unescaped where they stand, and end in it */
    struct json *root;
};

struct parser {
    struct json_file *file;
    char *at, *end;
    int depth;
    const char *why; /* what went wrong; NULL: nothing so far */
};

static bool fail(struct parser *p, const char *why)
{
    if (p->why == NULL)
        p->why = why;
    return false;
}

static struct json *new_node(struct parser *p)
{
    struct json_file *file = p->file;

    if (file->blocks == NULL || file->used == BLOCK_NODES) {
        struct block *block = malloc(sizeof(*block));

        if (block == NULL) {
            fail(p, "no memory");
            return NULL;
        }
        block->next = file->blocks;
        file->blocks = block;
        file->used = 0;
    }
    file->blocks->nodes[file->used] = (struct json){ .kind = JSON_NULL };
    return &file->blocks->nodes[file->used++];
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool take(struct parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* --- strings ---------------------------------------------------------------------------------------- */

static bool parse_hex(struct parser *p, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = p->at < p->end ? *p->at : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return fail(p, "four hexadecimal digits are expected behind \\u");
        *out = *out * 16 + (unsigned)digit;
        p->at++;
    }
    return true;
}

/* Never longer than the escape it stands for. */
static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

/* Behind "\u". Two surrogates are one character; one alone is none. */
static bool parse_unicode(struct parser *p, char **to)
{
    unsigned c, low;

    if (!parse_hex(p, &c))
        return false;
    if (c >= 0xd800 && c <= 0xdfff) {
        if (c > 0xdbff || p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u')
            return fail(p, "half a surrogate pair");
        p->at += 2;
        if (!parse_hex(p, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(p, "half a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, c);
    return true;
}

static bool parse_escape(struct parser *p, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *found;
    char c;

    if (p->at == p->end)
        return fail(p, "a string does not end");
    c = *p->at++;
    if (c == 'u')
        return parse_unicode(p, to);
    found = c != '\0' ? strchr(from, c) : NULL;
    if (found == NULL)
        return fail(p, "an escape that JSON does not have");
    *(*to)++ = into[found - from];
    return true;
}

static bool parse_string(struct parser *p, const char **out)
{
    char *to;

    if (!take(p, '"'))
        return fail(p, "a string is expected");
    *out = to = p->at;
    while (p->at < p->end && *p->at != '"') {
        if ((unsigned char)*p->at < 0x20)
            return fail(p, "a control character in a string");
        if (*p->at != '\\') {
            *to++ = *p->at++;
            continue;
        }
        p->at++;
        if (!parse_escape(p, &to))
            return false;
    }
    if (!take(p, '"'))
        return fail(p, "a string does not end");
    *to = '\0'; /* where the quote was, or before it */
    return true;
}

/* --- numbers and words ------------------------------------------------------------------------------ */

static bool is_digit(const struct parser *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static bool skip_digits(struct parser *p)
{
    if (!is_digit(p))
        return fail(p, "a digit is expected");
    while (is_digit(p))
        p->at++;
    return true;
}

static int64_t to_int64(const char *text)
{
    double real = strtod(text, NULL);

    if (strcspn(text, ".eE") == strspn(text, "-0123456789"))
        return strtoll(text, NULL, 10); /* saturates */
    return real >= 9.2e18 ? INT64_MAX : real <= -9.2e18 ? INT64_MIN : (int64_t)real;
}

static bool parse_number(struct parser *p, struct json *out)
{
    const char *begin = p->at;
    char text[64] = "";
    size_t n;

    take(p, '-');
    if (!take(p, '0') && !skip_digits(p))
        return false;
    if (take(p, '.') && !skip_digits(p))
        return false;
    if (take(p, 'e') || take(p, 'E')) {
        if (!take(p, '+'))
            take(p, '-');
        if (!skip_digits(p))
            return false;
    }
    n = (size_t)(p->at - begin);
    if (n >= sizeof(text))
        return fail(p, "a number of more than 63 characters");
    memcpy(text, begin, n);
    out->kind = JSON_NUMBER;
    out->number = to_int64(text);
    return true;
}

static bool parse_word(struct parser *p, struct json *out)
{
    static const struct {
        const char *word;
        enum json_kind kind;
    } words[] = { { "null", JSON_NULL }, { "false", JSON_FALSE }, { "true", JSON_TRUE } };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i].word);

        if ((size_t)(p->end - p->at) >= n && memcmp(p->at, words[i].word, n) == 0) {
            p->at += n;
            out->kind = words[i].kind;
            return true;
        }
    }
    return fail(p, "a value is expected");
}

/* --- values ----------------------------------------------------------------------------------------- */

static bool parse_value(struct parser *p, struct json *out);

static struct json *parse_member(struct parser *p, enum json_kind kind)
{
    struct json *member = new_node(p);

    if (member == NULL)
        return NULL;
    skip_space(p);
    if (kind == JSON_MAP) {
        if (!parse_string(p, &member->key))
            return NULL;
        skip_space(p);
        if (!take(p, ':')) {
            fail(p, "a colon is expected");
            return NULL;
        }
    }
    return parse_value(p, member) ? member : NULL;
}

/* Behind the opening bracket. */
static bool parse_members(struct parser *p, struct json *out, enum json_kind kind, char close)
{
    struct json **last = &out->first;

    out->kind = kind;
    if (++p->depth > DEPTH_MAX)
        return fail(p, "nested deeper than 64 levels");
    skip_space(p);
    if (!take(p, close)) {
        do {
            *last = parse_member(p, kind);
            if (*last == NULL)
                return false;
            last = &(*last)->next;
            skip_space(p);
        } while (take(p, ','));
        if (!take(p, close))
            return fail(p, close == '}' ? "a comma or } is expected" : "a comma or ] is expected");
    }
    p->depth--;
    return true;
}

static bool parse_value(struct parser *p, struct json *out)
{
    skip_space(p);
    if (take(p, '{'))
        return parse_members(p, out, JSON_MAP, '}');
    if (take(p, '['))
        return parse_members(p, out, JSON_LIST, ']');
    if (p->at < p->end && *p->at == '"') {
        out->kind = JSON_TEXT;
        return parse_string(p, &out->text);
    }
    if (p->at < p->end && (*p->at == '-' || is_digit(p)))
        return parse_number(p, out);
    return parse_word(p, out);
}

static bool parse_document(struct parser *p)
{
    p->file->root = new_node(p);
    if (p->file->root == NULL || !parse_value(p, p->file->root))
        return false;
    skip_space(p);
    return p->at == p->end || fail(p, "there is something behind the end");
}

struct json_file *json_parse(const char *text, size_t nbytes, char *why, size_t why_size)
{
    struct parser p = { .file = calloc(1, sizeof(*p.file)) };

    if (p.file != NULL)
        p.file->text = malloc(nbytes + 1);
    if (p.file == NULL || p.file->text == NULL) {
        json_free(p.file);
        snprintf(why, why_size, "no memory");
        return NULL;
    }
    memcpy(p.file->text, text, nbytes);
    p.file->text[nbytes] = '\0';
    p.at = p.file->text;
    p.end = p.at + nbytes;
    if (parse_document(&p))
        return p.file;
    snprintf(why, why_size, "%s, at byte %zu of %zu", p.why, (size_t)(p.at - p.file->text), nbytes);
    json_free(p.file);
    return NULL;
}

const struct json *json_root(const struct json_file *file)
{
    return file->root;
}

void json_free(struct json_file *file)
{
    if (file == NULL)
        return;
    while (file->blocks != NULL) {
        struct block *next = file->blocks->next;

        free(file->blocks);
        file->blocks = next;
    }
    free(file->text);
    free(file);
}

/* --- looking up ------------------------------------------------------------------------------------- */

const struct json *json_get(const struct json *map, const char *key, enum json_kind kind)
{
    if (map == NULL || map->kind != JSON_MAP)
        return NULL;
    for (const struct json *member = map->first; member != NULL; member = member->next) {
        if (strcmp(member->key, key) == 0)
            return member->kind == kind ? member : NULL;
    }
    return NULL;
}

const char *json_get_text(const struct json *map, const char *key)
{
    const struct json *found = json_get(map, key, JSON_TEXT);

    return found != NULL ? found->text : NULL;
}

int64_t json_get_number(const struct json *map, const char *key, int64_t otherwise)
{
    const struct json *found = json_get(map, key, JSON_NUMBER);

    return found != NULL ? found->number : otherwise;
}
