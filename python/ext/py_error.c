/*
 * py_error.c - failures of the library as exceptions that carry the error record's fields.
 *
 * Every exception is a choir.Error; those with a relative among Python's own derive from that too, so that
 * `except TimeoutError` means what it says.
 */
#include "choirext.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct kind {
    choir_status code;
    const char *name;   /* "choir.TimeoutError" */
    PyObject **builtin; /* its relative, or NULL */
    const char *doc;
};

static const struct kind kinds[] = {
    { CHOIR_ERR_INVALID, "choir.InvalidError", &PyExc_ValueError, "An argument is not valid." },
    { CHOIR_ERR_TYPE, "choir.ElementTypeError", &PyExc_TypeError,
      "This element type does not fit the operation." },
    { CHOIR_ERR_UNSUPPORTED, "choir.UnsupportedError", &PyExc_NotImplementedError,
      "Not supported here." },
    { CHOIR_ERR_NOMEM, "choir.NoMemoryError", &PyExc_MemoryError, "Out of memory." },
    { CHOIR_ERR_SYSTEM, "choir.SystemCallError", &PyExc_OSError, "The operating system refused." },
    { CHOIR_ERR_PERMISSION, "choir.NotPermittedError", &PyExc_PermissionError, "Not permitted." },
    { CHOIR_ERR_STATE, "choir.StateError", NULL, "The object is not in a state for this call." },
    { CHOIR_ERR_INTERRUPTED, "choir.InterruptedError", &PyExc_InterruptedError,
      "Interrupted or aborted on request." },
    { CHOIR_ERR_FORKED, "choir.ForkedError", NULL,
      "This process is a fork of one that was using Choir." },
    { CHOIR_ERR_QUEUE_EMPTY, "choir.QueueEmptyError", NULL, "The queue is empty." },
    { CHOIR_ERR_TIMEOUT, "choir.TimeoutError", &PyExc_TimeoutError, "The deadline passed." },
    { CHOIR_ERR_NETWORK, "choir.NetworkError", &PyExc_ConnectionError,
      "A connection failed or was closed by the peer." },
    { CHOIR_ERR_PROTO, "choir.ProtocolError", NULL, "A peer sent something that is not valid." },
    { CHOIR_ERR_REMOTE, "choir.RemoteError", NULL, "Another rank reported a failure." },
    { CHOIR_ERR_MISMATCH, "choir.MismatchError", NULL, "Ranks called different operations." },
    { CHOIR_ERR_DEAD, "choir.DeadRankError", NULL, "The process of a rank has ended." },
};

/* --- the classes ----------------------------------------------------------------------------------- */

/* Add `type`, whose name is "choir.X", to the module as X. */
static int publish(struct py_state *state, PyObject *type, const char *name)
{
    return PyModule_AddObjectRef(state->module, strchr(name, '.') + 1, type);
}

/* What an Error has that was not raised by the library. */
static PyObject *defaults(void)
{
    return Py_BuildValue("{s:s, s:i, s:O, s:s, s:s, s:s}", "name", "", "code", 0, "rank", Py_None,
                         "operation", "", "cause", "", "loses", "");
}

static PyObject *make_kind(struct py_state *state, const struct kind *kind)
{
    PyObject *bases = kind->builtin == NULL ? PyTuple_Pack(1, state->error)
                                            : PyTuple_Pack(2, state->error, *kind->builtin);
    PyObject *type;

    if (bases == NULL)
        return NULL;
    type = PyErr_NewExceptionWithDoc(kind->name, kind->doc, bases, NULL);
    Py_DECREF(bases);
    return type;
}

static int add_kind(struct py_state *state, const struct kind *kind)
{
    PyObject *type = make_kind(state, kind);

    if (type == NULL)
        return -1;
    state->by_status[-kind->code] = type;
    return publish(state, type, kind->name);
}

static int add_base(struct py_state *state)
{
    PyObject *dict = defaults();

    if (dict == NULL)
        return -1;
    state->error = PyErr_NewExceptionWithDoc(
        "choir.Error",
        "A call of the library failed.\n\n"
        "str() says what was tried, on what, what was seen. Attributes:\n"
        "  name       the code's name, \"CHOIR_ERR_DEAD\"\n"
        "  code       the code, a negative number\n"
        "  rank       the rank to blame, None when none is known\n"
        "  operation  what was being done, \"\" outside an operation\n"
        "  cause      one line about the code\n"
        "  loses      what to throw away: \"call\", \"work\" or \"group\"",
        PyExc_Exception, dict);
    Py_DECREF(dict);
    return state->error == NULL ? -1 : publish(state, state->error, "choir.Error");
}

int py_error_add(struct py_state *state)
{
    if (add_base(state) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (add_kind(state, &kinds[i]) < 0)
            return -1;
    }
    return 0;
}

/* --- raising --------------------------------------------------------------------------------------- */

static const char *loses(choir_status code)
{
    switch (choir_status_loses(code)) {
    case CHOIR_LOSES_NOTHING:
        return "";
    case CHOIR_LOSES_CALL:
        return "call";
    case CHOIR_LOSES_WORK:
        return "work";
    case CHOIR_LOSES_GROUP:
        return "group";
    }
    return "";
}

/* Set an attribute and let go of the value. */
static int give(PyObject *object, const char *name, PyObject *value)
{
    int rc = value == NULL ? -1 : PyObject_SetAttrString(object, name, value);

    Py_XDECREF(value);
    return rc;
}

static PyObject *rank_or_none(int rank)
{
    if (rank >= 0)
        return PyLong_FromLong(rank);
    Py_RETURN_NONE;
}

/* Texts may hold what others sent: bytes that are no UTF-8 must not hide the error. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *make_error(struct py_state *state, const choir_error *record)
{
    int index = -(int)record->code;
    PyObject *type = index > 0 && index < PY_NSTATUS ? state->by_status[index] : NULL;
    PyObject *text = text_of(record->text), *error;

    if (text == NULL)
        return NULL;
    error = PyObject_CallFunctionObjArgs(type != NULL ? type : state->error, text, NULL);
    Py_DECREF(text);
    if (error == NULL)
        return NULL;
    if (give(error, "name", PyUnicode_FromString(choir_status_name(record->code))) < 0 ||
        give(error, "code", PyLong_FromLong(record->code)) < 0 ||
        give(error, "rank", rank_or_none(record->culprit)) < 0 ||
        give(error, "operation", text_of(record->operation)) < 0 ||
        give(error, "cause", PyUnicode_FromString(choir_status_text(record->code))) < 0 ||
        give(error, "loses", PyUnicode_FromString(loses(record->code))) < 0)
        Py_CLEAR(error);
    return error;
}

PyObject *py_error_from(struct py_state *state, const choir_error *record)
{
    return make_error(state, record);
}

PyObject *py_raise_record(struct py_state *state, const choir_error *record)
{
    PyObject *error = make_error(state, record);

    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *py_raise_last(struct py_state *state)
{
    return py_raise_record(state, choir_last_error_record());
}

PyObject *py_raise(struct py_state *state, choir_status code, const char *operation,
                   const char *format, ...)
{
    choir_error record = { .code = code, .culprit = CHOIR_NO_RANK };
    va_list args;

    snprintf(record.operation, sizeof(record.operation), "%s", operation);
    va_start(args, format);
    vsnprintf(record.text, sizeof(record.text), format, args);
    va_end(args);
    return py_raise_record(state, &record);
}
