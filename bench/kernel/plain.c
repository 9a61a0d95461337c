/*
 * plain.c - compiled with -O3 -march=native, and told that the buffers do not overlap, which is more
 * than the kernels are told.
 */
#include "plain.h"

#include <stdint.h>

#define PLAIN_SUM(element)                                                                         \
    static void sum_##element(void *restrict dst, const void *restrict a, const void *restrict b,  \
                              size_t count)                                                        \
    {                                                                                              \
        element *to = dst;                                                                         \
        const element *x = a, *y = b;                                                              \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = (element)(x[i] + y[i]);                                                        \
    }

PLAIN_SUM(uint8_t)
PLAIN_SUM(uint16_t)
PLAIN_SUM(uint32_t)
PLAIN_SUM(uint64_t)
PLAIN_SUM(float)
PLAIN_SUM(double)

plain_sum_fn plain_sum(choir_type type)
{
    switch (type) {
    case CHOIR_U8:
    case CHOIR_I8:
        return sum_uint8_t;
    case CHOIR_U16:
    case CHOIR_I16:
        return sum_uint16_t;
    case CHOIR_U32:
    case CHOIR_I32:
        return sum_uint32_t;
    case CHOIR_U64:
    case CHOIR_I64:
        return sum_uint64_t;
    case CHOIR_F32:
        return sum_float;
    case CHOIR_F64:
        return sum_double;
    case CHOIR_F16:
    case CHOIR_BF16:
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
    case CHOIR_BOOL:
    case CHOIR_COMPLEX64:
    case CHOIR_COMPLEX128:
        break;
    }
    return NULL;
}
