/*
 * py_dlpack.c - memory of tensors through DLPack, without copying.
 *
 * Two ways: the table of C functions that a type may carry (__dlpack_c_exchange_api__, PyTorch), which costs a tenth
 * of a microsecond and does not mind tensors that require gradients; and the method __dlpack__() of everybody else.
 * The structs below are DLPack's ABI, versions 0.x and 1.x.
 */
#include "choirext.h"

/* --- DLPack's structs ------------------------------------------------------------------------------------ */

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };
enum { DL_READ_ONLY = 1 };
enum { DL_FLOAT8_FIRST = 7, DL_FLOAT8_LAST = 14 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL: contiguous */
    uint64_t byte_offset;
};

struct dl_managed_old {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed_old *self);
};

struct dl_managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

struct dl_exchange {
    uint32_t major, minor;
    struct dl_exchange *previous;
    int (*allocate)(void);
    int (*managed_from_object)(void *object, struct dl_managed **out);
    int (*managed_to_object)(void);
    int (*tensor_from_object)(void *object,
                              struct dl_tensor *out); /* lives as long as the object */
    int (*current_stream)(void);
};

/* --- a tensor ---------------------------------------------------------------------------------------------- */

static const struct {
    uint8_t code, bits;
    choir_type type;
} types[] = {
    { 2, 32, CHOIR_F32 },       { 4, 16, CHOIR_BF16 },        { 2, 16, CHOIR_F16 },
    { 2, 64, CHOIR_F64 },       { 0, 64, CHOIR_I64 },         { 0, 32, CHOIR_I32 },
    { 0, 16, CHOIR_I16 },       { 0, 8, CHOIR_I8 },           { 1, 8, CHOIR_U8 },
    { 1, 16, CHOIR_U16 },       { 1, 32, CHOIR_U32 },         { 1, 64, CHOIR_U64 },
    { 6, 8, CHOIR_BOOL },       { 10, 8, CHOIR_F8E4M3 },      { 12, 8, CHOIR_F8E5M2 },
    { 5, 64, CHOIR_COMPLEX64 }, { 5, 128, CHOIR_COMPLEX128 },
};

/* Of 8 bits, and of no use but to be stored: the kinds of float8 that NCCL moves as bytes. */
static bool is_stored_only(const struct dl_tensor *tensor)
{
    return tensor->code >= DL_FLOAT8_FIRST && tensor->code <= DL_FLOAT8_LAST && tensor->bits == 8 &&
           tensor->lanes == 1;
}

static int take_type(const struct dl_tensor *tensor, unsigned access, struct py_buf *out)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].code == tensor->code && types[i].bits == tensor->bits && tensor->lanes == 1) {
            out->buf.type = types[i].type;
            return 0;
        }
    }
    if ((access & PY_MOVED) != 0 && is_stored_only(tensor)) {
        out->buf.type = CHOIR_U8;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "DLPack type %d of %d bits and %d lanes has no counterpart here",
                 tensor->code, tensor->bits, tensor->lanes);
    return -1;
}

static int describe(const struct dl_tensor *tensor, unsigned access, struct py_buf *out)
{
    if (tensor->device_type != DL_CPU && tensor->device_type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_BufferError,
                     "the tensor is on a device (DLPack type %d): host memory is expected",
                     (int)tensor->device_type);
        return -1;
    }
    out->buf.data = (char *)tensor->data + tensor->byte_offset;
    if (take_type(tensor, access, out) < 0)
        return -1;
    return py_buf_shape(out, tensor->ndim, tensor->shape, tensor->strides);
}

static int refuse_read_only(PyObject *object)
{
    PyErr_Format(PyExc_BufferError, "%R: its memory is read-only, and an output is expected",
                 (PyObject *)Py_TYPE(object));
    return -1;
}

