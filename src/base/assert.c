/*
 * assert.c - where a bug of ours stops a debug build.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void ch_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "choir: %s:%d: assertion failed: %s\n", file, line, cond);
    abort();
}
