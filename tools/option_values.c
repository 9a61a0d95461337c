/*
 * option_values.c - values of options that several commands take.
 */
#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool choir_cmd_number(const char *text, int least, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > INT_MAX)
        return false;
    *out = (int)value;
    return true;
}

bool choir_cmd_size(const char *text, size_t *out)
{
    static const char suffixes[] = "KMGT";
    const char *suffix;
    unsigned shift = 0;
    unsigned long long value;
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (*end != '\0' && (suffix = strchr(suffixes, *end & ~0x20)) != NULL && *suffix != '\0') {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end++;
    }
    if (errno != 0 || *end != '\0' || value > SIZE_MAX >> shift)
        return false;
    *out = (size_t)value << shift;
    return true;
}

bool choir_cmd_type(const char *text, choir_type *out)
{
    for (int i = 0; i < CHOIR_NTYPES; i++) {
        if (strcmp(text, choir_type_name((choir_type)i)) == 0) {
            *out = (choir_type)i;
            return true;
        }
    }
    return false;
}

bool choir_cmd_redop(const char *text, choir_redop *out)
{
    for (int i = 0; i < CHOIR_NREDOPS; i++) {
        if (strcmp(text, choir_redop_name((choir_redop)i)) == 0) {
            *out = (choir_redop)i;
            return true;
        }
    }
    return false;
}
