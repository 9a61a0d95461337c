/*
 * trace_calls.c - the public calls of choir/trace.h.
 */
#include <choir/trace.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "trace/flight_dump.h"
#include "trace/flight_file.h"

static choir_status check_format(choir_trace_format format)
{
    if (format == CHOIR_TRACE_JSON || format == CHOIR_TRACE_PICKLE)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID,
                   "argument format is %d, expected CHOIR_TRACE_JSON or CHOIR_TRACE_PICKLE",
                   (int)format);
}

choir_status choir_trace_dump(choir_trace_format format, choir_blob *out)
{
    choir_status rc = check_format(format);

    if (rc == CHOIR_OK && out == NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "argument out is NULL");
    return rc == CHOIR_OK ? ch_flight_dump(0, format, "asked for", out) : rc;
}

choir_status choir_trace_dump_file(choir_trace_format format, const char *path)
{
    choir_blob blob = { NULL, 0 };
    choir_status rc = check_format(format);

    if (rc == CHOIR_OK && (path == NULL || *path == '\0'))
        rc = ch_fail(CHOIR_ERR_INVALID, "argument path is %s", path == NULL ? "NULL" : "empty");
    if (rc == CHOIR_OK)
        rc = ch_flight_dump(0, format, "asked for", &blob);
    if (rc == CHOIR_OK)
        rc = ch_flight_write_file(path, &blob);
    ch_free(blob.data);
    return rc;
}

void choir_trace_reset(void)
{
    ch_flight_forget();
}
