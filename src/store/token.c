/*
 * token.c - the job token, and files of it: 64 hexadecimal digits, and a newline if one likes.
 */
#include <choir/store.h>

#include <fcntl.h>

#include "base/error.h"
#include "base/sys.h"

enum {
    DIGITS = 2 * CHOIR_TOKEN_NBYTES,
    LONGEST = DIGITS + 1, /* with its newline */
};

choir_status choir_token_make(choir_token *out)
{
    choir_token token;

    if (ch_sys_random(token.bytes, sizeof(token.bytes)) != 0)
        return ch_fail_errno("token: random bytes for a new one");
    *out = token;
    return CHOIR_OK;
}

/* --- hexadecimal -------------------------------------------------------------------------------- */

/* -1 if it is no digit. */
static int value_of(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* The text is a secret, or something the user did not mean to show: no error repeats it. */
static choir_status parse(const char *text, size_t nbytes, choir_token *out)
{
    choir_token token;

    if (nbytes == LONGEST && text[DIGITS] == '\n')
        nbytes = DIGITS;
    if (nbytes != DIGITS)
        return ch_fail(CHOIR_ERR_INVALID, "%s%zu bytes, a token is %d hexadecimal digits",
                       nbytes > LONGEST ? "at least " : "", nbytes, (int)DIGITS);
    for (size_t i = 0; i < sizeof(token.bytes); i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return ch_fail(CHOIR_ERR_INVALID,
                           "byte %zu is not a hexadecimal digit, a token is %d of them",
                           2 * i + (high < 0 ? 0 : 1), (int)DIGITS);
        token.bytes[i] = (unsigned char)(high << 4 | low);
    }
    *out = token;
    return CHOIR_OK;
}

static void format(const choir_token *token, char text[LONGEST])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < sizeof(token->bytes); i++) {
        text[2 * i] = digits[token->bytes[i] >> 4];
        text[2 * i + 1] = digits[token->bytes[i] & 15];
    }
    text[DIGITS] = '\n';
}

/* --- reading ------------------------------------------------------------------------------------ */

/* One byte more than is right, so that what is too long shows. */
static choir_status read_whole(int fd, choir_token *out)
{
    char text[LONGEST + 1];
    size_t done = 0;

    while (done < sizeof(text)) {
        ssize_t n = ch_sys_pread(fd, text + done, sizeof(text) - done, (off_t)done);

        if (n < 0)
            return ch_fail_errno("read");
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return parse(text, done, out);
}

static choir_status check_private(int fd)
{
    struct stat st;

    if (ch_sys_fstat(fd, &st) != 0)
        return ch_fail_errno("stat");
    if (!S_ISREG(st.st_mode))
        return ch_fail(CHOIR_ERR_INVALID, "it is not a file");
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return ch_fail(CHOIR_ERR_PERMISSION,
                       "others than its owner may use it (mode %03o); chmod 600 it, and make a new "
                       "token if somebody may have read it",
                       (unsigned)st.st_mode & 0777);
    return CHOIR_OK;
}

choir_status choir_token_read(const char *path, choir_token *out)
{
    /* Nonblocking: a pipe of that name must be refused, not waited for. */
    int fd = ch_sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    choir_status rc;

    if (fd < 0)
        return ch_fail_errno("token file \"%s\": open", path);
    rc = check_private(fd);
    if (rc == CHOIR_OK)
        rc = read_whole(fd, out);
    ch_sys_close(fd);
    if (rc != CHOIR_OK)
        ch_error_prefix("token file \"%s\": ", path);
    return rc;
}

choir_status choir_token_read_fd(int fd, choir_token *out)
{
    choir_status rc = read_whole(fd, out);

    if (rc != CHOIR_OK)
        ch_error_prefix("token in descriptor %d: ", fd);
    return rc;
}

/* --- writing ------------------------------------------------------------------------------------ */

static choir_status write_whole(int fd, const char *text, size_t nbytes)
{
    size_t done = 0;

    while (done < nbytes) {
        ssize_t n = ch_sys_write(fd, text + done, nbytes - done);

        if (n < 0)
            return ch_fail_errno("write");
        done += (size_t)n;
    }
    return CHOIR_OK;
}

choir_status choir_token_write(const char *path, const choir_token *token)
{
    int fd = ch_sys_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    char text[LONGEST];
    choir_status rc;

    if (fd < 0)
        return ch_fail_errno("token file \"%s\": create", path);
    format(token, text);
    rc = write_whole(fd, text, sizeof(text));
    ch_sys_close(fd);
    if (rc != CHOIR_OK) {
        ch_error_prefix("token file \"%s\": ", path);
        (void)!ch_sys_unlink(path); /* half a token is none */
    }
    return rc;
}
