/*
 * py_args.c - arguments of methods, without a tuple or a dictionary on the way.
 */
#include "choirext.h"

#include <math.h>
#include <string.h>

/* --- which is which ----------------------------------------------------------------------------------- */

static int place_of(const struct py_params *params, PyObject *name)
{
    for (int i = 0; params->names[i] != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(name, params->names[i]) == 0)
            return i;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", params->method,
                 name);
    return -1;
}

static int read_keywords(const struct py_params *params, PyObject *const *args, PyObject *kwnames,
                         PyObject **values)
{
    Py_ssize_t count = PyTuple_Size(kwnames);

    for (Py_ssize_t k = 0; k < count; k++) {
        int i = place_of(params, PyTuple_GetItem(kwnames, k));

        if (i < 0)
            return -1;
        if (values[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'",
                         params->method, params->names[i]);
            return -1;
        }
        values[i] = args[k];
    }
    return 0;
}

int py_params_read(const struct py_params *params, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **values)
{
    int i;

    if (nargs > params->npositional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, %zd were given",
                     params->method, params->npositional, nargs);
        return -1;
    }
    for (i = 0; i < nargs; i++)
        values[i] = args[i];
    for (; params->names[i] != NULL; i++)
        values[i] = NULL;
    if (kwnames != NULL && read_keywords(params, args + nargs, kwnames, values) < 0)
        return -1;
    for (i = 0; params->names[i] != NULL; i++) {
        if (values[i] == NULL && i < params->nrequired) {
            PyErr_Format(PyExc_TypeError, "%s() misses its argument '%s'", params->method,
                         params->names[i]);
            return -1;
        }
        if (values[i] == Py_None && i >= params->nrequired)
            values[i] = NULL;
    }
    return 0;
}

/* --- values ------------------------------------------------------------------------------------------- */

/* A value that is not what it should be: what says so names the argument. Other failures, of code that reading it ran, stay. */
static int expected(const char *name, const char *what, PyObject *value)
{
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s: %s is expected, not %R", name, what, value);
    return -1;
}

int py_read_int(PyObject *value, const char *name, int *out)
{
    long number;

    if (value == NULL)
        return 0;
    number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return expected(name, "an int", value);
    if (PyErr_Occurred() || number > INT32_MAX || number < INT32_MIN) {
        PyErr_Format(PyExc_OverflowError, "%s: %R does not fit into 32 bits", name, value);
        return -1;
    }
    *out = (int)number;
    return 0;
}

int py_read_bool(PyObject *value, bool *out)
{
    int truth;

    if (value == NULL)
        return 0;
    truth = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
    if (truth < 0)
        return -1;
    *out = truth != 0;
    return 0;
}

int py_read_size(PyObject *value, const char *name, size_t *out)
{
    PyObject *index = PyNumber_Index(value); /* numpy's integers are none of Python's */
    size_t number = index != NULL ? PyLong_AsSize_t(index) : (size_t)-1;

    Py_XDECREF(index);
    if (number != (size_t)-1 || !PyErr_Occurred()) {
        *out = number;
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return expected(name, "an int", value);
    PyErr_Format(PyExc_ValueError, "%s: %R; expected 0 or more elements, of one buffer", name,
                 value);
    return -1;
}

int py_read_double(PyObject *value, const char *name, double *out)
{
    double number;

    if (value == NULL)
        return 0;
    number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred())
        return expected(name, "a number", value);
    *out = number;
    return 0;
}

int py_read_text(PyObject *value, const char *name, const char **out)
{
    const char *text;
    Py_ssize_t length;

    if (value == NULL)
        return 0;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s: a str is expected, not %R", name, value);
        return -1;
    }
    text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text == NULL)
        return -1;
    if ((size_t)length != strlen(text)) {
        PyErr_Format(PyExc_ValueError, "%s: holds a NUL", name);
        return -1;
    }
    *out = text;
    return 0;
}

