/*
 * wire.h - requests and replies of Choir's own store protocol, after the hello (hello.h).
 *
 * Every message is a head, and behind it `nitems` strings of bytes, each after its length; numbers are
 * little-endian.
 *
 *   offset  bytes  request               reply
 *        0      4  body_nbytes           body_nbytes     all that follows the head
 *        4      4  id                    id              of the request it answers
 *        8      4  code: op + 256*flags  code: status
 *       12      4  nitems                nitems
 *       16      8  number                number
 *       24      4  length of the first item, then its bytes, then the length of the second, ...
 *
 * A client may have any number of requests under way; replies come in the order in which they are
 * ready. Requests that wait do so in the server. A reply with an error has the server's text as its
 * only item.
 *
 *   op           items           number     reply: items    number
 *   set          key, value                 -
 *   get          key                        value           (waits)
 *   add          key             delta                      sum
 *   compare_set  key, expected, desired     value
 *   append       key, bytes                 -
 *   remove       key                                        1 if there was one
 *   multi_get    keys                       values          (waits)
 *   multi_set    key, value, ...            -
 *   check        keys                                       1 if all exist
 *   wait         keys                       -               (waits)
 *   count        -                                          how many
 *   list         -                          keys
 *   push         key, value                 -
 *   pop          key                        value           (waits)
 *   try_pop      key                        value
 *   length       key                                        how many
 *   barrier      key             nranks     -               (waits)
 *   cancel       -               id         -
 *   ping         -                          -
 *
 * cancel makes the server answer request `id` now, if it waits, with CHOIR_ERR_INTERRUPTED; otherwise
 * the answer is already on its way. It has no reply of its own.
 */
#ifndef CH_WIRE_H
#define CH_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <choir/status.h>
#include <choir/store.h>

enum ch_op {
    CH_OP_SET = 1,
    CH_OP_GET,
    CH_OP_ADD,
    CH_OP_COMPARE_SET,
    CH_OP_APPEND,
    CH_OP_REMOVE,
    CH_OP_MULTI_GET,
    CH_OP_MULTI_SET,
    CH_OP_CHECK,
    CH_OP_WAIT,
    CH_OP_COUNT,
    CH_OP_LIST,
    CH_OP_PUSH,
    CH_OP_POP,
    CH_OP_TRY_POP,
    CH_OP_LENGTH,
    CH_OP_BARRIER,
    CH_OP_CANCEL,
    CH_OP_PING,
    CH_NOPS
};

enum { CH_OP_QUIET = 1 }; /* flags of a request: reply only if it fails */

struct ch_wire_head {
    uint32_t body_nbytes, id, code, nitems;
    uint64_t number;
};
_Static_assert(offsetof(struct ch_wire_head, id) == 4, "the table above");
_Static_assert(offsetof(struct ch_wire_head, code) == 8, "the table above");
_Static_assert(offsetof(struct ch_wire_head, nitems) == 12, "the table above");
_Static_assert(offsetof(struct ch_wire_head, number) == 16, "the table above");
_Static_assert(sizeof(struct ch_wire_head) == 24, "the table above");

enum {
    CH_WIRE_HEAD_NBYTES = sizeof(struct ch_wire_head),
    CH_WIRE_LENGTH_NBYTES = 4, /* in front of each item */
};

/* The longest body that a server takes, and a client a reply: two values of the default limit, a key,
 * and their lengths. */
#define CH_WIRE_BODY_MAX (((uint64_t)2 << 30) + 16 * 1024)

/* A message taken apart; points into the bytes it was read from. */
struct ch_message {
    uint32_t id, code, nitems;
    uint64_t number;
    const unsigned char *body;
    size_t body_nbytes;
};

/* Items one after the other. */
struct ch_items {
    const unsigned char *at;
    uint32_t left;
};

/* --- numbers ------------------------------------------------------------------------------------- */

static inline void ch_put32(void *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static inline void ch_put64(void *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static inline uint32_t ch_get32(const void *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static inline uint64_t ch_get64(const void *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

/* --- messages ------------------------------------------------------------------------------------ */

void ch_wire_put_head(unsigned char out[CH_WIRE_HEAD_NBYTES], const struct ch_wire_head *head);
void ch_wire_get_head(const unsigned char in[CH_WIRE_HEAD_NBYTES], struct ch_wire_head *head_out);

/*
 * Take the message at the front apart, and check that its items fill it exactly; a request's op and
 * number of items, too.
 * Errors:  CHOIR_IN_PROGRESS if it is not all there yet, CHOIR_ERR_PROTO if it cannot be one.
 */
choir_status ch_wire_read_request(const unsigned char *bytes, size_t nbytes,
                                  struct ch_message *message_out);
choir_status ch_wire_read_reply(const unsigned char *bytes, size_t nbytes,
                                struct ch_message *message_out);

/* The checks alone, for a body that was received apart from its head. */
choir_status ch_wire_check_body(const struct ch_message *message);

struct ch_items ch_items_of(const struct ch_message *message);

/* There must be one: the message was checked, and `left` tells how many. */
choir_bytes ch_items_next(struct ch_items *items);

const char *ch_op_name(uint32_t op);

#endif
