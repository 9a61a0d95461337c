/* byte_ring_test.c - bytes arrive in order, through rings of any room; a broken peer is an error. Then the contract
 * of transport.h, for every transport. */
#include "choir_test.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/arch.h"
#include "base/mem.h"
#include "base/sys.h"
#include "base/wait.h"
#include "transport/byte_ring.h"
#include "transport/transport.h"

static struct ch_byte_ring *new_ring(size_t room)
{
    struct ch_byte_ring *ring = ch_zalloc_aligned(CH_CACHE_UNIT, ch_byte_ring_nbytes(room));

    CHOIR_CHECK(ring != NULL);
    return ring;
}

CHOIR_TEST(rooms_are_checked)
{
    CHOIR_CHECK_EQ(ch_byte_ring_nbytes(4096), 4096 + 256);
    CHOIR_CHECK_EQ(ch_byte_ring_nbytes(1), 256 + 1);
    CHOIR_CHECK_EQ(ch_byte_ring_nbytes(0), 0);
    CHOIR_CHECK_EQ(ch_byte_ring_nbytes(3), 0);
    CHOIR_CHECK_EQ(ch_byte_ring_nbytes(SIZE_MAX / 2 + 1), 0);
}

enum { BYTES = 400000, ROOM = 1024 };

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)(i * 13 + (i >> 10));
}

/* In lumps of any length, each of two pieces. */
static void *write_bytes(void *arg)
{
    struct ch_byte_ring_end end = { .ring = arg, .room = ROOM };
    struct choir_test_random random = { 42 };
    unsigned char lump[3000];

    for (uint64_t at = 0; at < BYTES;) {
        size_t n = 1 + choir_test_random(&random) % sizeof(lump), first = n / 3, done = 0;
        choir_status rc;

        n = n < BYTES - at ? n : BYTES - at;
        first = n / 3;
        for (size_t i = 0; i < n; i++)
            lump[i] = byte_at(at + i);
        rc = ch_byte_ring_write(
            &end, (struct iovec[]){ { lump, first }, { lump + first, n - first } }, 2, &done);
        if (rc == CHOIR_IN_PROGRESS)
            sched_yield();
        else
            CHOIR_CHECK_OK(rc);
        at += done;
    }
    return NULL;
}

CHOIR_TEST(bytes_written_before_are_seen_in_order)
{
    struct ch_byte_ring *ring = new_ring(ROOM);
    struct ch_byte_ring_end end = { .ring = ring, .room = ROOM };
    unsigned char lump[700];
    pthread_t writer;

    CHOIR_CHECK_EQ(pthread_create(&writer, NULL, write_bytes, ring), 0);
    for (uint64_t at = 0; at < BYTES;) {
        size_t done = 0;
        choir_status rc = ch_byte_ring_take(&end, lump, 1 + at % sizeof(lump), &done);

        if (rc == CHOIR_IN_PROGRESS)
            sched_yield();
        else
            CHOIR_CHECK_OK(rc);
        for (size_t i = 0; i < done; i++)
            CHOIR_CHECK_EQ(lump[i], byte_at(at + i));
        at += done;
    }
    pthread_join(writer, NULL);
    ch_free(ring);
}

