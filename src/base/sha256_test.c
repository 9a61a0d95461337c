/* sha256_test.c - the published vectors of FIPS 180-4 and RFC 4231. */
#include "choir_test.h"

#include <string.h>

#include "base/sha256.h"

static const char *hex(const unsigned char digest[CH_SHA256_NBYTES])
{
    static char text[2 * CH_SHA256_NBYTES + 1];

    for (int i = 0; i < CH_SHA256_NBYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return text;
}

static const char *sha256_of(const char *text, size_t repeat, size_t piece)
{
    unsigned char digest[CH_SHA256_NBYTES];
    struct ch_sha256 hash;
    size_t length = strlen(text);

    ch_sha256_init(&hash);
    for (size_t r = 0; r < repeat; r++) {
        for (size_t at = 0; at < length; at += piece)
            ch_sha256_add(&hash, text + at, length - at < piece ? length - at : piece);
    }
    ch_sha256_end(&hash, digest);
    return hex(digest);
}

static const struct {
    const char *text;
    size_t repeat;
    const char *digest;
} hashes[] = {
    { "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, /* 56 bytes: two blocks */
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "aaaaaaaaaa", 100000, /* a million letters */
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
};

CHOIR_TEST(sha256_vectors_in_pieces_of_any_size)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(hashes); i++) {
        for (size_t piece = 1; piece <= 64; piece += 21) {
            CHOIR_ROW("\"%s\" x %zu in pieces of %zu", hashes[i].text, hashes[i].repeat, piece);
            CHOIR_CHECK_STR(sha256_of(hashes[i].text, hashes[i].repeat, piece), hashes[i].digest);
        }
    }
}

/* RFC 4231, by test case number. */
static const struct {
    unsigned char key_byte;
    size_t key_nbytes;
    const char *data;
    const char *digest;
} macs[] = {
    { 0x0b, 20, "Hi There", /* 1 */
      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
    { 0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First", /* 6 */
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
    { 0xaa, 131, /* 7 */
      "This is a test using a larger than block-size key and a larger than block-size data. The "
      "key needs to be hashed before being used by the HMAC algorithm.",
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
};

CHOIR_TEST(hmac_vectors)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(macs); i++) {
        unsigned char key[131], digest[CH_SHA256_NBYTES];
        struct ch_hmac mac;

        CHOIR_ROW("%s", macs[i].data);
        memset(key, macs[i].key_byte, sizeof(key));
        ch_hmac_init(&mac, key, macs[i].key_nbytes);
        ch_hmac_add(&mac, macs[i].data, strlen(macs[i].data));
        ch_hmac_end(&mac, digest);
        CHOIR_CHECK_STR(hex(digest), macs[i].digest);
    }
}

CHOIR_TEST(hmac_with_a_word_for_a_key)
{
    unsigned char digest[CH_SHA256_NBYTES];
    struct ch_hmac mac;

    ch_hmac_init(&mac, "Jefe", 4); /* RFC 4231, case 2 */
    ch_hmac_add(&mac, "what do ya want ", 16);
    ch_hmac_add(&mac, "for nothing?", 12);
    ch_hmac_end(&mac, digest);
    CHOIR_CHECK_STR(hex(digest),
                    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

CHOIR_TEST(secrets_compare)
{
    CHOIR_CHECK(ch_equal_secret("token", "token", 5));
    CHOIR_CHECK(!ch_equal_secret("token", "tokem", 5));
    CHOIR_CHECK(!ch_equal_secret("token", "Token", 5));
    CHOIR_CHECK(ch_equal_secret("", "", 0));
}
