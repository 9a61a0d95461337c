/*
 * sha256.h - SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): how two ends prove to each other that
 * they hold the same job token, without showing it.
 */
#ifndef CH_SHA256_H
#define CH_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CH_SHA256_NBYTES = 32 };

struct ch_sha256 {
    uint32_t state[8];
    uint64_t nbytes;         /* hashed so far */
    unsigned char block[64]; /* the part of them that does not fill a block yet */
};

void ch_sha256_init(struct ch_sha256 *hash);
void ch_sha256_add(struct ch_sha256 *hash, const void *data, size_t nbytes);
void ch_sha256_end(struct ch_sha256 *hash, unsigned char out[CH_SHA256_NBYTES]);

struct ch_hmac {
    struct ch_sha256 inner, outer;
};

void ch_hmac_init(struct ch_hmac *mac, const void *key, size_t key_nbytes);
void ch_hmac_add(struct ch_hmac *mac, const void *data, size_t nbytes);
void ch_hmac_end(struct ch_hmac *mac, unsigned char out[CH_SHA256_NBYTES]);

/* Compare in a time that does not depend on where they differ. */
bool ch_equal_secret(const void *a, const void *b, size_t nbytes);

#endif
