/*
 * error.c - this thread's last error, and the texts of the status codes.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/forked.h"

/* Per thread on purpose: on the worst day two threads fail at once. */
static _Thread_local choir_error last_error = { .culprit = CHOIR_NO_RANK };

static const struct status_row {
    choir_status code;
    choir_loss loses;
    const char *name;
    const char *text;
} status_rows[] = {
#define CHOIR_STATUS(name, value, loses, text)                                                     \
    { CHOIR_##name, CHOIR_LOSES_##loses, "CHOIR_" #name, text },
#include <choir/status.def>
#undef CHOIR_STATUS
};

static const struct status_row *status_row(choir_status status)
{
    static const struct status_row unknown = { CHOIR_OK, CHOIR_LOSES_NOTHING,
                                               "CHOIR_STATUS_UNKNOWN",
                                               "not a status code of this version" };

    for (size_t i = 0; i < CH_ARRAY_LEN(status_rows); i++) {
        if (status_rows[i].code == status)
            return &status_rows[i];
    }
    return &unknown;
}

const char *choir_status_name(choir_status status)
{
    return status_row(status)->name;
}

const char *choir_status_text(choir_status status)
{
    return status_row(status)->text;
}

choir_loss choir_status_loses(choir_status status)
{
    return status_row(status)->loses;
}

const char *choir_last_error(void)
{
    return last_error.text;
}

const choir_error *choir_last_error_record(void)
{
    return &last_error;
}

/* The arguments may point into the record itself (a text that quotes the last error), so the new
 * text is made aside and copied. */
static choir_status set_last(choir_status code, int culprit, const char *operation, const char *fmt,
                             va_list args)
{
    char text[CHOIR_ERROR_TEXT_MAX];

    vsnprintf(text, sizeof(text), fmt, args);
    last_error.code = code;
    last_error.culprit = culprit;
    snprintf(last_error.operation, sizeof(last_error.operation), "%s", operation);
    memcpy(last_error.text, text, sizeof(text));
    return code;
}

choir_status ch_fail(choir_status code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_last(code, CHOIR_NO_RANK, "", fmt, args);
    va_end(args);
    return code;
}

choir_status ch_fail_rank(choir_status code, int culprit, const char *operation, const char *fmt,
                          ...)
{
    va_list args;

    va_start(args, fmt);
    set_last(code, culprit, operation, fmt, args);
    va_end(args);
    return code;
}

static choir_status code_of_errno(int err)
{
    switch (err) {
    case ENOMEM:
        return CHOIR_ERR_NOMEM;
    case EPERM:
    case EACCES:
        return CHOIR_ERR_PERMISSION;
    case EINTR:
        return CHOIR_ERR_INTERRUPTED;
    case EPIPE:
    case ETIMEDOUT: /* the network's patience ran out, not the caller's */
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
        return CHOIR_ERR_NETWORK;
    default:
        return CHOIR_ERR_SYSTEM;
    }
}

choir_status ch_fail_errno(const char *fmt, ...)
{
    int err = errno;
    va_list args;

    if (ch_forked() != CHOIR_OK)
        return CHOIR_ERR_FORKED;

    va_start(args, fmt);
    set_last(code_of_errno(err), CHOIR_NO_RANK, "", fmt, args);
    va_end(args);

    size_t used = strlen(last_error.text);
    char words[64];
    const char *name = strerrorname_np(err);

    snprintf(last_error.text + used, sizeof(last_error.text) - used, ": %s (%s)",
             strerror_r(err, words, sizeof(words)), name != NULL ? name : "errno unknown");
    return last_error.code;
}

void ch_error_prefix(const char *fmt, ...)
{
    char text[CHOIR_ERROR_TEXT_MAX];
    va_list args;
    int used;

    va_start(args, fmt);
    used = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(text))
        snprintf(text + used, sizeof(text) - (size_t)used, "%s", last_error.text);
    memcpy(last_error.text, text, sizeof(text));
}

void ch_error_save(choir_error *out)
{
    *out = last_error;
}

choir_status ch_error_load(const choir_error *record)
{
    last_error = *record;
    return record->code;
}
