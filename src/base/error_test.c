/* error_test.c - statuses, records, prefixes. */
#include "choir_test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

CHOIR_TEST(every_code_has_a_name_and_a_text)
{
    CHOIR_CHECK_STR(choir_status_name(CHOIR_ERR_TIMEOUT), "CHOIR_ERR_TIMEOUT");
    CHOIR_CHECK_STR(choir_status_text(CHOIR_OK), "success");
    CHOIR_CHECK_EQ(choir_status_loses(CHOIR_ERR_INVALID), CHOIR_LOSES_CALL);
    CHOIR_CHECK_EQ(choir_status_loses(CHOIR_ERR_TIMEOUT), CHOIR_LOSES_WORK);
    CHOIR_CHECK_EQ(choir_status_loses(CHOIR_ERR_REMOTE), CHOIR_LOSES_GROUP);
    CHOIR_CHECK_STR(choir_status_name((choir_status)-999), "CHOIR_STATUS_UNKNOWN");
}

CHOIR_TEST(a_record_has_code_culprit_operation_and_text)
{
    const choir_error *e = choir_last_error_record();

    CHOIR_CHECK_STR(choir_last_error(), "");
    CHOIR_CHECK_EQ(e->culprit, CHOIR_NO_RANK);
    CHOIR_CHECK_STATUS(ch_fail_rank(CHOIR_ERR_REMOTE, 3, "allreduce 17", "rank %d died", 3),
                       CHOIR_ERR_REMOTE);
    CHOIR_CHECK_EQ(e->code, CHOIR_ERR_REMOTE);
    CHOIR_CHECK_EQ(e->culprit, 3);
    CHOIR_CHECK_STR(e->operation, "allreduce 17");
    CHOIR_CHECK_STR(e->text, "rank 3 died");
    ch_error_prefix("rank %d: ", 0);
    CHOIR_CHECK_STR(choir_last_error(), "rank 0: rank 3 died");
}

CHOIR_TEST(a_text_may_quote_the_last_one)
{
    ch_fail(CHOIR_ERR_PROTO, "inner");
    ch_fail(CHOIR_ERR_NETWORK, "outer (%s)", choir_last_error());
    CHOIR_CHECK_STR(choir_last_error(), "outer (inner)");
}

static const struct {
    int err;
    choir_status code;
    const char *has;
} errnos[] = {
    { ENOMEM, CHOIR_ERR_NOMEM, "(ENOMEM)" },
    { EACCES, CHOIR_ERR_PERMISSION, "(EACCES)" },
    { ECONNRESET, CHOIR_ERR_NETWORK, "(ECONNRESET)" },
    { ETIMEDOUT, CHOIR_ERR_NETWORK, "(ETIMEDOUT)" }, /* TCP gave up: not our caller's deadline */
    { EIO, CHOIR_ERR_SYSTEM, "(EIO)" },
    { 9999, CHOIR_ERR_SYSTEM, "(errno unknown)" }, /* not an errno at all */
};

CHOIR_TEST(errno_becomes_a_code_and_words)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(errnos); i++) {
        CHOIR_ROW("errno %d", errnos[i].err);
        errno = errnos[i].err;
        CHOIR_CHECK_STATUS(ch_fail_errno("open %s", "x"), errnos[i].code);
        CHOIR_CHECK_HAS(choir_last_error(), "open x: ");
        CHOIR_CHECK_HAS(choir_last_error(), errnos[i].has);
    }
}

CHOIR_TEST(a_text_too_long_is_cut_not_overrun)
{
    char longer[2 * CHOIR_ERROR_TEXT_MAX];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    ch_fail(CHOIR_ERR_INVALID, "%s", longer);
    CHOIR_CHECK_EQ(strlen(choir_last_error()), (size_t)CHOIR_ERROR_TEXT_MAX - 1);
    ch_error_prefix("%s", longer);
    CHOIR_CHECK_EQ(strlen(choir_last_error()), (size_t)CHOIR_ERROR_TEXT_MAX - 1);
}

CHOIR_TEST(a_record_survives_in_a_handle)
{
    choir_error kept;

    ch_fail_rank(CHOIR_ERR_REMOTE, 5, "barrier", "first");
    ch_error_save(&kept);
    ch_fail(CHOIR_ERR_INVALID, "second");
    CHOIR_CHECK_STATUS(ch_error_load(&kept), CHOIR_ERR_REMOTE);
    CHOIR_CHECK_STR(choir_last_error(), "first");
    CHOIR_CHECK_EQ(choir_last_error_record()->culprit, 5);
}

static void *fail_elsewhere(void *arg)
{
    ch_fail(CHOIR_ERR_TIMEOUT, "elsewhere");
    return arg;
}

CHOIR_TEST(threads_do_not_share_an_error)
{
    pthread_t thread;

    ch_fail(CHOIR_ERR_INVALID, "here");
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    CHOIR_CHECK_STR(choir_last_error(), "here");
}
