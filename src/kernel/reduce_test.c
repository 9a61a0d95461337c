/*
 * reduce_test.c - every variant gives the reference's bits. The reference itself: scalar_test.c.
 */
#include "kernel/kernel_check.h"

#include <sys/mman.h>
#include <unistd.h>

/* A variant by name; skips the case if this build or this CPU lacks it. */
static const struct ch_kernels *variant(const char *name)
{
    for (size_t i = 0; i < ch_kernels_count; i++) {
        if (strcmp(ch_kernels_list[i]->name, name) != 0)
            continue;
        if (!ch_kernels_list[i]->usable())
            CHOIR_SKIP("this CPU lacks %s", ch_kernels_list[i]->needs);
        return ch_kernels_list[i];
    }
    CHOIR_SKIP("not built for this architecture");
}

CHOIR_TEST(avx2_equals_the_reference)
{
    check_reduce(variant("avx2"));
}

CHOIR_TEST(avx2_converts_all_codes)
{
    check_all_codes(variant("avx2"));
}

CHOIR_TEST(avx512_equals_the_reference)
{
    check_reduce(variant("avx512"));
}

CHOIR_TEST(avx512_converts_all_codes)
{
    check_all_codes(variant("avx512"));
}

CHOIR_TEST(neon_equals_the_reference)
{
    check_reduce(variant("neon"));
}

CHOIR_TEST(neon_converts_all_codes)
{
    check_all_codes(variant("neon"));
}

/* The reference against itself: in place, several destinations, canaries. */
CHOIR_TEST(scalar_keeps_to_its_buffers)
{
    check_reduce(&ch_kernels_scalar);
}

/* Canaries see stray writes; a page that may not be touched sees stray reads. */
CHOIR_TEST(nothing_outside_a_buffer_is_read)
{
    enum { MAX = 300 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ch_reduction r = { CHOIR_U8, CHOIR_SUM, 1, NULL };
    char *pages[3];

    for (int b = 0; b < 3; b++) {
        pages[b] = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHOIR_CHECK(pages[b] != MAP_FAILED);
        CHOIR_CHECK_EQ(mprotect(pages[b] + page, page, PROT_READ | PROT_WRITE), 0);
    }
    for (size_t i = 0; i < ch_kernels_count; i++) {
        const struct ch_kernels *k = ch_kernels_list[i];

        for (size_t n = 0; n <= MAX && k->usable(); n++) {
            for (int at_end = 0; at_end < 2; at_end++) {
                size_t offset = at_end ? 2 * page - n : page;
                const void *srcs[] = { pages[0] + offset, pages[1] + offset };
                void *dst = pages[2] + offset;

                CHOIR_ROW("%s, %zu bytes at the %s of a page", k->name, n,
                          at_end ? "end" : "start");
                k->reduce[CHOIR_U8][CHOIR_SUM](&r, &dst, 1, srcs, 2, n);
                k->copy(dst, srcs[0], n);
                k->copy_nt(dst, srcs[0], n);
                k->fill(dst, "x", 1, n);
            }
        }
    }
    for (int b = 0; b < 3; b++)
        munmap(pages[b], 3 * page);
}
