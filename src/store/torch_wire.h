/*
 * torch_wire.h - the bytes of PyTorch's TCPStore protocol, both ways. No memory, no sockets.
 *
 *   request   command byte, then its fields: u32, i64, key, value; integers little-endian,
 *             keys and values a u64 length and that many bytes
 *   list      (CHECK, WAIT, MULTI_GET, MULTI_SET) command byte, u64 count, then that many items,
 *             a key each, in MULTI_SET with a value
 *   reply     no header; which form follows from the request
 *
 * A list is taken and built in pieces, its head and then item by item: so no request needs more room
 * than CH_TORCH_REQUEST_MAX, however many keys it has. Everything parsed points into the bytes given.
 */
#ifndef CH_TORCH_WIRE_H
#define CH_TORCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/store.h>

enum ch_torch_command {
    CH_TORCH_VALIDATE,
    CH_TORCH_SET,
    CH_TORCH_COMPARE_SET,
    CH_TORCH_GET,
    CH_TORCH_ADD,
    CH_TORCH_CHECK,
    CH_TORCH_WAIT,
    CH_TORCH_COUNT,
    CH_TORCH_DELETE,
    CH_TORCH_APPEND,
    CH_TORCH_MULTI_GET,
    CH_TORCH_MULTI_SET,
    CH_TORCH_CANCEL_WAIT,
    CH_TORCH_PING,
    CH_TORCH_QUEUE_PUSH,
    CH_TORCH_QUEUE_POP,
    CH_TORCH_QUEUE_LENGTH,
    CH_TORCH_LIST,
    CH_TORCH_BARRIER,
    CH_TORCH_NCOMMANDS
};

#define CH_TORCH_MAGIC 0x3c85f7ceu

/* What PyTorch's server takes; one more and it closes the connection. */
enum {
    CH_TORCH_KEY_MAX = 8192,
    CH_TORCH_VALUE_MAX = 8 << 20,
    CH_TORCH_COUNT_MAX = 131072,
    /* COMPARE_SET: command, three lengths, a key, two values. */
    CH_TORCH_REQUEST_MAX = 1 + 3 * 8 + CH_TORCH_KEY_MAX + 2 * CH_TORCH_VALUE_MAX,
    /* Appending may grow a value beyond what a request holds. */
    CH_TORCH_REPLY_VALUE_MAX = 1 << 30,
};

/* Answers of one byte. */
enum {
    CH_TORCH_READY = 0,
    CH_TORCH_NOT_READY = 1,
    CH_TORCH_STOP_WAITING = 0,
    CH_TORCH_WAIT_CANCELLED = 1,
};

/* A request without a list, the head of one with a list, or an item of it. */
struct ch_torch_request {
    enum ch_torch_command command;
    choir_bytes key;
    choir_bytes value;   /* COMPARE_SET: what is expected */
    choir_bytes desired; /* COMPARE_SET */
    int64_t number;      /* ADD, BARRIER; VALIDATE: magic; PING: nonce; a list's head: the count */
};

bool ch_torch_has_list(enum ch_torch_command command);
const char *ch_torch_command_name(enum ch_torch_command command);

/* The request, or head, in front of `bytes`. CHOIR_IN_PROGRESS: it is not complete yet.
 * CHOIR_ERR_PROTO: it never will be. *used_out is its length. */
choir_status ch_torch_parse(const unsigned char *bytes, size_t nbytes,
                            struct ch_torch_request *request_out, size_t *used_out);

/* The same for an item of `command`'s list. */
choir_status ch_torch_parse_item(enum ch_torch_command command, const unsigned char *bytes,
                                 size_t nbytes, struct ch_torch_request *item_out,
                                 size_t *used_out);

/* How long it is, and itself, written to `out`, returning where it ends. */
size_t ch_torch_size(const struct ch_torch_request *request);
unsigned char *ch_torch_put(unsigned char *out, const struct ch_torch_request *request);
size_t ch_torch_item_size(const struct ch_torch_request *item);
unsigned char *ch_torch_put_item(unsigned char *out, const struct ch_torch_request *item);

/* Building blocks of replies. */
unsigned char *ch_torch_put_number(unsigned char *out, int64_t number); /* 8 bytes */
int64_t ch_torch_number(const unsigned char *bytes);

/* --- replies, as a client sees them --------------------------------------------------------------- */

enum ch_torch_reply {
    CH_TORCH_REPLY_NONE,
    CH_TORCH_REPLY_BYTE,
    CH_TORCH_REPLY_NONCE,  /* 4 bytes */
    CH_TORCH_REPLY_NUMBER, /* 8 bytes */
    CH_TORCH_REPLY_VALUES, /* as many as were asked for */
    CH_TORCH_REPLY_POPPED, /* a number, and a value if it is positive */
    CH_TORCH_REPLY_LIST,   /* a number and that many values */
    CH_TORCH_REPLY_CANCEL, /* WAIT_CANCELLED, perhaps with the STOP_WAITING that it crossed before it */
};

/* How far a reply has been looked at: servers send long ones value by value, and going through all
 * of it again for each would take its time. */
struct ch_torch_reply_parser {
    enum ch_torch_reply form;
    bool is_counted; /* `values_left` is known */
    size_t values_left;
    size_t at; /* where the next of them begins */
};

/* `count` is of the values that were asked for. */
struct ch_torch_reply_parser ch_torch_reply_parser(enum ch_torch_reply form, size_t count);

/* CHOIR_OK: the reply is complete, *nbytes_out is its length. CHOIR_IN_PROGRESS: at least *nbytes_out
 * bytes are needed. `bytes` are those of the call before, and more. */
choir_status ch_torch_parse_reply(struct ch_torch_reply_parser *parser, const unsigned char *bytes,
                                  size_t nbytes, size_t *nbytes_out);

/* The value at *at_io, in a complete reply; *at_io moves behind it. */
choir_bytes ch_torch_next_value(const unsigned char **at_io);

#endif
