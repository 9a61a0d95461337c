/*
 * hello_fuzz.c - a stranger's bytes, to a server and to a client that hold a token.
 *
 * Whatever they are: the server admits nobody, uses no heap, and closes; the client believes nobody.
 * The first byte sets the pace in which the others come.
 */
#include "fuzz_server.h"
#include "store/hello.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static const choir_token token = { { 1, 2, 3 } };

static void to_client(const unsigned char *bytes, size_t nbytes)
{
    unsigned char hello[CH_HELLO_NBYTES], proof[CH_PROOF_NBYTES];
    struct ch_hello_limits limits;

    if (nbytes == 0 || ch_hello_begins(bytes, nbytes) != CHOIR_OK || nbytes < CH_CHALLENGE_NBYTES)
        return;
    fuzz_check(ch_hello_make(&token, hello) == CHOIR_OK);
    fuzz_check(ch_hello_answer(&token, hello, bytes, &limits, proof) != CHOIR_OK);
    /* Without a token it takes a server that has none either: nothing more to be had from it. */
    (void)ch_hello_answer(NULL, hello, bytes, &limits, proof);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static struct fuzz_server server;
    uint64_t blocks;

    if (size == 0)
        return 0;
    if (server.loop == NULL)
        fuzz_server_open(&server, &token);
    blocks = ch_mem_count(CH_SUB_STORE).total_blocks;
    fuzz_server_run(&server, data + 1, size - 1, data[0]);
    fuzz_check(ch_mem_count(CH_SUB_STORE).total_blocks == blocks); /* nobody was admitted either */
    fuzz_check(wire.nsent == 0 || wire.nsent == CH_CHALLENGE_NBYTES);
    to_client(data + 1, size - 1);
    return 0;
}
