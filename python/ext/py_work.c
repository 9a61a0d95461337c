/*
 * py_work.c - the object choir.Work: the handle of an operation that was issued.
 *
 * A handle that is dropped does not stop its operation: what it borrows passes to the group, which gives it back
 * when it is done, or to the module if it is a communicator's (py_lent_keep()).
 */
#include "choirext.h"

#include <pthread.h>
#include <stdio.h>

struct py_work {
    PyObject_HEAD struct py_state *state;
    struct py_group *group; /* NULL: a communicator's, which is in what is lent */
    choir_work *work;
    struct py_lent *lent; /* NULL once it has been given back */
    PyObject *result;
    enum py_gives gives;
};

/* What keeps memory that is lent to a work when its handle is gone. */
static struct py_lent **keeper(struct py_state *state, struct py_group *group)
{
    return group != NULL ? &group->unwaited : &state->unwaited;
}

static PyObject *error_from(const struct py_work *self, const choir_error *record)
{
    return self->group != NULL ? py_error_from(self->state, record)
                               : py_nccl_error_from(self->state, record);
}

static PyObject *raise_record(const struct py_work *self, const choir_error *record)
{
    PyObject *error = error_from(self, record);

    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

static PyObject *raise_last(const struct py_work *self)
{
    return raise_record(self, choir_last_error_record());
}

/* --- a handle's life ------------------------------------------------------------------------------------------ */

/* Whether it is, without helping it along: that may take long. */
static bool is_done(const choir_work *work)
{
    double ms;

    return choir_work_duration_ms(work, &ms) == CHOIR_OK;
}

PyObject *py_work_wrap(struct py_state *state, struct py_group *group, choir_work *work,
                       struct py_lent *lent, PyObject *result, enum py_gives gives)
{
    struct py_work *self = (struct py_work *)PyType_GenericAlloc(state->work_type, 0);

    if (self == NULL) {
        py_lent_keep(keeper(state, group), work, lent);
        return NULL;
    }
    self->state = state;
    self->group = (struct py_group *)Py_XNewRef((PyObject *)group);
    self->work = work;
    self->lent = lent;
    self->result = Py_NewRef(result);
    self->gives = gives;
    return (PyObject *)self;
}

/* It is done: the memory goes back to its owners. */
static void give_back(struct py_work *self)
{
    struct py_lent *lent = self->lent;

    self->lent = NULL;
    py_lent_destroy(lent);
}

static bool is_over(const struct py_work *self)
{
    return self->work == NULL || is_done(self->work);
}

/* What is lent to a work under way is the library's: not to be collected, whoever else has forgotten it. */
static int traverse(PyObject *object, visitproc visit, void *arg)
{
    struct py_work *self = (struct py_work *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->group);
    Py_VISIT(self->result);
    return is_over(self) ? py_lent_visit(self->lent, visit, arg) : 0;
}

static int clear(PyObject *object)
{
    struct py_work *self = (struct py_work *)object;

    if (is_over(self))
        give_back(self);
    Py_CLEAR(self->result);
    return 0;
}

static void dealloc(PyObject *object)
{
    struct py_work *self = (struct py_work *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    if (self->lent != NULL && !is_over(self)) {
        py_lent_keep(keeper(self->state, self->group), self->work, self->lent);
    } else {
        py_lent_destroy(self->lent);
        choir_work_unref(self->work);
    }
    Py_CLEAR(self->result);
    Py_XDECREF((PyObject *)self->group);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* --- waiting and asking ----------------------------------------------------------------------------------------- */

/* A wait or test has failed: what the work failed with comes before what became of the wait. */
static PyObject *raise_error(struct py_work *self)
{
    const choir_error *record = choir_work_error_record(self->work);

    if (record == NULL)
        return raise_last(self);
    raise_record(self, record);
    give_back(self); /* it is done */
    return NULL;
}

/* Of a work that is done well. */
static PyObject *what_it_gives(struct py_work *self)
{
    int source;

    if (self->gives == PY_GIVES_OBJECT)
        return Py_NewRef(self->result);
    if (choir_work_source(self->work, &source) != CHOIR_OK)
        return raise_last(self);
    return PyLong_FromLong(source);
}

static PyObject *work_wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const char *const names[] = { "timeout", NULL };
    static const struct py_params params = { "wait", names, 1, 0 };
    struct py_work *self = (struct py_work *)object;
    int64_t timeout_ms = 0;
    PyObject *given[1];
    choir_status rc;
    bool raised;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_timeout(given[0], &timeout_ms) < 0)
        return NULL;
    py_leave();
    rc = choir_work_wait(self->work, timeout_ms);
    raised = py_return();
    if (rc == CHOIR_OK)
        give_back(self);
    if (raised)
        return NULL;
    return rc == CHOIR_OK ? what_it_gives(self) : raise_error(self);
}

static PyObject *work_test(PyObject *object, PyObject *unused)
{
    struct py_work *self = (struct py_work *)object;
    choir_status rc;
    bool raised;

    (void)unused;
    py_leave();
    rc = choir_work_test(self->work);
    raised = py_return();
    if (rc == CHOIR_OK)
        give_back(self);
    if (raised)
        return NULL;
    if (rc == CHOIR_OK || rc == CHOIR_IN_PROGRESS)
        return PyBool_FromLong(rc == CHOIR_OK);
    return raise_error(self);
}

static PyObject *work_done(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(is_done(((struct py_work *)object)->work));
}

static PyObject *not_done(struct py_work *self, const char *what)
{
    choir_error record = { .code = CHOIR_ERR_STATE, .culprit = CHOIR_NO_RANK };

    snprintf(record.operation, sizeof(record.operation), "%s", what);
    snprintf(record.text, sizeof(record.text), "%s: %s %llu is not done yet", what,
             choir_optype_name(choir_work_op(self->work)),
             (unsigned long long)choir_work_sequence(self->work));
    return raise_record(self, &record);
}

static PyObject *work_result(PyObject *object, PyObject *unused)
{
    struct py_work *self = (struct py_work *)object;

    (void)unused;
    if (!is_done(self->work))
        return not_done(self, "result");
    return choir_work_error_record(self->work) != NULL ? raise_error(self) : what_it_gives(self);
}

static PyObject *work_exception(PyObject *object, PyObject *unused)
{
    struct py_work *self = (struct py_work *)object;
    const choir_error *record;

    (void)unused;
    if (!is_done(self->work))
        return not_done(self, "exception");
    record = choir_work_error_record(self->work);
    if (record == NULL)
        Py_RETURN_NONE;
    return error_from(self, record);
}

static PyObject *work_abort(PyObject *object, PyObject *unused)
{
    struct py_work *self = (struct py_work *)object;

    (void)unused;
    py_leave();
    choir_work_abort(self->work);
    return py_return() ? NULL : Py_NewRef(Py_None);
}

static PyObject *get_source(PyObject *object, void *unused)
{
    struct py_work *self = (struct py_work *)object;
    int source;

    (void)unused;
    if (choir_work_source(self->work, &source) != CHOIR_OK)
        return raise_last(self);
    return PyLong_FromLong(source);
}

static PyObject *get_duration(PyObject *object, void *unused)
{
    struct py_work *self = (struct py_work *)object;
    double ms;

    (void)unused;
    if (choir_work_duration_ms(self->work, &ms) != CHOIR_OK)
        return raise_last(self);
    return PyFloat_FromDouble(ms / 1e3);
}

static PyObject *get_sequence(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(choir_work_sequence(((struct py_work *)object)->work));
}

static PyObject *get_operation(PyObject *object, void *unused)
{
    const char *name = choir_optype_name(choir_work_op(((struct py_work *)object)->work));

    (void)unused;
    return PyUnicode_FromString(name != NULL ? name : "unknown");
}

/* --- callbacks --------------------------------------------------------------------------------------------------- */

/* They run on a thread of the library's, which must not meet an interpreter that has ended. */
static struct {
    pthread_mutex_t lock; /* nobody waits with it held */
    unsigned running;
    bool closed;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct note {
    PyObject *function, *work;
};

/* In a forked child the thread that ran a callback is not there to leave. */
static void gate_reset(void)
{
    pthread_mutex_init(&gate.lock, NULL);
    gate.running = 0;
}

static bool gate_enter(void)
{
    bool open;

    pthread_mutex_lock(&gate.lock);
    open = !gate.closed;
    gate.running += open;
    pthread_mutex_unlock(&gate.lock);
    return open;
}

static void gate_exit(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.running--;
    pthread_mutex_unlock(&gate.lock);
}

/* Whether one still runs. */
static bool gate_close(void)
{
    bool running;

    pthread_mutex_lock(&gate.lock);
    gate.closed = true;
    running = gate.running > 0;
    pthread_mutex_unlock(&gate.lock);
    return running;
}

/* One that does not return is then like any daemon thread. */
void py_work_end_callbacks(void)
{
    for (int ms = 0; gate_close() && ms < PY_PATIENCE_MS; ms++)
        py_pause_ms();
}

static void call_back(void *arg, choir_work *work)
{
    struct note *note = arg;
    struct py_visit visit;
    PyObject *result;

    (void)work;
    if (!gate_enter())
        return; /* what the note holds is lost with the interpreter */
    visit = py_visit_begin();
    result = PyObject_CallFunctionObjArgs(note->function, note->work, NULL);
    if (result == NULL)
        PyErr_WriteUnraisable(note->function);
    Py_XDECREF(result);
    Py_DECREF(note->function);
    Py_DECREF(note->work);
    PyMem_Free(note);
    py_visit_end(visit);
    gate_exit();
}

static PyObject *add_done_callback(PyObject *object, PyObject *function)
{
    struct py_work *self = (struct py_work *)object;
    struct note *note;
    choir_status rc;
    bool raised;

    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "add_done_callback: %R cannot be called", function);
        return NULL;
    }
    note = PyMem_Malloc(sizeof(*note));
    if (note == NULL)
        return PyErr_NoMemory();
    *note = (struct note){ Py_NewRef(function), Py_NewRef(object) };
    py_leave();
    rc = choir_work_on_done(self->work, call_back, note);
    raised = py_return();
    if (rc != CHOIR_OK) {
        Py_DECREF(note->function);
        Py_DECREF(note->work);
        PyMem_Free(note);
        return raise_last(self);
    }
    return raised ? NULL : Py_NewRef(Py_None);
}

