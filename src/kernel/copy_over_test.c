/* copy_over_test.c - which way copies go as what they take changes, and that they are copies each way. */
#include "choir_test.h"

#include <string.h>

#include "base/compiler.h"
#include "kernel/always_by_test.h"

enum { NBYTES = 64 * 1024, COPIES = 4096 };
enum { PLAIN = 1u << CH_COPY_STORES, NO_STRING = PLAIN | 1u << CH_COPY_PAST };
enum { ALL = NO_STRING | 1u << CH_COPY_STRING };

/* What a byte takes each way, in picoseconds: stores, the CPU's own instruction, past the caches. */
struct place {
    uint32_t ps[CH_COPY_HOWS];
};

/* As seen on Zen 5, and on CPUs whose instruction is of no use. */
static const struct place near = { { 29, 8, 60 } }, far = { { 130, 22, 24 } };
static const struct place near_slow = { { 20, 100, 60 } }, far_slow = { { 130, 125, 33 } };

/* `copies` of them: how many were made as `how`. */
static int made(struct ch_copy_way *way, int copies, struct place place, unsigned there,
                enum ch_copy_how how)
{
    int count = 0;

    for (int i = 0; i < copies; i++) {
        bool timed;
        enum ch_copy_how now = ch_copy_way_next(way, there, &timed);

        CHOIR_CHECK((there & 1u << now) != 0);
        count += now == how;
        if (timed)
            ch_copy_way_took(way, now, NBYTES, (uint64_t)place.ps[now] * NBYTES / 1000);
    }
    return count;
}

/* Soon all copies are made in the way that is the best there, but for a few; and fewer as time goes by. */
CHOIR_TEST(the_best_way_is_found)
{
    static const struct {
        struct place place;
        unsigned there;
        enum ch_copy_how best;
    } rows[] = {
        { { { 29, 8, 60 } }, ALL, CH_COPY_STRING },       /* Zen 5, near */
        { { { 130, 22, 24 } }, ALL, CH_COPY_STRING },     /* and far: the bytes stay in a cache */
        { { { 130, 22, 24 } }, NO_STRING, CH_COPY_PAST }, /* a CPU without */
        { { { 130, 125, 33 } }, ALL, CH_COPY_PAST },      /* or that makes it of stores */
        { { { 130, 85, 33 } }, ALL, CH_COPY_PAST },       /* better, and yet not half as good */
        { { { 20, 100, 60 } }, ALL, CH_COPY_STORES },     /* or worse */
        { { { 20, 16, 60 } }, ALL, CH_COPY_STORES },      /* a fifth is no reason */
        { { { 100, 90, 60 } }, ALL, CH_COPY_STORES },     /* slow stores, but not twice as slow */
        { { { 79, 78, 1 } }, ALL, CH_COPY_STORES }, /* fast enough, whatever else could be had */
        { { { 130, 20, 20 } }, PLAIN, CH_COPY_STORES }, /* nothing else is there */
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        struct ch_copy_way way = { 0 };

        CHOIR_ROW("row %zu: %u, %u and %u ps", i, rows[i].place.ps[0], rows[i].place.ps[1],
                  rows[i].place.ps[2]);
        made(&way, 200, rows[i].place, rows[i].there, rows[i].best);
        CHOIR_CHECK_EQ(way.how, rows[i].best);
        CHOIR_CHECK(made(&way, COPIES, rows[i].place, rows[i].there, rows[i].best) >
                    COPIES - COPIES / 50);
        CHOIR_CHECK(made(&way, COPIES, rows[i].place, rows[i].there, rows[i].best) >
                    COPIES - COPIES / 500);
    }
}

CHOIR_TEST(it_follows_the_place)
{
    struct ch_copy_way way = { 0 };

    for (int i = 0; i < 5; i++) {
        CHOIR_ROW("time %d", i);
        made(&way, COPIES, near_slow, ALL, CH_COPY_STORES);
        CHOIR_CHECK_EQ(way.how, CH_COPY_STORES);
        made(&way, 300, far_slow, ALL, CH_COPY_PAST);
        CHOIR_CHECK_EQ(way.how, CH_COPY_PAST);
        made(&way, COPIES, far, ALL, CH_COPY_STRING);
        CHOIR_CHECK_EQ(way.how, CH_COPY_STRING);
        made(&way, COPIES, near, ALL, CH_COPY_STRING);
        CHOIR_CHECK_EQ(way.how, CH_COPY_STRING);
    }
}

