/* token_test.c - tokens: random, read, written, refused. */
#include <choir/store.h>

#include "choir_test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"

#define DIGITS "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

static char dir[] = "/tmp/choir-token-XXXXXX";
static char path[64];

static void make_dir(void)
{
    CHOIR_CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/token", dir);
}

static void remove_dir(void)
{
    unlink(path);
    CHOIR_CHECK_EQ(rmdir(dir), 0);
}

static void write_file(const char *text, size_t nbytes, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHOIR_CHECK(fd >= 0);
    CHOIR_CHECK_EQ(write(fd, text, nbytes), (ssize_t)nbytes);
    CHOIR_CHECK_EQ(fchmod(fd, mode), 0);
    close(fd);
}

static void check_counted(const choir_token *token)
{
    for (int i = 0; i < CHOIR_TOKEN_NBYTES; i++)
        CHOIR_CHECK_EQ(token->bytes[i], (unsigned char)i);
}

CHOIR_TEST(new_tokens_differ)
{
    choir_token a, b;

    CHOIR_CHECK_OK(choir_token_make(&a));
    CHOIR_CHECK_OK(choir_token_make(&b));
    CHOIR_CHECK(memcmp(&a, &b, sizeof(a)) != 0);
}

CHOIR_TEST(digits_become_bytes)
{
    choir_token token;

    make_dir();
    write_file(DIGITS "\n", 65, 0600);
    CHOIR_CHECK_OK(choir_token_read(path, &token));
    check_counted(&token);
    memset(&token, 0, sizeof(token));
    write_file(DIGITS, 64, 0400);
    CHOIR_CHECK_OK(choir_token_read(path, &token));
    check_counted(&token);
    remove_dir();
}

CHOIR_TEST(what_is_written_is_read)
{
    choir_token token, back;
    struct stat st;

    make_dir();
    umask(0);
    CHOIR_CHECK_OK(choir_token_make(&token));
    CHOIR_CHECK_OK(choir_token_write(path, &token));
    CHOIR_CHECK_EQ(stat(path, &st), 0);
    CHOIR_CHECK_EQ((int)(st.st_mode & 0777), 0600);
    CHOIR_CHECK_OK(choir_token_read(path, &back));
    CHOIR_CHECK_EQ(memcmp(&token, &back, sizeof(token)), 0);
    CHOIR_CHECK_STATUS(choir_token_write(path, &token), CHOIR_ERR_SYSTEM); /* never over another */
    remove_dir();
}

CHOIR_TEST(a_descriptor_stays_where_it_is)
{
    choir_token token;
    int fd = memfd_create("token", 0);

    CHOIR_CHECK_EQ(write(fd, DIGITS "\n", 65), 65);
    for (int i = 0; i < 2; i++) {
        CHOIR_CHECK_OK(choir_token_read_fd(fd, &token));
        check_counted(&token);
        CHOIR_CHECK_EQ((int)lseek(fd, 0, SEEK_CUR), 65);
    }
    close(fd);
    CHOIR_CHECK(choir_token_read_fd(fd, &token) != CHOIR_OK);
}

static const struct {
    const char *text;
    size_t nbytes;
    mode_t mode;
    choir_status rc;
    const char *says;
} bad[] = {
    { DIGITS, 64, 0640, CHOIR_ERR_PERMISSION, "chmod 600" },
    { DIGITS, 64, 0604, CHOIR_ERR_PERMISSION, "chmod 600" },
    { DIGITS, 64, 0620, CHOIR_ERR_PERMISSION, "chmod 600" }, /* they could put their own there */
    { "", 0, 0600, CHOIR_ERR_INVALID, "0 bytes" },
    { DIGITS, 63, 0600, CHOIR_ERR_INVALID, "63 bytes" },
    { DIGITS "0", 65, 0600, CHOIR_ERR_INVALID, "65 bytes" },
    { DIGITS "\n\n", 66, 0600, CHOIR_ERR_INVALID, "at least 66 bytes" },
    { "g" DIGITS, 64, 0600, CHOIR_ERR_INVALID, "byte 0 is not" },
};

CHOIR_TEST(bad_files_are_refused)
{
    choir_token token = { { 77 } };

    make_dir();
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++) {
        CHOIR_ROW("row %zu: %s", i, bad[i].says);
        write_file(bad[i].text, bad[i].nbytes, bad[i].mode);
        CHOIR_CHECK_STATUS(choir_token_read(path, &token), bad[i].rc);
        CHOIR_CHECK_HAS(choir_last_error(), bad[i].says);
        CHOIR_CHECK_HAS(choir_last_error(), path);
        CHOIR_CHECK(strstr(choir_last_error(), "0001020304") == NULL);
        CHOIR_CHECK_EQ(token.bytes[0], (unsigned char)77);
    }
    unlink(path);
    CHOIR_CHECK(choir_token_read(path, &token) != CHOIR_OK);
    CHOIR_CHECK_EQ(mkfifo(path, 0600), 0);
    CHOIR_CHECK_STATUS(choir_token_read(path, &token), CHOIR_ERR_INVALID);
    remove_dir();
}

static choir_status scenario(void *arg)
{
    choir_token token, back;
    choir_status rc = choir_token_make(&token);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = choir_token_write(path, &token);
    if (rc == CHOIR_OK)
        rc = choir_token_read(path, &back);
    unlink(path);
    return rc;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    make_dir();
    choir_test_all_faults(scenario, NULL);
    remove_dir();
}
