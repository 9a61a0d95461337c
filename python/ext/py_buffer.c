/*
 * py_buffer.c - memory of Python objects, as it is: nothing is copied.
 *
 * An object is asked in this order: the buffer protocol (numpy, array, bytearray, mmap), DLPack (py_dlpack.c: PyTorch,
 * JAX), and last whether it is an array of a type that neither knows (numpy with ml_dtypes), which is read as
 * integers of its size.
 */
#include "choirext.h"

#include <string.h>

/* --- element types -------------------------------------------------------------------------------- */

/* Letters of the struct module; their sizes here are those of C. */
static int type_of_letter(char letter, choir_type *out)
{
    static const struct {
        char letter;
        choir_type type;
    } table[] = {
        { 'f', CHOIR_F32 }, { 'd', CHOIR_F64 },  { 'e', CHOIR_F16 }, { 'B', CHOIR_U8 },
        { 'b', CHOIR_I8 },  { '?', CHOIR_BOOL }, { 'H', CHOIR_U16 }, { 'h', CHOIR_I16 },
        { 'I', CHOIR_U32 }, { 'i', CHOIR_I32 },  { 'Q', CHOIR_U64 }, { 'q', CHOIR_I64 },
        { 'c', CHOIR_U8 },
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].letter == letter) {
            *out = table[i].type;
            return 0;
        }
    }
    return -1;
}

/* With a sign in front the sizes are fixed ones: "<l" has 4 bytes, "l" has 8. */
static int type_of_long(char letter, Py_ssize_t nbytes, choir_type *out)
{
    if (letter == 'l')
        *out = nbytes == 8 ? CHOIR_I64 : CHOIR_I32;
    else if (letter == 'L')
        *out = nbytes == 8 ? CHOIR_U64 : CHOIR_U32;
    else
        return -1;
    return 0;
}

static int type_of_format(const char *format, Py_ssize_t nbytes, choir_type *out)
{
    if (format == NULL)
        format = "B";
    if (format[0] == '@' || format[0] == '=' || format[0] == '<')
        format++;
    if (strcmp(format, "Zf") == 0)
        *out = CHOIR_COMPLEX64;
    else if (strcmp(format, "Zd") == 0)
        *out = CHOIR_COMPLEX128;
    else if (format[0] == '\0' || format[1] != '\0')
        return -1;
    else if (type_of_letter(format[0], out) < 0 && type_of_long(format[0], nbytes, out) < 0)
        return -1;
    return (Py_ssize_t)choir_type_size(*out) == nbytes ? 0 : -1;
}

/* A type given by name: the bytes are read as such. */
static int rename_type(struct py_buf *out, size_t itemsize, PyObject *name)
{
    size_t nbytes = out->buf.count * itemsize, want;

    if (py_read_type(name, &out->buf.type) < 0)
        return -1;
    want = choir_type_size(out->buf.type);
    if (itemsize != want && (out->buf.ndim != 0 || nbytes % want != 0)) {
        PyErr_Format(PyExc_ValueError, "dtype: %R has elements of %zu bytes, the buffer of %zu",
                     name, want, itemsize);
        return -1;
    }
    out->buf.count = nbytes / want;
    return 0;
}

/* --- shape ------------------------------------------------------------------------------------------ */

static bool is_contiguous(int ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t want = 1;

    for (int d = ndim - 1; d >= 0; d--) {
        if (sizes[d] != 1 && strides[d] != want)
            return false;
        want *= sizes[d];
    }
    return true;
}

int py_buf_shape(struct py_buf *out, int ndim, const int64_t *sizes, const int64_t *strides)
{
    out->buf.count = 1;
    for (int d = 0; d < ndim; d++)
        out->buf.count *= (size_t)sizes[d];
    if (strides == NULL || out->buf.count == 0 || is_contiguous(ndim, sizes, strides))
        return 0;
    if (ndim > PY_BUF_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array of %d dimensions that is not contiguous: expected at most %d", ndim,
                     PY_BUF_DIMS);
        return -1;
    }
    memcpy(out->sizes, sizes, (size_t)ndim * sizeof(*sizes));
    memcpy(out->strides, strides, (size_t)ndim * sizeof(*strides));
    out->buf.ndim = ndim;
    out->buf.sizes = out->sizes;
    out->buf.strides = out->strides;
    return 0;
}

/* --- the buffer protocol --------------------------------------------------------------------------- */

/* Its strides count bytes. */
static int take_strides(struct py_buf *out)
{
    const Py_buffer *view = &out->view;
    int64_t sizes[64], strides[64]; /* PyBUF_MAX_NDIM */

    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] % view->itemsize != 0) {
            PyErr_SetString(PyExc_BufferError,
                            "the array's strides are not whole numbers of elements");
            return -1;
        }
        sizes[i] = view->shape[i];
        strides[i] = view->strides[i] / view->itemsize;
    }
    return py_buf_shape(out, view->ndim, sizes, strides);
}

