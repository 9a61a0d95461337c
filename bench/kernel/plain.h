/*
 * plain.h - the rivals of the kernels: loops as anybody would write them.
 */
#ifndef CH_BENCH_PLAIN_H
#define CH_BENCH_PLAIN_H

#include <stddef.h>

#include <choir/types.h>

typedef void (*plain_sum_fn)(void *dst, const void *a, const void *b, size_t count);

/* dst[i] = a[i] + b[i]; NULL for types that C cannot add. */
plain_sum_fn plain_sum(choir_type type);

#endif
