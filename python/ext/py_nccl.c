/*
 * py_nccl.c - NCCL's manner: communicators in capsules, calls that take lists. The functions have the names and the
 * arguments of PyTorch's torch._C._nccl_*; choir/nccl.py is what programs see.
 *
 * Whether arguments fit each other the C library says (choir/comm.h); what Python alone can get wrong, objects
 * that are no tensors, capsules of somebody else, is said here. The exceptions are classes of choir/nccl.py.
 */
#include "py_nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CAPSULE_NAME "torch.cuda.nccl.Communicator"

/* --- exceptions ---------------------------------------------------------------------------------------- */

static PyObject *class_named(const char *name)
{
    PyObject *module = PyImport_ImportModule("choir.nccl"), *type;

    if (module == NULL)
        return NULL;
    type = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return type;
}

/* `from` is the exception behind it, taken, or NULL. */
static PyObject *refuse_from(PyObject *from, const char *name, long index, const char *format,
                             va_list args)
{
    PyObject *type = class_named(name), *text = PyUnicode_FromFormatV(format, args), *error = NULL;
    PyObject *number = index >= 0 ? PyLong_FromLong(index) : Py_NewRef(Py_None);

    if (type != NULL && text != NULL)
        error = PyObject_CallFunctionObjArgs(type, text, NULL);
    if (error != NULL && number != NULL && PyObject_SetAttrString(error, "index", number) == 0) {
        if (from != NULL)
            PyException_SetCause(error, Py_NewRef(from));
        PyErr_SetObject(type, error);
    }
    Py_XDECREF(type);
    Py_XDECREF(text);
    Py_XDECREF(error);
    Py_XDECREF(number);
    Py_XDECREF(from);
    return NULL;
}

PyObject *py_nccl_refuse(const char *name, long index, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    refuse_from(NULL, name, index, format, args);
    va_end(args);
    return NULL;
}

PyObject *py_nccl_refuse_because(const char *name, long index, const char *format, ...)
{
    PyObject *type, *value, *trace;
    va_list args;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    va_start(args, format);
    refuse_from(value, name, index, format, args);
    va_end(args);
    return NULL;
}

static const char *const rule_classes[] = {
    [CHOIR_RULE_NONE] = NULL,
    [CHOIR_RULE_NO_INPUTS] = "EmptyInputError",
    [CHOIR_RULE_COMM_STATE] = "CommStateError",
    [CHOIR_RULE_COMM_SIZES] = "CommSizeError",
    [CHOIR_RULE_ROOT] = "RootError",
    [CHOIR_RULE_NSTREAMS] = "StreamCountError",
    [CHOIR_RULE_NCOMMS] = "CommCountError",
    [CHOIR_RULE_NOUTPUTS] = "OutputCountError",
    [CHOIR_RULE_TYPE] = "DtypeError",
    [CHOIR_RULE_CONTIGUOUS] = "ContiguousError",
    [CHOIR_RULE_COUNT] = "InputSizeError",
    [CHOIR_RULE_OUTPUT_COUNT] = "OutputSizeError",
    [CHOIR_RULE_UNIQUE] = "UniqueError",
    [CHOIR_RULE_OVERLAP] = "OverlapError",
    [CHOIR_RULE_OP] = "OpError",
    [CHOIR_RULE_OP_TYPE] = "OpDtypeError",
};

/* Of the rule's class, or of the one choir.nccl has for its code. */
static PyObject *failure_from(struct py_state *state, const choir_error *record,
                              const choir_comm_fault *fault)
{
    PyObject *plain = py_error_from(state, record), *choose, *error;

    if (plain == NULL)
        return NULL;
    choose = class_named("_failure");
    error = choose == NULL ? NULL
                           : PyObject_CallFunction(choose, "Ozi", plain,
                                                   fault != NULL ? rule_classes[fault->rule] : NULL,
                                                   fault != NULL ? fault->index : -1);
    Py_XDECREF(choose);
    Py_DECREF(plain);
    return error;
}

