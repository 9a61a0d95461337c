/*
 * request_fuzz.c - what a client sends after its hello, to a server with narrow limits.
 *
 * The first byte sets the pace in which the others come. Whatever they are: the server answers in
 * whole replies, keeps to its limits, and has nothing left of the client when that has gone.
 */
#include "fuzz_server.h"
#include "store/hello.h"
#include "store/wire.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { ADMISSION = CH_HELLO_NBYTES + CH_PROOF_NBYTES };

static void check_replies(void)
{
    size_t at = CH_CHALLENGE_NBYTES;

    fuzz_check(wire.nsent >= at);
    if (wire.nsent == sizeof(wire.sent))
        return; /* some were thrown away */
    while (at < wire.nsent) {
        struct ch_message reply;

        fuzz_check(ch_wire_read_reply(wire.sent + at, wire.nsent - at, &reply) == CHOIR_OK);
        at += CH_WIRE_HEAD_NBYTES + reply.body_nbytes;
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static unsigned char bytes[ADMISSION + 64 * 1024];
    static struct fuzz_server server;
    uint64_t blocks;

    if (size == 0 || size - 1 > sizeof(bytes) - ADMISSION)
        return 0;
    if (server.loop == NULL)
        fuzz_server_open(&server, NULL);
    blocks = ch_mem_count(CH_SUB_STORE).live_blocks;
    /* Neither side has a token: the proof is zero. */
    memset(bytes, 0, ADMISSION);
    fuzz_check(ch_hello_make(NULL, bytes) == CHOIR_OK);
    memcpy(bytes + ADMISSION, data + 1, size - 1);
    fuzz_server_run(&server, bytes, ADMISSION + size - 1, data[0]);
    check_replies();
    fuzz_check(server.conns.buffered_nbytes == 0);
    fuzz_server_renew(&server);
    fuzz_check(ch_mem_count(CH_SUB_STORE).live_blocks == blocks);
    return 0;
}