/* "sum", and what others call it. */
static const struct {
    const char *name;
    choir_redop op;
} redops[] = {
#define CHOIR_REDOP(NAME, value, name) { name, CHOIR_##NAME },
#include <choir/types.def>
#undef CHOIR_REDOP
    { "prod", CHOIR_PRODUCT },
    { "mean", CHOIR_AVG },
    { "premul_sum", CHOIR_PREMUL_SUM },
};

/* Our names, and those of numpy, PyTorch and JAX. */
static const struct {
    const char *name;
    choir_type type;
} types[] = {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) { name, CHOIR_##NAME },
#include <choir/types.def>
#undef CHOIR_TYPE
    { "uint8", CHOIR_U8 },
    { "int8", CHOIR_I8 },
    { "uint16", CHOIR_U16 },
    { "int16", CHOIR_I16 },
    { "uint32", CHOIR_U32 },
    { "int32", CHOIR_I32 },
    { "uint64", CHOIR_U64 },
    { "int64", CHOIR_I64 },
    { "float16", CHOIR_F16 },
    { "bfloat16", CHOIR_BF16 },
    { "float32", CHOIR_F32 },
    { "float64", CHOIR_F64 },
    { "float8_e4m3fn", CHOIR_F8E4M3 },
    { "float8_e5m2", CHOIR_F8E5M2 },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

int py_read_redop(PyObject *value, choir_redop *out)
{
    if (value == NULL)
        return 0;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "op: a name such as \"sum\" is expected, not %R", value);
        return -1;
    }
    for (size_t i = 0; i < COUNT(redops); i++) {
        if (PyUnicode_CompareWithASCIIString(value, redops[i].name) == 0) {
            *out = redops[i].op;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "op: %R is none of sum, avg, product, min, max, band, bor, bxor, premul-sum",
                 value);
    return -1;
}

int py_read_type(PyObject *value, choir_type *out)
{
    if (value == NULL)
        return 0;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "dtype: a name such as \"bf16\" is expected, not %R", value);
        return -1;
    }
    for (size_t i = 0; i < COUNT(types); i++) {
        if (PyUnicode_CompareWithASCIIString(value, types[i].name) == 0) {
            *out = types[i].type;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "dtype: %R is not the name of an element type", value);
    return -1;
}

/* A timedelta in seconds; anything else is a number itself. */
static double seconds_of(PyObject *value)
{
    PyObject *total;
    double seconds;

    if (PyFloat_Check(value) || PyLong_Check(value))
        return PyFloat_AsDouble(value);
    total = PyObject_CallMethod(value, "total_seconds", NULL);
    if (total == NULL) {
        PyErr_Clear();
        return PyFloat_AsDouble(value);
    }
    seconds = PyFloat_AsDouble(total);
    Py_DECREF(total);
    return seconds;
}

int py_read_timeout(PyObject *value, int64_t *out)
{
    double seconds;

    if (value == NULL || value == Py_None)
        return 0;
    seconds = seconds_of(value);
    if (seconds == -1.0 && PyErr_Occurred())
        return expected("timeout", "a number of seconds or a timedelta", value);
    if (!(seconds > 0)) {
        PyErr_Format(PyExc_ValueError,
                     "timeout: %R; expected seconds above 0, None for the default, or "
                     "math.inf for none",
                     value);
        return -1;
    }
    if (seconds > 1e12)
        *out = -1;
    else /* never 0, which means something else */
        *out = seconds < 1e-3 ? 1 : (int64_t)ceil(seconds * 1e3);
    return 0;
}

int py_read_new_timeout(PyObject *value, int64_t *out)
{
    if (value != NULL && value != Py_None)
        return py_read_timeout(value, out);
    PyErr_SetString(PyExc_TypeError, "timeout: seconds are expected, or math.inf for none");
    return -1;
}

bool py_leaves_by_exception(PyObject *args)
{
    return PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
}
