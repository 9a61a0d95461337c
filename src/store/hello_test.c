/* hello_test.c - hello, challenge and proof: byte for byte, and every way in which they can be wrong. */
#include "store/hello.h"

#include "choir_test.h"

#include <string.h>

#include "base/compiler.h"
#include "base/sys.h"

static const struct ch_hello_limits limits = { 8192, (uint64_t)1 << 30 };

static choir_token counted(void)
{
    choir_token token;

    for (int i = 0; i < CHOIR_TOKEN_NBYTES; i++)
        token.bytes[i] = (unsigned char)i;
    return token;
}

/* A whole exchange, up to the server's verdict. */
struct exchange {
    unsigned char hello[CH_HELLO_NBYTES], challenge[CH_CHALLENGE_NBYTES], proof[CH_PROOF_NBYTES];
    struct ch_hello_limits told;
    choir_status challenged, answered, verified;
    char words[CHOIR_ERROR_TEXT_MAX]; /* of the first that failed */
};

static void note(struct exchange *x, choir_status rc)
{
    if (rc != CHOIR_OK && x->words[0] == '\0')
        snprintf(x->words, sizeof(x->words), "%s", choir_last_error());
}

static void shake_hands(struct exchange *x, const choir_token *client, const choir_token *server)
{
    memset(x, 0, sizeof(*x));
    CHOIR_CHECK_OK(ch_hello_make(client, x->hello));
    note(x, x->challenged = ch_hello_challenge(server, x->hello, &limits, x->challenge));
    note(x, x->answered = ch_hello_answer(client, x->hello, x->challenge, &x->told, x->proof));
    note(x, x->verified = ch_hello_verify(server, x->hello, x->challenge, x->proof));
}

/* --- byte for byte ------------------------------------------------------------------------------- */

static int fill;

static int known_random(void *buf, size_t nbytes)
{
    memset(buf, fill, nbytes);
    return 0;
}

