/*
 * py_batch.c - the object choir.Batch: several operations as one work.
 *
 *   with group.batch() as batch:
 *       group.send(a, 1)
 *       group.recv(b, 1)
 */
#include "choirext.h"

struct py_batch {
    PyObject_HEAD struct py_group *group;
    struct py_open *open; /* while it is; or NULL */
    struct py_lent *lent; /* of all its parts */
    bool async_op, used;
    PyObject *work; /* when it has ended, with async_op; or NULL */
};

/* The library's batch, which only its thread can end. */
struct py_open {
    struct py_open *next; /* of group->batches */
    uint64_t thread;
    struct py_batch *batch; /* NULL: somebody else dropped it */
};

/* --- whose it is ------------------------------------------------------------------------------------------------ */

/* A number that no other thread has or had: what the system calls a thread is used again. */
static uint64_t this_thread(void)
{
    static _Thread_local uint64_t mine;
    static uint64_t last; /* under the interpreter's lock */

    if (mine == 0)
        mine = ++last;
    return mine;
}

static struct py_open *find_open(const struct py_group *group)
{
    struct py_open *open = group->batches;

    while (open != NULL && open->thread != this_thread())
        open = open->next;
    return open;
}

static void close_open(struct py_group *group, struct py_open *open)
{
    struct py_open **at = &group->batches;

    while (*at != open)
        at = &(*at)->next;
    *at = open->next;
    if (open->batch != NULL)
        open->batch->open = NULL;
    PyMem_Free(open);
}

int py_batch_find(struct py_group *group, struct py_batch **out)
{
    struct py_open *open = find_open(group);

    *out = NULL;
    if (open == NULL)
        return 0;
    if (open->batch != NULL) {
        *out = (struct py_batch *)Py_NewRef((PyObject *)open->batch);
        return 0;
    }
    close_open(group, open);
    (void)choir_batch_drop(group->group);
    py_raise(
        group->state, CHOIR_ERR_STATE, "batch",
        "batch: this thread's was dropped by another before it ended; nothing of it was issued");
    return -1;
}

bool py_batch_is_open(const struct py_group *group, const struct py_batch *batch)
{
    const struct py_open *open = find_open(group);

    return batch == NULL ? open == NULL : open != NULL && open->batch == batch;
}

void py_batch_keep(struct py_batch *batch, struct py_lent *lent)
{
    lent->next = batch->lent;
    batch->lent = lent;
}

void py_batch_unref(struct py_batch *batch)
{
    Py_XDECREF((PyObject *)batch);
}

void py_batches_forget(struct py_group *group)
{
    while (group->batches != NULL)
        close_open(group, group->batches);
}

/* Out of the batch first: what runs when memory goes back may have the collector look at it. */
static void give_back(struct py_batch *self)
{
    struct py_lent *lent = self->lent;

    self->lent = NULL;
    py_lent_destroy(lent);
}

/* It is not going to end: what is in it is never issued. Another thread's calls would go into it for ever; that thread ends
 * it, and is told, with its next call. */
static void abandon(struct py_batch *self)
{
    if (self->open != NULL && self->open->thread == this_thread()) {
        close_open(self->group, self->open);
        if (self->group->group != NULL)
            (void)choir_batch_drop(self->group->group);
    } else if (self->open != NULL) {
        self->open->batch = NULL;
        self->open = NULL;
    }
    give_back(self);
}

/* --- its life ----------------------------------------------------------------------------------------------------- */

static PyObject *batch(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = { "async_op", NULL };
    static const struct py_params params = { "batch", names, 0, 0 };
    struct py_group *group = (struct py_group *)object;
    struct py_batch *self;
    PyObject *given[1];
    bool async_op = false;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_bool(given[0], &async_op) < 0)
        return NULL;
    self = (struct py_batch *)PyType_GenericAlloc(group->state->batch_type, 0);
    if (self == NULL)
        return NULL;
    self->group = (struct py_group *)Py_NewRef(object);
    self->async_op = async_op;
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    struct py_batch *self = (struct py_batch *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->group);
    Py_VISIT(self->work);
    return py_lent_visit(self->lent, visit, arg);
}

static int clear(PyObject *object)
{
    struct py_batch *self = (struct py_batch *)object;

    abandon(self);
    Py_CLEAR(self->work);
    return 0;
}

/* An open one is on the stack of a with statement; only an interpreter that ends, a program that calls __enter__ by
 * hand, or a generator that is closed by another thread than ran it, drops it. */
