/* torch_wire_test.c - the bytes of PyTorch's protocol: whole, cut short, and wrong. */
#include "choir_test.h"

#include <string.h>

#include "store/torch_wire.h"

static const struct {
    struct ch_torch_request request;
    size_t nbytes;
    const char *bytes;
} rows[] = {
    { { CH_TORCH_VALIDATE, .number = CH_TORCH_MAGIC }, 5, "\x00\xce\xf7\x85\x3c" },
    { { CH_TORCH_PING, .number = 0x1234 }, 5, "\x0d\x34\x12\0\0" },
    { { CH_TORCH_SET, .key = { "/k", 2 }, .value = { "v", 1 } },
      20,
      "\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v" },
    { { CH_TORCH_COMPARE_SET, .key = { "/c", 2 }, .desired = { "x", 1 } },
      28,
      "\x02\x02\0\0\0\0\0\0\0/c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0x" },
    { { CH_TORCH_GET, .key = { "", 0 } }, 9, "\x03\0\0\0\0\0\0\0\0" },
    { { CH_TORCH_ADD, .key = { "/n", 2 }, .number = -7 },
      19,
      "\x04\x02\0\0\0\0\0\0\0/n\xf9\xff\xff\xff\xff\xff\xff\xff" },
    { { CH_TORCH_CHECK, .number = 2 }, 9, "\x05\x02\0\0\0\0\0\0\0" },
    { { CH_TORCH_WAIT, .number = 131072 }, 9, "\x06\0\0\x02\0\0\0\0\0" },
    { { .command = CH_TORCH_COUNT }, 1, "\x07" },
    { { CH_TORCH_DELETE, .key = { "a\0b", 3 } }, 12, "\x08\x03\0\0\0\0\0\0\0a\0b" },
    { { CH_TORCH_APPEND, .key = { "/k", 2 }, .value = { "w", 1 } },
      20,
      "\x09\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0w" },
    { { CH_TORCH_MULTI_GET, .number = 0 }, 9, "\x0a\0\0\0\0\0\0\0\0" },
    { { CH_TORCH_MULTI_SET, .number = 1 }, 9, "\x0b\x01\0\0\0\0\0\0\0" },
    { { .command = CH_TORCH_CANCEL_WAIT }, 1, "\x0c" },
    { { CH_TORCH_QUEUE_PUSH, .key = { "/q", 2 }, .value = { "z", 1 } },
      20,
      "\x0e\x02\0\0\0\0\0\0\0/q\x01\0\0\0\0\0\0\0z" },
    { { CH_TORCH_QUEUE_POP, .key = { "/q", 2 } }, 11, "\x0f\x02\0\0\0\0\0\0\0/q" },
    { { CH_TORCH_QUEUE_LENGTH, .key = { "/q", 2 } }, 11, "\x10\x02\0\0\0\0\0\0\0/q" },
    { { .command = CH_TORCH_LIST }, 1, "\x11" },
    { { CH_TORCH_BARRIER, .key = { "/x", 2 }, .number = 1 },
      19,
      "\x12\x02\0\0\0\0\0\0\0/x\x01\0\0\0\0\0\0\0" },
};

static void check_bytes(choir_bytes got, choir_bytes want)
{
    CHOIR_CHECK_EQ(got.nbytes, want.nbytes);
    CHOIR_CHECK(got.nbytes == 0 || memcmp(got.data, want.data, got.nbytes) == 0);
}

static void check_request(const struct ch_torch_request *got, const struct ch_torch_request *want)
{
    CHOIR_CHECK_EQ((int)got->command, (int)want->command);
    CHOIR_CHECK_EQ(got->number, want->number);
    check_bytes(got->key, want->key);
    check_bytes(got->value, want->value);
    check_bytes(got->desired, want->desired);
}