CHOIR_TEST(a_counter_that_cannot_be_is_an_error)
{
    struct ch_byte_ring *ring = new_ring(8);
    struct ch_byte_ring_end writer = { .ring = ring, .room = 8 }, reader = writer;
    unsigned char text[10] = "0123456789", buf[8];
    struct iovec iov = { text, sizeof(text) };
    size_t done;

    CHOIR_CHECK(!ch_byte_ring_readable(&reader));
    CHOIR_CHECK_STATUS(ch_byte_ring_take(&reader, buf, 8, &done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_OK(ch_byte_ring_write(&writer, &iov, 1, &done));
    CHOIR_CHECK_EQ(done, 8);
    CHOIR_CHECK_STATUS(ch_byte_ring_write(&writer, &iov, 1, &done), CHOIR_IN_PROGRESS);
    atomic_store(&ring->taken, 9); /* taken more than was written */
    CHOIR_CHECK_STATUS(ch_byte_ring_write(&writer, &iov, 1, &done), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "the reader's counter is 9 beside our 8, room 8");
    atomic_store(&ring->written, 9); /* written more than fits */
    CHOIR_CHECK(ch_byte_ring_readable(&reader));
    CHOIR_CHECK_STATUS(ch_byte_ring_take(&reader, buf, 8, &done), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "the writer's counter is 9 beside our 0, room 8");
    ch_free(ring);
}

/* Whoever takes rings a writer that may sleep for want of room, and nobody else. */
CHOIR_TEST(a_full_ring_rings_its_writer)
{
    struct ch_bell_word *word = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*word));
    struct ch_byte_ring *ring = new_ring(8);
    struct ch_waiter waiter = { 0 };
    struct ch_byte_ring_end writer = { .ring = ring, .room = 8 };
    struct ch_byte_ring_end reader = { .ring = ring, .room = 8, .bell = &waiter.bell };
    unsigned char text[8] = "01234567", buf[8];
    struct iovec iov = { text, 7 };
    uint64_t rings = 0;
    size_t done;

    CHOIR_CHECK(word != NULL);
    CHOIR_CHECK_OK(ch_waiter_init(&waiter, word));
    atomic_store(&word->nasleep, 1);
    CHOIR_CHECK_OK(ch_byte_ring_write(&writer, &iov, 1, &done));
    CHOIR_CHECK_OK(ch_byte_ring_take(&reader, buf, 8, &done));
    CHOIR_CHECK_EQ(ch_sys_read(waiter.bell.fd, &rings, sizeof(rings)), -1);
    iov.iov_len = 8;
    CHOIR_CHECK_OK(ch_byte_ring_write(&writer, &iov, 1, &done));
    CHOIR_CHECK_OK(ch_byte_ring_take(&reader, buf, 1, &done)); /* the first of these makes room */
    CHOIR_CHECK_OK(ch_byte_ring_take(&reader, buf, 1, &done));
    CHOIR_CHECK_EQ(ch_sys_read(waiter.bell.fd, &rings, sizeof(rings)), 8);
    CHOIR_CHECK_EQ(rings, 1);
    atomic_store(&word->nasleep, 0);
    ch_waiter_fini(&waiter);
    ch_free(ring);
    ch_free(word);
}

/* One side fills the ring while the other makes room, at the same moment: whoever finds it full is rung for. Half of it is there before. */
enum { RACES = 300000, RACE_ROOM = 64 };

struct race {
    struct ch_byte_ring *ring;
    struct ch_waiter waiter; /* the writer's, who seems to be asleep all the time */
    _Atomic uint64_t go, done;
};

static void await(_Atomic uint64_t *turn, uint64_t value)
{
    for (unsigned looks = 1; atomic_load(turn) != value; looks++) {
        if (looks % 512 == 0)
            sched_yield();
    }
}

static void *make_room(void *arg)
{
    struct race *race = arg;
    struct ch_byte_ring_end end = { .ring = race->ring,
                                    .room = RACE_ROOM,
                                    .bell = &race->waiter.bell };
    uint64_t races = RACES / choir_test_slowness();
    unsigned char buf[RACE_ROOM];
    size_t done;

    for (uint64_t turn = 1; turn <= 2 * races; turn += 2) {
        await(&race->go, turn);
        CHOIR_CHECK_OK(ch_byte_ring_take(&end, buf, RACE_ROOM / 2, &done));
        atomic_store(&race->done, turn);
        await(&race->go, turn + 1);
        while (ch_byte_ring_take(&end, buf, RACE_ROOM, &done) == CHOIR_OK)
            ; /* what is left */
        atomic_store(&race->done, turn + 1);
    }
    return NULL;
}