/* asyncio has its own ways: written in Python. */
static PyObject *await(PyObject *self)
{
    PyObject *module = PyImport_ImportModule("choir._asyncio"), *iterator;

    if (module == NULL)
        return NULL;
    iterator = PyObject_CallMethod(module, "wait_for", "O", self);
    Py_DECREF(module);
    return iterator;
}

/* --- the type ------------------------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    { "wait", PY_METHOD(work_wait),
      "wait(timeout=None)\n\n"
      "Wait until it is done; gives its result, or raises what it failed with. If `timeout` (seconds)\n"
      "passes first, TimeoutError is raised and the operation goes on." },
    { "test", work_test, METH_NOARGS,
      "test() -> bool\n\nWhether it is done, helping it along; raises what it failed with." },
    { "done", work_done, METH_NOARGS, "done() -> bool\n\nWhether it is done, well or not." },
    { "result", work_result, METH_NOARGS,
      "result()\n\nWhat the operation gives; raises what it failed with, StateError before it is "
      "done." },
    { "exception", work_exception, METH_NOARGS,
      "exception()\n\nWhat it failed with, or None; StateError before it is done." },
    { "abort", work_abort, METH_NOARGS,
      "abort()\n\nGive up: who waits for it gets InterruptedError. The group of a collective that was\n"
      "under way is in error from then on." },
    { "add_done_callback", add_done_callback, METH_O,
      "add_done_callback(function)\n\n"
      "Have function(work) called once, when it is done: on a thread of the library's; at once if\n"
      "it is done already." },
    { "__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS,
      "Work[T], for annotations: a work that gives a T." },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
    { "source", get_source, NULL, "Of a receive that is done: from which rank.", NULL },
    { "duration", get_duration, NULL, "How long it took, in seconds, when it is done.", NULL },
    { "sequence", get_sequence, NULL, "Its number among the group's.", NULL },
    { "operation", get_operation, NULL, "What it is: \"allreduce\".", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char doc[] =
    "The handle of an operation under way, from async_op=True. Its buffers must not be touched until\n"
    "it is done. Dropping the handle does not stop it. `await work` gives its result too.";

static PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },   { Py_tp_dealloc, dealloc },
    { Py_tp_traverse, traverse }, { Py_tp_clear, clear },
    { Py_tp_methods, methods },   { Py_tp_getset, properties },
    { Py_am_await, await },       { 0, NULL },
};

static PyType_Spec spec = {
    .name = "choir.Work",
    .basicsize = sizeof(struct py_work),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int py_work_add(struct py_state *state)
{
    static bool watched;

    gate.closed = false; /* an interpreter may have ended in this process before */
    if (!watched && pthread_atfork(NULL, NULL, gate_reset) == 0)
        watched = true;
    state->work_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &spec, NULL);
    return state->work_type == NULL ? -1 : PyModule_AddType(state->module, state->work_type);
}