CHOIR_TEST(requests_are_parsed_and_built)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        const unsigned char *bytes = (const unsigned char *)rows[i].bytes;
        struct ch_torch_request got;
        unsigned char built[64];
        size_t used = 0;

        CHOIR_ROW("%s", ch_torch_command_name(rows[i].request.command));
        for (size_t n = 0; n < rows[i].nbytes; n++)
            CHOIR_CHECK_STATUS(ch_torch_parse(bytes, n, &got, &used), CHOIR_IN_PROGRESS);
        CHOIR_CHECK_OK(ch_torch_parse(bytes, rows[i].nbytes, &got, &used));
        CHOIR_CHECK_EQ(used, rows[i].nbytes);
        check_request(&got, &rows[i].request);
        CHOIR_CHECK_EQ(ch_torch_size(&rows[i].request), rows[i].nbytes);
        CHOIR_CHECK(ch_torch_put(built, &rows[i].request) == built + rows[i].nbytes);
        CHOIR_CHECK(memcmp(built, bytes, rows[i].nbytes) == 0);
    }
}

CHOIR_TEST(items_are_parsed_and_built)
{
    const struct ch_torch_request pair = { CH_TORCH_MULTI_SET, .key = { "/b", 2 },
                                           .value = { "22", 2 } };
    struct ch_torch_request got;
    unsigned char built[32];
    size_t nbytes = ch_torch_item_size(&pair), used = 0;

    CHOIR_CHECK_EQ(nbytes, 20);
    CHOIR_CHECK(ch_torch_put_item(built, &pair) == built + nbytes);
    CHOIR_CHECK(memcmp(built,
                       "\x02\0\0\0\0\0\0\0/b\x02\0\0\0\0\0\0\0"
                       "22",
                       20) == 0);
    for (size_t n = 0; n < nbytes; n++)
        CHOIR_CHECK_STATUS(ch_torch_parse_item(CH_TORCH_MULTI_SET, built, n, &got, &used),
                           CHOIR_IN_PROGRESS);
    CHOIR_CHECK_OK(ch_torch_parse_item(CH_TORCH_MULTI_SET, built, nbytes, &got, &used));
    CHOIR_CHECK_EQ(used, nbytes);
    check_request(&got, &pair);
    CHOIR_CHECK_OK(ch_torch_parse_item(CH_TORCH_WAIT, built, nbytes, &got, &used));
    CHOIR_CHECK_EQ(used, 10); /* a key, without a value */
}

/* One more than allowed is refused as soon as its length is known, without a byte of it. */
static const struct {
    size_t nbytes;
    const char *bytes, *why;
    choir_status want;
} lengths[] = {
    { 9, "\x03\x00\x20\0\0\0\0\0\0", "a key of 8192", CHOIR_IN_PROGRESS },
    { 9, "\x03\x01\x20\0\0\0\0\0\0", "a key of 8193", CHOIR_ERR_PROTO },
    { 9, "\x03\0\0\0\0\0\0\0\x80", "a key of 2^63", CHOIR_ERR_PROTO },
    { 9, "\x03\xff\xff\xff\xff\xff\xff\xff\xff", "a key of 2^64-1", CHOIR_ERR_PROTO },
    { 18, "\x01\x01\0\0\0\0\0\0\0k\0\0\x80\0\0\0\0\0", "a value of 8 MiB", CHOIR_IN_PROGRESS },
    { 18, "\x01\x01\0\0\0\0\0\0\0k\x01\0\x80\0\0\0\0\0", "one more", CHOIR_ERR_PROTO },
    { 9, "\x06\x01\0\x02\0\0\0\0\0", "131073 keys", CHOIR_ERR_PROTO },
    { 9, "\x0b\xff\xff\xff\xff\xff\xff\xff\xff", "2^64-1 pairs", CHOIR_ERR_PROTO },
    { 1, "\x13", "a command after the last", CHOIR_ERR_PROTO },
    { 1, "G", "somebody's GET", CHOIR_ERR_PROTO },
};

