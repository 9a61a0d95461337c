/* wire_test.c - requests and replies: byte for byte, in pieces, and malformed. */
#include "store/wire.h"

#include "choir_test.h"

#include <string.h>

#include "base/compiler.h"

/* set "key" = "value", quiet, id 7. */
static const unsigned char set_key[] = {
    16, 0, 0, 0, 7,   0,   0,   0, 1, 1, 0, 0,   2,   0,   0,   0,
    0,  0, 0, 0, 0,   0,   0,   0, /* head */
    3,  0, 0, 0, 'k', 'e', 'y', 5, 0, 0, 0, 'v', 'a', 'l', 'u', 'e',
};

/* add -2 to "n", id 0x01020304. */
static const unsigned char add_n[] = {
    5, 0,    0,    0,    4,    3,    2,    1,    3,    0, 0, 0, 1, 0,   0,
    0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 'n',
};

/* The reply to it: -40. */
static const unsigned char sum[] = {
    0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xd8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};

static void check_item(struct ch_items *items, const char *want)
{
    choir_bytes item = ch_items_next(items);

    CHOIR_CHECK_EQ(item.nbytes, strlen(want));
    CHOIR_CHECK_EQ(memcmp(item.data, want, item.nbytes), 0);
}

CHOIR_TEST(the_bytes_are_as_written_down)
{
    unsigned char head_bytes[CH_WIRE_HEAD_NBYTES];
    struct ch_wire_head head;
    struct ch_message m;
    struct ch_items items;

    CHOIR_CHECK_OK(ch_wire_read_request(set_key, sizeof(set_key), &m));
    CHOIR_CHECK_EQ(m.id, 7u);
    CHOIR_CHECK_EQ(m.code, (uint32_t)(CH_OP_SET | CH_OP_QUIET << 8));
    CHOIR_CHECK_EQ(m.body_nbytes, (size_t)16);
    items = ch_items_of(&m);
    check_item(&items, "key");
    check_item(&items, "value");
    CHOIR_CHECK_EQ(items.left, 0u);

    CHOIR_CHECK_OK(ch_wire_read_request(add_n, sizeof(add_n), &m));
    CHOIR_CHECK_EQ(m.id, 0x01020304u);
    CHOIR_CHECK_EQ((int64_t)m.number, (int64_t)-2);
    CHOIR_CHECK_OK(ch_wire_read_reply(sum, sizeof(sum), &m));
    CHOIR_CHECK_EQ((int64_t)m.number, (int64_t)-40);

    ch_wire_get_head(set_key, &head);
    ch_wire_put_head(head_bytes, &head);
    CHOIR_CHECK_EQ(memcmp(head_bytes, set_key, sizeof(head_bytes)), 0);
}

/* However they are cut, and whatever comes behind. */
CHOIR_TEST(messages_come_in_pieces)
{
    unsigned char two[sizeof(set_key) + sizeof(add_n)];
    struct ch_message m;

    memcpy(two, set_key, sizeof(set_key));
    memcpy(two + sizeof(set_key), add_n, sizeof(add_n));
    for (size_t n = 0; n < sizeof(set_key); n++) {
        CHOIR_ROW("%zu bytes", n);
        CHOIR_CHECK_STATUS(ch_wire_read_request(two, n, &m), CHOIR_IN_PROGRESS);
    }
    for (size_t n = sizeof(set_key); n <= sizeof(two); n++) {
        CHOIR_CHECK_OK(ch_wire_read_request(two, n, &m));
        CHOIR_CHECK_EQ(m.body_nbytes, (size_t)16);
    }
}

static const struct {
    size_t at;
    unsigned char byte;
    const char *says;
} bad[] = {
    { 8, 0, "no such operation" },
    { 8, CH_NOPS, "no such operation" },
    { 8, 255, "no such operation" },
    { 9, 3, "no such operation" },
    { 11, 1, "no such operation" },
    { 12, 1, "set with 1 items" },
    { 12, 3, "set with 3 items" },
    { 3, 0xff, "at most" },
    { 24, 2, "item 2 of" },
    { 24, 200, "item 1 of 200 bytes" },
    { 27, 0xff, "item 1 of" },
    { 31, 4, "1 bytes behind its 2 items" },
    { 31, 6, "item 2 of 6 bytes, 5 are left" },
};

CHOIR_TEST(malformed_requests_are_refused)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++) {
        unsigned char bytes[sizeof(set_key)];
        struct ch_message m;

        CHOIR_ROW("byte %zu is %u", bad[i].at, bad[i].byte);
        memcpy(bytes, set_key, sizeof(bytes));
        bytes[bad[i].at] = bad[i].byte;
        CHOIR_CHECK_STATUS(ch_wire_read_request(bytes, sizeof(bytes), &m), CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(choir_last_error(), bad[i].says);
    }
}

/* A head alone is enough to refuse: nobody waits for gigabytes of an operation that does not exist. */
CHOIR_TEST(a_bad_head_is_refused_at_once)
{
    unsigned char bytes[CH_WIRE_HEAD_NBYTES];
    struct ch_message m;

    memcpy(bytes, set_key, sizeof(bytes));
    bytes[8] = 200;
    CHOIR_CHECK_STATUS(ch_wire_read_request(bytes, sizeof(bytes), &m), CHOIR_ERR_PROTO);
    memcpy(bytes, sum, sizeof(bytes));
    memset(bytes, 0xff, 4);
    CHOIR_CHECK_STATUS(ch_wire_read_reply(bytes, sizeof(bytes), &m), CHOIR_ERR_PROTO);
    memcpy(bytes, sum, sizeof(bytes));
    memset(bytes + 12, 0xff, 4); /* four billion items in no byte */
    CHOIR_CHECK_STATUS(ch_wire_read_reply(bytes, sizeof(bytes), &m), CHOIR_ERR_PROTO);
}

CHOIR_TEST(every_operation_has_a_name)
{
    for (uint32_t op = 1; op < CH_NOPS; op++) {
        CHOIR_ROW("operation %u", op);
        CHOIR_CHECK(strcmp(ch_op_name(op), "unknown") != 0);
    }
    CHOIR_CHECK_STR(ch_op_name(0), "unknown");
    CHOIR_CHECK_STR(ch_op_name(CH_NOPS), "unknown");
}