PyObject *py_nccl_error_from(struct py_state *state, const choir_error *record)
{
    return failure_from(state, record, NULL);
}

PyObject *py_nccl_raise(struct py_state *state, const choir_comm_fault *fault)
{
    PyObject *error = failure_from(state, choir_last_error_record(), fault);

    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *py_nccl_wrong_arguments(const char *name, const char *expected)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) &&
        !PyErr_ExceptionMatches(PyExc_OverflowError)) /* a number that no int can be */
        return NULL;
    return py_nccl_refuse_because("SignatureError", -1,
                                  "%s(): invalid combination of arguments; expected (%s)", name,
                                  expected);
}

/* --- communicators -------------------------------------------------------------------------------------- */

/* Memory that is read in each call with the reduction. */
struct factor {
    struct factor *next;
    int op;
    struct py_buf buf;
};

/* The context of a capsule: what its communicator keeps of Python. */
struct kept {
    PyObject *module; /* whose state is asked at the end */
    bool gave_handles;
    struct factor *factors; /* of the reductions it was given and not told to forget */
};

struct farewell {
    choir_comm *comm;
    struct kept *kept;
};

/* Of a capsule that is one; NULL, without an exception: somebody else's, of a communicator of ours. */
static struct kept *kept_by(PyObject *capsule)
{
    return PyCapsule_GetContext(capsule);
}

void py_nccl_gives_handles(PyObject *capsule)
{
    struct kept *kept = kept_by(capsule);

    if (kept != NULL)
        kept->gave_handles = true;
}

static void release_factor(struct factor *factor)
{
    py_buf_release(&factor->buf);
    PyMem_Free(factor);
}

/* The communicator is gone. */
static void let_kept_go(struct kept *kept)
{
    if (kept == NULL)
        return;
    while (kept->factors != NULL) {
        struct factor *factor = kept->factors;

        kept->factors = factor->next;
        release_factor(factor);
    }
    Py_DECREF(kept->module);
    PyMem_Free(kept);
}

/* Let what is under way go on for a while. CHOIR_ERR_TIMEOUT: a callback does not return, and the communicator cannot end. */
static choir_status let_finish(choir_comm *comm)
{
    choir_status rc = choir_comm_finalize(comm, PY_GRACE_MS);

    if (rc == CHOIR_ERR_TIMEOUT) {
        choir_comm_abort(comm);
        rc = choir_comm_finalize(comm, PY_PATIENCE_MS);
    }
    return rc;
}

/* Callbacks of calls that gave handles may be under way, or calls, if the interpreter ends. What has a callback that does not
 * return ends with the process. */
static void end_comm(choir_comm *comm)
{
    if (let_finish(comm) != CHOIR_ERR_TIMEOUT)
        choir_comm_destroy(comm);
}

static void end_on_thread(void *arg)
{
    struct farewell *farewell = arg;
    PyGILState_STATE held;

    end_comm(farewell->comm);
    held = PyGILState_Ensure();
    py_ending_is_over(py_state_of(farewell->kept->module));
    let_kept_go(farewell->kept);
    PyMem_Free(farewell);
    PyGILState_Release(held);
}

/* Whoever drops the last reference may hold what a callback waits for, or be that callback: neither can wait for it. */
static void end_elsewhere(choir_comm *comm, struct kept *kept)
{
    struct farewell *farewell = PyMem_Malloc(sizeof(*farewell));
    struct py_state *state = py_state_of(kept->module);

    if (farewell == NULL)
        return; /* it ends with the process */
    *farewell = (struct farewell){ comm, kept };
    py_ending_begins(state); /* it cannot be over before this thread lets the interpreter go */
    if (PyThread_start_new_thread(end_on_thread, farewell) != (unsigned long)-1)
        return;
    py_ending_is_over(state);
    PyMem_Free(farewell);
}

