/*
 * types.c - the element types and reductions by name, and which pairs make sense.
 */
#include <choir/types.h>

#include "base/compiler.h"
#include "base/error.h"
#include "kernel/kernel.h"

enum kind { UINT, INT, FLOAT, BOOL, COMPLEX };

static const struct {
    const char *name;
    enum kind kind;
} types[] = {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) [value] = { name, kind },
#include <choir/types.def>
#undef CHOIR_TYPE
};

const unsigned char ch_type_bytes[] = {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) [value] = (nbytes),
#include <choir/types.def>
#undef CHOIR_TYPE
};

static const char *const redops[] = {
#define CHOIR_REDOP(NAME, value, name) [value] = name,
#include <choir/types.def>
#undef CHOIR_REDOP
};

_Static_assert(CH_ARRAY_LEN(types) == CHOIR_NTYPES, "types.h counts the types of types.def");
_Static_assert(CH_ARRAY_LEN(redops) == CHOIR_NREDOPS, "types.h counts the reductions of types.def");

size_t choir_type_size(choir_type type)
{
    return (unsigned)type < CHOIR_NTYPES ? ch_type_bytes[type] : 0;
}

const char *choir_type_name(choir_type type)
{
    return (unsigned)type < CHOIR_NTYPES ? types[type].name : NULL;
}

const char *choir_redop_name(choir_redop op)
{
    return (unsigned)op < CHOIR_NREDOPS ? redops[op] : NULL;
}

static bool is_bitwise(choir_redop op)
{
    return op == CHOIR_BAND || op == CHOIR_BOR || op == CHOIR_BXOR;
}

static bool is_defined(choir_redop op, enum kind kind)
{
    switch (kind) {
    case UINT:
    case INT:
        return op != CHOIR_PREMUL_SUM;
    case FLOAT:
        return !is_bitwise(op);
    case BOOL:
        return op != CHOIR_AVG && op != CHOIR_PREMUL_SUM;
    case COMPLEX:
        return op == CHOIR_SUM || op == CHOIR_AVG || op == CHOIR_PREMUL_SUM;
    }
    return false;
}

choir_status choir_redop_check(choir_redop op, choir_type type)
{
    if ((unsigned)op >= CHOIR_NREDOPS)
        return ch_fail(CHOIR_ERR_INVALID, "unhandled reduction %d: there are 0 to %d", (int)op,
                       CHOIR_NREDOPS - 1);
    if ((unsigned)type >= CHOIR_NTYPES)
        return ch_fail(CHOIR_ERR_INVALID, "unhandled element type %d: there are 0 to %d", (int)type,
                       CHOIR_NTYPES - 1);
    if (is_defined(op, types[type].kind))
        return CHOIR_OK;
    /* PyTorch's users, and its tests, look for the words "non-integral dtype". */
    if (is_bitwise(op))
        return ch_fail(CHOIR_ERR_TYPE, "cannot use %s with the non-integral dtype %s", redops[op],
                       types[type].name);
    return ch_fail(CHOIR_ERR_TYPE, "%s is not defined on %s", redops[op], types[type].name);
}