/* Takes `managed`, also on failure. */
static int take_managed(PyObject *object, unsigned access, struct dl_managed *managed,
                        struct py_buf *out)
{
    out->lender = PY_DLPACK;
    out->managed = managed;
    if ((access & PY_WRITE) != 0 && (managed->flags & DL_READ_ONLY) != 0)
        (void)refuse_read_only(object);
    else if (describe(&managed->tensor, access, out) == 0)
        return 1;
    py_buf_release(out);
    return -1;
}

static int take_managed_old(struct dl_managed_old *managed, unsigned access, struct py_buf *out)
{
    out->lender = PY_DLPACK_OLD;
    out->managed = managed;
    if (describe(&managed->tensor, access, out) == 0)
        return 1;
    py_buf_release(out);
    return -1;
}

static void let_managed_go(struct dl_managed *managed)
{
    if (managed != NULL && managed->deleter != NULL)
        managed->deleter(managed);
}

void py_dlpack_release(struct py_buf *buf)
{
    PyObject *kind, *value, *trace;

    if (buf->managed == NULL)
        return;
    PyErr_Fetch(&kind, &value, &trace); /* deleters run Python code */
    if (buf->lender == PY_DLPACK) {
        let_managed_go(buf->managed);
    } else {
        struct dl_managed_old *managed = buf->managed;

        if (managed->deleter != NULL)
            managed->deleter(managed);
    }
    PyErr_Restore(kind, value, trace);
}

/* --- the table of functions ------------------------------------------------------------------------------- */

/* NULL, without an exception, if the type has none that we know. */
static const struct dl_exchange *ask_type(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const struct dl_exchange *exchange = NULL;

    if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* what it points to is the library's, for good */
    while (exchange != NULL && exchange->major != 1)
        exchange = exchange->previous;
    return exchange;
}

static const struct dl_exchange *exchange_of(struct py_state *state, PyTypeObject *type)
{
    const struct dl_exchange *exchange;
    PyTypeObject *before;
    unsigned at;

    for (unsigned i = 0; i < PY_NEXCHANGES; i++) {
        if (state->exchanges[i].type == type)
            return state->exchanges[i].exchange;
    }
    exchange = ask_type(
        type); /* may run any code, which may come here: type and table are stored together */
    at = state->next_exchange++ % PY_NEXCHANGES;
    before = state->exchanges[at].type;
    state->exchanges[at].type = (PyTypeObject *)Py_NewRef((PyObject *)type);
    state->exchanges[at].exchange = exchange;
    Py_XDECREF((PyObject *)before);
    return exchange;
}

void py_dlpack_forget(struct py_state *state)
{
    for (unsigned i = 0; i < PY_NEXCHANGES; i++)
        Py_CLEAR(state->exchanges[i].type);
    Py_CLEAR(state->is_conj);
    Py_CLEAR(state->is_neg);
    Py_CLEAR(state->detach);
}

int py_dlpack_add(struct py_state *state)
{
    state->is_conj = PyUnicode_InternFromString("is_conj");
    state->is_neg = PyUnicode_InternFromString("is_neg");
    state->detach = PyUnicode_InternFromString("detach");
    return state->is_conj != NULL && state->is_neg != NULL && state->detach != NULL ? 0 : -1;
}

static bool says(PyObject *object, PyObject *method)
{
    PyObject *answer = PyObject_CallMethodObjArgs(object, method, NULL);
    bool yes = answer == Py_True;

    PyErr_Clear(); /* not PyTorch: it has no such thing */
    Py_XDECREF(answer);
    return yes;
}

/* PyTorch's tensors may be conjugated or negated by a mark alone, which the table does not tell of (__dlpack__ refuses
 * them). */
static int refuse_marked(struct py_state *state, PyObject *object, const struct py_buf *buf)
{
    bool is_complex = buf->buf.type == CHOIR_COMPLEX64 || buf->buf.type == CHOIR_COMPLEX128;

    if ((is_complex && says(object, state->is_conj)) || says(object, state->is_neg)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is conjugated or negated by a mark, not in "
                                           "memory: resolve_conj() or resolve_neg() first");
        return -1;
    }
    return 0;
}

