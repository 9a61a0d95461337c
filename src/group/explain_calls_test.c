/*
 * explain_calls_test.c - choir_explain(): what it refuses, and what it does without memory.
 */
#include <choir/explain.h>

#include <string.h>

#include "choir_test.h"
#include "engine/control.h"

static const struct {
    const char *operation;
    int nranks;
    choir_explain_opts opts;
    const char *complaint;
} refused[] = {
    { "allreduce", 0, { .size = sizeof(choir_explain_opts) }, "0 ranks" },
    { "allreduce", -1, { .size = sizeof(choir_explain_opts) }, "ranks" },
    { "allreduce", 300, { .size = sizeof(choir_explain_opts) }, "300 ranks" },
    { "sum", 2, { .size = sizeof(choir_explain_opts) }, "no operation \"sum\"" },
    { "allreduce", 2, { .size = 0 }, "opts->size is 0" },
    { "allreduce", 2, { .size = sizeof(choir_explain_opts), .type = (choir_type)99 }, "type" },
    { "reduce", 2, { .size = sizeof(choir_explain_opts), .root = -1 }, "root is -1" },
    { "reduce", 2, { .size = sizeof(choir_explain_opts), .root = 2 }, "root 2" },
    { "reduce", 2, { .size = sizeof(choir_explain_opts), .one_rank = true, .rank = 2 }, "rank 2" },
    { "reduce", 2, { .size = sizeof(choir_explain_opts), .algo = "" }, "no algorithm \"\"" },
};

CHOIR_TEST(what_makes_no_sense_is_refused)
{
    choir_blob blob = { 0 };

    for (size_t i = 0; i < CH_ARRAY_LEN(refused); i++) {
        CHOIR_ROW("%s", refused[i].complaint);
        CHOIR_CHECK_STATUS(
            choir_explain(refused[i].operation, refused[i].nranks, 8, &refused[i].opts, &blob),
            CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), refused[i].complaint);
        CHOIR_CHECK(blob.data == NULL);
    }
    CHOIR_CHECK_STATUS(choir_explain(NULL, 2, 8, NULL, &blob), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_explain_svg("reduce", 2, 8, NULL, NULL), CHOIR_ERR_INVALID);
}

CHOIR_TEST(defaults_are_enough)
{
    choir_blob text, svg;

    CHOIR_CHECK_OK(choir_explain("barrier", 3, 0, NULL, &text));
    CHOIR_CHECK_HAS(text.data, "flags");
    CHOIR_CHECK_EQ(strlen(text.data), text.nbytes);
    CHOIR_CHECK_OK(choir_explain_svg("barrier", 3, 0, NULL, &svg));
    CHOIR_CHECK_HAS(svg.data, "</svg>");
    choir_blob_free(&text);
    choir_blob_free(&svg);
}

/* Options of a program that was compiled when there were fewer: what it does not have is not read. */
CHOIR_TEST(smaller_options_are_enough)
{
    choir_explain_opts old = { .size = offsetof(choir_explain_opts, root), .root = -1 };
    choir_blob text;

    CHOIR_CHECK_OK(choir_explain("reduce", 3, 8, &old, &text));
    choir_blob_free(&text);
}

/* What is told is what the engine does: inline ends where its line does. */
CHOIR_TEST(as_much_is_inline_as_the_engine_has_room_for)
{
    choir_blob text;

    CHOIR_CHECK_OK(choir_explain("allreduce", 2, CH_LINE_NBYTES, NULL, &text));
    CHOIR_CHECK_HAS(text.data, "algorithm inline");
    choir_blob_free(&text);
    CHOIR_CHECK_OK(choir_explain("allreduce", 2, CH_LINE_NBYTES + 1, NULL, &text));
    CHOIR_CHECK_HAS(text.data, "algorithm one-shot");
    choir_blob_free(&text);
}

static choir_status explain_both(void *arg)
{
    choir_blob blob = { 0 };
    choir_status rc = choir_explain(arg, 3, 4096, NULL, &blob);

    choir_blob_free(&blob);
    if (rc == CHOIR_OK)
        rc = choir_explain_svg(arg, 3, 4096, NULL, &blob);
    choir_blob_free(&blob);
    return rc;
}

CHOIR_TEST(no_memory_is_told)
{
    char operation[] = "allreduce";

    choir_test_all_faults(explain_both, operation);
}