static int describe_view(PyObject *object, PyObject *type, struct py_buf *out)
{
    const Py_buffer *view = &out->view;
    bool known = type_of_format(view->format, view->itemsize, &out->buf.type) == 0;

    out->buf.data = view->buf;
    out->buf.count = view->itemsize > 0 ? (size_t)(view->len / view->itemsize) : 0;
    if (view->ndim > 0 && view->strides != NULL && !PyBuffer_IsContiguous(view, 'C') &&
        take_strides(out) < 0)
        return -1;
    if (type != NULL)
        return rename_type(out, (size_t)view->itemsize, type);
    if (!known) {
        PyErr_Format(PyExc_TypeError,
                     "%R: elements of format '%s' have no type here; dtype= may name one",
                     (PyObject *)Py_TYPE(object), view->format != NULL ? view->format : "B");
        return -1;
    }
    return 0;
}

/* Say it the same way for every kind of object. */
static void explain_read_only(PyObject *object)
{
    Py_buffer view;

    PyErr_Clear();
    if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0)
        return;
    PyBuffer_Release(&view);
    PyErr_Format(PyExc_BufferError, "%R: its memory is read-only, and an output is expected",
                 (PyObject *)Py_TYPE(object));
}

static int get_view(PyObject *object, unsigned access, PyObject *type, struct py_buf *out)
{
    int flags = PyBUF_FORMAT | PyBUF_STRIDES | ((access & PY_WRITE) != 0 ? PyBUF_WRITABLE : 0);

    if (PyObject_GetBuffer(object, &out->view, flags) < 0) {
        if ((access & PY_WRITE) != 0)
            explain_read_only(object);
        return -1;
    }
    out->lender = PY_VIEW;
    if (describe_view(object, type, out) == 0)
        return 0;
    py_buf_release(out);
    return -1;
}

/* --- arrays of types that have no letter --------------------------------------------------------------- */

/* Others have a letter, and were refused for a reason: their bytes may be in the other order. */
static bool has_no_letter(PyObject *name)
{
    choir_type type = CHOIR_U8;

    return PyUnicode_Check(name) && py_read_type(name, &type) == 0 &&
           (type == CHOIR_BF16 || type == CHOIR_F8E4M3 || type == CHOIR_F8E5M2);
}

/* The name of object.dtype, or NULL; no exception. */
static PyObject *name_of_dtype(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "name");

    Py_XDECREF(dtype);
    if (name != NULL && !has_no_letter(name))
        Py_CLEAR(name);
    PyErr_Clear();
    return name;
}

/* object.view() as integers of the same size. */
static PyObject *as_integers(PyObject *object, PyObject *name)
{
    choir_type type = CHOIR_U8;
    const char *letters = "u1";

    (void)py_read_type(name, &type);
    if (choir_type_size(type) == 2)
        letters = "u2";
    return PyObject_CallMethod(object, "view", "s", letters);
}

static int get_named(PyObject *object, unsigned access, struct py_buf *out)
{
    PyObject *name = name_of_dtype(object), *integers;
    int rc = -1;

    if (name == NULL)
        return -1;
    integers = as_integers(object, name);
    if (integers != NULL)
        rc = get_view(integers, access, name, out);
    PyErr_Clear(); /* the first failure is what is told */
    Py_XDECREF(integers);
    Py_DECREF(name);
    return rc;
}

/* --- all of them ---------------------------------------------------------------------------------------- */

static int get_dlpack(struct py_state *state, PyObject *object, unsigned access, PyObject *type,
                      struct py_buf *out)
{
    int rc = py_dlpack_get(state, object, access, out);

    if (rc > 0 && type != NULL && rename_type(out, choir_type_size(out->buf.type), type) < 0) {
        py_buf_release(out);
        return -1;
    }
    return rc;
}

/* What has a buffer but not for us may be read in another way. */
static int get_otherwise(struct py_state *state, PyObject *object, unsigned access, PyObject *type,
                         struct py_buf *out)
{
    PyObject *kind, *value, *trace;
    int rc;

    PyErr_Fetch(&kind, &value, &trace);
    /* A buffer error at an output says that it is read-only, which DLPack does not always tell. */
    if (type == NULL &&
        ((access & PY_WRITE) == 0 || !PyErr_GivenExceptionMatches(kind, PyExc_BufferError))) {
        rc = py_dlpack_get(state, object, access, out);
        PyErr_Clear();
        if (rc <= 0)
            rc = get_named(object, access, out) == 0;
        if (rc > 0) {
            Py_XDECREF(kind);
            Py_XDECREF(value);
            Py_XDECREF(trace);
            return 0;
        }
    }
    PyErr_Restore(kind, value, trace);
    return -1;
}

int py_buf_get(struct py_state *state, PyObject *object, unsigned access, PyObject *type,
               struct py_buf *out)
{
    int rc;

    out->buf.ndim = 0;
    out->buf.sizes = out->buf.strides = NULL;
    out->lender = PY_NOBODY;
    if (PyObject_CheckBuffer(object)) {
        if (get_view(object, access, type, out) == 0)
            return 0;
        return get_otherwise(state, object, access, type, out);
    }
    rc = get_dlpack(state, object, access, type, out);
    if (rc > 0)
        return 0;
    if (rc == 0)
        PyErr_Format(PyExc_TypeError,
                     "%R has neither the buffer protocol nor DLPack: expected an array or tensor "
                     "in host memory",
                     (PyObject *)Py_TYPE(object));
    return -1;
}

void py_buf_release(struct py_buf *buf)
{
    if (buf->lender == PY_VIEW)
        PyBuffer_Release(&buf->view);
    else if (buf->lender != PY_NOBODY)
        py_dlpack_release(buf);
    buf->lender = PY_NOBODY;
}
