/*
 * py_sparse.c - the sum of sparse arrays, and what it gives: an object choir.Sparse.
 *
 * How many entries a sum has is known only when it is done, so its memory is the library's. Arrays of numpy and
 * others lie over it, through memoryviews of a small object that lends it and keeps the sum alive.
 */
#include "choirext.h"

#include <string.h>

enum { DIMS = PY_BUF_DIMS };

struct py_sparse {
    PyObject_HEAD struct py_state *state;
    choir_sparse sum; /* written when the operation is done, before anybody can see the object */
    int64_t value_shape[DIMS];
    int nvalue_dims;
};

/* One of its two arrays. */
struct py_part {
    PyObject_HEAD struct py_sparse *owner;
    void *data;
    const char *format;
    int ndim;
    Py_ssize_t itemsize, shape[1 + DIMS], strides[1 + DIMS];
};

/* --- arrays of a sum ----------------------------------------------------------------------------------------------- */

/* As the struct module and numpy name them; those without a letter are their bits. */
static const char *format_of(choir_type type)
{
    static const char *const formats[] = {
        [CHOIR_U8] = "B",         [CHOIR_I8] = "b",          [CHOIR_U16] = "H",
        [CHOIR_I16] = "h",        [CHOIR_U32] = "I",         [CHOIR_I32] = "i",
        [CHOIR_U64] = "Q",        [CHOIR_I64] = "q",         [CHOIR_F16] = "e",
        [CHOIR_BF16] = "H",       [CHOIR_F32] = "f",         [CHOIR_F64] = "d",
        [CHOIR_F8E4M3] = "B",     [CHOIR_F8E5M2] = "B",      [CHOIR_BOOL] = "?",
        [CHOIR_COMPLEX64] = "Zf", [CHOIR_COMPLEX128] = "Zd",
    };

    return formats[type];
}

static void count_strides(struct py_part *part)
{
    Py_ssize_t stride = part->itemsize;

    for (int d = part->ndim - 1; d >= 0; d--) {
        part->strides[d] = stride;
        stride *= part->shape[d];
    }
}

/* A memoryview of what `part`, which it takes, lends. */
static PyObject *view_of(struct py_part *part)
{
    PyObject *view;

    count_strides(part);
    view = PyMemoryView_FromObject((PyObject *)part);
    Py_DECREF((PyObject *)part);
    return view;
}

static struct py_part *part_of(struct py_sparse *owner, void *data, choir_type type)
{
    struct py_part *part = (struct py_part *)PyType_GenericAlloc(owner->state->part_type, 0);

    if (part == NULL)
        return NULL;
    part->owner = (struct py_sparse *)Py_NewRef((PyObject *)owner);
    part->data = data;
    part->format = format_of(type);
    part->itemsize = (Py_ssize_t)choir_type_size(type);
    return part;
}

static PyObject *get_indices(PyObject *object, void *unused)
{
    struct py_sparse *self = (struct py_sparse *)object;
    struct py_part *part = part_of(self, self->sum.indices, CHOIR_I64);

    (void)unused;
    if (part == NULL)
        return NULL;
    part->ndim = 2;
    part->shape[0] = self->sum.ndim;
    part->shape[1] = (Py_ssize_t)self->sum.nnz;
    return view_of(part);
}

static PyObject *get_values(PyObject *object, void *unused)
{
    struct py_sparse *self = (struct py_sparse *)object;
    struct py_part *part = part_of(self, self->sum.values, self->sum.type);

    (void)unused;
    if (part == NULL)
        return NULL;
    part->ndim = 1 + self->nvalue_dims;
    part->shape[0] = (Py_ssize_t)self->sum.nnz;
    for (int d = 0; d < self->nvalue_dims; d++)
        part->shape[1 + d] = (Py_ssize_t)self->value_shape[d];
    return view_of(part);
}