CHOIR_TEST_TIMED(who_fills_a_ring_is_told_of_room, 60)
{
    static struct race race;
    struct ch_bell_word *word = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*word));
    struct ch_byte_ring_end end = { .ring = race.ring = new_ring(RACE_ROOM), .room = RACE_ROOM };
    struct choir_test_random random = { 7 };
    unsigned char half[RACE_ROOM / 2] = { 0 };
    struct iovec iov = { half, sizeof(half) }, one = { half, 1 };
    uint64_t rings, nfull = 0;
    size_t done;
    pthread_t reader;

    CHOIR_CHECK(word != NULL);
    CHOIR_CHECK_OK(ch_waiter_init(&race.waiter, word));
    atomic_store(&word->nasleep, 1);
    CHOIR_CHECK_EQ(pthread_create(&reader, NULL, make_room, &race), 0);
    for (uint64_t turn = 1; turn <= 2 * (uint64_t)(RACES / choir_test_slowness()); turn += 2) {
        bool full, rung;

        CHOIR_CHECK_OK(ch_byte_ring_write(&end, &iov, 1, &done));
        atomic_store(&race.go, turn);
        for (uint64_t n = choir_test_random(&random) % 64; n > 0; n--)
            ch_arch_relax();
        CHOIR_CHECK_OK(ch_byte_ring_write(&end, &iov, 1, &done));
        full = ch_byte_ring_write(&end, &one, 1, &done) == CHOIR_IN_PROGRESS;
        await(&race.done, turn);
        rung = ch_sys_read(race.waiter.bell.fd, &rings, sizeof(rings)) > 0;
        nfull += full;
        if (full && !rung)
            CHOIR_FAIL("race %llu: it is full, and who made room rang nobody",
                       (unsigned long long)turn / 2);
        atomic_store(&race.go, turn + 1);
        await(&race.done, turn + 1);
    }
    pthread_join(reader, NULL);
    CHOIR_CHECK(nfull > 0);
    atomic_store(&word->nasleep, 0);
    ch_waiter_fini(&race.waiter);
    ch_free(race.ring);
    ch_free(word);
}

/* --- words beside the counter ------------------------------------------------------------------------- */

static void write_eight(struct ch_byte_ring_end *end, uint64_t value)
{
    size_t done;

    CHOIR_CHECK_OK(ch_byte_ring_write(end, &(struct iovec){ &value, 8 }, 1, &done));
    CHOIR_CHECK_EQ(done, 8);
}

CHOIR_TEST(words_are_of_the_last_that_was_written)
{
    struct ch_byte_ring *ring = new_ring(64);
    struct ch_byte_ring_end writer = { .ring = ring, .room = 64 }, reader = writer;
    uint64_t words[] = { 5, 6 }, got[2] = { 0 };

    CHOIR_CHECK(!ch_byte_ring_told(&reader, 0, got, 2)); /* there never were any */
    ch_byte_ring_tell(&writer, words, 2);
    CHOIR_CHECK(!ch_byte_ring_told(&reader, 8, got, 2)); /* what they are about is not there yet */
    write_eight(&writer, 1);
    CHOIR_CHECK(!ch_byte_ring_told(&reader, 16, got, 2));
    CHOIR_CHECK(ch_byte_ring_told(&reader, 8, got, 2));
    CHOIR_CHECK(got[0] == 5 && got[1] == 6);
    write_eight(&writer, 2); /* without words: those are still of the one before */
    CHOIR_CHECK(ch_byte_ring_told(&reader, 8, got, 2));
    ch_byte_ring_consume(&reader, 8);
    CHOIR_CHECK(!ch_byte_ring_told(&reader, 8, got, 2));
    words[0] = 7;
    ch_byte_ring_tell(&writer, words, 2);
    write_eight(&writer, 3);
    CHOIR_CHECK(!ch_byte_ring_told(&reader, 8, got, 2)); /* of a later one */
    ch_byte_ring_consume(&reader, 8);
    CHOIR_CHECK(ch_byte_ring_told(&reader, 8, got, 2));
    CHOIR_CHECK_EQ(got[0], 7);
    ch_free(ring);
}