static void capsule_ends(PyObject *capsule)
{
    choir_comm *comm = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    struct kept *kept = kept_by(capsule);

    if (comm == NULL || kept == NULL) {
        PyErr_Clear(); /* somebody gave it another name, and has it now */
    } else if (!kept->gave_handles) {
        /* Quick: nobody waits for other ranks here, and a call under way has the capsule, so there is none. */
        Py_BEGIN_ALLOW_THREADS choir_comm_destroy(comm);
        Py_END_ALLOW_THREADS let_kept_go(kept);
    } else if (!py_state_of(kept->module)->ended) {
        end_elsewhere(comm, kept);
    } else {
        Py_BEGIN_ALLOW_THREADS end_comm(comm);
        Py_END_ALLOW_THREADS let_kept_go(kept);
    }
}

/* Takes the communicator over, also on failure. */
static PyObject *make_capsule(PyObject *module, choir_comm *comm)
{
    struct kept *kept = PyMem_Calloc(1, sizeof(*kept));
    PyObject *capsule = NULL;

    if (kept == NULL) {
        PyErr_NoMemory();
    } else {
        kept->module = Py_NewRef(module);
        capsule = PyCapsule_New(comm, CAPSULE_NAME, NULL);
    }
    if (capsule == NULL) {
        choir_comm_destroy(comm);
        let_kept_go(kept);
        return NULL;
    }
    (void)PyCapsule_SetContext(capsule, kept);
    (void)PyCapsule_SetDestructor(capsule, capsule_ends);
    return capsule;
}

void py_nccl_reap(struct py_state *state)
{
    if (state->unwaited != NULL)
        py_lent_reap(&state->unwaited);
}

static void reap_all(struct py_state *state)
{
    for (int ms = 0; state->unwaited != NULL && ms < PY_GRACE_MS; ms++) {
        py_nccl_reap(state);
        py_pause_ms();
    }
}

void py_nccl_end(struct py_state *state)
{
    reap_all(state);
    for (struct py_lent *lent = state->unwaited; lent != NULL; lent = lent->next)
        choir_comm_abort(PyCapsule_GetPointer(lent->object, CAPSULE_NAME));
    reap_all(state);
    state->ended = true;
}

PyObject *py_nccl_capsule(PyObject *object, long index)
{
    PyObject *capsule = PyCapsule_CheckExact(object) ? Py_NewRef(object)
                                                     : PyObject_GetAttrString(object, "capsule");

    if (capsule == NULL)
        py_nccl_refuse_because("NotACommError", index, "comms: %R is no communicator", object);
    return capsule;
}

choir_comm *py_nccl_comm(PyObject *capsule, long index)
{
    choir_comm *comm = NULL;

    if (PyCapsule_CheckExact(capsule) && PyCapsule_IsValid(capsule, CAPSULE_NAME))
        comm = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    if (comm == NULL || !choir_comm_exists(comm)) {
        comm = NULL;
        py_nccl_refuse("CapsuleError", index,
                       "comms: %R is no capsule of a communicator of Choir's (%s)", capsule,
                       CAPSULE_NAME);
    }
    return comm;
}

static PyObject *unique_id(PyObject *module, PyObject *args)
{
    choir_unique_id id;
    choir_status rc;
    int real = 0;
    bool raised;

    if (!PyArg_ParseTuple(args, "|p", &real))
        return py_nccl_wrong_arguments("_nccl_unique_id", "bool library=False");
    py_leave();
    rc = real ? choir_libnccl_unique_id(&id) : choir_unique_id_make(&id);
    raised = py_return();
    if (raised)
        return NULL;
    if (rc != CHOIR_OK)
        return py_nccl_raise(py_state_of(module), NULL);
    return PyBytes_FromStringAndSize((const char *)id.bytes, sizeof(id.bytes));
}