static PyObject *get_shape(PyObject *object, void *unused)
{
    struct py_sparse *self = (struct py_sparse *)object;
    PyObject *shape = PyTuple_New(self->sum.ndim);

    (void)unused;
    for (int d = 0; shape != NULL && d < self->sum.ndim; d++) {
        PyObject *size = PyLong_FromLongLong(self->sum.shape[d]);

        if (size == NULL || PyTuple_SetItem(shape, d, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static int part_lend(PyObject *object, Py_buffer *view, int flags)
{
    struct py_part *self = (struct py_part *)object;

    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && self->ndim > 1) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the arrays of a sparse sum are in C's order");
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->data,
        .obj = Py_NewRef(object),
        .len = self->shape[0] * self->strides[0],
        .itemsize = self->itemsize,
        .ndim = self->ndim,
        .format = (flags & PyBUF_FORMAT) != 0 ? (char *)(uintptr_t)self->format : NULL,
        .shape = (flags & PyBUF_ND) == PyBUF_ND ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    return 0;
}

static void part_dealloc(PyObject *object)
{
    struct py_part *self = (struct py_part *)object;
    PyTypeObject *type = Py_TYPE(object);

    Py_XDECREF((PyObject *)self->owner);
    PyObject_Free(object);
    Py_DECREF(type);
}

static void sparse_dealloc(PyObject *object)
{
    struct py_sparse *self = (struct py_sparse *)object;
    PyTypeObject *type = Py_TYPE(object);

    choir_sparse_free(&self->sum);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* --- the call --------------------------------------------------------------------------------------------------------- */

/* Sizes of dimensions: how many there are, or -1. */
static int read_sizes(PyObject *given, const char *name, int64_t *sizes)
{
    Py_ssize_t count = given != NULL ? PySequence_Size(given) : 0;

    if (count > DIMS)
        PyErr_Format(PyExc_ValueError, "%s: has %zd dimensions, expected at most %d", name, count,
                     DIMS);
    if (count < 0 || count > DIMS)
        return -1;
    for (Py_ssize_t d = 0; d < count; d++) {
        PyObject *item = PySequence_GetItem(given, d);

        sizes[d] = item == NULL ? -1 : PyLong_AsLongLong(item);
        Py_XDECREF(item);
        if (sizes[d] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

static int count_elements(const struct py_sparse *sparse, size_t *out)
{
    *out = 1;
    for (int d = 0; d < sparse->nvalue_dims; d++) {
        if (sparse->value_shape[d] < 0 ||
            __builtin_mul_overflow(*out, (size_t)sparse->value_shape[d], out)) {
            PyErr_Format(PyExc_ValueError, "value_shape: %lld in dimension %d",
                         (long long)sparse->value_shape[d], d);
            return -1;
        }
    }
    return 0;
}

static const choir_buf *lend_contiguous(struct py_call *call, PyObject *object, const char *name,
                                        PyObject *dtype)
{
    const choir_buf *buf = py_lend(call->self->state, call->lent, object, PY_READ | call->lasting,
                                   dtype);

    if (buf != NULL && buf->ndim != 0) {
        PyErr_Format(PyExc_ValueError, "%s: is not contiguous", name);
        return NULL;
    }
    return buf;
}

/* The library is told numbers of entries, the buffers have lengths: they have to agree. */
static int lend_entries(struct py_call *call, PyObject *indices, PyObject *values, choir_sparse *in)
{
    const choir_buf *at = lend_contiguous(call, indices, "indices", NULL), *what;
    size_t rows = in->ndim > 0 ? (size_t)in->ndim : 1, want;

    if (at == NULL || (what = lend_contiguous(call, values, "values", call->dtype)) == NULL)
        return -1;
    if (at->type != CHOIR_I64) {
        PyErr_Format(PyExc_TypeError, "indices: elements of %s, expected i64",
                     choir_type_name(at->type));
        return -1;
    }
    in->nnz = at->count / rows;
    if (at->count % rows != 0 || __builtin_mul_overflow(in->nnz, in->value_count, &want) ||
        what->count != want) {
        PyErr_Format(PyExc_ValueError,
                     "indices has %zu elements and values %zu: expected an entry's %d "
                     "coordinates and %zu elements, as often as there are entries",
                     at->count, what->count, in->ndim, in->value_count);
        return -1;
    }
    in->indices = at->data;
    in->values = what->data;
    in->type = what->type;
    return 0;
}

static struct py_sparse *make_sparse(struct py_call *call)
{
    struct py_state *state = call->self->state;
    struct py_sparse *sparse;

    if (call->batch != NULL) {
        py_raise(state, CHOIR_ERR_UNSUPPORTED, "all_reduce_sparse",
                 "all_reduce_sparse: in a batch nobody could be given its result");
        return NULL;
    }
    sparse = (struct py_sparse *)PyType_GenericAlloc(state->sparse_type, 0);
    if (sparse != NULL) {
        sparse->state = state;
        call->lent->object = Py_NewRef((PyObject *)sparse); /* the library writes into it */
    }
    return sparse;
}

static PyObject *all_reduce_sparse(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    enum { INDICES, VALUES, SHAPE, VALUE_SHAPE, COMMON };
    static const char *const names[] = { "indices", "values", "shape", "value_shape",
                                         PY_COMMON_NAMES };
    static const struct py_params params = { "all_reduce_sparse", names, 4, 3 };
    PyObject *given[COMMON + PY_NCOMMON], *result;
    struct py_sparse *sparse = NULL;
    int64_t shape[DIMS];
    choir_sparse in = { .shape = shape };
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        (sparse = make_sparse(&call)) == NULL ||
        (in.ndim = read_sizes(given[SHAPE], "shape", shape)) < 0 ||
        (sparse->nvalue_dims = read_sizes(given[VALUE_SHAPE], "value_shape", sparse->value_shape)) <
            0 ||
        count_elements(sparse, &in.value_count) < 0 ||
        lend_entries(&call, given[INDICES], given[VALUES], &in) < 0) {
        result = py_call_fail(&call);
    } else {
        PY_ISSUE(&call,
                 choir_allreduce_sparse(call.group, &in, &sparse->sum, &call.opts, call.work_out));
        result = py_call_end(&call, (PyObject *)sparse);
    }
    Py_XDECREF((PyObject *)sparse);
    return result;
}

/* --- the types ------------------------------------------------------------------------------------------------------- */

PyMethodDef py_sparse_methods[] = {
    { "all_reduce_sparse", PY_METHOD(all_reduce_sparse),
      "all_reduce_sparse(indices, values, shape, value_shape=(), *, ...)\n\n"
      "The sum of arrays of which each rank has some entries, perhaps none. `indices`, of i64, has\n"
      "a row for each dimension of `shape`; `values` has an element, or an array of `value_shape`,\n"
      "for each entry. Gives a Sparse, the same on all ranks." },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
    { "indices", get_indices, NULL, "Where entries are: a row for each dimension.", NULL },
    { "values", get_values, NULL,
      "What the entries are, each an element or an array. bf16 and fp8 are given as their bits.",
      NULL },
    { "shape", get_shape, NULL, "The sizes of the dimensions.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char doc[] =
    "A sum of sparse arrays: every place that some rank has an entry for, once, in rising order.\n"
    "Made by Group.all_reduce_sparse(). Its arrays are memoryviews, which numpy.asarray() takes as\n"
    "they are.";

static PyType_Slot sparse_slots[] = {
    { Py_tp_doc, (void *)doc },
    { Py_tp_dealloc, sparse_dealloc },
    { Py_tp_getset, properties },
    { 0, NULL },
};

static PyType_Slot part_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_bf_getbuffer, part_lend },
    { 0, NULL },
};

#define FLAGS Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE

static PyType_Spec sparse_spec = {
    .name = "choir.Sparse",
    .basicsize = sizeof(struct py_sparse),
    .flags = FLAGS,
    .slots = sparse_slots,
};

static PyType_Spec part_spec = {
    .name = "choir._choir._SparsePart",
    .basicsize = sizeof(struct py_part),
    .flags = FLAGS,
    .slots = part_slots,
};

int py_sparse_add(struct py_state *state)
{
    state->sparse_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &sparse_spec,
                                                                  NULL);
    state->part_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &part_spec, NULL);
    if (state->sparse_type == NULL || state->part_type == NULL)
        return -1;
    return PyModule_AddType(state->module, state->sparse_type);
}
