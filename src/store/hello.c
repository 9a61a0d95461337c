/* hello.c - see hello.h. */
#include "store/hello.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "store/wire.h"

/* Offsets of the table in hello.h. */
enum {
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_NONCE = 16,
    AT_REFUSED = 48,
    AT_KEY_NBYTES = 52,
    AT_VALUE_NBYTES = 56,
    AT_MAC = 64,
    NONCE_NBYTES = 32,
    HAS_TOKEN = 1,
};
_Static_assert(AT_NONCE + NONCE_NBYTES == CH_HELLO_NBYTES, "a hello ends with its nonce");
_Static_assert(AT_MAC + CH_SHA256_NBYTES == CH_CHALLENGE_NBYTES, "a challenge ends with its MAC");
_Static_assert((int)CH_SHA256_NBYTES == (int)CH_PROOF_NBYTES, "a proof is a MAC");

enum refused { REFUSED_NOT, REFUSED_VERSION, REFUSED_HAS_NO_TOKEN, REFUSED_HAS_TOKEN };

static const unsigned char magic[8] = { 'C', 'H', 'O', 'I', 'R', '\r', '\n', '\0' };

/* --- MACs ---------------------------------------------------------------------------------------- */

/* Of everything said so far: the hello and the first `nbytes` of the challenge. Zero without a
 * token. */
static void mac_of(const choir_token *token, const char *label, const unsigned char *hello,
                   const unsigned char *challenge, size_t nbytes, unsigned char *mac_out)
{
    struct ch_hmac mac;

    memset(mac_out, 0, CH_SHA256_NBYTES);
    if (token == NULL)
        return;
    ch_hmac_init(&mac, token->bytes, sizeof(token->bytes));
    ch_hmac_add(&mac, label, strlen(label) + 1);
    ch_hmac_add(&mac, hello, CH_HELLO_NBYTES);
    ch_hmac_add(&mac, challenge, nbytes);
    ch_hmac_end(&mac, mac_out);
}

static void server_mac(const choir_token *token, const unsigned char *hello,
                       const unsigned char *challenge, unsigned char *mac_out)
{
    mac_of(token, "choir store: server to client", hello, challenge, AT_MAC, mac_out);
}

static void client_mac(const choir_token *token, const unsigned char *hello,
                       const unsigned char *challenge, unsigned char *mac_out)
{
    mac_of(token, "choir store: client to server", hello, challenge, CH_CHALLENGE_NBYTES, mac_out);
}

/* --- what both begin with ------------------------------------------------------------------------ */

static choir_status write_head(const choir_token *token, unsigned char *out)
{
    memcpy(out, magic, sizeof(magic));
    ch_put32(out + AT_VERSION, CH_HELLO_VERSION);
    ch_put32(out + AT_FLAGS, token != NULL ? HAS_TOKEN : 0);
    if (ch_sys_random(out + AT_NONCE, NONCE_NBYTES) != 0)
        return ch_fail_errno("hello: random bytes for its nonce");
    return CHOIR_OK;
}

static bool has_token(const unsigned char *head)
{
    return (ch_get32(head + AT_FLAGS) & HAS_TOKEN) != 0;
}

static const struct {
    const char *begins, *name;
} others[] = {
    { "HTTP/", "HTTP" },   { "GET ", "HTTP" },    { "POST ", "HTTP" },       { "HEAD ", "HTTP" },
    { "PUT ", "HTTP" },    { "OPTIONS", "HTTP" }, { "CONNECT", "HTTP" },     { "PRI * ", "HTTP" },
    { "<!DOC", "HTTP" },   { "SSH-", "SSH" },     { "220 ", "SMTP or FTP" }, { "\x16\x03", "TLS" },
    { "\x15\x03", "TLS" },
};

static const char *what_it_is(const unsigned char *bytes, size_t nbytes)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(others); i++) {
        size_t n = strlen(others[i].begins);

        if (nbytes >= n && memcmp(bytes, others[i].begins, n) == 0)
            return others[i].name;
    }
    return "something else";
}

choir_status ch_hello_begins(const unsigned char *bytes, size_t nbytes)
{
    char text[3 * sizeof(magic) + 1] = "";
    size_t n = nbytes < sizeof(magic) ? nbytes : sizeof(magic);

    if (memcmp(bytes, magic, n) == 0)
        return CHOIR_OK;
    for (size_t i = 0; i < n; i++)
        snprintf(text + 3 * i, sizeof(text) - 3 * i, " %02x", bytes[i]);
    return ch_fail(CHOIR_ERR_PROTO, "not Choir's protocol but %s (the first bytes are%s)",
                   what_it_is(bytes, nbytes), text);
}

/* --- client -------------------------------------------------------------------------------------- */

