/* copy_over_test.c - which way copies go as what they take changes, and that they are copies either way. */
#include "choir_test.h"

#include <string.h>

#include "base/compiler.h"
#include "kernel/always_past_test.h"

enum { NBYTES = 64 * 1024, COPIES = 4096 };

/* What a byte takes each way, in picoseconds. */
struct place {
    uint32_t own_ps, past_ps;
};

static const struct place near = { 20, 60 }, far = { 130, 33 };

/* `copies` of them: how many went past the caches. */
static int past_of(struct ch_copy_way *way, int copies, struct place place)
{
    int npast = 0;

    for (int i = 0; i < copies; i++) {
        bool timed, past = ch_copy_way_next(way, &timed);
        uint64_t ps = past ? place.past_ps : place.own_ps;

        npast += past;
        if (timed)
            ch_copy_way_took(way, past, NBYTES, ps * NBYTES / 1000);
    }
    return npast;
}

CHOIR_TEST(near_nothing_else_is_tried)
{
    struct ch_copy_way way = { 0 };

    CHOIR_CHECK_EQ(past_of(&way, COPIES, near), 0);
    CHOIR_CHECK(!way.past);
}

CHOIR_TEST(far_all_but_a_few_go_past)
{
    struct ch_copy_way way = { 0 };

    past_of(&way, 100, far);
    CHOIR_CHECK(way.past);
    CHOIR_CHECK(past_of(&way, COPIES, far) > COPIES - COPIES / 50);
    CHOIR_CHECK(past_of(&way, COPIES, far) > COPIES - COPIES / 500); /* patience has grown */
}

CHOIR_TEST(it_follows_the_place)
{
    struct ch_copy_way way = { 0 };

    for (int i = 0; i < 5; i++) {
        CHOIR_ROW("time %d", i);
        past_of(&way, COPIES, near);
        CHOIR_CHECK(!way.past);
        past_of(&way, 200, far);
        CHOIR_CHECK(way.past);
        past_of(&way, COPIES, far);
        CHOIR_CHECK(way.past);
    }
}

/* Also where the other way was looked at often, and was no better. */
CHOIR_TEST(what_gets_slow_is_noticed)
{
    static const struct place middling = { 90, 180 };
    struct ch_copy_way way = { 0 };

    for (int i = 0; i < 5; i++) {
        CHOIR_ROW("time %d", i);
        past_of(&way, 4 * COPIES, middling);
        CHOIR_CHECK(!way.past);
        past_of(&way, 100, (struct place){ 300, 50 });
        CHOIR_CHECK(way.past);
    }
}

/* What gains little is not done: readers would pay for it. */
CHOIR_TEST(a_little_is_not_enough)
{
    static const struct place rows[] = {
        { 100, 60 },  /* slow stores, but not twice as slow */
        { 100, 100 }, /* no difference */
        { 90, 200 },
        { 79, 1 }, /* fast enough, whatever else could be had */
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        struct ch_copy_way way = { 0 };

        CHOIR_ROW("%u and %u ps", rows[i].own_ps, rows[i].past_ps);
        CHOIR_CHECK(past_of(&way, COPIES, rows[i]) < COPIES / 50);
        CHOIR_CHECK(!way.past);
    }
}

/* One that was put aside in the middle of a copy has learnt nothing. */
CHOIR_TEST(an_interruption_changes_nothing)
{
    struct ch_copy_way way = { 0 };

    past_of(&way, 100, near);
    for (int i = 0; i < 20; i++) {
        ch_copy_way_took(&way, false, NBYTES, 4000000);
        past_of(&way, 64, near);
        CHOIR_CHECK(!way.past);
    }
    past_of(&way, 200, far);
    CHOIR_CHECK(way.past);
    for (int i = 0; i < 20; i++) {
        ch_copy_way_took(&way, true, NBYTES, 4000000);
        past_of(&way, 64, far);
        CHOIR_CHECK(way.past);
    }
}

CHOIR_TEST(bytes_are_the_same_either_way)
{
    static const size_t lengths[] = { 0, 1, 4095, 4096, 4097, 8191, 16384, 65535, 2 * NBYTES + 7 };
    static unsigned char src[2 * NBYTES + 64], dst[2 * NBYTES + 128];

    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < CH_ARRAY_LEN(lengths); i++) {
        for (size_t shift = 0; shift < 64; shift += 21) {
            for (int past = 0; past < 2; past++) {
                struct ch_copy_ways ways = { 0 };

                CHOIR_ROW("%zu bytes, %zu off, %s", lengths[i], shift, past ? "past" : "own");
                if (past)
                    always_past(&ways);
                memset(dst, 0xa5, sizeof(dst));
                ch_copy_over(&ways, dst + shift, src + shift / 2, lengths[i]);
                CHOIR_CHECK(memcmp(dst + shift, src + shift / 2, lengths[i]) == 0);
                for (size_t k = 0; k < shift; k++)
                    CHOIR_CHECK_EQ(dst[k], 0xa5);
                for (size_t k = shift + lengths[i]; k < sizeof(dst); k++)
                    CHOIR_CHECK_EQ(dst[k], 0xa5);
                CHOIR_CHECK_EQ(ch_copy_goes_past(&ways, lengths[i]),
                               past && lengths[i] >= CH_COPY_OVER_FROM);
            }
        }
    }
}
