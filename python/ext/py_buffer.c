/*
 * py_buffer.c - memory of Python objects, as it is: nothing is copied.
 */
#include "choirext.h"

#include <string.h>

/* --- element types -------------------------------------------------------------------------------- */

/* Letters of the struct module; their sizes here are those of C. */
static int type_of_letter(char letter, choir_type *out)
{
    switch (letter) {
    case '?':
        *out = CHOIR_BOOL;
        return 0;
    case 'c':
    case 'B':
        *out = CHOIR_U8;
        return 0;
    case 'b':
        *out = CHOIR_I8;
        return 0;
    case 'H':
        *out = CHOIR_U16;
        return 0;
    case 'h':
        *out = CHOIR_I16;
        return 0;
    case 'I':
        *out = CHOIR_U32;
        return 0;
    case 'i':
        *out = CHOIR_I32;
        return 0;
    case 'e':
        *out = CHOIR_F16;
        return 0;
    case 'f':
        *out = CHOIR_F32;
        return 0;
    case 'd':
        *out = CHOIR_F64;
        return 0;
    case 'Q':
        *out = CHOIR_U64;
        return 0;
    case 'q':
        *out = CHOIR_I64;
        return 0;
    default:
        return -1;
    }
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
    else if (type_of_long(format[0], nbytes, out) < 0 && type_of_letter(format[0], out) < 0)
        return -1;
    return (Py_ssize_t)choir_type_size(*out) == nbytes ? 0 : -1;
}

/* --- the buffer protocol --------------------------------------------------------------------------- */

/* Sizes and strides in elements. */
static int take_strides(struct py_buf *out)
{
    const Py_buffer *view = &out->view;

    if (view->ndim > PY_BUF_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array of %d dimensions that is not contiguous: expected at most %d",
                     view->ndim, PY_BUF_DIMS);
        return -1;
    }
    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] % view->itemsize != 0) {
            PyErr_SetString(PyExc_BufferError,
                            "the array's strides are not whole numbers of elements");
            return -1;
        }
        out->sizes[i] = view->shape[i];
        out->strides[i] = view->strides[i] / view->itemsize;
    }
    out->buf.ndim = view->ndim;
    out->buf.sizes = out->sizes;
    out->buf.strides = out->strides;
    return 0;
}

/* A type given by name reads the bytes as such. */
static int rename_type(struct py_buf *out, PyObject *name)
{
    Py_ssize_t have = out->view.itemsize, want;
    bool plain = out->buf.ndim == 0;

    if (py_read_type(name, &out->buf.type) < 0)
        return -1;
    want = (Py_ssize_t)choir_type_size(out->buf.type);
    if (have != want && (!plain || out->view.len % want != 0)) {
        PyErr_Format(PyExc_ValueError, "dtype: %R has elements of %zd bytes, the buffer of %zd",
                     name, want, have);
        return -1;
    }
    out->buf.count = (size_t)(out->view.len / want);
    return 0;
}

static int describe_view(PyObject *object, PyObject *type, struct py_buf *out)
{
    const Py_buffer *view = &out->view;
    bool known = type_of_format(view->format, view->itemsize, &out->buf.type) == 0;

    out->buf.data = view->buf;
    out->buf.count = view->itemsize > 0 ? (size_t)(view->len / view->itemsize) : 0;
    if (!PyBuffer_IsContiguous(view, 'C') && take_strides(out) < 0)
        return -1;
    if (type != NULL)
        return rename_type(out, type);
    if (!known) {
        PyErr_Format(PyExc_TypeError,
                     "%R: elements of format '%s' have no type here; dtype= names one",
                     (PyObject *)Py_TYPE(object), view->format != NULL ? view->format : "B");
        return -1;
    }
    return 0;
}

static int get_view(PyObject *object, enum py_access access, PyObject *type, struct py_buf *out)
{
    int flags = PyBUF_FORMAT | PyBUF_STRIDES | (access == PY_WRITE ? PyBUF_WRITABLE : 0);

    if (PyObject_GetBuffer(object, &out->view, flags) < 0)
        return -1;
    out->has_view = true;
    return describe_view(object, type, out);
}

int py_buf_get(struct py_state *state, PyObject *object, enum py_access access, PyObject *type,
               struct py_buf *out)
{
    (void)state;
    memset(&out->buf, 0, sizeof(out->buf));
    out->has_view = false;
    if (get_view(object, access, type, out) == 0)
        return 0;
    py_buf_release(out);
    return -1;
}

void py_buf_release(struct py_buf *buf)
{
    if (buf->has_view)
        PyBuffer_Release(&buf->view);
    buf->has_view = false;
}
