/* overlap_test.c - sorted or one by one, the same verdict. */
#include "choir_test.h"

#include <stdlib.h>

#include "group/overlap.h"

enum { MOST = 200, AREA = 20000 };

static char area[AREA];

/* Small ones here and there, some of them empty, some strided. */
static void scatter(choir_buf *bufs, size_t count, unsigned *seed, size_t longest)
{
    static const int64_t two[] = { 2 }, apart[] = { 5 };

    for (size_t i = 0; i < count; i++) {
        size_t length = (size_t)rand_r(seed) % (longest + 1);

        bufs[i] = (choir_buf){ .data = area + (size_t)rand_r(seed) % (AREA - longest - 8),
                               .count = length,
                               .type = CHOIR_U8 };
        if (length == 2) {
            bufs[i].ndim = 1;
            bufs[i].sizes = two;
            bufs[i].strides = apart;
        }
    }
}

static bool some_touch(const choir_buf *a, size_t na, const choir_buf *b, size_t nb)
{
    for (size_t i = 0; i < na; i++) {
        for (size_t j = 0; j < nb; j++) {
            if ((a != b || i != j) && ch_overlap(&a[i], &b[j]))
                return true;
        }
    }
    return false;
}

CHOIR_TEST(long_lists_are_judged_as_pairs_are)
{
    static choir_buf a[MOST], b[MOST];
    unsigned seed = 7;
    int touching[2] = { 0, 0 }, listed[2] = { 0, 0 };

    for (int i = 0; i < 2000; i++) {
        size_t na = 1 + (size_t)rand_r(&seed) % MOST, nb = 1 + (size_t)rand_r(&seed) % MOST;
        bool touch, expected;

        CHOIR_ROW("case %d: %zu and %zu", i, na, nb);
        scatter(a, na, &seed, 1 + (size_t)i % 4);
        scatter(b, nb, &seed, 1 + (size_t)i % 4);
        expected = some_touch(a, na, b, nb);
        CHOIR_CHECK_OK(ch_lists_touch(a, na, b, nb, &touch));
        CHOIR_CHECK_EQ(touch, expected);
        touching[touch]++;
        expected = some_touch(a, na, a, na);
        CHOIR_CHECK_EQ(ch_check_list_apart("a", a, na) != CHOIR_OK, expected);
        listed[expected]++;
    }
    CHOIR_CHECK(touching[0] > 100 && touching[1] > 100 && listed[0] > 100 && listed[1] > 100);
}

CHOIR_TEST(those_that_overlap_are_named)
{
    static choir_buf bufs[MOST];

    for (size_t i = 0; i < MOST; i++) /* from the last to the first */
        bufs[i] = (choir_buf){ .data = area + 8 * (MOST - i), .count = 8, .type = CHOIR_U8 };
    CHOIR_CHECK_OK(ch_check_list_apart("outs", bufs, MOST));
    bufs[150].data = area + 8 * (MOST - 3) + 1;
    CHOIR_CHECK_STATUS(ch_check_list_apart("outs", bufs, MOST), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "outs: those at index ");
    CHOIR_CHECK_HAS(choir_last_error(), " and 150 overlap");
    CHOIR_CHECK_STATUS(ch_check_lists_apart("ins", bufs + 100, 100, "outs", bufs, 50),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "ins and outs overlap");
}
