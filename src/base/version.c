/*
 * version.c - which library is loaded.
 */
#include <choir/version.h>

const char *choir_version(void)
{
    return CHOIR_VERSION_STRING;
}