choir_status ch_hello_make(const choir_token *token, unsigned char hello_out[CH_HELLO_NBYTES])
{
    return write_head(token, hello_out);
}

static choir_status check_challenge(const choir_token *token, const unsigned char *hello,
                                    const unsigned char *challenge)
{
    uint32_t version = ch_get32(challenge + AT_VERSION);
    unsigned char mac[CH_SHA256_NBYTES];

    if (version != CH_HELLO_VERSION)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "the server speaks version %u of the protocol, this library version %u",
                       version, (unsigned)CH_HELLO_VERSION);
    if (token == NULL && has_token(challenge))
        return ch_fail(CHOIR_ERR_PERMISSION, "the server wants a token and none was given");
    if (token != NULL && !has_token(challenge))
        return ch_fail(CHOIR_ERR_PERMISSION,
                       "a token was given and the server has none: it cannot prove what it is");
    server_mac(token, hello, challenge, mac);
    if (!ch_equal_secret(mac, challenge + AT_MAC, sizeof(mac)))
        return ch_fail(CHOIR_ERR_PERMISSION, "the server does not hold the same token");
    if (ch_get32(challenge + AT_REFUSED) != REFUSED_NOT)
        return ch_fail(CHOIR_ERR_PERMISSION, "the server refused for its reason %u",
                       ch_get32(challenge + AT_REFUSED));
    return CHOIR_OK;
}

choir_status ch_hello_answer(const choir_token *token, const unsigned char hello[CH_HELLO_NBYTES],
                             const unsigned char challenge[CH_CHALLENGE_NBYTES],
                             struct ch_hello_limits *limits_out,
                             unsigned char proof_out[CH_PROOF_NBYTES])
{
    choir_status rc = ch_hello_begins(challenge, CH_CHALLENGE_NBYTES);

    client_mac(token, hello, challenge, proof_out);
    if (rc == CHOIR_OK)
        rc = check_challenge(token, hello, challenge);
    if (rc != CHOIR_OK)
        return rc;
    limits_out->key_nbytes = ch_get32(challenge + AT_KEY_NBYTES);
    limits_out->value_nbytes = ch_get64(challenge + AT_VALUE_NBYTES);
    return CHOIR_OK;
}

/* --- server -------------------------------------------------------------------------------------- */

static choir_status refuse(unsigned char *challenge, enum refused why, const char *text)
{
    ch_put32(challenge + AT_REFUSED, why);
    return ch_fail(why == REFUSED_VERSION ? CHOIR_ERR_UNSUPPORTED : CHOIR_ERR_PERMISSION, "%s",
                   text);
}

static choir_status judge(const choir_token *token, const unsigned char *hello,
                          unsigned char *challenge)
{
    uint32_t version = ch_get32(hello + AT_VERSION);
    char text[96];

    if (version != CH_HELLO_VERSION) {
        snprintf(text, sizeof(text),
                 "it speaks version %u of the protocol, this library version %u", version,
                 (unsigned)CH_HELLO_VERSION);
        return refuse(challenge, REFUSED_VERSION, text);
    }
    if (token != NULL && !has_token(hello))
        return refuse(challenge, REFUSED_HAS_NO_TOKEN, "it has no token");
    if (token == NULL && has_token(hello))
        return refuse(challenge, REFUSED_HAS_TOKEN, "it has a token, this server was given none");
    return CHOIR_OK;
}

choir_status ch_hello_challenge(const choir_token *token,
                                const unsigned char hello[CH_HELLO_NBYTES],
                                const struct ch_hello_limits *limits,
                                unsigned char challenge_out[CH_CHALLENGE_NBYTES])
{
    choir_status rc;

    memset(challenge_out, 0, CH_CHALLENGE_NBYTES);
    rc = write_head(token, challenge_out);
    if (rc != CHOIR_OK)
        return rc;
    ch_put32(challenge_out + AT_KEY_NBYTES, (uint32_t)limits->key_nbytes);
    ch_put64(challenge_out + AT_VALUE_NBYTES, limits->value_nbytes);
    rc = judge(token, hello, challenge_out);
    if (rc == CHOIR_OK)
        server_mac(token, hello, challenge_out, challenge_out + AT_MAC);
    return rc;
}

choir_status ch_hello_verify(const choir_token *token, const unsigned char hello[CH_HELLO_NBYTES],
                             const unsigned char challenge[CH_CHALLENGE_NBYTES],
                             const unsigned char proof[CH_PROOF_NBYTES])
{
    unsigned char mac[CH_SHA256_NBYTES];

    client_mac(token, hello, challenge, mac);
    if (ch_equal_secret(mac, proof, sizeof(mac)))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_PERMISSION, "it does not hold the same token");
}