static int read_id(PyObject *object, choir_unique_id *out)
{
    Py_buffer view;
    int rc = -1;

    if (PyUnicode_Check(object) || !PyObject_CheckBuffer(object)) {
        py_nccl_refuse("IdTypeError", -1, "init_rank: the id is %R, expected bytes",
                       (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return -1;
    if (view.len != (Py_ssize_t)sizeof(out->bytes)) {
        py_nccl_refuse("IdLengthError", -1, "init_rank: the id has %zd bytes, expected %d",
                       view.len, CHOIR_UNIQUE_ID_NBYTES);
    } else {
        memcpy(out->bytes, view.buf, sizeof(out->bytes));
        rc = 0;
    }
    PyBuffer_Release(&view);
    return rc;
}

static PyObject *init_rank(PyObject *module, PyObject *args)
{
    choir_comm_init_rank_opts opts = { .size = sizeof(opts) };
    PyObject *id_object, *timeout = NULL;
    choir_comm *comm = NULL;
    choir_unique_id id;
    int nranks, rank;
    choir_status rc;
    bool raised;

    if (!PyArg_ParseTuple(args, "iOi|O", &nranks, &id_object, &rank, &timeout))
        return py_nccl_wrong_arguments("_nccl_init_rank",
                                       "int nranks, bytes id, int rank, timeout=None");
    if (read_id(id_object, &id) < 0 || py_read_timeout(timeout, &opts.timeout_ms) < 0)
        return NULL;
    py_nccl_reap(py_state_of(module));
    py_leave();
    rc = choir_comm_init_rank(nranks, &id, rank, &opts, &comm);
    raised = py_return();
    if (raised || rc != CHOIR_OK) {
        if (rc == CHOIR_OK)
            choir_comm_destroy(comm);
        return raised ? NULL : py_nccl_raise(py_state_of(module), NULL);
    }
    return make_capsule(module, comm);
}

static PyObject *comm_info(PyObject *module, PyObject *object)
{
    choir_comm *comm = py_nccl_comm(object, -1);

    (void)module;
    return comm == NULL ? NULL : Py_BuildValue("ii", choir_comm_rank(comm), choir_comm_size(comm));
}

/* Calls that gave handles are waited for where Ctrl-C and abort() are heard. Gently: what has a callback that does not return
 * is left, aborted, to whoever has the capsule. */
static PyObject *comm_close(PyObject *module, PyObject *args)
{
    const struct kept *kept;
    PyObject *object;
    choir_comm *comm;
    choir_status rc = CHOIR_OK;
    int gently = 0; /* not for longer than what was forgotten */
    bool raised;

    if (!PyArg_ParseTuple(args, "O|p", &object, &gently))
        return py_nccl_wrong_arguments("_nccl_comm_close", "comm, bool gently=False");
    comm = py_nccl_comm(object, -1);
    if (comm == NULL)
        return NULL;
    py_nccl_reap(py_state_of(module));
    kept = kept_by(object);
    py_leave();
    if (kept != NULL && kept->gave_handles)
        rc = gently ? let_finish(comm) : choir_comm_finalize(comm, -1);
    raised = py_return();
    if (raised)
        return NULL;
    if (rc == CHOIR_ERR_TIMEOUT)
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS choir_comm_close(comm);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *comm_abort(PyObject *module, PyObject *object)
{
    choir_comm *comm = py_nccl_comm(object, -1);

    (void)module;
    if (comm == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS choir_comm_abort(comm);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *comm_finalize(PyObject *module, PyObject *args)
{
    static const choir_comm_fault state = { CHOIR_RULE_COMM_STATE, false, -1 };
    PyObject *object, *timeout = NULL;
    int64_t timeout_ms = 0;
    choir_comm *comm;
    choir_status rc;
    bool raised;

    if (!PyArg_ParseTuple(args, "O|O", &object, &timeout))
        return py_nccl_wrong_arguments("_nccl_comm_finalize", "comm, timeout=None");
    comm = py_nccl_comm(object, -1);
    if (comm == NULL || py_read_timeout(timeout, &timeout_ms) < 0)
        return NULL;
    py_leave();
    rc = choir_comm_finalize(comm, timeout_ms);
    raised = py_return();
    if (raised)
        return NULL;
    if (rc != CHOIR_OK)
        return py_nccl_raise(py_state_of(module), rc == CHOIR_ERR_STATE ? &state : NULL);
    Py_RETURN_NONE;
}

/* None, or the exception that it has failed with. */
static PyObject *comm_error(PyObject *module, PyObject *object)
{
    struct py_state *state = py_state_of(module);
    choir_comm *comm = py_nccl_comm(object, -1);
    choir_error record;
    choir_status rc;

    if (comm == NULL)
        return NULL;
    py_leave();
    rc = choir_comm_error(comm, &record);
    if (py_return())
        return NULL;
    if (rc == CHOIR_OK)
        Py_RETURN_NONE;
    return py_error_from(state, &record);
}

/* --- reductions of a communicator's own ------------------------------------------------------------------- */

/* The number of the reduction; 0 with an exception. */
static int add_redop(struct py_state *state, choir_comm *comm, const choir_buf *buf, bool copied)
{
    choir_status rc;
    int op = 0;

    if (buf->count != 1) {
        py_nccl_refuse("InputSizeError", -1,
                       "premul_sum: the factor has %zu elements, expected one", buf->count);
        return 0;
    }
    rc = choir_comm_premul_sum(comm, buf->data, buf->type, copied, &op);
    if (rc == CHOIR_OK)
        return op;
    py_nccl_raise(state,
                  &(choir_comm_fault){ rc == CHOIR_ERR_TYPE ? CHOIR_RULE_OP_TYPE : CHOIR_RULE_OP,
                                       false, -1 });
    return 0;
}

static int add_copied(struct py_state *state, choir_comm *comm, PyObject *object)
{
    struct py_buf buf;
    int op;

    if (py_buf_get(state, object, PY_READ, NULL, &buf) < 0)
        return 0;
    op = add_redop(state, comm, &buf.buf, true);
    py_buf_release(&buf);
    return op;
}

/* The capsule holds it, as calls have the capsule. */
static int add_lent(struct py_state *state, struct kept *kept, choir_comm *comm, PyObject *object)
{
    struct factor *factor = PyMem_Malloc(sizeof(*factor));

    if (factor == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    if (py_buf_get(state, object, PY_READ | PY_LASTING, NULL, &factor->buf) < 0) {
        PyMem_Free(factor);
        return 0;
    }
    factor->op = add_redop(state, comm, &factor->buf.buf, false);
    if (factor->op == 0) {
        release_factor(factor);
        return 0;
    }
    factor->next = kept->factors;
    kept->factors = factor;
    return factor->op;
}

static PyObject *premul_sum(PyObject *module, PyObject *args)
{
    struct py_state *state = py_state_of(module);
    PyObject *object, *factor;
    struct kept *kept;
    choir_comm *comm;
    int op, lent = 0;

    if (!PyArg_ParseTuple(args, "OO|p", &object, &factor, &lent))
        return py_nccl_wrong_arguments("_nccl_premul_sum", "comm, tensor factor, bool lent=False");
    comm = py_nccl_comm(object, -1);
    if (comm == NULL)
        return NULL;
    kept = kept_by(object);
    if (lent && kept == NULL)
        return py_nccl_refuse(
            "CapsuleError", -1,
            "premul_sum: %R was not made by init_rank(), and cannot hold a factor", object);
    op = lent ? add_lent(state, kept, comm, factor) : add_copied(state, comm, factor);
    return op != 0 ? PyLong_FromLong(op) : NULL;
}

static void forget_factor(struct kept *kept, int op)
{
    struct factor **at = &kept->factors, *factor;

    while (*at != NULL && (*at)->op != op)
        at = &(*at)->next;
    factor = *at;
    if (factor == NULL)
        return;
    *at = factor->next;
    release_factor(factor);
}

static PyObject *redop_destroy(PyObject *module, PyObject *args)
{
    struct kept *kept;
    PyObject *object;
    choir_comm *comm;
    int op;

    if (!PyArg_ParseTuple(args, "Oi", &object, &op))
        return py_nccl_wrong_arguments("_nccl_redop_destroy", "comm, int op");
    comm = py_nccl_comm(object, -1);
    if (comm == NULL)
        return NULL;
    if (choir_comm_redop_destroy(comm, op) != CHOIR_OK)
        return py_nccl_raise(py_state_of(module), &(choir_comm_fault){ CHOIR_RULE_OP, false, -1 });
    kept = kept_by(object);
    if (kept != NULL)
        forget_factor(kept, op);
    Py_RETURN_NONE;
}

/* --- versions ----------------------------------------------------------------------------------------------- */

static unsigned long long coded(int major, int minor, int patch)
{
    return ((unsigned long long)major << 32) + ((unsigned long long)minor << 16) +
           (unsigned long long)patch;
}

static PyObject *version(PyObject *module, PyObject *args)
{
    int compiled = 0, major = 0, minor = 0, patch = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "|p", &compiled))
        return py_nccl_wrong_arguments("_nccl_version", "bool compiled=False");
    if (compiled)
        return PyLong_FromUnsignedLongLong(
            coded(CHOIR_VERSION_MAJOR, CHOIR_VERSION_MINOR, CHOIR_VERSION_PATCH));
    (void)sscanf(choir_version(), "%d.%d.%d", &major, &minor, &patch);
    return PyLong_FromUnsignedLongLong(coded(major, minor, patch));
}

/* What follows the numbers, "" or "rc1". */
static PyObject *version_suffix(PyObject *module, PyObject *unused)
{
    const char *text = choir_version();

    (void)module;
    (void)unused;
    return PyBytes_FromString(text + strspn(text, "0123456789."));
}

/* NCCL's own: a path and a code such as 22809. */
static PyObject *library(PyObject *module, PyObject *unused)
{
    const char *path;
    choir_status rc;
    int code;

    (void)unused;
    py_leave();
    rc = choir_libnccl_path(&path);
    if (rc == CHOIR_OK)
        rc = choir_libnccl_version(&code);
    if (py_return())
        return NULL;
    return rc == CHOIR_OK ? Py_BuildValue("si", path, code)
                          : py_nccl_raise(py_state_of(module), NULL);
}

static PyMethodDef functions[] = {
    { "_nccl_version", version, METH_VARARGS, NULL },
    { "_nccl_version_suffix", version_suffix, METH_NOARGS, NULL },
    { "_nccl_library", library, METH_NOARGS, NULL },
    { "_nccl_unique_id", unique_id, METH_VARARGS, NULL },
    { "_nccl_init_rank", init_rank, METH_VARARGS, NULL },
    { "_nccl_comm_info", comm_info, METH_O, NULL },
    { "_nccl_comm_close", comm_close, METH_VARARGS, NULL },
    { "_nccl_comm_abort", comm_abort, METH_O, NULL },
    { "_nccl_comm_finalize", comm_finalize, METH_VARARGS, NULL },
    { "_nccl_comm_error", comm_error, METH_O, NULL },
    { "_nccl_premul_sum", premul_sum, METH_VARARGS, NULL },
    { "_nccl_redop_destroy", redop_destroy, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

int py_nccl_add(struct py_state *state)
{
    return PyModule_AddFunctions(state->module, functions) < 0 ||
                   PyModule_AddFunctions(state->module, py_nccl_calls) < 0
               ? -1
               : 0;
}