enum { TELLS = 200000 };

static void *tell_all(void *arg)
{
    struct ch_byte_ring_end end = { .ring = arg, .room = ROOM };

    for (uint64_t i = 0; i < TELLS; i++) {
        uint64_t words[CH_TOLD_WORDS];
        void *to;

        while ((to = ch_byte_ring_reserve(&end, 8)) == NULL)
            sched_yield();
        memcpy(to, &i, sizeof(i));
        for (uint64_t w = 0; w < CH_TOLD_WORDS; w++)
            words[w] = i * CH_TOLD_WORDS + w;
        ch_byte_ring_tell(&end, words, CH_TOLD_WORDS);
        ch_byte_ring_commit(&end, 8);
    }
    return NULL;
}

/* While a writer goes on: they hold together and are of what comes next, or there are none. */
CHOIR_TEST(words_hold_together)
{
    struct ch_byte_ring *ring = new_ring(ROOM);
    struct ch_byte_ring_end end = { .ring = ring, .room = ROOM };
    pthread_t writer;

    CHOIR_CHECK_EQ(pthread_create(&writer, NULL, tell_all, ring), 0);
    for (uint64_t i = 0; i < TELLS; i++) {
        uint64_t words[CH_TOLD_WORDS], value;
        const void *at;

        while (!ch_byte_ring_readable(&end))
            sched_yield();
        if (ch_byte_ring_told(&end, 8, words, CH_TOLD_WORDS)) {
            for (uint64_t w = 0; w < CH_TOLD_WORDS; w++)
                CHOIR_CHECK_EQ(words[w], i * CH_TOLD_WORDS + w);
        }
        at = ch_byte_ring_peek(&end, 8);
        memcpy(&value, at, sizeof(value));
        CHOIR_CHECK_EQ(value, i);
        ch_byte_ring_consume(&end, 8);
    }
    pthread_join(writer, NULL);
    ch_free(ring);
}

/* --- the contract ------------------------------------------------------------------------------------- */

/* Two ends of one connection; to oneself they are one. */
struct pair {
    struct ch_stream *a, *b;
    struct ch_byte_ring *rings[2];
};

static struct ch_bell_word nobody;

static choir_status open_pair(const struct ch_transport_ops *ops, struct pair *pair)
{
    struct ch_bell bell;
    choir_status rc;

    ch_bell_attach(&bell, &nobody, -1);
    *pair = (struct pair){ 0 };
    if (ops == &ch_transport_self) {
        rc = ch_transport_self_open(3, 64, &pair->a);
        pair->b = pair->a;
        return rc;
    }
    pair->rings[0] = new_ring(64);
    pair->rings[1] = new_ring(64);
    rc = ch_transport_shm_open(1, pair->rings[0], pair->rings[1], 64, &bell, &pair->a);
    if (rc == CHOIR_OK)
        rc = ch_transport_shm_open(0, pair->rings[1], pair->rings[0], 64, &bell, &pair->b);
    return rc;
}

static void close_pair(struct pair *pair)
{
    if (pair->b != NULL && pair->b != pair->a)
        pair->b->ops->close(pair->b);
    if (pair->a != NULL)
        pair->a->ops->close(pair->a);
    ch_free(pair->rings[0]);
    ch_free(pair->rings[1]);
}

static const struct ch_transport_ops *const transports[] = {
#define CH_TRANSPORT(name) &ch_transport_##name,
#include "transport/transport.def"
#undef CH_TRANSPORT
};

