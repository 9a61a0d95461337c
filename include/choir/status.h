/*
 * status.h - what a call returns, and how to learn more.
 *
 * Every call that can fail returns a choir_status: CHOIR_OK, CHOIR_IN_PROGRESS, or a negative code.
 * The code says what is lost (choir_status_loses()); the words are in the calling thread's last
 * error record. The library never prints an error it returns.
 */
#ifndef CHOIR_STATUS_H
#define CHOIR_STATUS_H

#include <choir/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_status {
#define CHOIR_STATUS(name, value, loses, text) CHOIR_##name = (value),
#include <choir/status.def>
#undef CHOIR_STATUS
} choir_status;

/* What the caller has to throw away after a failure. */
typedef enum choir_loss {
    CHOIR_LOSES_NOTHING, /* not a failure */
    CHOIR_LOSES_CALL,    /* the call did nothing; its objects are as before */
    CHOIR_LOSES_WORK,    /* the operation is lost; the object it ran on can go on */
    CHOIR_LOSES_GROUP    /* the group is lost; destroy it and make another */
} choir_loss;

enum { CHOIR_ERROR_OPERATION_MAX = 32, CHOIR_ERROR_TEXT_MAX = 472, CHOIR_NO_RANK = -1 };

/* One failure, whole. */
typedef struct choir_error {
    choir_status code;
    int culprit; /* the rank to blame, CHOIR_NO_RANK when none is known */
    char operation[CHOIR_ERROR_OPERATION_MAX]; /* what was being done, "" outside an operation */
    char text[CHOIR_ERROR_TEXT_MAX];           /* what was tried, on what, what was seen */
} choir_error;

/* The code's name ("CHOIR_ERR_TIMEOUT") and one line about it. Never NULL: a number that is not a
 * code gives "CHOIR_STATUS_UNKNOWN". */
CHOIR_API const char *choir_status_name(choir_status status);
CHOIR_API const char *choir_status_text(choir_status status);
CHOIR_API choir_loss choir_status_loses(choir_status status);

/*
 * The calling thread's last failure: its text, or the whole record. Calls that succeed leave it
 * alone, so ask only after a failure.
 * Ownership: the library's; valid until the next failing call of this thread.
 * Threads:   each thread has its own.
 */
CHOIR_API const char *choir_last_error(void);
CHOIR_API const choir_error *choir_last_error_record(void);

#ifdef __cplusplus
}
#endif
#endif
