/*
 * hello.h - how client and server of a store prove to each other that they hold the same job token.
 *
 *      client                                              server
 *      hello: version, nonce  ---------------------------->
 *                             <----- challenge: nonce, limits, MAC of hello and challenge
 *      proof: MAC of both     ---------------------------->
 *      requests               ---------------------------->
 *
 * Each side's MAC (HMAC-SHA-256 under the token) covers both nonces and all other bytes said so far,
 * and begins with a label of its own direction: so neither a recorded conversation nor the other
 * side's own words sent back to it are worth anything. The client can send its first request right
 * behind its proof; the reply tells that it is in. All messages have a fixed size, nothing in them
 * has a length, and the server keeps them in fixed places: who has not proved itself cannot make it
 * allocate.
 *
 * A side without a token says so; then both must be without, and MACs are zero. A server without a
 * token listens on loopback only (server.c).
 *
 * What it does not do: hide or sign what follows. Who can change packets on the way is not kept out.
 *
 * Numbers are little-endian. Magic and version stay where they are in all versions.
 *
 *   hello            challenge        proof
 *   offset  bytes    offset  bytes    offset  bytes
 *        0      8         0      8                      magic "CHOIR\r\n\0": a line, so that servers
 *                                                       of other protocols that expect lines answer
 *        8      4         8      4                      version
 *       12      4        12      4                      flags: 1 has a token
 *       16     32        16     32                      nonce
 *                        48      4                      why the client is refused, 0: it is not
 *                        52      4                      longest key, in bytes
 *                        56      8                      longest value, in bytes
 *                        64     32         0     32     MAC
 *       48               96               32
 */
#ifndef CH_HELLO_H
#define CH_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>
#include <choir/store.h>

enum {
    CH_HELLO_VERSION = 1,
    CH_HELLO_NBYTES = 48,
    CH_CHALLENGE_NBYTES = 96,
    CH_PROOF_NBYTES = 32,
};

/* What the server stores at most; the client checks it before it sends. */
struct ch_hello_limits {
    uint64_t key_nbytes, value_nbytes;
};

/* --- client -------------------------------------------------------------------------------------- */

/* With a fresh nonce. `token` NULL: none. */
choir_status ch_hello_make(const choir_token *token, unsigned char hello_out[CH_HELLO_NBYTES]);

/*
 * Check the challenge and write the proof: also if the server holds another token, so that it can say
 * so in its log.
 * Errors:  CHOIR_ERR_PERMISSION if they do not hold the same token, saying who has none;
 *          CHOIR_ERR_UNSUPPORTED if the versions differ.
 */
choir_status ch_hello_answer(const choir_token *token, const unsigned char hello[CH_HELLO_NBYTES],
                             const unsigned char challenge[CH_CHALLENGE_NBYTES],
                             struct ch_hello_limits *limits_out,
                             unsigned char proof_out[CH_PROOF_NBYTES]);

/* --- server -------------------------------------------------------------------------------------- */

/* The challenge to a hello, with a fresh nonce. On failure the challenge says why the client is
 * refused: it is to be sent, too, and then the connection ends. */
choir_status ch_hello_challenge(const choir_token *token,
                                const unsigned char hello[CH_HELLO_NBYTES],
                                const struct ch_hello_limits *limits,
                                unsigned char challenge_out[CH_CHALLENGE_NBYTES]);

/* CHOIR_OK, or CHOIR_ERR_PERMISSION: the client does not hold our token. */
choir_status ch_hello_verify(const choir_token *token, const unsigned char hello[CH_HELLO_NBYTES],
                             const unsigned char challenge[CH_CHALLENGE_NBYTES],
                             const unsigned char proof[CH_PROOF_NBYTES]);

/* --- both ---------------------------------------------------------------------------------------- */

/* Whether the first bytes, at least one, can be the beginning of a hello or a challenge;
 * CHOIR_ERR_PROTO with what they look like instead. */
choir_status ch_hello_begins(const unsigned char *bytes, size_t nbytes);

#endif
