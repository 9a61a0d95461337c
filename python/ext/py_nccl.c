/*
 * py_nccl.c - NCCL's manner: communicators in capsules, calls that take lists. The functions have the names and the
 * arguments of PyTorch's torch._C._nccl_*; choir/nccl.py is what programs see.
 *
 * Whether arguments fit each other the C library says (choir/comm.h); what Python alone can get wrong, objects
 * that are no tensors, capsules of somebody else, is said here. The exceptions are classes of choir/nccl.py.
 */
#include "choirext.h"

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

/* Raise choir.nccl.<name>. `index` is that of the element it is about, -1 for none; `from` the exception behind it, taken,
 * or NULL. Returns NULL. */
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

static PyObject *refuse(const char *name, long index, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    refuse_from(NULL, name, index, format, args);
    va_end(args);
    return NULL;
}

/* The exception that is set, as the cause of another. */
static PyObject *refuse_because(const char *name, long index, const char *format, ...)
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

/* The library's last failure: a rule's class, or the one choir.nccl has for its code. */
static PyObject *raise_failure(struct py_state *state, const choir_comm_fault *fault)
{
    const choir_error *record = choir_last_error_record();
    PyObject *plain = py_error_from(state, record), *choose, *error;

    if (plain == NULL)
        return NULL;
    choose = class_named("_failure");
    error = choose == NULL ? NULL
                           : PyObject_CallFunction(choose, "Ozi", plain,
                                                   fault != NULL ? rule_classes[fault->rule] : NULL,
                                                   fault != NULL ? fault->index : -1);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(choose);
    Py_XDECREF(error);
    Py_DECREF(plain);
    return NULL;
}

/* Arguments that are none of those expected. */
static PyObject *wrong_arguments(const char *name, const char *expected)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) &&
        !PyErr_ExceptionMatches(PyExc_OverflowError)) /* a number that no int can be */
        return NULL;
    return refuse_because("SignatureError", -1,
                          "%s(): invalid combination of arguments; expected (%s)", name, expected);
}

/* --- communicators -------------------------------------------------------------------------------------- */

static void capsule_ends(PyObject *capsule)
{
    choir_comm *comm = PyCapsule_GetPointer(capsule, CAPSULE_NAME);

    if (comm == NULL) {
        PyErr_Clear();
        return;
    }
    /* Quick: nobody waits for other ranks here, and a call under way has the capsule, so there is none. */
    Py_BEGIN_ALLOW_THREADS choir_comm_destroy(comm);
    Py_END_ALLOW_THREADS
}

/* A capsule as it is, or what an object has as `capsule`. NULL with an exception. */
static PyObject *capsule_of(PyObject *object, long index)
{
    PyObject *capsule = PyCapsule_CheckExact(object) ? Py_NewRef(object)
                                                     : PyObject_GetAttrString(object, "capsule");

    if (capsule == NULL)
        refuse_because("NotACommError", index, "comms: %R is no communicator", object);
    return capsule;
}

