/*
 * py_nccl_call.c - calls in NCCL's manner: lists of tensors, streams and communicators, read, run and given back.
 *
 * A call that waits holds its memory in its lists. One with async_op holds it by the input it belongs to (`lents`), as each
 * handle gives back its own.
 */
#include "py_nccl.h"

#include <stdio.h>

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

    bool async_op;
    size_t nlents; /* with async_op: as many as inputs */
    struct py_lent **lents;
    choir_work **works;
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
    for (size_t i = 0; i < call->nlents; i++)
        py_lent_destroy(call->lents[i]);
    PyMem_Free(call->lents);
    PyMem_Free(call->works);
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
        py_nccl_refuse(
            list == &call->outs ? "DeviceError" : "NotHostError", index,
            "%s: %s[%zu] is on device %ld:%ld (as DLPack counts them), expected host memory%s",
            call->name, list->name, i, device, id, list == &call->outs ? ", as its input is" : "");
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
    py_nccl_refuse_because(kind, index, "%s: %s[%zu], %R, has %s", call->name, list->name, i,
                           (PyObject *)Py_TYPE(object), words); /* whose words may be pages long */
    return -1;
}

/* Element i of a list: memory that the input `of` takes part with. */
static int list_add(struct call *call, struct list *list, size_t i, size_t of, unsigned access)
{
    PyObject *object = PyList_GetItem(list->items, (Py_ssize_t)i);
    choir_buf *buf = &list->held[i].buf;

    if (object == NULL)
        return -1;
    if (!is_tensor(object)) {
        py_nccl_refuse("NotATensorError", (long)i, "%s: %s[%zu] is %R, expected a tensor",
                       call->name, list->name, i, (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (call->async_op && of < call->nlents)
        buf = py_lend(call->state, call->lents[of], object, access | PY_LASTING, NULL);
    else if (py_buf_get(call->state, object, access, NULL, &list->held[i]) < 0)
        buf = NULL;
    if (buf == NULL)
        return explain(call, list, i, object, access);
    list->bufs[i] = *buf; /* whose sizes and strides do not move any more */
    list->count = i + 1;
    return 0;
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
            py_nccl_refuse_because("SequenceError", -1,
                                   "%s: %s is %R, expected a sequence of tensors", call->name, name,
                                   (PyObject *)Py_TYPE(sequence));
        return -1;
    }
    return list_room(list, (size_t)PyList_Size(list->items));
}

static int list_read(struct call *call, struct list *list, unsigned access)
{
    size_t n = (size_t)PyList_Size(list->items);

    for (size_t i = 0; i < n; i++) {
        if (list_add(call, list, i, i, access) < 0)
            return -1;
    }
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
    py_nccl_refuse("StreamError", (long)i, "%s: streams[%zu] is %R, expected a stream or None",
                   call->name, i, (PyObject *)Py_TYPE(stream));
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
        py_nccl_refuse_because("StreamError", -1, "%s: streams is %R, expected None or a sequence",
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
        py_nccl_refuse_because(
            "NotACommError", -1,
            "%s: comms is %R, expected None, a communicator or a sequence of them", call->name,
            (PyObject *)Py_TYPE(comms));
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
        PyObject *capsule = py_nccl_capsule(PyList_GetItem(call->comm_items, (Py_ssize_t)i),
                                            (long)i);

        /* The list has it now: its object may take another while we run. */
        if (capsule == NULL || PyList_SetItem(call->comm_items, (Py_ssize_t)i, capsule) < 0)
            return -1;
        call->comms[i] = py_nccl_comm(capsule, (long)i);
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
    struct call call = { .state = py_state_of(module),
                         .name = name,
                         .args = { .size = sizeof(choir_comm_call) } };

    py_nccl_reap(call.state);
    return call;
}

/* Inputs, and with async_op a place for what each of them borrows. */
static int open_inputs(struct call *call, PyObject *inputs)
{
    size_t n;

    if (list_open(call, &call->ins, "inputs", inputs) < 0)
        return -1;
    if (!call->async_op)
        return 0;
    n = (size_t)PyList_Size(call->ins.items);
    call->lents = PyMem_Calloc(n + 1, sizeof(struct py_lent *));
    call->works = PyMem_Calloc(n + 1, sizeof(choir_work *));
    if (call->lents == NULL || call->works == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->args.works_out = call->works;
    for (; call->nlents < n; call->nlents++) {
        call->lents[call->nlents] = py_lent_create();
        if (call->lents[call->nlents] == NULL)
            return -1;
    }
    return 0;
}

/* What input i has begun, taken out of the call; its communicator has to last as long. */
static struct py_lent *take_begun(struct call *call, size_t i)
{
    struct py_lent *lent = call->lents[i];

    lent->object = Py_NewRef(PyList_GetItem(call->comm_items, (Py_ssize_t)i));
    py_nccl_gives_handles(lent->object);
    call->lents[i] = NULL;
    return lent;
}

/* Nobody is told of what has begun: it goes on. */
static void keep_from(struct call *call, size_t first)
{
    for (size_t i = first; call->comms != NULL && i < call->nlents; i++)
        py_lent_keep(&call->state->unwaited, call->works[i], take_begun(call, i));
}

/* A handle for each input. Without communicators all is done, and there are none. */
static PyObject *wrap_begun(struct call *call)
{
    size_t n = call->comms != NULL ? call->nlents : 0;
    PyObject *handles = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; handles != NULL && i < n; i++) {
        PyObject *handle = py_work_wrap(call->state, NULL, call->works[i], take_begun(call, i),
                                        Py_None, PY_GIVES_OBJECT);

        if (handle == NULL) {
            Py_CLEAR(handles);
            keep_from(call, i + 1);
        } else {
            PyList_SetItem(handles, (Py_ssize_t)i, handle);
        }
    }
    return handles;
}

static PyObject *call_result(struct call *call)
{
    PyObject *handles;

    if (!call->async_op)
        return Py_NewRef(Py_None);
    handles = wrap_begun(call);
    if (handles == NULL && call->nlents > 0 && call->lents[0] != NULL)
        keep_from(call, 0); /* not even the list */
    return handles;
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
        py_nccl_raise(call->state, &fault);
    else if (!raised)
        result = call_result(call);
    else if (rc == CHOIR_OK)
        keep_from(call, 0);
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

    if (open_inputs(call, inputs) < 0 ||
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
    PyObject *async_op = NULL;
    char function[48];

    if (reduces ? !PyArg_ParseTuple(args, "OOiOO|OO", &inputs, &outputs, &call.args.op, &streams,
                                    &comms, &timeout, &async_op)
                : !PyArg_ParseTuple(args, "OOOO|OO", &inputs, &outputs, &streams, &comms, &timeout,
                                    &async_op)) {
        snprintf(function, sizeof(function), "_nccl_%s", name);
        return py_nccl_wrong_arguments(
            function,
            reduces ? "sequence of tensors inputs, sequence of tensors outputs, int "
                      "op, sequence of streams or None, comms or None, timeout=None, async_op=False"
                    : "sequence of tensors inputs, sequence of tensors outputs, "
                      "sequence of streams or None, comms or None, timeout=None, async_op=False");
    }
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        py_read_bool(async_op, &call.async_op) < 0 ||
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
    PyObject *async_op = NULL;

    if (!PyArg_ParseTuple(args, "OiOO|OO", &inputs, &call.args.root, &streams, &comms, &timeout,
                          &async_op))
        return py_nccl_wrong_arguments(
            "_nccl_broadcast", "sequence of tensors inputs, int root, sequence of streams or None, "
                               "comms or None, timeout=None, async_op=False");
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        py_read_bool(async_op, &call.async_op) < 0 || open_inputs(&call, inputs) < 0 ||
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

        if (list_add(call, &call->ins, i, i,
                     in_place && rank == call->args.root ? PY_WRITE : PY_READ) < 0)
            return -1;
    }
    return 0;
}

/* Which of the inputs is the root's; the first, if the root is not here, and has no use for an output. */
static size_t input_of_root(const struct call *call)
{
    for (size_t i = 0; i < call->args.ncomms; i++) {
        if (choir_comm_rank(call->comms[i]) == call->args.root)
            return i;
    }
    return 0;
}

static int read_output(struct call *call, PyObject *output)
{
    if (output == Py_None)
        return 0;
    if (!is_tensor(output)) {
        py_nccl_refuse("NotATensorError", -1, "reduce: output is %R, expected a tensor",
                       (PyObject *)Py_TYPE(output));
        return -1;
    }
    call->outs.name = "outputs";
    call->outs.items = PyList_New(1);
    if (call->outs.items == NULL || PyList_SetItem(call->outs.items, 0, Py_NewRef(output)) < 0 ||
        list_room(&call->outs, 1) < 0)
        return -1;
    return list_add(call, &call->outs, 0, input_of_root(call), PY_WRITE);
}

static PyObject *reduce(PyObject *module, PyObject *args)
{
    struct call call = call_new(module, "reduce");
    PyObject *inputs, *output, *streams, *comms, *timeout = NULL;
    PyObject *async_op = NULL;

    if (!PyArg_ParseTuple(args, "OOiiOO|OO", &inputs, &output, &call.args.root, &call.args.op,
                          &streams, &comms, &timeout, &async_op))
        return py_nccl_wrong_arguments(
            "_nccl_reduce",
            "sequence of tensors inputs, tensor output or None, int root, int op, "
            "sequence of streams or None, comms or None, timeout=None, async_op=False");
    if (py_read_timeout(timeout, &call.args.timeout_ms) < 0 ||
        py_read_bool(async_op, &call.async_op) < 0 || open_inputs(&call, inputs) < 0 ||
        read_streams(&call, streams) < 0 || read_comms(&call, comms) < 0 ||
        read_reduced(&call, output == Py_None) < 0 || read_output(&call, output) < 0)
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

PyMethodDef py_nccl_calls[] = {
    { "_nccl_reduce", reduce, METH_VARARGS, NULL },
    { "_nccl_all_reduce", all_reduce, METH_VARARGS, NULL },
    { "_nccl_broadcast", broadcast, METH_VARARGS, NULL },
    { "_nccl_all_gather", all_gather, METH_VARARGS, NULL },
    { "_nccl_reduce_scatter", reduce_scatter, METH_VARARGS, NULL },
    { "_nccl_is_usable", is_usable, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
