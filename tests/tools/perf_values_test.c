/*
 * perf_values_test.c - what choir perf and bench/compare verify with finds what is wrong.
 */
#include "choir_test.h"

#include "../../tools/perf_values.h"

enum { COUNT = 5003 };

/* Two ranks, or a rank and its neighbouring element, have every pair of values somewhere: a sum that is wrong for one of them shows. */
CHOIR_TEST(every_pair_of_values_is_there)
{
    static const size_t apart[] = { 1, 2, 131, 262, 17 }; /* elements, ranks, rounds */

    for (size_t k = 0; k < sizeof(apart) / sizeof(apart[0]); k++) {
        bool seen[8][8] = { { false } };
        int pairs = 0;

        for (size_t i = 0; i < PERF_PERIOD; i++) {
            int a = perf_value(i), b = perf_value(i + apart[k]);

            CHOIR_CHECK(a >= 1 && a <= 7);
            pairs += !seen[a][b];
            seen[a][b] = true;
        }
        CHOIR_ROW("%zu apart", apart[k]);
        CHOIR_CHECK_EQ(pairs, 49);
    }
}

CHOIR_TEST(one_wrong_element_is_found)
{
    static float tile[PERF_TILE], data[COUNT + 1];

    perf_tile_f32(tile);
    perf_fill(data, COUNT, 7, sizeof(float), tile);
    CHOIR_CHECK_EQ(perf_differ(data, COUNT, 7, sizeof(float), tile), 0);
    for (size_t i = 0; i < COUNT; i += 37) {
        data[i]++;
        CHOIR_CHECK_EQ(perf_differ(data, COUNT, 7, sizeof(float), tile), 1);
        data[i]--;
    }
    /* one element too far, of another rank, of another round */
    CHOIR_CHECK(perf_differ(data + 1, COUNT - 1, 7, sizeof(float), tile) > COUNT / 2);
    CHOIR_CHECK(perf_differ(data, COUNT, 7 + perf_shift(1, 0), sizeof(float), tile) > COUNT / 2);
    CHOIR_CHECK(perf_differ(data, COUNT, 7 + 17, sizeof(float), tile) > COUNT / 2);
}
