/*
 * reply_fuzz.c - what a server sends, to a client that has asked for something.
 *
 * The first byte says what it asked for, the second sets the pace in which the rest comes. Whatever it
 * is: the call ends, its output is whole or untouched, and nothing is left over.
 */
#include "base/mem.h"
#include "fuzz_wire.h"
#include "store/link.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static choir_status ask_for_list(struct ch_link *link, const struct ch_patience *patience)
{
    choir_blob *keys;
    size_t count;
    choir_status rc = ch_store_tcp.list(link, &keys, &count, patience);

    if (rc == CHOIR_OK)
        choir_blob_free_list(keys, count);
    return rc;
}

static choir_status ask_for_two(struct ch_link *link, const struct ch_patience *patience)
{
    choir_bytes keys[] = { choir_str("a"), choir_str("b") };
    choir_blob values[2] = { { NULL, 0 }, { NULL, 0 } };
    choir_status rc = ch_store_tcp.multi_get(link, keys, 2, values, patience);

    fuzz_check((values[0].data != NULL) == (rc == CHOIR_OK));
    choir_blob_free(&values[0]);
    choir_blob_free(&values[1]);
    return rc;
}

static choir_status ask_for_blob(struct ch_link *link, bool pop, const struct ch_patience *patience)
{
    choir_blob value = { NULL, 0 };
    choir_status rc = pop ? ch_store_tcp.queue_pop(link, choir_str("q"), &value, patience)
                          : ch_store_tcp.get(link, choir_str("key"), &value, patience);

    fuzz_check((value.data != NULL) == (rc == CHOIR_OK));
    choir_blob_free(&value);
    return rc;
}

static choir_status ask(struct ch_link *link, int what, const struct ch_patience *patience)
{
    int64_t number;
    bool all;

    switch (what) {
    case 0:
        return ask_for_blob(link, false, patience);
    case 1:
        return ask_for_list(link, patience);
    case 2:
        return ask_for_two(link, patience);
    case 3:
        return ch_store_tcp.add(link, choir_str("n"), 1, &number, patience);
    case 4:
        return ch_store_tcp.check(link, (choir_bytes[]){ choir_str("a") }, 1, &all, patience);
    case 5:
        (void)ch_store_tcp.set(link, choir_str("key"), choir_str("value"), patience);
        return ask_for_blob(link, false, patience); /* the reply may be about the set before */
    default:
        return ask_for_blob(link, true, patience);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static struct ch_bell_word word;
    static struct ch_waiter waiter;
    static bool begun;
    struct ch_patience patience = { .waiter = &waiter, .until = CH_NEVER };
    uint64_t blocks = ch_mem_count(CH_SUB_STORE).live_blocks;
    struct ch_link link;

    if (size < 2)
        return 0;
    if (!begun) {
        fuzz_check(ch_waiter_init(&waiter, &word) == CHOIR_OK);
        fuzz_install();
        begun = true;
    }
    fuzz_check(ch_link_init(&link, "fuzz") == CHOIR_OK);
    link.fd = fuzz_connect(data + 2, size - 2, data[1]);
    link.limits = (struct ch_hello_limits){ 64, 512 };
    /* The bytes end, and so does the connection: a second call at the latest is refused. */
    for (int i = 0; i < 1000 && ask(&link, data[0] % 7, &patience) != CHOIR_ERR_NETWORK; i++)
        ;
    ch_link_close(&link);
    fuzz_check(ch_mem_count(CH_SUB_STORE).live_blocks == blocks);
    return 0;
}