static void check_contract(struct ch_stream *from, struct ch_stream *to)
{
    unsigned char out[100], in[100] = { 0 };
    struct iovec iov = { out, sizeof(out) };
    size_t sent = 0, got = 0, done = 0;
    choir_status rc;

    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = byte_at(i);
    CHOIR_CHECK(!to->ops->readable(to));
    CHOIR_CHECK_STATUS(to->ops->recv(to, in, sizeof(in), &done), CHOIR_IN_PROGRESS);
    while ((rc = from->ops->send(from, &iov, 1, &done)) == CHOIR_OK) {
        CHOIR_CHECK(done > 0 && done <= iov.iov_len);
        sent += done;
        iov = (struct iovec){ out + sent, sizeof(out) - sent };
    }
    CHOIR_CHECK_STATUS(rc, CHOIR_IN_PROGRESS); /* nobody took any of it */
    CHOIR_CHECK(to->ops->readable(to));
    while ((rc = to->ops->recv(to, in + got, 7, &done)) == CHOIR_OK)
        got += done;
    CHOIR_CHECK_STATUS(rc, CHOIR_IN_PROGRESS);
    CHOIR_CHECK_EQ(got, sent);
    CHOIR_CHECK_EQ(memcmp(in, out, got), 0);
}

/* Where a transport has memory that both sides see: the same bytes in the same order as by send() and recv(). */
static void check_places(struct ch_stream *from, struct ch_stream *to)
{
    unsigned char in[16];
    size_t done, put = 0, got = 0;
    void *at;

    if (from->ops->reserve == NULL)
        return;
    CHOIR_CHECK(to->ops->peek(to, 1) == NULL);
    CHOIR_CHECK(from->ops->reserve(from, 4096) == NULL); /* more than there is room for */
    for (int i = 0; i < 40; i++) {
        at = from->ops->reserve(from, 16);
        if (at != NULL) {
            memset(at, i, 16);
            from->ops->commit(from, 16);
            put++;
        }
        CHOIR_CHECK(to->ops->peek(to, 4096) == NULL); /* more than has come */
        while (to->ops->readable(to) && i % 3 == 0) {
            const unsigned char *seen = to->ops->peek(to, 16);

            if (seen != NULL && got % 2 == 0) {
                CHOIR_CHECK_EQ(seen[0], seen[15]);
                to->ops->consume(to, 16);
            } else {
                CHOIR_CHECK_OK(to->ops->recv(to, in, sizeof(in), &done));
                CHOIR_CHECK_EQ(done, sizeof(in));
                CHOIR_CHECK_EQ(in[0], in[15]);
            }
            got++;
        }
    }
    CHOIR_CHECK(put > 10);
    CHOIR_CHECK_EQ(got, put);
    CHOIR_CHECK(!to->ops->readable(to));
}

CHOIR_TEST(every_transport_keeps_the_contract)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(transports); i++) {
        struct pair pair;

        CHOIR_ROW("%s", transports[i]->name);
        CHOIR_CHECK_OK(open_pair(transports[i], &pair));
        for (int round = 0; round < 5; round++) {
            check_contract(pair.a, pair.b);
            check_contract(pair.b, pair.a);
        }
        close_pair(&pair);
        CHOIR_CHECK_OK(open_pair(transports[i], &pair));
        check_places(pair.a, pair.b);
        check_places(pair.b, pair.a);
        close_pair(&pair);
    }
    CHOIR_CHECK_STATUS(ch_transport_self_open(3, 65, &(struct ch_stream *){ NULL }),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "65 bytes, which is no power of two");
}

static choir_status open_scenario(void *arg)
{
    static _Alignas(CH_CACHE_UNIT) unsigned char memory[sizeof(struct ch_byte_ring) + 64];
    struct ch_byte_ring *ring = (struct ch_byte_ring *)(void *)memory;
    const struct ch_transport_ops *const *ops = arg;
    struct ch_bell bell;
    struct ch_stream *stream = NULL;
    choir_status rc;

    ch_bell_attach(&bell, &nobody, -1);
    if (*ops == &ch_transport_self)
        rc = ch_transport_self_open(3, 64, &stream);
    else
        rc = ch_transport_shm_open(1, ring, ring, 64, &bell, &stream);
    if (rc == CHOIR_OK)
        stream->ops->close(stream);
    return rc;
}

CHOIR_TEST(every_allocation_of_a_stream_may_fail)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(transports); i++)
        choir_test_all_faults(open_scenario, (void *)&transports[i]);
}
