/* wire.c - see wire.h. */
#include "store/wire.h"

#include "base/assert.h"
#include "base/compiler.h"
#include "base/error.h"

/* How many items a request must have: exactly `nitems`, or at least so many in groups of `per`. */
static const struct {
    const char *name;
    uint32_t nitems, per;
} ops[CH_NOPS] = {
    [CH_OP_SET] = { "set", 2, 0 },
    [CH_OP_GET] = { "get", 1, 0 },
    [CH_OP_ADD] = { "add", 1, 0 },
    [CH_OP_COMPARE_SET] = { "compare_set", 3, 0 },
    [CH_OP_APPEND] = { "append", 2, 0 },
    [CH_OP_REMOVE] = { "delete", 1, 0 },
    [CH_OP_MULTI_GET] = { "multi_get", 0, 1 },
    [CH_OP_MULTI_SET] = { "multi_set", 0, 2 },
    [CH_OP_CHECK] = { "check", 0, 1 },
    [CH_OP_WAIT] = { "wait", 0, 1 },
    [CH_OP_COUNT] = { "count", 0, 0 },
    [CH_OP_LIST] = { "list", 0, 0 },
    [CH_OP_PUSH] = { "queue_push", 2, 0 },
    [CH_OP_POP] = { "queue_pop", 1, 0 },
    [CH_OP_TRY_POP] = { "queue_try_pop", 1, 0 },
    [CH_OP_LENGTH] = { "queue_length", 1, 0 },
    [CH_OP_BARRIER] = { "barrier", 1, 0 },
    [CH_OP_CANCEL] = { "cancel", 0, 0 },
    [CH_OP_PING] = { "ping", 0, 0 },
};

const char *ch_op_name(uint32_t op)
{
    return op < CH_NOPS && ops[op].name != NULL ? ops[op].name : "unknown";
}

void ch_wire_put_head(unsigned char out[CH_WIRE_HEAD_NBYTES], const struct ch_wire_head *head)
{
    ch_put32(out, head->body_nbytes);
    ch_put32(out + 4, head->id);
    ch_put32(out + 8, head->code);
    ch_put32(out + 12, head->nitems);
    ch_put64(out + 16, head->number);
}

void ch_wire_get_head(const unsigned char in[CH_WIRE_HEAD_NBYTES], struct ch_wire_head *head_out)
{
    head_out->body_nbytes = ch_get32(in);
    head_out->id = ch_get32(in + 4);
    head_out->code = ch_get32(in + 8);
    head_out->nitems = ch_get32(in + 12);
    head_out->number = ch_get64(in + 16);
}

static choir_status check_op(const struct ch_wire_head *head)
{
    uint32_t op = head->code & 0xff, flags = head->code >> 8;

    if (op >= CH_NOPS || ops[op].name == NULL || (flags & ~(uint32_t)CH_OP_QUIET) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "request %u: no such operation (%#x)", head->id,
                       head->code);
    if (ops[op].per == 0 ? head->nitems != ops[op].nitems : head->nitems % ops[op].per != 0)
        return ch_fail(CHOIR_ERR_PROTO, "request %u: %s with %u items", head->id, ops[op].name,
                       head->nitems);
    return CHOIR_OK;
}

choir_status ch_wire_check_body(const struct ch_message *message)
{
    size_t at = 0;

    for (uint32_t i = 0; i < message->nitems; i++) {
        size_t length;

        if (message->body_nbytes - at < CH_WIRE_LENGTH_NBYTES)
            return ch_fail(CHOIR_ERR_PROTO, "message %u: item %u of %u is missing", message->id,
                           i + 1, message->nitems);
        length = ch_get32(message->body + at);
        at += CH_WIRE_LENGTH_NBYTES;
        if (message->body_nbytes - at < length)
            return ch_fail(CHOIR_ERR_PROTO, "message %u: item %u of %zu bytes, %zu are left",
                           message->id, i + 1, length, message->body_nbytes - at);
        at += length;
    }
    if (at != message->body_nbytes)
        return ch_fail(CHOIR_ERR_PROTO, "message %u: %zu bytes behind its %u items", message->id,
                       message->body_nbytes - at, message->nitems);
    return CHOIR_OK;
}

static choir_status read_message(const unsigned char *bytes, size_t nbytes, bool is_request,
                                 struct ch_message *message_out)
{
    struct ch_wire_head head;
    struct ch_message message;
    choir_status rc;

    if (nbytes < CH_WIRE_HEAD_NBYTES)
        return CHOIR_IN_PROGRESS;
    ch_wire_get_head(bytes, &head);
    if (head.body_nbytes > CH_WIRE_BODY_MAX)
        return ch_fail(CHOIR_ERR_PROTO, "message %u: %u bytes, at most %llu are allowed", head.id,
                       head.body_nbytes, (unsigned long long)CH_WIRE_BODY_MAX);
    rc = is_request ? check_op(&head) : CHOIR_OK;
    if (rc != CHOIR_OK)
        return rc;
    if (nbytes - CH_WIRE_HEAD_NBYTES < head.body_nbytes)
        return CHOIR_IN_PROGRESS;
    message = (struct ch_message){ .id = head.id,
                                   .code = head.code,
                                   .nitems = head.nitems,
                                   .number = head.number,
                                   .body = bytes + CH_WIRE_HEAD_NBYTES,
                                   .body_nbytes = head.body_nbytes };
    rc = ch_wire_check_body(&message);
    if (rc == CHOIR_OK)
        *message_out = message;
    return rc;
}

choir_status ch_wire_read_request(const unsigned char *bytes, size_t nbytes,
                                  struct ch_message *message_out)
{
    return read_message(bytes, nbytes, true, message_out);
}

choir_status ch_wire_read_reply(const unsigned char *bytes, size_t nbytes,
                                struct ch_message *message_out)
{
    return read_message(bytes, nbytes, false, message_out);
}

struct ch_items ch_items_of(const struct ch_message *message)
{
    return (struct ch_items){ message->body, message->nitems };
}

choir_bytes ch_items_next(struct ch_items *items)
{
    choir_bytes item;

    ch_assert(items->left > 0);
    items->left--;
    item.nbytes = ch_get32(items->at);
    item.data = items->at + CH_WIRE_LENGTH_NBYTES;
    items->at += CH_WIRE_LENGTH_NBYTES + item.nbytes;
    return item;
}
