/* naive_test.c - the reference of the random tests agrees with the kernels, which have tests of their own. */
#include "naive.h"

#include <string.h>

#include "base/compiler.h"
#include "choir_test.h"
#include "scenario.h"

enum { ELEMENTS = 500 };

static void compare(struct call *c)
{
    static char given[RANKS_MAX][ELEMENTS * 16], want[ELEMENTS * 16], got[ELEMENTS * 16];
    size_t size = choir_type_size(c->type);
    const void *all[RANKS_MAX], *one[RANKS_MAX];

    for (int r = 0; r < c->nranks; r++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            naive_element(c, r, 0, i, given[r] + i * size);
        all[r] = given[r];
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        for (int r = 0; r < c->nranks; r++)
            one[r] = given[r] + i * size;
        naive_reduce(c, one, got + i * size);
    }
    CHOIR_CHECK_OK(
        choir_reduce_local(want, all, (size_t)c->nranks, ELEMENTS, c->type,
                           CHOIR_OPTS(reduce_local, .op = c->op, .factors = c->factors)));
    for (size_t i = 0; i < ELEMENTS; i++) {
        if (memcmp(want + i * size, got + i * size, size) != 0)
            CHOIR_FAIL("element %zu differs", i);
    }
}

CHOIR_TEST(the_reference_reduces_as_the_kernels_do)
{
    struct call c = { .form = ALLREDUCE, .seed = 12345, .factors = { 1, 2, 0.5, -1, 2, 2, 0.5 } };

    for (int type = 0; type < CHOIR_NTYPES; type++) {
        for (int op = 0; op < CHOIR_NREDOPS; op++) {
            if (choir_redop_check((choir_redop)op, (choir_type)type) != CHOIR_OK)
                continue;
            for (int n = 1; n <= 7; n++) {
                c.type = (choir_type)type;
                c.op = (choir_redop)op;
                c.nranks = n;
                c.exact = n == 5;
                c.seed++;
                CHOIR_ROW("%s %s ranks %d%s", choir_type_name(c.type), choir_redop_name(c.op), n,
                          c.exact ? " exact" : "");
                compare(&c);
            }
        }
    }
}

/* Backwards, and with other brackets, the same bits: or "exact" means nothing. */
CHOIR_TEST(exact_elements_have_one_sum)
{
    struct call c = { .form = ALLREDUCE, .seed = 99, .exact = true, .nranks = RANKS_MAX };
    char given[RANKS_MAX][16], forth[16], back[16];
    const void *all[RANKS_MAX], *reverse[RANKS_MAX];

    for (int r = 0; r < RANKS_MAX; r++) {
        all[r] = given[r];
        reverse[RANKS_MAX - 1 - r] = given[r];
    }
    for (int type = CHOIR_F16; type <= CHOIR_F8E5M2; type++) {
        c.type = (choir_type)type;
        for (int op = CHOIR_SUM; op <= CHOIR_PRODUCT; op++) {
            c.op = (choir_redop)op;
            for (size_t pos = 0; pos < 200; pos++) {
                for (int r = 0; r < RANKS_MAX; r++)
                    naive_element(&c, r, 0, pos, given[r]);
                naive_reduce(&c, all, forth);
                naive_reduce(&c, reverse, back);
                CHOIR_CHECK(memcmp(forth, back, choir_type_size(c.type)) == 0);
            }
        }
    }
}

/* Outputs are as long as what goes into them, and every element that is given is one that exists. */
CHOIR_TEST(cases_make_sense)
{
    static struct scenario s;
    struct source list[RANKS_MAX];

    for (uint64_t seed = 1; seed < 3000; seed++) {
        scenario_make(seed, &s);
        for (int i = 0; i < s.ncalls; i++) {
            const struct call *c = &s.calls[i];

            CHOIR_ROW("seed %llu call %d: %s", (unsigned long long)seed, i, form_names[c->form]);
            CHOIR_CHECK(c->nranks >= 1 && c->root < c->nranks);
            for (int r = 0; r < c->nranks; r++) {
                for (int o = 0; o < naive_nouts(c, r); o++) {
                    for (int k = 0, n = naive_sources(c, r, o, list); k < n; k++) {
                        CHOIR_CHECK_LT(list[k].in, naive_nins(c, list[k].rank));
                        CHOIR_CHECK_LE(list[k].first + list[k].count,
                                       naive_in_count(c, list[k].rank, list[k].in));
                    }
                }
            }
        }
    }
}
