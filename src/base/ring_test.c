/* ring_test.c - records arrive whole and in order; a broken peer is an error. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>

#include "base/mem.h"
#include "base/ring.h"

struct record {
    uint64_t number, copies[4];
};

static const struct {
    uint32_t capacity, record_size;
    size_t nbytes;
    const char *why;
} sizes[] = {
    { 8, 16, 256 + 128, "an ordinary ring" },
    { 1, 1, 256 + 1, "the smallest" },
    { 0, 16, 0, "no room" },
    { 6, 16, 0, "not a power of two" },
    { 8, 0, 0, "records of nothing" },
};

CHOIR_TEST(sizes_are_checked)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        CHOIR_ROW("%s", sizes[i].why);
        CHOIR_CHECK_EQ(ch_ring_nbytes(sizes[i].capacity, sizes[i].record_size), sizes[i].nbytes);
    }
}

static struct ch_ring_shared *shared;

enum { CAPACITY = 16, RECORDS = 200000 };

static void *write_records(void *arg)
{
    struct ch_ring ring;

    ch_ring_attach(&ring, shared, CAPACITY, sizeof(struct record));
    for (uint64_t n = 0; n < RECORDS; n++) {
        struct record r = { n, { n, n + 1, n + 2, n + 3 } };
        choir_status rc;

        while ((rc = ch_ring_write(&ring, &r)) == CHOIR_IN_PROGRESS)
            sched_yield();
        CHOIR_CHECK_OK(rc);
    }
    return arg;
}

CHOIR_TEST(records_arrive_whole_and_in_order)
{
    struct ch_ring ring;
    pthread_t writer;

    shared = ch_zalloc_aligned(CH_CACHE_UNIT, ch_ring_nbytes(CAPACITY, sizeof(struct record)));
    CHOIR_CHECK(shared != NULL);
    ch_ring_attach(&ring, shared, CAPACITY, sizeof(struct record));
    CHOIR_CHECK_EQ(pthread_create(&writer, NULL, write_records, NULL), 0);
    for (uint64_t n = 0; n < RECORDS; n++) {
        struct record r;
        choir_status rc;

        while ((rc = ch_ring_take(&ring, &r)) == CHOIR_IN_PROGRESS)
            sched_yield();
        CHOIR_CHECK_OK(rc);
        CHOIR_CHECK_EQ(r.number, n);
        for (unsigned k = 0; k < 4; k++)
            CHOIR_CHECK_EQ(r.copies[k], n + k);
    }
    pthread_join(writer, NULL);
    ch_free(shared);
}

CHOIR_TEST(full_and_empty_say_so_and_a_broken_peer_is_an_error)
{
    struct ch_ring writer, reader;
    uint64_t out = 0;

    shared = ch_zalloc_aligned(CH_CACHE_UNIT, ch_ring_nbytes(2, sizeof(out)));
    CHOIR_CHECK(shared != NULL);
    ch_ring_attach(&writer, shared, 2, sizeof(out));
    ch_ring_attach(&reader, shared, 2, sizeof(out));
    CHOIR_CHECK_STATUS(ch_ring_take(&reader, &out), CHOIR_IN_PROGRESS);
    for (uint64_t n = 0; n < 2; n++)
        CHOIR_CHECK_OK(ch_ring_write(&writer, &n));
    CHOIR_CHECK_STATUS(ch_ring_write(&writer, &out), CHOIR_IN_PROGRESS);

    atomic_store(&shared->taken, 77); /* taken more than was written */
    CHOIR_CHECK_STATUS(ch_ring_write(&writer, &out), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "77");
    atomic_store(&shared->written, 3); /* written more than fits */
    CHOIR_CHECK_STATUS(ch_ring_take(&reader, &out), CHOIR_ERR_PROTO);
    ch_free(shared);
}
