/*
 * sha256.c - SHA-256 and HMAC, plain C: used a few times per connection, so clarity beats speed.
 */
#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t read_be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_be32(unsigned char *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(x >> (24 - 8 * i));
}

static void expand(const unsigned char block[64], uint32_t w[64])
{
    for (int t = 0; t < 16; t++)
        w[t] = read_be32(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;

        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

/* One block into the state. v holds the standard's a to h, moved along by one each round. */
static void compress(uint32_t state[8], const unsigned char block[64])
{
    uint32_t w[64], v[8];

    expand(block, w);
    memcpy(v, state, sizeof(v));
    for (int t = 0; t < 64; t++) {
        uint32_t e = v[4], a = v[0];
        uint32_t choose = (e & v[5]) ^ (~e & v[6]);
        uint32_t majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
        uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choose +
                      round_constants[t] + w[t];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void ch_sha256_init(struct ch_sha256 *hash)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    *hash = (struct ch_sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void ch_sha256_add(struct ch_sha256 *hash, const void *data, size_t nbytes)
{
    const unsigned char *p = data;
    size_t used = hash->nbytes % sizeof(hash->block);

    hash->nbytes += nbytes;
    while (nbytes > 0) {
        size_t room = sizeof(hash->block) - used;
        size_t n = nbytes < room ? nbytes : room;

        memcpy(hash->block + used, p, n);
        p += n;
        nbytes -= n;
        used += n;
        if (used == sizeof(hash->block)) {
            compress(hash->state, hash->block);
            used = 0;
        }
    }
}

void ch_sha256_end(struct ch_sha256 *hash, unsigned char out[CH_SHA256_NBYTES])
{
    static const unsigned char one_bit = 0x80, zero = 0;
    unsigned char length[8];
    uint64_t nbits = hash->nbytes * 8;

    write_be32(length, (uint32_t)(nbits >> 32));
    write_be32(length + 4, (uint32_t)nbits);
    ch_sha256_add(hash, &one_bit, 1);
    while (hash->nbytes % 64 != 56)
        ch_sha256_add(hash, &zero, 1);
    ch_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        write_be32(out + 4 * i, hash->state[i]);
}

void ch_hmac_init(struct ch_hmac *mac, const void *key, size_t key_nbytes)
{
    unsigned char padded[64] = { 0 }, inner[64], outer[64];

    if (key_nbytes > sizeof(padded)) {
        ch_sha256_init(&mac->inner);
        ch_sha256_add(&mac->inner, key, key_nbytes);
        ch_sha256_end(&mac->inner, padded);
    } else if (key_nbytes > 0) {
        memcpy(padded, key, key_nbytes);
    }
    for (int i = 0; i < 64; i++) {
        inner[i] = padded[i] ^ 0x36;
        outer[i] = padded[i] ^ 0x5c;
    }
    ch_sha256_init(&mac->inner);
    ch_sha256_add(&mac->inner, inner, sizeof(inner));
    ch_sha256_init(&mac->outer);
    ch_sha256_add(&mac->outer, outer, sizeof(outer));
}

void ch_hmac_add(struct ch_hmac *mac, const void *data, size_t nbytes)
{
    ch_sha256_add(&mac->inner, data, nbytes);
}

void ch_hmac_end(struct ch_hmac *mac, unsigned char out[CH_SHA256_NBYTES])
{
    unsigned char digest[CH_SHA256_NBYTES];

    ch_sha256_end(&mac->inner, digest);
    ch_sha256_add(&mac->outer, digest, sizeof(digest));
    ch_sha256_end(&mac->outer, out);
}

bool ch_equal_secret(const void *a, const void *b, size_t nbytes)
{
    const unsigned char *x = a, *y = b;
    unsigned char differs = 0;

    for (size_t i = 0; i < nbytes; i++)
        differs |= x[i] ^ y[i];
    return differs == 0;
}
