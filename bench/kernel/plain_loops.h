/* plain_loops.h - the loops a C programmer would write, to compare with. */
#ifndef CHOIR_PLAIN_LOOPS_H
#define CHOIR_PLAIN_LOOPS_H

#include <stddef.h>

void plain_sum_f32(float *dst, const float *a, const float *b, size_t count);
void plain_copy(void *dst, const void *src, size_t nbytes);

#endif
