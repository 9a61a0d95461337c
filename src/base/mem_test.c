/* mem_test.c - counted, checked, failing on demand. */
#include "choir_test.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"

static bool all_zero(const char *p, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        if (p[i] != 0)
            return false;
    }
    return true;
}

CHOIR_TEST(blocks_and_bytes_are_counted_by_subsystem)
{
    uint64_t base_before = ch_mem_count(CH_SUB_BASE).live_blocks;
    uint64_t total = ch_mem_count(CH_SUB_TEST).total_blocks;
    void *a = ch_alloc(100), *b = ch_zalloc_array(10, 5);

    CHOIR_CHECK(a != NULL && b != NULL);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_blocks, 2u);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_bytes, 150u);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_BASE).live_blocks, base_before);
    ch_free(a);
    ch_free(b);
    ch_free(NULL);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_blocks, 0u);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_bytes, 0u);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).total_blocks, total + 2);
}

static const struct {
    size_t count, size;
    const char *why;
} too_large[] = {
    { SIZE_MAX, 2, "the product overflows" },
    { SIZE_MAX / 2, 3, "the product overflows by little" },
    { 1, SIZE_MAX, "no room for the header" },
    { 1, SIZE_MAX - 15, "the header just overflows" },
    { SIZE_MAX / 2, 1, "fits a size_t, but no pointer could cross it" },
};

CHOIR_TEST(sizes_that_do_not_fit_are_refused)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(too_large); i++) {
        size_t count = too_large[i].count, size = too_large[i].size;
        char *old = ch_strdup("kept");

        CHOIR_ROW("%zu times %zu: %s", count, size, too_large[i].why);
        errno = 0;
        CHOIR_CHECK(ch_alloc_array(count, size) == NULL);
        CHOIR_CHECK_EQ(errno, ENOMEM);
        CHOIR_CHECK(ch_zalloc_array(count, size) == NULL);
        CHOIR_CHECK(ch_regrow(old, count, size) == NULL);
        CHOIR_CHECK_STR(old, "kept");
        ch_free(old);
    }
}

CHOIR_TEST(aligned_sizes_that_do_not_fit_are_refused)
{
    for (size_t align = 1; align <= 4096; align *= 2) {
        for (size_t less = 0; less < 3 * align + 64; less += 7) {
            CHOIR_ROW("align %zu, %zu below the top", align, less);
            CHOIR_CHECK(ch_zalloc_aligned(align, SIZE_MAX - less) == NULL);
        }
    }
}

CHOIR_TEST(aligned_blocks_are_aligned_and_zero)
{
    for (size_t align = 1; align <= 4096; align *= 2) {
        for (size_t nbytes = 0; nbytes < 300; nbytes += 13) {
            char *p = ch_zalloc_aligned(align, nbytes);

            CHOIR_ROW("align %zu, %zu bytes", align, nbytes);
            CHOIR_CHECK(p != NULL);
            CHOIR_CHECK_EQ((uintptr_t)p % align, 0u);
            CHOIR_CHECK(all_zero(p, nbytes));
            memset(p, 0xff, nbytes);
            ch_free(p);
        }
    }
}

CHOIR_TEST(growing_keeps_what_is_there_and_counts_once)
{
    int *p = ch_regrow(NULL, 4, sizeof(*p));

    CHOIR_CHECK(p != NULL);
    for (int i = 0; i < 4; i++)
        p[i] = i;
    p = ch_regrow(p, 10000, sizeof(*p));
    CHOIR_CHECK(p != NULL);
    for (int i = 0; i < 4; i++)
        CHOIR_CHECK_EQ(p[i], i);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_blocks, 1u);
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_bytes, 40000u);
    p = ch_regrow(p, 1, sizeof(*p));
    CHOIR_CHECK_EQ(ch_mem_count(CH_SUB_TEST).live_bytes, 4u);
    ch_free(p);
}

CHOIR_TEST(zeroed_blocks_are_zero_also_when_reused)
{
    char *dirty = ch_alloc(500);

    CHOIR_CHECK(dirty != NULL);
    memset(dirty, 0xff, 500);
    ch_free(dirty);
    dirty = ch_zalloc(500);
    CHOIR_CHECK(dirty != NULL && all_zero(dirty, 500));
    ch_free(dirty);
}

CHOIR_TEST(free_keeps_errno)
{
    void *p = ch_alloc(1 << 20);

    errno = EPIPE;
    ch_free(p);
    CHOIR_CHECK_EQ(errno, EPIPE);
}

/* What follows uses each call once; each must be able to fail, and undo what went before. */
static choir_status use_all(void)
{
    void *a = ch_alloc(1), *b = ch_zalloc(1), *c = ch_zalloc_aligned(64, 1), *d = ch_strdup("x");
    void *e = ch_regrow(NULL, 1, 1);
    bool ok = a != NULL && b != NULL && c != NULL && d != NULL && e != NULL;

    ch_free(a);
    ch_free(b);
    ch_free(c);
    ch_free(d);
    ch_free(e);
    return ok ? CHOIR_OK : CHOIR_ERR_NOMEM;
}

CHOIR_TEST(every_allocation_can_be_made_to_fail)
{
    for (uint64_t k = 1; k <= 6; k++) {
        CHOIR_ROW("k %d", (int)k);
        ch_fault_arm(CH_FAULT_alloc, k, 0);
        CHOIR_CHECK_EQ(use_all(), k <= 5 ? CHOIR_ERR_NOMEM : CHOIR_OK);
        CHOIR_CHECK_EQ(ch_fault_disarm(), k <= 5);
    }
}