static void dealloc(PyObject *object)
{
    struct py_batch *self = (struct py_batch *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    (void)clear(object);
    Py_XDECREF((PyObject *)self->group);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static void make_open(struct py_batch *self, struct py_open *open)
{
    *open = (struct py_open){ self->group->batches, this_thread(), self };
    self->group->batches = self->open = open;
    self->used = true;
}

static PyObject *begin(struct py_batch *self, choir_group *group)
{
    struct py_open *open;
    struct py_batch *other = NULL;

    if (py_batch_find(self->group, &other) < 0)
        return NULL;
    py_batch_unref(other); /* the library refuses another */
    open = PyMem_Malloc(sizeof(*open));
    if (open == NULL)
        return PyErr_NoMemory();
    if (choir_batch_begin(group) != CHOIR_OK) {
        PyMem_Free(open);
        return py_raise_last(self->group->state);
    }
    make_open(self, open);
    return Py_NewRef((PyObject *)self);
}

static PyObject *enter(PyObject *object, PyObject *unused)
{
    struct py_batch *self = (struct py_batch *)object;
    choir_group *group;
    PyObject *result;

    (void)unused;
    if (self->used)
        return py_raise(self->group->state, CHOIR_ERR_STATE, "batch",
                        "batch: it serves once, make another");
    group = py_group_enter(self->group, "batch");
    if (group == NULL)
        return NULL;
    result = begin(self, group);
    py_group_exit(self->group);
    return result;
}

/* With an exception what was issued before is issued all the same, as other ranks count on it; but they may not come any more:
 * the exception is not to wait for long. True: one of a signal's handler is set. */
static bool end_gently(struct py_batch *self, choir_group *group)
{
    struct py_lent *lent = self->lent;
    choir_work *work = NULL;
    choir_status rc;
    bool raised;

    py_leave();
    if (choir_batch_end(group, &work) == CHOIR_OK) {
        rc = choir_work_wait(work, PY_GRACE_MS);
        if (rc == CHOIR_ERR_TIMEOUT || rc == CHOIR_ERR_INTERRUPTED)
            choir_work_abort(work);
    }
    raised = py_return();
    if (work != NULL) {
        self->lent = NULL;
        py_lent_keep(&self->group->unwaited, work, lent);
        py_lent_reap(&self->group->unwaited);
    }
    return raised;
}

/* What is borrowed passes to the work, if it goes on. */
static PyObject *end(struct py_batch *self, choir_group *group)
{
    choir_work *work = NULL;
    choir_status rc;
    bool raised;

    py_leave();
    rc = choir_batch_end(group, self->async_op ? &work : NULL);
    raised = py_return();
    if (work != NULL) {
        struct py_lent *lent = self->lent;

        self->lent = NULL;
        self->work = py_work_wrap(self->group->state, self->group, work, lent, Py_None,
                                  PY_GIVES_OBJECT);
        if (self->work == NULL)
            return NULL;
    }
    if (raised)
        return NULL;
    return rc == CHOIR_OK ? Py_NewRef(Py_False) : py_raise_last(self->group->state);
}

static PyObject *leave(PyObject *object, PyObject *args)
{
    struct py_batch *self = (struct py_batch *)object;
    PyObject *result;
    choir_group *group;

    if (self->open == NULL || self->open->thread != this_thread())
        return py_raise(self->group->state, CHOIR_ERR_STATE, "batch",
                        "batch: it ends on the thread that began it");
    close_open(self->group, self->open);
    group = py_group_enter(self->group, "batch");
    if (group == NULL)
        return NULL;
    if (self->async_op || !py_leaves_by_exception(args))
        result = end(self, group);
    else
        result = end_gently(self, group) ? NULL : Py_NewRef(Py_False);
    py_group_exit(self->group);
    give_back(self);
    return result;
}

static PyObject *get_work(PyObject *object, void *unused)
{
    struct py_batch *self = (struct py_batch *)object;

    (void)unused;
    return Py_NewRef(self->work != NULL ? self->work : Py_None);
}

/* --- the type -------------------------------------------------------------------------------------------------------- */

/* For calls that are more than one operation, and written in Python. */
static PyObject *in_batch(PyObject *object, PyObject *unused)
{
    struct py_batch *batch;
    bool found;

    (void)unused;
    if (py_batch_find((struct py_group *)object, &batch) < 0)
        return NULL;
    found = batch != NULL;
    py_batch_unref(batch);
    return PyBool_FromLong(found);
}

PyMethodDef py_batch_methods[] = {
    { "batch", PY_METHOD(batch),
      "batch(*, async_op=False) -> Batch\n\n"
      "What this thread issues on the group inside `with group.batch() as batch:` starts together\n"
      "when the block ends, and is one work. Sends and receives may be in any order." },
    { "_in_batch", in_batch, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyMethodDef methods[] = {
    { "__enter__", enter, METH_NOARGS, NULL },
    { "__exit__", leave, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
    { "work", get_work, NULL, "After the block, with async_op: its work.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char doc[] = "Several operations as one. Made by Group.batch().";

static PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },
    { Py_tp_dealloc, dealloc },
    { Py_tp_traverse, traverse },
    { Py_tp_clear, clear },
    { Py_tp_methods, methods },
    { Py_tp_getset, properties },
    { 0, NULL },
};

static PyType_Spec spec = {
    .name = "choir.Batch",
    .basicsize = sizeof(struct py_batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int py_batch_add(struct py_state *state)
{
    state->batch_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &spec, NULL);
    return state->batch_type == NULL ? -1 : PyModule_AddType(state->module, state->batch_type);
}
