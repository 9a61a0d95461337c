/*
 * torch_wire.c - one table of what each command consists of drives parsing and building alike.
 */
#include "store/torch_wire.h"

#include <string.h>

#include "base/compiler.h"
#include "base/error.h"

/* A field: u a u32, i an i64, n a list's count, k the key, v the value, d the desired one. */
static const struct {
    const char *name, *fields, *item;
} forms[CH_TORCH_NCOMMANDS] = {
    [CH_TORCH_VALIDATE] = { "VALIDATE", "u", NULL },
    [CH_TORCH_SET] = { "SET", "kv", NULL },
    [CH_TORCH_COMPARE_SET] = { "COMPARE_SET", "kvd", NULL },
    [CH_TORCH_GET] = { "GET", "k", NULL },
    [CH_TORCH_ADD] = { "ADD", "ki", NULL },
    [CH_TORCH_CHECK] = { "CHECK", "n", "k" },
    [CH_TORCH_WAIT] = { "WAIT", "n", "k" },
    [CH_TORCH_COUNT] = { "GETNUMKEYS", "", NULL },
    [CH_TORCH_DELETE] = { "DELETE_KEY", "k", NULL },
    [CH_TORCH_APPEND] = { "APPEND", "kv", NULL },
    [CH_TORCH_MULTI_GET] = { "MULTI_GET", "n", "k" },
    [CH_TORCH_MULTI_SET] = { "MULTI_SET", "n", "kv" },
    [CH_TORCH_CANCEL_WAIT] = { "CANCEL_WAIT", "", NULL },
    [CH_TORCH_PING] = { "PING", "u", NULL },
    [CH_TORCH_QUEUE_PUSH] = { "QUEUE_PUSH", "kv", NULL },
    [CH_TORCH_QUEUE_POP] = { "QUEUE_POP", "k", NULL },
    [CH_TORCH_QUEUE_LENGTH] = { "QUEUE_LEN", "k", NULL },
    [CH_TORCH_LIST] = { "LIST_KEYS", "", NULL },
    [CH_TORCH_BARRIER] = { "BARRIER", "ki", NULL },
};

bool ch_torch_has_list(enum ch_torch_command command)
{
    return forms[command].item != NULL;
}

const char *ch_torch_command_name(enum ch_torch_command command)
{
    return forms[command].name;
}

/* --- integers ------------------------------------------------------------------------------------- */

