/* types_test.c - names and sizes, which pairs are refused and in which words, which variant is used. */
#include "choir_test.h"

#include <stdlib.h>
#include <string.h>

#include <choir/info.h>
#include <choir/log.h>
#include <choir/reduce.h>
#include <choir/types.h>

#include "kernel/kernel.h"

CHOIR_TEST(types_have_names_and_sizes)
{
    CHOIR_CHECK_STR(choir_type_name(CHOIR_BF16), "bf16");
    CHOIR_CHECK_STR(choir_type_name(CHOIR_COMPLEX128), "complex128");
    CHOIR_CHECK_STR(choir_redop_name(CHOIR_PREMUL_SUM), "premul-sum");
    CHOIR_CHECK_EQ(choir_type_size(CHOIR_F8E4M3), 1);
    CHOIR_CHECK_EQ(choir_type_size(CHOIR_COMPLEX64), 8);
    CHOIR_CHECK_EQ(choir_type_size((choir_type)CHOIR_NTYPES), 0);
    CHOIR_CHECK_EQ(choir_type_size((choir_type)-1), 0);
    CHOIR_CHECK(choir_type_name((choir_type)CHOIR_NTYPES) == NULL);
    CHOIR_CHECK(choir_redop_name((choir_redop)CHOIR_NREDOPS) == NULL);
    for (int t = 0; t < CHOIR_NTYPES; t++)
        CHOIR_CHECK(choir_type_name((choir_type)t) != NULL && choir_type_size((choir_type)t) > 0);
}

/* One letter for each reduction, in the order of types.def: s a p < > & | ^ f; a dash is refused. */
static const struct {
    choir_type type;
    const char *allowed, *why;
} pairs[] = {
    { CHOIR_U8, "sap<>&|^-", "a factor is not a whole number" },
    { CHOIR_I64, "sap<>&|^-", "the same, signed" },
    { CHOIR_F16, "sap<>---f", "no bitwise operations on floats" },
    { CHOIR_F8E4M3, "sap<>---f", "the same, narrow" },
    { CHOIR_F64, "sap<>---f", "the same, wide" },
    { CHOIR_BOOL, "s-p<>&|^-", "half of true is nothing" },
    { CHOIR_COMPLEX64, "sa------f", "no order, and pairs of reals cannot be multiplied" },
    { CHOIR_COMPLEX128, "sa------f", "the same, wide" },
};

CHOIR_TEST(refused_pairs_are_told_by_name)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(pairs); i++) {
        for (int op = 0; op < CHOIR_NREDOPS; op++) {
            bool allowed = pairs[i].allowed[op] != '-';

            CHOIR_ROW("%s %s: %s", choir_type_name(pairs[i].type),
                      choir_redop_name((choir_redop)op), pairs[i].why);
            CHOIR_CHECK_STATUS(choir_redop_check((choir_redop)op, pairs[i].type),
                               allowed ? CHOIR_OK : CHOIR_ERR_TYPE);
            if (allowed)
                continue;
            CHOIR_CHECK_HAS(choir_last_error(), choir_redop_name((choir_redop)op));
            CHOIR_CHECK_HAS(choir_last_error(), choir_type_name(pairs[i].type));
            if (op == CHOIR_BAND || op == CHOIR_BOR || op == CHOIR_BXOR)
                CHOIR_CHECK_HAS(choir_last_error(), "non-integral dtype");
        }
    }
    CHOIR_CHECK_STATUS(choir_redop_check((choir_redop)9, CHOIR_F32), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_redop_check(CHOIR_SUM, (choir_type)17), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_redop_check(CHOIR_SUM, (choir_type)-1), CHOIR_ERR_INVALID);
}

/* --- which variant ------------------------------------------------------------------------------ */

CHOIR_TEST(a_variant_can_be_forced)
{
    const char *reason;
    bool denied;

    CHOIR_CHECK_STR(ch_kernels_choose("scalar", &reason, &denied)->name, "scalar");
    CHOIR_CHECK(!denied);
    CHOIR_CHECK_HAS(reason, "CHOIR_KERNEL");
    CHOIR_CHECK(ch_kernels_choose("auto", &reason, &denied)->usable());
    CHOIR_CHECK(!denied);
    for (size_t i = 0; i < ch_kernels_count; i++) {
        const struct ch_kernels *k = ch_kernels_list[i];

        CHOIR_ROW("%s", k->name);
        CHOIR_CHECK_EQ(ch_kernels_choose(k->name, &reason, &denied) == k, k->usable());
        CHOIR_CHECK_EQ(denied, !k->usable());
    }
    CHOIR_CHECK(ch_kernels_choose("abacus", &reason, &denied)->usable());
    CHOIR_CHECK(denied);
}

static int warnings;
static char warning[256];

static void keep_warning(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)subsystem;
    if (level == CHOIR_LOG_WARN) {
        warnings++;
        snprintf(warning, sizeof(warning), "%s", line);
    }
}