/* Also where the other ways were looked at often, and were no better. */
CHOIR_TEST(what_gets_slow_is_noticed)
{
    static const struct place middling = { { 90, 90, 180 } }, slow = { { 300, 290, 50 } };
    struct ch_copy_way way = { 0 };

    for (int i = 0; i < 5; i++) {
        CHOIR_ROW("time %d", i);
        made(&way, 4 * COPIES, middling, ALL, CH_COPY_STORES);
        CHOIR_CHECK_EQ(way.how, CH_COPY_STORES);
        made(&way, 150, slow, ALL, CH_COPY_PAST);
        CHOIR_CHECK_EQ(way.how, CH_COPY_PAST);
    }
}

/* One that was put aside in the middle of a copy has learnt nothing. */
CHOIR_TEST(an_interruption_changes_nothing)
{
    static const struct {
        const struct place *place;
        enum ch_copy_how best;
    } rows[] = { { &near_slow, CH_COPY_STORES },
                 { &far_slow, CH_COPY_PAST },
                 { &near, CH_COPY_STRING } };

    for (size_t row = 0; row < CH_ARRAY_LEN(rows); row++) {
        struct ch_copy_way way = { 0 };

        CHOIR_ROW("row %zu", row);
        made(&way, 200, *rows[row].place, ALL, rows[row].best);
        for (int i = 0; i < 20; i++) {
            ch_copy_way_took(&way, rows[row].best, NBYTES, 4000000);
            made(&way, 64, *rows[row].place, ALL, rows[row].best);
            CHOIR_CHECK_EQ(way.how, rows[row].best);
        }
    }
}

CHOIR_TEST(bytes_are_the_same_each_way)
{
    static const size_t lengths[] = { 0, 1, 4095, 4096, 4097, 8191, 16384, 65535, 2 * NBYTES + 7 };
    static unsigned char src[2 * NBYTES + 64], dst[2 * NBYTES + 128];

    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < CH_ARRAY_LEN(lengths); i++) {
        for (size_t shift = 0; shift < 64; shift += 21) {
            for (int how = 0; how < CH_COPY_HOWS; how++) {
                struct ch_copy_ways ways = { 0 };

                CHOIR_ROW("%zu bytes, %zu off, way %d", lengths[i], shift, how);
                always_by(&ways, (enum ch_copy_how)how);
                memset(dst, 0xa5, sizeof(dst));
                ch_copy_over(&ways, dst + shift, src + shift / 2, lengths[i]);
                CHOIR_CHECK(memcmp(dst + shift, src + shift / 2, lengths[i]) == 0);
                for (size_t k = 0; k < shift; k++)
                    CHOIR_CHECK_EQ(dst[k], 0xa5);
                for (size_t k = shift + lengths[i]; k < sizeof(dst); k++)
                    CHOIR_CHECK_EQ(dst[k], 0xa5);
                CHOIR_CHECK_EQ(ch_copy_over_how(&ways, lengths[i]),
                               lengths[i] >= CH_COPY_OVER_FROM ? how : CH_COPY_STORES);
            }
        }
    }
}

/* Whatever the placement: one is avoided by the CPU's own instruction. */
CHOIR_TEST(the_instruction_copies_all_placements)
{
    static unsigned char src[16384], dst[16384];

    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 11 + i / 128);
    for (size_t at = 0; at < 130; at++) {
        CHOIR_ROW("%zu further into the page", at);
        memset(dst, 0, sizeof(dst));
        ch_copy_by(CH_COPY_STRING, dst + at, src, 8192);
        CHOIR_CHECK(memcmp(dst + at, src, 8192) == 0);
        CHOIR_CHECK_EQ(dst[at + 8192], 0);
        ch_copy_by(CH_COPY_STRING, dst, src + at, 8192);
        CHOIR_CHECK(memcmp(dst, src + at, 8192) == 0);
    }
}
