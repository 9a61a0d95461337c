/*
 * types.h - what a buffer holds and how several are combined into one.
 *
 * The rules of arithmetic, the same for every call of the library:
 *   - f16, bf16 and the 8-bit floats are added up in f32 and rounded once, to nearest even;
 *   - integer sums and products wrap; the integer average is the wrapped sum, divided, truncated
 *     towards zero;
 *   - min and max hand a NaN on, and take -0 for smaller than +0;
 *   - bool is logical: sum, max and bor are OR, product, min and band are AND, bxor is XOR; any
 *     non-zero byte is true, results are 0 or 1;
 *   - f8e4m3 has no infinity: what is too large becomes NaN (as in PyTorch);
 *   - refused: avg of bool, premul-sum of integers and bool, bitwise operations on floats and
 *     complex, everything but sum, avg and premul-sum on complex.
 */
#ifndef CHOIR_TYPES_H
#define CHOIR_TYPES_H

#include <stddef.h>

#include <choir/export.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_type {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) CHOIR_##NAME = (value),
#include <choir/types.def>
#undef CHOIR_TYPE
} choir_type;

typedef enum choir_redop {
#define CHOIR_REDOP(NAME, value, name) CHOIR_##NAME = (value),
#include <choir/types.def>
#undef CHOIR_REDOP
} choir_redop;

enum { CHOIR_NTYPES = 17, CHOIR_NREDOPS = 9 };

/* Bytes of one element; 0 if `type` is not one of the list. */
CHOIR_API size_t choir_type_size(choir_type type);

/* "bf16", "premul-sum"; NULL if the number is not one of the list. */
CHOIR_API const char *choir_type_name(choir_type type);
CHOIR_API const char *choir_redop_name(choir_redop op);

/* CHOIR_OK if `op` is defined on `type`; CHOIR_ERR_TYPE, with both named in the error text, if the
 * rules above refuse the pair; CHOIR_ERR_INVALID if either number is not one of the list. */
CHOIR_API choir_status choir_redop_check(choir_redop op, choir_type type);

#ifdef __cplusplus
}
#endif
#endif