CHOIR_TEST(what_the_cpu_lacks_gives_one_warning_and_the_best)
{
    /* One of the two is foreign to any CPU. */
#if defined(__x86_64__)
    setenv("CHOIR_KERNEL", "neon", 1);
#else
    setenv("CHOIR_KERNEL", "avx2", 1);
#endif
    choir_log_set_sink(keep_warning, NULL);
    CHOIR_CHECK(choir_kernel_name() != NULL);
    CHOIR_CHECK_HAS(choir_kernel_reason(), "best");
    CHOIR_CHECK_EQ(ch_kernels(), ch_kernels());
    CHOIR_CHECK_EQ(warnings, 1);
    CHOIR_CHECK_HAS(warning, choir_kernel_name());
    choir_log_set_sink(NULL, NULL);
}

CHOIR_TEST(the_knob_is_obeyed)
{
    setenv("CHOIR_KERNEL", "scalar", 1);
    CHOIR_CHECK_STR(choir_kernel_name(), "scalar");
    CHOIR_CHECK_STR(choir_kernel_reason(), "asked for by CHOIR_KERNEL");
}

/* --- choir_reduce_local ------------------------------------------------------------------------- */

CHOIR_TEST(reduce_local_works)
{
    float a[] = { 1, 2, 3 }, b[] = { 10, 20, 30 }, out[3];
    const void *srcs[] = { a, b };
    const double factors[] = { 2, 0.5 };

    CHOIR_CHECK_OK(choir_reduce_local(out, srcs, 2, 3, CHOIR_F32, NULL));
    CHOIR_CHECK_EQ(out[2], 33.0);
    CHOIR_CHECK_OK(
        choir_reduce_local(out, srcs, 2, 3, CHOIR_F32, CHOIR_OPTS(reduce_local, .op = CHOIR_AVG)));
    CHOIR_CHECK_EQ(out[1], 11.0);
    CHOIR_CHECK_OK(choir_reduce_local(out, srcs, 2, 3, CHOIR_F32,
                                      CHOIR_OPTS(reduce_local, .op = CHOIR_AVG, .divisor = 4)));
    CHOIR_CHECK_EQ(out[1], 5.5);
    CHOIR_CHECK_OK(
        choir_reduce_local(out, srcs, 2, 3, CHOIR_F32,
                           CHOIR_OPTS(reduce_local, .op = CHOIR_PREMUL_SUM, .factors = factors)));
    CHOIR_CHECK_EQ(out[0], 7.0);
    CHOIR_CHECK_OK(choir_reduce_local(a, srcs, 2, 3, CHOIR_F32, NULL));
    CHOIR_CHECK_EQ(a[2], 33.0);
    CHOIR_CHECK_OK(choir_reduce_local(NULL, (const void *[]){ NULL }, 1, 0, CHOIR_F32, NULL));
}

CHOIR_TEST(reduce_local_says_what_is_wrong)
{
    float a[8] = { 0 }, b[8] = { 0 }, out[8];
    const void *srcs[] = { a, b }, *holes[] = { a, NULL };
    choir_reduce_local_opts opts = { .size = 3 };
    const struct {
        void *dst;
        const void *const *srcs;
        size_t nsrcs, count;
        choir_type type;
        const choir_reduce_local_opts *opts;
        choir_status want;
        const char *has;
    } rows[] = {
        { out, NULL, 2, 8, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "no source" },
        { out, srcs, 0, 8, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "no source" },
        { NULL, srcs, 2, 8, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "dst is NULL" },
        { out, holes, 2, 8, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "srcs[1] is NULL" },
        { out, srcs, 2, SIZE_MAX / 2, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "more than memory" },
        { out, srcs, 2, 8, (choir_type)99, NULL, CHOIR_ERR_INVALID, "99" },
        { a + 1, srcs, 2, 4, CHOIR_F32, NULL, CHOIR_ERR_INVALID, "srcs[0] overlap" },
        { out, srcs, 2, 8, CHOIR_F32, &opts, CHOIR_ERR_INVALID, "opts->size is 3" },
        { out, srcs, 2, 8, CHOIR_F32, CHOIR_OPTS(reduce_local, .op = CHOIR_PREMUL_SUM),
          CHOIR_ERR_INVALID, "factors" },
        { out, srcs, 2, 8, CHOIR_F32, CHOIR_OPTS(reduce_local, .op = (choir_redop)44),
          CHOIR_ERR_INVALID, "44" },
        { out, srcs, 2, 8, CHOIR_F32, CHOIR_OPTS(reduce_local, .op = CHOIR_BAND), CHOIR_ERR_TYPE,
          "reduce_local: cannot use band with the non-integral dtype f32" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("row %zu: %s", i, rows[i].has);
        CHOIR_CHECK_STATUS(choir_reduce_local(rows[i].dst, rows[i].srcs, rows[i].nsrcs,
                                              rows[i].count, rows[i].type, rows[i].opts),
                           rows[i].want);
        CHOIR_CHECK_HAS(choir_last_error(), rows[i].has);
    }
}

/* Programs compiled before a field was added pass a smaller struct. */
CHOIR_TEST(reduce_local_takes_older_options)
{
    float a[] = { 6 }, out[1];
    const void *srcs[] = { a };
    choir_reduce_local_opts opts = { .size = offsetof(choir_reduce_local_opts, divisor),
                                     .op = CHOIR_AVG,
                                     .divisor = 3 };

    CHOIR_CHECK_OK(choir_reduce_local(out, srcs, 1, 1, CHOIR_F32, &opts));
    CHOIR_CHECK_EQ(out[0], 6.0);
}
