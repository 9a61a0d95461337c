/*
 * error.h - how a failure is put into words, once, by the first place that knows.
 *
 * That place calls ch_fail(); callers hand the code up and add only what they alone know, with
 * ch_error_prefix(). The record is per thread; what fails later (a work, a group) keeps a copy of
 * its own with ch_error_save().
 */
#ifndef CH_ERROR_H
#define CH_ERROR_H

#include <choir/status.h>

#include "base/compiler.h"

/* Store code and text as this thread's last error; return the code. */
choir_status ch_fail(choir_status code, const char *fmt, ...) CH_PRINTF(2, 3);

/* The same, with the rank to blame and the operation it broke. */
choir_status ch_fail_rank(choir_status code, int culprit, const char *operation, const char *fmt,
                          ...) CH_PRINTF(4, 5);

/* The same for a failed system call: the code follows from errno, whose text and name are appended.
 * In a forked child whose descriptors were closed the code is CHOIR_ERR_FORKED, whatever errno. */
choir_status ch_fail_errno(const char *fmt, ...) CH_PRINTF(1, 2);

/* Put words in front of this thread's last error: "rank 3 from rank 2: " + what was there. */
void ch_error_prefix(const char *fmt, ...) CH_PRINTF(1, 2);

/* Copy this thread's record into a handle; make a handle's record this thread's, returning its code. */
void ch_error_save(choir_error *out);
choir_status ch_error_load(const choir_error *record);

#endif
