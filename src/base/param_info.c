/*
 * param_info.c - the public view of the knobs in params.def, for `choir info --params`.
 */
#include <choir/info.h>

#include <stdlib.h>

#include "base/error.h"
#include "base/params.h"

static const char *type_name(enum ch_param_type type)
{
    switch (type) {
    case CH_PARAM_COUNT:
        return "count";
    case CH_PARAM_AUTO:
        return "auto";
    case CH_PARAM_SIZE:
        return "size";
    case CH_PARAM_BOOL:
        return "bool";
    case CH_PARAM_CHOICE:
        return "choice";
    case CH_PARAM_STRING:
        return "string";
    }
    return "unknown";
}

choir_status choir_param_get(size_t index, choir_param *out)
{
    const struct ch_param_info *info;

    if (out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "param_get: no place for the result (out is NULL)");
    if (index >= ch_param_count)
        return ch_fail(CHOIR_ERR_INVALID, "param_get: index %zu, but there are %zu knobs", index,
                       ch_param_count);
    info = &ch_param_list[index];
    *out = (choir_param){
        .name = info->variable,
        .type = type_name(info->type),
        .unit = info->unit,
        .fallback = info->def,
        .help = info->help,
        .value = getenv(info->variable),
    };
    return CHOIR_OK;
}