CHOIR_TEST(lengths_are_judged_before_their_bytes)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(lengths); i++) {
        struct ch_torch_request got;
        size_t used;

        CHOIR_ROW("%s", lengths[i].why);
        CHOIR_CHECK_STATUS(
            ch_torch_parse((const unsigned char *)lengths[i].bytes, lengths[i].nbytes, &got, &used),
            lengths[i].want);
    }
}

static const struct {
    enum ch_torch_reply form;
    size_t count, nbytes;
    const char *bytes;
} replies[] = {
    { CH_TORCH_REPLY_NONE, 0, 0, "" },
    { CH_TORCH_REPLY_BYTE, 0, 1, "\x00" },
    { CH_TORCH_REPLY_NONCE, 0, 4, "\x34\x12\0\0" },
    { CH_TORCH_REPLY_NUMBER, 0, 8, "\xfe\xff\xff\xff\xff\xff\xff\xff" },
    { CH_TORCH_REPLY_VALUES, 0, 0, "" },
    { CH_TORCH_REPLY_VALUES, 2, 19,
      "\x01\0\0\0\0\0\0\0"
      "1\x02\0\0\0\0\0\0\0"
      "22" },
    { CH_TORCH_REPLY_POPPED, 0, 8, "\0\0\0\0\0\0\0\0" },
    { CH_TORCH_REPLY_POPPED, 0, 17, "\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0z" },
    { CH_TORCH_REPLY_LIST, 0, 8, "\0\0\0\0\0\0\0\0" },
    { CH_TORCH_REPLY_LIST, 0, 26, "\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\0\0\0\0\0\0\0\0" },
    { CH_TORCH_REPLY_CANCEL, 0, 1, "\x01" },
    { CH_TORCH_REPLY_CANCEL, 0, 2, "\x00\x01" }, /* it crossed a STOP_WAITING */
};

CHOIR_TEST(replies_are_measured)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(replies); i++) {
        const unsigned char *bytes = (const unsigned char *)replies[i].bytes;
        struct ch_torch_reply_parser parser = ch_torch_reply_parser(replies[i].form,
                                                                    replies[i].count);
        struct ch_torch_reply_parser at_once = parser;
        size_t n = 0, want;

        CHOIR_ROW("form %d, %zu bytes", (int)replies[i].form, replies[i].nbytes);
        for (; n < replies[i].nbytes; n++) {
            CHOIR_CHECK_STATUS(ch_torch_parse_reply(&parser, bytes, n, &want), CHOIR_IN_PROGRESS);
            CHOIR_CHECK_LT(n, want); /* it asks for something */
            CHOIR_CHECK_LE(want, replies[i].nbytes);
        }
        CHOIR_CHECK_OK(ch_torch_parse_reply(&parser, bytes, n, &want));
        CHOIR_CHECK_EQ(want, replies[i].nbytes);
        CHOIR_CHECK_OK(ch_torch_parse_reply(&at_once, bytes, n, &want));
        CHOIR_CHECK_EQ(want, replies[i].nbytes);
    }
}

static void check_refused(enum ch_torch_reply form, const char *bytes)
{
    struct ch_torch_reply_parser parser = ch_torch_reply_parser(form, 1);
    size_t want;

    CHOIR_CHECK_STATUS(ch_torch_parse_reply(&parser, (const unsigned char *)bytes, 8, &want),
                       CHOIR_ERR_PROTO);
}

CHOIR_TEST(replies_that_cannot_be_are_refused)
{
    static const char negative[] = "\xff\xff\xff\xff\xff\xff\xff\xff";

    check_refused(CH_TORCH_REPLY_VALUES, "\x01\0\0\x40\0\0\0\0"); /* one more than a GiB */
    check_refused(CH_TORCH_REPLY_VALUES, negative);
    check_refused(CH_TORCH_REPLY_POPPED, negative);
    check_refused(CH_TORCH_REPLY_LIST, negative);
}
