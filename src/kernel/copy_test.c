/* copy_test.c - copy and fill, every variant: all lengths, any alignment, canaries. */
#include "kernel/kernel_check.h"

#include <stdlib.h>

static void each_variant(void (*check)(const struct ch_kernels *k))
{
    for (size_t i = 0; i < ch_kernels_count; i++) {
        if (ch_kernels_list[i]->usable())
            check(ch_kernels_list[i]);
        else
            printf("not checked: this CPU lacks %s\n", ch_kernels_list[i]->needs);
    }
}

CHOIR_TEST(copies_are_exact)
{
    each_variant(check_copies);
}

CHOIR_TEST(fills_are_exact)
{
    each_variant(check_fills);
}

CHOIR_TEST(the_chosen_variant_copies_much)
{
    enum { NBYTES = 3000001 };
    unsigned char *src = malloc(NBYTES), *dst = malloc(NBYTES);
    struct choir_test_random rnd = { 9 };

    CHOIR_CHECK(src != NULL && dst != NULL);
    check_fill_random(src, CHOIR_U8, NBYTES, &rnd);
    ch_copy(dst, src, NBYTES);
    CHOIR_CHECK(memcmp(dst, src, NBYTES) == 0);
    ch_fill(dst, &(uint32_t){ 0x01020304 }, 4, NBYTES / 4);
    CHOIR_CHECK_EQ(dst[NBYTES - 2], 1);
    ch_copy_nt(dst + 1, src, NBYTES - 1);
    CHOIR_CHECK(memcmp(dst + 1, src, NBYTES - 1) == 0);
    free(src);
    free(dst);
}
