/*
 * params.h - the knobs of params.def, read once from the environment.
 */
#ifndef CH_PARAMS_H
#define CH_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t ch_param_COUNT;
typedef int64_t ch_param_AUTO;
typedef size_t ch_param_SIZE;
typedef bool ch_param_BOOL;
typedef const char *ch_param_CHOICE;
typedef const char *ch_param_STRING;

struct ch_params {
#define CH_PARAM(field, variable, type, def, unit, help) ch_param_##type field;
#include "base/params.def"
#undef CH_PARAM
};

enum ch_param_type {
    CH_PARAM_COUNT,
    CH_PARAM_AUTO,
    CH_PARAM_SIZE,
    CH_PARAM_BOOL,
    CH_PARAM_CHOICE,
    CH_PARAM_STRING
};

struct ch_param_info {
    const char *variable, *def, *unit, *help;
    enum ch_param_type type;
    size_t offset; /* of the field in struct ch_params */
};

extern const struct ch_param_info ch_param_list[];
extern const size_t ch_param_count;

/* This process's knobs. The first call reads the environment and warns about what it does not
 * understand; strings stay as they were then. */
const struct ch_params *ch_params(void);

/* The parser itself, for tests: reads "NAME=value" strings, hands each complaint to `complain`. A
 * value that does not parse leaves the default. Strings point into `env`. */
typedef void (*ch_params_complain)(void *arg, const char *line);
void ch_params_parse(char *const *env, struct ch_params *out, ch_params_complain complain,
                     void *arg);

/* Parse "64K" and the like. False if `text` is not a size or does not fit. */
bool ch_parse_size(const char *text, size_t *out);
bool ch_parse_int(const char *text, int64_t *out);

#endif
