/* pool_test.c - layouts fit, and stage is shared out so that many groups get some. */
#include "choir_test.h"

#include <string.h>

#include "engine/control.h"
#include "engine/hostlink.h"
#include "engine/pool.h"
#include "transport/transport.h"

CHOIR_TEST(every_layout_fits_and_nothing_overlaps)
{
    static const uint32_t ranks[] = { 1, 2, 3, 8, 17, 64, 128, 500, 4096, 32767 };

    for (size_t i = 0; i < CH_ARRAY_LEN(ranks); i++) {
        struct ch_layout l = ch_layout_of(ranks[i]);

        CHOIR_ROW("%u ranks", ranks[i]);
        CHOIR_CHECK_LE(sizeof(struct ch_rank_page), ch_layout_control(&l, 0));
        CHOIR_CHECK_LE(ch_layout_control(&l, CH_SLOTS), ch_layout_ring(&l, 0));
        CHOIR_CHECK_EQ(ch_layout_ring(&l, 1) - ch_layout_ring(&l, 0),
                       ch_byte_ring_nbytes(l.ring_room));
        CHOIR_CHECK_LE(ch_layout_ring(&l, ranks[i]), l.stage_at);
        CHOIR_CHECK_LE(l.stage_at + (size_t)256 * 1024, l.nbytes);
        CHOIR_CHECK_LE(l.nbytes, CH_LAYOUT_MOST);
        if (ranks[i] <= 64)
            CHOIR_CHECK_LE(l.nbytes, (size_t)CH_SEGMENT_MOST);
        CHOIR_CHECK_EQ(ch_layout_ring(&l, 0) % CH_CACHE_UNIT, (size_t)0);
        CHOIR_CHECK_EQ(l.stage_at % CH_CACHE_UNIT, (size_t)0);
    }
}

CHOIR_TEST(the_first_gets_most_and_the_last_still_something)
{
    static struct ch_pool pool;
    static struct ch_lot lots[CH_SLOTS];
    struct ch_layout l = ch_layout_of(2);
    size_t end = l.stage_at;
    struct ch_lot more;

    ch_pool_init(&pool, &l);
    for (int i = 0; i < CH_SLOTS; i++) {
        CHOIR_CHECK_OK(ch_pool_take(&pool, true, &lots[i]));
        CHOIR_CHECK_EQ(lots[i].slot, (uint32_t)i);
        CHOIR_CHECK_EQ(lots[i].stage_at, end); /* behind the one before: no two share a byte */
        end += lots[i].stage_nbytes;
    }
    CHOIR_CHECK_LE(end, l.nbytes);
    CHOIR_CHECK_EQ(lots[0].stage_nbytes, (size_t)CH_STAGE_MOST);
    CHOIR_CHECK_LE((size_t)32 * 1024, lots[10].stage_nbytes);
    CHOIR_CHECK_LE((size_t)CH_STAGE_UNIT, lots[CH_SLOTS - 1].stage_nbytes);
    CHOIR_CHECK_STATUS(ch_pool_take(&pool, true, &more), CHOIR_ERR_NOMEM);
    for (int i = 0; i < CH_SLOTS; i++)
        ch_pool_give(&pool, &lots[i]);
    CHOIR_CHECK_EQ(pool.units_free, pool.nunits);
    CHOIR_CHECK_OK(ch_pool_take(&pool, true, &more));
    CHOIR_CHECK_EQ(more.stage_nbytes, lots[0].stage_nbytes);
}

/* Taken and given in any order, what is out never overlaps, and all comes back. */
CHOIR_TEST(taken_and_given_in_any_order)
{
    struct choir_test_random random = { 7 };
    static struct ch_pool pool;
    static struct ch_lot lots[40];
    bool out[40] = { false };
    struct ch_layout l = ch_layout_of(8);

    ch_pool_init(&pool, &l);
    for (int i = 0; i < 5000; i++) {
        size_t k = choir_test_random(&random) % CH_ARRAY_LEN(lots);

        if (out[k])
            ch_pool_give(&pool, &lots[k]);
        else
            CHOIR_CHECK_OK(ch_pool_take(&pool, choir_test_random(&random) % 8 != 0, &lots[k]));
        out[k] = !out[k];
        for (size_t j = 0; out[k] && j < CH_ARRAY_LEN(lots); j++) {
            if (j == k || !out[j])
                continue;
            CHOIR_CHECK_NE(lots[j].slot, lots[k].slot);
            CHOIR_CHECK(lots[j].stage_nbytes == 0 || lots[k].stage_nbytes == 0 ||
                        lots[j].stage_at >= lots[k].stage_at + lots[k].stage_nbytes ||
                        lots[k].stage_at >= lots[j].stage_at + lots[j].stage_nbytes);
        }
    }
}