static void check_hex(const unsigned char *bytes, size_t nbytes, const char *want)
{
    char text[2 * CH_CHALLENGE_NBYTES + 1];

    for (size_t i = 0; i < nbytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    CHOIR_CHECK_STR(text, want);
}

/* The MACs come from another implementation (Python's hmac). */
CHOIR_TEST(the_bytes_are_as_written_down)
{
    choir_token token = counted();
    struct ch_sys_ops ops = ch_sys_real;
    struct exchange x = { .told = { 0, 0 } };

    ops.random = known_random;
    ch_sys_replace(&ops);
    fill = 0x11;
    CHOIR_CHECK_OK(ch_hello_make(&token, x.hello));
    fill = 0x22;
    CHOIR_CHECK_OK(ch_hello_challenge(&token, x.hello, &limits, x.challenge));
    CHOIR_CHECK_OK(ch_hello_answer(&token, x.hello, x.challenge, &x.told, x.proof));
    CHOIR_CHECK_OK(ch_hello_verify(&token, x.hello, x.challenge, x.proof));
    ch_sys_replace(NULL);
#define NONCE(b) b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b
    check_hex(x.hello, sizeof(x.hello),
              "43484f49520d0a00"
              "01000000"
              "01000000" NONCE("11"));
    check_hex(
        x.challenge, sizeof(x.challenge),
        "43484f49520d0a00"
        "01000000"
        "01000000" NONCE("22") "00000000"
                               "00200000"
                               "0000004000000000"
                               "2f45d1180ac1abfb322ac265c8f16dfeaf7def7df30aacce18c0431d84008daa");
    check_hex(x.proof, sizeof(x.proof),
              "41e8bad4f6d64ba087676a5f545a4c4b4a258624f3ed30be94d42c4ac814a7f4");
    CHOIR_CHECK_EQ(x.told.key_nbytes, (uint64_t)8192);
    CHOIR_CHECK_EQ(x.told.value_nbytes, (uint64_t)1 << 30);
}

/* --- who is admitted ----------------------------------------------------------------------------- */

CHOIR_TEST(only_the_same_token_will_do)
{
    choir_token a = counted(), b = counted();
    struct exchange x;

    b.bytes[31] ^= 1;
    shake_hands(&x, &a, &a);
    CHOIR_CHECK_STATUS(x.verified, CHOIR_OK);
    CHOIR_CHECK_STATUS(x.answered, CHOIR_OK);

    shake_hands(&x, NULL, NULL);
    CHOIR_CHECK_STATUS(x.verified, CHOIR_OK);
    CHOIR_CHECK_STATUS(x.answered, CHOIR_OK);

    shake_hands(&x, &a, &b);
    CHOIR_CHECK_STATUS(x.answered, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(x.words, "the server does not hold the same token");
    CHOIR_CHECK_STATUS(x.verified, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "it does not hold the same token");

    shake_hands(&x, NULL, &a);
    CHOIR_CHECK_STATUS(x.challenged, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_STATUS(x.answered, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_STATUS(x.verified, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_STATUS(ch_hello_answer(NULL, x.hello, x.challenge, &x.told, x.proof),
                       CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "wants a token and none was given");

    shake_hands(&x, &a, NULL);
    CHOIR_CHECK_STATUS(x.challenged, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_STATUS(x.answered, CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_STATUS(ch_hello_answer(&a, x.hello, x.challenge, &x.told, x.proof),
                       CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "the server has none");
}

/* Every byte counts: no bit of what was said can be changed without being noticed. */
CHOIR_TEST(a_changed_bit_is_noticed)
{
    choir_token token = counted();
    struct exchange x;

    shake_hands(&x, &token, &token);
    for (size_t bit = 0; bit < 8 * sizeof(x.challenge); bit++) {
        struct exchange y = x;

        CHOIR_ROW("bit %zu of the challenge", bit);
        y.challenge[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHOIR_CHECK(ch_hello_answer(&token, y.hello, y.challenge, &y.told, y.proof) != CHOIR_OK);
        CHOIR_CHECK(ch_hello_verify(&token, y.hello, y.challenge, x.proof) != CHOIR_OK);
    }
    for (size_t bit = 0; bit < 8 * sizeof(x.hello); bit++) {
        struct exchange y = x;

        CHOIR_ROW("bit %zu of the hello", bit);
        y.hello[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHOIR_CHECK(ch_hello_answer(&token, y.hello, y.challenge, &y.told, y.proof) != CHOIR_OK);
        CHOIR_CHECK(ch_hello_verify(&token, y.hello, y.challenge, x.proof) != CHOIR_OK);
    }
    for (size_t bit = 0; bit < 8 * sizeof(x.proof); bit++) {
        struct exchange y = x;

        CHOIR_ROW("bit %zu of the proof", bit);
        y.proof[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHOIR_CHECK(ch_hello_verify(&token, y.hello, y.challenge, y.proof) != CHOIR_OK);
    }
}

/* What one side said is worth nothing later, nor when said back to it. */
CHOIR_TEST(recorded_and_reflected_words_are_worth_nothing)
{
    choir_token token = counted();
    struct exchange x, y;
    unsigned char challenge[CH_CHALLENGE_NBYTES];

    shake_hands(&x, &token, &token);
    CHOIR_CHECK_OK(ch_hello_challenge(&token, x.hello, &limits, challenge));
    CHOIR_CHECK(memcmp(challenge + 16, x.challenge + 16, 32) != 0); /* fresh nonces */
    CHOIR_CHECK_STATUS(ch_hello_verify(&token, x.hello, challenge, x.proof), CHOIR_ERR_PERMISSION);
    /* The server's own MAC as the client's proof. */
    CHOIR_CHECK_STATUS(ch_hello_verify(&token, x.hello, challenge, challenge + 64),
                       CHOIR_ERR_PERMISSION);
    /* An old challenge to a new hello. */
    CHOIR_CHECK_OK(ch_hello_make(&token, y.hello));
    CHOIR_CHECK_STATUS(ch_hello_answer(&token, y.hello, x.challenge, &y.told, y.proof),
                       CHOIR_ERR_PERMISSION);
    /* The client's own proof as the server's MAC. */
    memcpy(x.challenge + 64, x.proof, 32);
    CHOIR_CHECK_STATUS(ch_hello_answer(&token, x.hello, x.challenge, &x.told, x.proof),
                       CHOIR_ERR_PERMISSION);
}

CHOIR_TEST(other_versions_are_told_so)
{
    choir_token token = counted();
    struct exchange x;

    CHOIR_CHECK_OK(ch_hello_make(&token, x.hello));
    x.hello[8] = 7;
    CHOIR_CHECK_STATUS(ch_hello_challenge(&token, x.hello, &limits, x.challenge),
                       CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "it speaks version 7 of the protocol");
    x.challenge[8] = 9;
    CHOIR_CHECK_STATUS(ch_hello_answer(&token, x.hello, x.challenge, &x.told, x.proof),
                       CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_HAS(choir_last_error(), "the server speaks version 9 of the protocol");
}

static const struct {
    const char *bytes, *says;
} strangers[] = {
    { "GET / HTTP/1.1\r\n", "HTTP" },
    { "HTTP/1.1 400 Bad Request", "HTTP" },
    { "\x16\x03\x01\x02\x00\x01", "TLS" },
    { "SSH-2.0-OpenSSH_9.2", "SSH" },
    { "\x01\x02\x03", "the first bytes are 01 02 03)" },
    { "CHOIR\r\n!", "something else" },
    { "C!", "43 21" },
};

CHOIR_TEST(strangers_are_named)
{
    CHOIR_CHECK_OK(ch_hello_begins((const unsigned char *)"CHOI", 4));
    for (size_t i = 0; i < CH_ARRAY_LEN(strangers); i++) {
        CHOIR_ROW("%s", strangers[i].bytes);
        CHOIR_CHECK_STATUS(
            ch_hello_begins((const unsigned char *)strangers[i].bytes, strlen(strangers[i].bytes)),
            CHOIR_ERR_PROTO);
        CHOIR_CHECK_HAS(choir_last_error(), strangers[i].says);
    }
}