/* A tensor of PyTorch's may be given other memory (tensor.data = ..., tensor.set_()): what is held is another one of the same
 * memory, which nobody else has. NULL, without an exception, if that is not to be had. */
static struct dl_managed *hold_another(struct py_state *state, const struct dl_exchange *exchange,
                                       PyObject *object)
{
    PyObject *same = PyObject_CallMethodObjArgs(object, state->detach, NULL);
    struct dl_managed *managed = NULL;
    struct dl_tensor tensor;

    if (same != NULL && exchange->tensor_from_object != NULL &&
        exchange_of(state, Py_TYPE(same)) == exchange &&
        (exchange->managed_from_object(same, &managed) != 0 ||
         exchange->tensor_from_object(object, &tensor) != 0 ||
         managed->tensor.data != tensor.data)) {
        let_managed_go(managed);
        managed = NULL;
    }
    Py_XDECREF(same);
    if (managed == NULL)
        PyErr_Clear();
    return managed;
}

static struct dl_managed *hold(struct py_state *state, const struct dl_exchange *exchange,
                               PyObject *object)
{
    struct dl_managed *managed = hold_another(state, exchange, object);

    if (managed == NULL && exchange->managed_from_object(object, &managed) != 0)
        return NULL;
    return managed;
}

/* A call that is over on return takes no reference: its arguments last, unless another thread gives a tensor other memory, which
 * docs/python.md forbids. To hold another tensor of that memory would cost such a call 0.3 to 0.4 us. */
static int get_exchanged(struct py_state *state, const struct dl_exchange *exchange,
                         PyObject *object, unsigned access, struct py_buf *out)
{
    struct dl_managed *managed;
    struct dl_tensor tensor;

    if ((access & PY_LASTING) != 0 || exchange->tensor_from_object == NULL) {
        managed = hold(state, exchange, object);
        if (managed == NULL || take_managed(object, access, managed, out) < 0)
            return -1;
    } else {
        if (exchange->tensor_from_object(object, &tensor) != 0 ||
            describe(&tensor, access, out) < 0)
            return -1;
        out->lender = PY_DLPACK;
        out->managed = NULL;
    }
    if (refuse_marked(state, object, out) == 0)
        return 1;
    py_buf_release(out);
    return -1;
}

/* --- __dlpack__() ------------------------------------------------------------------------------------------ */

/* Versions before 1 do not know the argument. NULL with an exception. */
static PyObject *ask_object(PyObject *object)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0), *versioned = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = NULL;

    if (method != NULL && none != NULL && versioned != NULL) {
        capsule = PyObject_Call(method, none, versioned);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule = PyObject_Call(method, none, NULL);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(versioned);
    return capsule;
}

/* Whose name says that it was used does not free the tensor; we do. */
static int take_capsule(PyObject *object, PyObject *capsule, unsigned access, struct py_buf *out)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");

        if (managed == NULL || PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0)
            return -1;
        return take_managed(object, access, managed, out);
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed_old *managed = PyCapsule_GetPointer(capsule, "dltensor");

        if (managed == NULL || PyCapsule_SetName(capsule, "used_dltensor") < 0)
            return -1;
        return take_managed_old(managed, access, out);
    }
    PyErr_Format(PyExc_BufferError, "%R: __dlpack__() gave %R", (PyObject *)Py_TYPE(object),
                 capsule);
    return -1;
}

static int get_by_method(PyObject *object, unsigned access, struct py_buf *out)
{
    PyObject *capsule = ask_object(object);
    int rc;

    if (capsule == NULL)
        return -1;
    rc = take_capsule(object, capsule, access, out);
    Py_DECREF(capsule);
    return rc;
}

int py_dlpack_get(struct py_state *state, PyObject *object, unsigned access, struct py_buf *out)
{
    const struct dl_exchange *exchange = exchange_of(state, Py_TYPE(object));

    if (exchange != NULL)
        return get_exchanged(state, exchange, object, access, out);
    if (!PyObject_HasAttrString(object, "__dlpack__"))
        return 0;
    return get_by_method(object, access, out);
}