static uint64_t get_uint(const unsigned char *bytes, int nbytes)
{
    uint64_t value = 0;

    for (int i = nbytes - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static unsigned char *put_uint(unsigned char *out, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        *out++ = (unsigned char)(value >> 8 * i);
    return out;
}

unsigned char *ch_torch_put_number(unsigned char *out, int64_t number)
{
    return put_uint(out, (uint64_t)number, 8);
}

int64_t ch_torch_number(const unsigned char *bytes)
{
    return (int64_t)get_uint(bytes, 8);
}

/* --- parsing requests ----------------------------------------------------------------------------- */

/* What is left to look at. */
struct cursor {
    enum ch_torch_command command;
    const unsigned char *at;
    size_t left;
};

static choir_status take_uint(struct cursor *from, int nbytes, uint64_t *value_out)
{
    if (from->left < (size_t)nbytes)
        return CHOIR_IN_PROGRESS;
    *value_out = get_uint(from->at, nbytes);
    from->at += nbytes;
    from->left -= (size_t)nbytes;
    return CHOIR_OK;
}

/* The length is judged before its bytes have come. */
static choir_status take_bytes(struct cursor *from, const char *what, size_t max,
                               choir_bytes *bytes_out)
{
    uint64_t nbytes;
    choir_status rc = take_uint(from, 8, &nbytes);

    if (rc != CHOIR_OK)
        return rc;
    if (nbytes > max)
        return ch_fail(CHOIR_ERR_PROTO,
                       "torch: %s with a %s of %llu bytes, at most %zu are allowed",
                       forms[from->command].name, what, (unsigned long long)nbytes, max);
    if (from->left < nbytes)
        return CHOIR_IN_PROGRESS;
    *bytes_out = (choir_bytes){ from->at, (size_t)nbytes };
    from->at += nbytes;
    from->left -= (size_t)nbytes;
    return CHOIR_OK;
}

static choir_status take_count(struct cursor *from, int64_t *count_out)
{
    uint64_t count;
    choir_status rc = take_uint(from, 8, &count);

    if (rc != CHOIR_OK)
        return rc;
    if (count > CH_TORCH_COUNT_MAX)
        return ch_fail(CHOIR_ERR_PROTO, "torch: %s of %llu keys, at most %d are allowed",
                       forms[from->command].name, (unsigned long long)count, CH_TORCH_COUNT_MAX);
    *count_out = (int64_t)count;
    return CHOIR_OK;
}

static choir_status take_number(struct cursor *from, int nbytes, int64_t *number_out)
{
    uint64_t number;
    choir_status rc = take_uint(from, nbytes, &number);

    if (rc == CHOIR_OK)
        *number_out = (int64_t)number;
    return rc;
}

static choir_status take_field(struct cursor *from, char field, struct ch_torch_request *request)
{
    switch (field) {
    case 'u':
        return take_number(from, 4, &request->number);
    case 'i':
        return take_number(from, 8, &request->number);
    case 'n':
        return take_count(from, &request->number);
    case 'k':
        return take_bytes(from, "key", CH_TORCH_KEY_MAX, &request->key);
    case 'v':
        return take_bytes(from, "value", CH_TORCH_VALUE_MAX, &request->value);
    default:
        return take_bytes(from, "value", CH_TORCH_VALUE_MAX, &request->desired);
    }
}

static choir_status take_fields(struct cursor from, const char *fields,
                                struct ch_torch_request *request_out, const unsigned char **end_out)
{
    struct ch_torch_request request = { .command = from.command };

    for (; *fields != '\0'; fields++) {
        choir_status rc = take_field(&from, *fields, &request);

        if (rc != CHOIR_OK)
            return rc;
    }
    *request_out = request;
    *end_out = from.at;
    return CHOIR_OK;
}

choir_status ch_torch_parse(const unsigned char *bytes, size_t nbytes,
                            struct ch_torch_request *request_out, size_t *used_out)
{
    const unsigned char *end;
    struct cursor from;
    choir_status rc;

    if (nbytes == 0)
        return CHOIR_IN_PROGRESS;
    if (bytes[0] >= CH_TORCH_NCOMMANDS)
        return ch_fail(CHOIR_ERR_PROTO, "torch: command byte 0x%02x is unknown", bytes[0]);
    from = (struct cursor){ (enum ch_torch_command)bytes[0], bytes + 1, nbytes - 1 };
    rc = take_fields(from, forms[from.command].fields, request_out, &end);
    if (rc == CHOIR_OK)
        *used_out = (size_t)(end - bytes);
    return rc;
}

choir_status ch_torch_parse_item(enum ch_torch_command command, const unsigned char *bytes,
                                 size_t nbytes, struct ch_torch_request *item_out, size_t *used_out)
{
    const struct cursor from = { command, bytes, nbytes };
    const unsigned char *end;
    choir_status rc = take_fields(from, forms[command].item, item_out, &end);

    if (rc == CHOIR_OK)
        *used_out = (size_t)(end - bytes);
    return rc;
}

/* --- building requests ---------------------------------------------------------------------------- */

static const choir_bytes *bytes_of(const struct ch_torch_request *request, char field)
{
    return field == 'k' ? &request->key : field == 'v' ? &request->value : &request->desired;
}

static size_t size_of_fields(const char *fields, const struct ch_torch_request *request)
{
    size_t nbytes = 0;

    for (; *fields != '\0'; fields++)
        nbytes += *fields == 'u'                     ? 4
                  : *fields == 'i' || *fields == 'n' ? 8
                                                     : 8 + bytes_of(request, *fields)->nbytes;
    return nbytes;
}

static unsigned char *put_bytes(unsigned char *out, const choir_bytes *bytes)
{
    out = put_uint(out, bytes->nbytes, 8);
    if (bytes->nbytes > 0)
        memcpy(out, bytes->data, bytes->nbytes);
    return out + bytes->nbytes;
}

static unsigned char *put_fields(unsigned char *out, const char *fields,
                                 const struct ch_torch_request *request)
{
    for (; *fields != '\0'; fields++) {
        if (*fields == 'u' || *fields == 'i' || *fields == 'n')
            out = put_uint(out, (uint64_t)request->number, *fields == 'u' ? 4 : 8);
        else
            out = put_bytes(out, bytes_of(request, *fields));
    }
    return out;
}

size_t ch_torch_size(const struct ch_torch_request *request)
{
    return 1 + size_of_fields(forms[request->command].fields, request);
}

unsigned char *ch_torch_put(unsigned char *out, const struct ch_torch_request *request)
{
    *out++ = (unsigned char)request->command;
    return put_fields(out, forms[request->command].fields, request);
}

size_t ch_torch_item_size(const struct ch_torch_request *item)
{
    return size_of_fields(forms[item->command].item, item);
}

unsigned char *ch_torch_put_item(unsigned char *out, const struct ch_torch_request *item)
{
    return put_fields(out, forms[item->command].item, item);
}

/* --- replies -------------------------------------------------------------------------------------- */

static choir_status fixed(size_t nbytes, size_t want, size_t *nbytes_out)
{
    *nbytes_out = want;
    return nbytes >= want ? CHOIR_OK : CHOIR_IN_PROGRESS;
}

static choir_status values(struct ch_torch_reply_parser *parser, const unsigned char *bytes,
                           size_t nbytes, size_t *nbytes_out)
{
    for (; parser->values_left > 0; parser->values_left--) {
        uint64_t length;
        size_t end;

        if (nbytes - parser->at < 8)
            return fixed(nbytes, parser->at + 8, nbytes_out);
        length = get_uint(bytes + parser->at, 8);
        if (length > CH_TORCH_REPLY_VALUE_MAX)
            return ch_fail(CHOIR_ERR_PROTO,
                           "torch: a value of %llu bytes in a reply, at most %d are believed",
                           (unsigned long long)length, CH_TORCH_REPLY_VALUE_MAX);
        end = parser->at + 8 + (size_t)length;
        if (nbytes < end)
            return fixed(nbytes, end, nbytes_out);
        parser->at = end;
    }
    return fixed(nbytes, parser->at, nbytes_out);
}

/* A number, and values after it. */
static choir_status counted(struct ch_torch_reply_parser *parser, const unsigned char *bytes,
                            size_t nbytes, size_t *nbytes_out)
{
    if (!parser->is_counted) {
        int64_t count;

        if (nbytes < 8)
            return fixed(nbytes, 8, nbytes_out);
        count = ch_torch_number(bytes);
        if (count < 0)
            return ch_fail(CHOIR_ERR_PROTO, "torch: a count of %lld in a reply", (long long)count);
        parser->values_left = parser->form == CH_TORCH_REPLY_POPPED && count > 0 ? 1
                                                                                 : (size_t)count;
        parser->at = 8;
        parser->is_counted = true;
    }
    return values(parser, bytes, nbytes, nbytes_out);
}

struct ch_torch_reply_parser ch_torch_reply_parser(enum ch_torch_reply form, size_t count)
{
    return (struct ch_torch_reply_parser){ .form = form, .values_left = count };
}

choir_status ch_torch_parse_reply(struct ch_torch_reply_parser *parser, const unsigned char *bytes,
                                  size_t nbytes, size_t *nbytes_out)
{
    switch (parser->form) {
    case CH_TORCH_REPLY_NONE:
        return fixed(nbytes, 0, nbytes_out);
    case CH_TORCH_REPLY_BYTE:
        return fixed(nbytes, 1, nbytes_out);
    case CH_TORCH_REPLY_NONCE:
        return fixed(nbytes, 4, nbytes_out);
    case CH_TORCH_REPLY_NUMBER:
        return fixed(nbytes, 8, nbytes_out);
    case CH_TORCH_REPLY_VALUES:
        return values(parser, bytes, nbytes, nbytes_out);
    case CH_TORCH_REPLY_POPPED:
    case CH_TORCH_REPLY_LIST:
        return counted(parser, bytes, nbytes, nbytes_out);
    case CH_TORCH_REPLY_CANCEL:
        return fixed(nbytes, nbytes > 0 && bytes[0] == CH_TORCH_STOP_WAITING ? 2 : 1, nbytes_out);
    }
    return ch_fail(CHOIR_ERR_STATE, "torch: no such form of reply");
}

choir_bytes ch_torch_next_value(const unsigned char **at_io)
{
    const choir_bytes value = { *at_io + 8, (size_t)get_uint(*at_io, 8) };

    *at_io += 8 + value.nbytes;
    return value;
}