/* The communicator of a capsule, which lives as long as the capsule. NULL with an exception. */
static choir_comm *comm_of(PyObject *capsule, long index)
{
    choir_comm *comm = NULL;

    if (PyCapsule_CheckExact(capsule) && PyCapsule_IsValid(capsule, CAPSULE_NAME))
        comm = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    if (comm == NULL || !choir_comm_exists(comm)) {
        comm = NULL;
        refuse("CapsuleError", index, "comms: %R is no capsule of a communicator of Choir's (%s)",
               capsule, CAPSULE_NAME);
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
        return wrong_arguments("_nccl_unique_id", "bool library=False");
    py_leave();
    rc = real ? choir_libnccl_unique_id(&id) : choir_unique_id_make(&id);
    raised = py_return();
    if (raised)
        return NULL;
    if (rc != CHOIR_OK)
        return raise_failure(py_state_of(module), NULL);
    return PyBytes_FromStringAndSize((const char *)id.bytes, sizeof(id.bytes));
}

static int read_id(PyObject *object, choir_unique_id *out)
{
    Py_buffer view;
    int rc = -1;

    if (PyUnicode_Check(object) || !PyObject_CheckBuffer(object)) {
        refuse("IdTypeError", -1, "init_rank: the id is %R, expected bytes",
               (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return -1;
    if (view.len != (Py_ssize_t)sizeof(out->bytes)) {
        refuse("IdLengthError", -1, "init_rank: the id has %zd bytes, expected %d", view.len,
               CHOIR_UNIQUE_ID_NBYTES);
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
    PyObject *id_object, *timeout = NULL, *capsule;
    choir_comm *comm = NULL;
    choir_unique_id id;
    int nranks, rank;
    choir_status rc;
    bool raised;

    if (!PyArg_ParseTuple(args, "iOi|O", &nranks, &id_object, &rank, &timeout))
        return wrong_arguments("_nccl_init_rank", "int nranks, bytes id, int rank, timeout=None");
    if (read_id(id_object, &id) < 0 || py_read_timeout(timeout, &opts.timeout_ms) < 0)
        return NULL;
    py_leave();
    rc = choir_comm_init_rank(nranks, &id, rank, &opts, &comm);
    raised = py_return();
    if (raised || rc != CHOIR_OK) {
        if (rc == CHOIR_OK)
            choir_comm_destroy(comm);
        return raised ? NULL : raise_failure(py_state_of(module), NULL);
    }
    capsule = PyCapsule_New(comm, CAPSULE_NAME, capsule_ends);
    if (capsule == NULL)
        choir_comm_destroy(comm);
    return capsule;
}

static PyObject *comm_info(PyObject *module, PyObject *object)
{
    choir_comm *comm = comm_of(object, -1);

    (void)module;
    return comm == NULL ? NULL : Py_BuildValue("ii", choir_comm_rank(comm), choir_comm_size(comm));
}

static PyObject *comm_close(PyObject *module, PyObject *object)
{
    choir_comm *comm = comm_of(object, -1);

    (void)module;
    if (comm == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS choir_comm_close(comm);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *comm_abort(PyObject *module, PyObject *object)
{
    choir_comm *comm = comm_of(object, -1);

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
        return wrong_arguments("_nccl_comm_finalize", "comm, timeout=None");
    comm = comm_of(object, -1);
    if (comm == NULL || py_read_timeout(timeout, &timeout_ms) < 0)
        return NULL;
    py_leave();
    rc = choir_comm_finalize(comm, timeout_ms);
    raised = py_return();
    if (raised)
        return NULL;
    if (rc != CHOIR_OK)
        return raise_failure(py_state_of(module), rc == CHOIR_ERR_STATE ? &state : NULL);
    Py_RETURN_NONE;
}

/* None, or the exception that it has failed with. */
static PyObject *comm_error(PyObject *module, PyObject *object)
{
    struct py_state *state = py_state_of(module);
    choir_comm *comm = comm_of(object, -1);
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

/* --- lists ------------------------------------------------------------------------------------------------ */

struct list {
    const char *name;
    PyObject *items; /* a Python list */
    size_t count;    /* of those that are held */
    struct py_buf *held;
    choir_buf *bufs;
};

/* One call, from its arguments on. Zeroed is empty, and fine to release. */
struct call {
    struct py_state *state;
    const char *name;
    choir_comm_call args;
    struct list ins, outs;
    choir_comm **comms;
    PyObject *comm_items; /* a Python list, which keeps the capsules */
};

static void list_release(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        py_buf_release(&list->held[i]);
    PyMem_Free(list->held);
    PyMem_Free(list->bufs);
    Py_XDECREF(list->items);
}

static void call_release(struct call *call)
{
    list_release(&call->ins);
    list_release(&call->outs);
    PyMem_Free(call->comms);
    Py_XDECREF(call->comm_items);
}

static bool is_tensor(PyObject *object)
{
    return PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__dlpack__");
}

/* Where DLPack says it is: 0 on a host, 1 elsewhere, with the numbers; -1 if it does not say. */
static int is_elsewhere(PyObject *object, long *type_out, long *id_out)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL), *type, *id;
    int rc = -1;

    type = pair != NULL ? PySequence_GetItem(pair, 0) : NULL;
    id = pair != NULL ? PySequence_GetItem(pair, 1) : NULL;
    if (type != NULL && id != NULL) {
        *type_out = PyLong_AsLong(type); /* an enum counts as its number */
        *id_out = PyLong_AsLong(id);
        if (!PyErr_Occurred())
            rc = *type_out != 1 && *type_out != 3;
    }
    Py_XDECREF(pair);
    Py_XDECREF(type);
    Py_XDECREF(id);
    PyErr_Clear();
    return rc;
}

/* Memory could not be had: say why, in the words of this module. An exception is set. */
static int explain(struct call *call, const struct list *list, size_t i, PyObject *object,
                   unsigned access)
{
    PyObject *type, *value, *trace;
    bool about_type = PyErr_ExceptionMatches(PyExc_TypeError) ||
                      PyErr_ExceptionMatches(PyExc_ValueError);
    const char *kind = "NotHostError", *words = "no dense memory of a host";
    long device, id, index = (long)i;
    struct py_buf buf;

    PyErr_Fetch(&type, &value, &trace);
    if (is_elsewhere(object, &device, &id) == 1) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        refuse(list == &call->outs ? "DeviceError" : "NotHostError", index,
               "%s: %s[%zu] is on device %ld:%ld (as DLPack counts them), expected host memory%s",
               call->name, list->name, i, device, id,
               list == &call->outs ? ", as its input is" : "");
        return -1;
    }
    if ((access & PY_WRITE) != 0 && py_buf_get(call->state, object, PY_READ, NULL, &buf) == 0) {
        py_buf_release(&buf);
        kind = "ReadOnlyError";
        words = "memory that cannot be written to";
    } else if (about_type) {
        kind = "UnconvertibleTypeError";
        words = "an unconvertible type of elements";
    }
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    refuse_because(kind, index, "%s: %s[%zu], %R, has %s", call->name, list->name, i,
                   (PyObject *)Py_TYPE(object), words); /* whose words may be pages long */
    return -1;
}

static int list_add(struct call *call, struct list *list, size_t i, unsigned access)
{
    PyObject *object = PyList_GetItem(list->items, (Py_ssize_t)i);

    if (object == NULL)
        return -1;
    if (!is_tensor(object)) {
        refuse("NotATensorError", (long)i, "%s: %s[%zu] is %R, expected a tensor", call->name,
               list->name, i, (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (py_buf_get(call->state, object, access, NULL, &list->held[i]) < 0)
        return explain(call, list, i, object, access);
    list->count = i + 1;
    return 0;
}

/* Sizes and strides are in `held`, which does not move any more. */
static void list_fill(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        list->bufs[i] = list->held[i].buf;
}

static int list_room(struct list *list, size_t n)
{
    list->held = PyMem_Calloc(n > 0 ? n : 1, sizeof(*list->held));
    list->bufs = PyMem_Calloc(n > 0 ? n : 1, sizeof(*list->bufs));
    if (list->held != NULL && list->bufs != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int list_open(struct call *call, struct list *list, const char *name, PyObject *sequence)
{
    list->name = name;
    list->items = PySequence_List(sequence);
    if (list->items == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            refuse_because("SequenceError", -1, "%s: %s is %R, expected a sequence of tensors",
                           call->name, name, (PyObject *)Py_TYPE(sequence));
        return -1;
    }
    return list_room(list, (size_t)PyList_Size(list->items));
}

static int list_read(struct call *call, struct list *list, unsigned access)
{
    size_t n = (size_t)PyList_Size(list->items);

    for (size_t i = 0; i < n; i++) {
        if (list_add(call, list, i, access) < 0)
            return -1;
    }
    list_fill(list);
    return 0;
}

/* --- streams and communicators ---------------------------------------------------------------------------- */

/* What was queued on a stream comes before: it is waited for. Host memory has no other order than ours. */
static int stream_settle(struct call *call, size_t i, PyObject *stream)
{
    PyObject *done;

    if (stream == Py_None)
        return 0;
    if (PyObject_HasAttrString(stream, "synchronize")) {
        done = PyObject_CallMethod(stream, "synchronize", NULL);
        Py_XDECREF(done);
        return done != NULL ? 0 : -1;
    }
    if (PyObject_HasAttrString(stream, "wait_stream"))
        return 0;
    refuse("StreamError", (long)i, "%s: streams[%zu] is %R, expected a stream or None", call->name,
           i, (PyObject *)Py_TYPE(stream));
    return -1;
}

static int read_streams(struct call *call, PyObject *streams)
{
    static const void *const none[1] = { NULL };
    PyObject *items;
    size_t n, count;

    if (streams == NULL || streams == Py_None)
        return 0;
    items = PySequence_List(streams);
    if (items == NULL) {
        refuse_because("StreamError", -1, "%s: streams is %R, expected None or a sequence",
                       call->name, (PyObject *)Py_TYPE(streams));
        return -1;
    }
    count = n = (size_t)PyList_Size(items);
    for (size_t i = 0; i < n; i++) {
        if (stream_settle(call, i, PyList_GetItem(items, (Py_ssize_t)i)) < 0)
            n = 0;
    }
    Py_DECREF(items);
    call->args.streams = none; /* counted, not looked at */
    call->args.nstreams = count;
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *comm_list(struct call *call, PyObject *comms)
{
    PyObject *items;

    if (PyCapsule_CheckExact(comms) || PyObject_HasAttrString(comms, "capsule")) {
        items = PyList_New(1);
        if (items != NULL)
            PyList_SetItem(items, 0, Py_NewRef(comms));
        return items;
    }
    items = PySequence_List(comms);
    if (items == NULL)
        refuse_because("NotACommError", -1,
                       "%s: comms is %R, expected None, a communicator or a sequence of them",
                       call->name, (PyObject *)Py_TYPE(comms));
    return items;
}

static int read_comms(struct call *call, PyObject *comms)
{
    size_t n;

    if (comms == NULL || comms == Py_None)
        return 0;
    call->comm_items = comm_list(call, comms);
    if (call->comm_items == NULL)
        return -1;
    n = (size_t)PyList_Size(call->comm_items);
    call->comms = PyMem_Calloc(n > 0 ? n : 1, sizeof(*call->comms));
    if (call->comms == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        PyObject *capsule = capsule_of(PyList_GetItem(call->comm_items, (Py_ssize_t)i), (long)i);

        /* The list has it now: its object may take another while we run. */
        if (capsule == NULL || PyList_SetItem(call->comm_items, (Py_ssize_t)i, capsule) < 0)
            return -1;
        call->comms[i] = comm_of(capsule, (long)i);
        if (call->comms[i] == NULL)
            return -1;
    }
    call->args.comms = call->comms;
    call->args.ncomms = n;
    return 0;
}

/* --- calls -------------------------------------------------------------------------------------------------- */

typedef choir_status (*run_fn)(const choir_comm_call *call, choir_comm_fault *fault_out);

static struct call call_new(PyObject *module, const char *name)
{
    return (struct call){ .state = py_state_of(module),
                          .name = name,
                          .args = { .size = sizeof(choir_comm_call) } };
}

/* Run it with the interpreter free, and end it. */
static PyObject *call_run(struct call *call, run_fn run)
{
    choir_comm_fault fault = { .rule = CHOIR_RULE_NONE, .index = -1 };
    PyObject *result = NULL;
    choir_status rc;
    bool raised;

    call->args.ins = call->ins.bufs;
    call->args.nins = call->ins.count;
    if (call->args.outs == NULL) {
        call->args.outs = call->outs.bufs;
        call->args.nouts = call->outs.count;
    }
    py_leave();
    rc = run(&call->args, &fault);
    raised = py_return();
    if (!raised && rc != CHOIR_OK)
        raise_failure(call->state, &fault);
    else if (!raised)
        result = Py_NewRef(Py_None);
    call_release(call);
    return result;
}

static PyObject *call_fail(struct call *call)
{
    call_release(call);
    return NULL;
}

/* Inputs, and outputs, which may be the same object: then it is in place. */
static int read_lists(struct call *call, PyObject *inputs, PyObject *outputs, unsigned moved)
{
    bool same = inputs == outputs;

    if (list_open(call, &call->ins, "inputs", inputs) < 0 ||
        list_read(call, &call->ins, (same ? PY_WRITE : PY_READ) | moved) < 0)
        return -1;
    if (same) {
        call->args.outs = call->ins.bufs;
        call->args.nouts = call->ins.count;
        return 0;
    }
    return list_open(call, &call->outs, "outputs", outputs) < 0 ||
                   list_read(call, &call->outs, PY_WRITE | moved) < 0
               ? -1
               : 0;
}

static PyObject *in_and_out(PyObject *module, PyObject *args, const char *name, run_fn run,
                            bool reduces)
{
    struct call call = call_new(module, name);
    unsigned moved = reduces ? 0 : PY_MOVED;
    PyObject *inputs, *outputs, *streams, *comms, *timeout = NULL;
    char function[48];

    if (reduces
            ? !PyArg_ParseTuple(args, "OOiOO|O", &inputs, &outputs, &call.args.op, &streams, &comms,
                                &timeout)
            : !PyArg_ParseTuple(args, "OOOO|O", &inputs, &outputs, &streams, &comms, &timeout)) {
        snprintf(function, sizeof(function), "_nccl_%s", name);
        return wrong_arguments(
            function, reduces ? "sequence of tensors inputs, sequence of tensors outputs, int "
                                "op, sequence of streams or None, comms or None, timeout=None"
                              : "sequence of tensors inputs, sequence of tensors outputs, "
                                "sequence of streams or None, comms or None, timeout=None");
    }
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        read_lists(&call, inputs, outputs, moved) < 0 || read_streams(&call, streams) < 0 ||
        read_comms(&call, comms) < 0)
        return call_fail(&call);
    return call_run(&call, run);
}

static PyObject *all_reduce(PyObject *module, PyObject *args)
{
    return in_and_out(module, args, "all_reduce", choir_comm_allreduce, true);
}

static PyObject *reduce_scatter(PyObject *module, PyObject *args)
{
    return in_and_out(module, args, "reduce_scatter", choir_comm_reduce_scatter, true);
}

static PyObject *all_gather(PyObject *module, PyObject *args)
{
    return in_and_out(module, args, "all_gather", choir_comm_allgather, false);
}

static PyObject *broadcast(PyObject *module, PyObject *args)
{
    struct call call = call_new(module, "broadcast");
    PyObject *inputs, *streams, *comms, *timeout = NULL;

    if (!PyArg_ParseTuple(args, "OiOO|O", &inputs, &call.args.root, &streams, &comms, &timeout))
        return wrong_arguments("_nccl_broadcast",
                               "sequence of tensors inputs, int root, sequence of streams or None, "
                               "comms or None, timeout=None");
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        list_open(&call, &call.ins, "inputs", inputs) < 0 ||
        list_read(&call, &call.ins, PY_WRITE | PY_MOVED) < 0 || read_streams(&call, streams) < 0 ||
        read_comms(&call, comms) < 0)
        return call_fail(&call);
    return call_run(&call, choir_comm_broadcast);
}

/* Without an output the root's input takes the result, and it alone has to be writable. */
static int read_reduced(struct call *call, bool in_place)
{
    size_t n = (size_t)PyList_Size(call->ins.items);

    for (size_t i = 0; i < n; i++) {
        int rank = call->comms == NULL     ? (int)i
                   : i < call->args.ncomms ? choir_comm_rank(call->comms[i])
                                           : -1;

        if (list_add(call, &call->ins, i,
                     in_place && rank == call->args.root ? PY_WRITE : PY_READ) < 0)
            return -1;
    }
    list_fill(&call->ins);
    return 0;
}

static int read_output(struct call *call, PyObject *output)
{
    if (output == Py_None)
        return 0;
    if (!is_tensor(output)) {
        refuse("NotATensorError", -1, "reduce: output is %R, expected a tensor",
               (PyObject *)Py_TYPE(output));
        return -1;
    }
    call->outs.name = "outputs";
    call->outs.items = PyList_New(1);
    if (call->outs.items == NULL || PyList_SetItem(call->outs.items, 0, Py_NewRef(output)) < 0 ||
        list_room(&call->outs, 1) < 0)
        return -1;
    return list_read(call, &call->outs, PY_WRITE);
}

static PyObject *reduce(PyObject *module, PyObject *args)
{
    struct call call = call_new(module, "reduce");
    PyObject *inputs, *output, *streams, *comms, *timeout = NULL;

    if (!PyArg_ParseTuple(args, "OOiiOO|O", &inputs, &output, &call.args.root, &call.args.op,
                          &streams, &comms, &timeout))
        return wrong_arguments(
            "_nccl_reduce", "sequence of tensors inputs, tensor output or None, int root, int op, "
                            "sequence of streams or None, comms or None, timeout=None");
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        list_open(&call, &call.ins, "inputs", inputs) < 0 || read_streams(&call, streams) < 0 ||
        read_comms(&call, comms) < 0 || read_reduced(&call, output == Py_None) < 0 ||
        read_output(&call, output) < 0)
        return call_fail(&call);
    return call_run(&call, choir_comm_reduce);
}

/* Whether an object is memory that these calls take as it is. */
static PyObject *is_usable(PyObject *module, PyObject *object)
{
    struct py_buf buf;
    bool fits;

    if (!is_tensor(object))
        Py_RETURN_FALSE;
    if (py_buf_get(py_state_of(module), object, PY_READ, NULL, &buf) < 0) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    fits = buf.buf.ndim == 0; /* otherwise there are gaps */
    py_buf_release(&buf);
    return PyBool_FromLong(fits);
}

/* --- reductions of a communicator's own ------------------------------------------------------------------- */

static PyObject *premul_sum(PyObject *module, PyObject *args)
{
    struct py_state *state = py_state_of(module);
    PyObject *object, *factor;
    struct py_buf buf;
    choir_comm *comm;
    choir_status rc;
    int op, lent = 0;

    if (!PyArg_ParseTuple(args, "OO|p", &object, &factor, &lent))
        return wrong_arguments("_nccl_premul_sum", "comm, tensor factor, bool lent=False");
    comm = comm_of(object, -1);
    if (comm == NULL || py_buf_get(state, factor, PY_READ, NULL, &buf) < 0)
        return NULL;
    if (buf.buf.count != 1)
        refuse("InputSizeError", -1, "premul_sum: the factor has %zu elements, expected one",
               buf.buf.count);
    rc = buf.buf.count == 1 ? choir_comm_premul_sum(comm, buf.buf.data, buf.buf.type, !lent, &op)
                            : CHOIR_OK;
    py_buf_release(&buf);
    if (rc != CHOIR_OK)
        raise_failure(
            state, &(choir_comm_fault){ rc == CHOIR_ERR_TYPE ? CHOIR_RULE_OP_TYPE : CHOIR_RULE_OP,
                                        false, -1 });
    return PyErr_Occurred() ? NULL : PyLong_FromLong(op);
}

static PyObject *redop_destroy(PyObject *module, PyObject *args)
{
    PyObject *object;
    choir_comm *comm;
    int op;

    if (!PyArg_ParseTuple(args, "Oi", &object, &op))
        return wrong_arguments("_nccl_redop_destroy", "comm, int op");
    comm = comm_of(object, -1);
    if (comm == NULL)
        return NULL;
    if (choir_comm_redop_destroy(comm, op) != CHOIR_OK)
        return raise_failure(py_state_of(module), &(choir_comm_fault){ CHOIR_RULE_OP, false, -1 });
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
        return wrong_arguments("_nccl_version", "bool compiled=False");
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
                          : raise_failure(py_state_of(module), NULL);
}

static PyMethodDef functions[] = {
    { "_nccl_version", version, METH_VARARGS, NULL },
    { "_nccl_version_suffix", version_suffix, METH_NOARGS, NULL },
    { "_nccl_library", library, METH_NOARGS, NULL },
    { "_nccl_unique_id", unique_id, METH_VARARGS, NULL },
    { "_nccl_init_rank", init_rank, METH_VARARGS, NULL },
    { "_nccl_comm_info", comm_info, METH_O, NULL },
    { "_nccl_comm_close", comm_close, METH_O, NULL },
    { "_nccl_comm_abort", comm_abort, METH_O, NULL },
    { "_nccl_comm_finalize", comm_finalize, METH_VARARGS, NULL },
    { "_nccl_comm_error", comm_error, METH_O, NULL },
    { "_nccl_reduce", reduce, METH_VARARGS, NULL },
    { "_nccl_all_reduce", all_reduce, METH_VARARGS, NULL },
    { "_nccl_broadcast", broadcast, METH_VARARGS, NULL },
    { "_nccl_all_gather", all_gather, METH_VARARGS, NULL },
    { "_nccl_reduce_scatter", reduce_scatter, METH_VARARGS, NULL },
    { "_nccl_is_usable", is_usable, METH_O, NULL },
    { "_nccl_premul_sum", premul_sum, METH_VARARGS, NULL },
    { "_nccl_redop_destroy", redop_destroy, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

int py_nccl_add(struct py_state *state)
{
    return PyModule_AddFunctions(state->module, functions);
}
