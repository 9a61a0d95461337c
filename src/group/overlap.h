/*
 * overlap.h - whether buffers of a call touch where they must not.
 *
 * Lists may have thousands of buffers (all parameters of a model, times ranks): what would take the square of that is
 * sorted by address first. What is between the elements of a strided buffer counts as its own.
 */
#ifndef CH_OVERLAP_H
#define CH_OVERLAP_H

#include "group/call.h"

/* First and last byte + 1 of what a buffer covers; equal if there are no elements. */
void ch_span(const choir_buf *buf, uintptr_t *first_out, uintptr_t *end_out);
bool ch_overlap(const choir_buf *a, const choir_buf *b);

/* What goes in and what comes out are either the same memory (in place, told by the caller) or do not touch. */
choir_status ch_check_apart(const char *in_name, const choir_buf *in, const char *out_name,
                            const choir_buf *out);

/* The buffers of a list do not touch each other. */
choir_status ch_check_list_apart(const char *name, const choir_buf *bufs, size_t count);

/* No buffer of one list touches one of the other. */
choir_status ch_check_lists_apart(const char *a_name, const choir_buf *a, size_t na,
                                  const char *b_name, const choir_buf *b, size_t nb);

/* Whether one does. */
choir_status ch_lists_touch(const choir_buf *a, size_t na, const choir_buf *b, size_t nb,
                            bool *touch_out);

#endif
