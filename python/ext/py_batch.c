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
    struct py_batch *next; /* of group->batches, while it is open */
    const void *thread;    /* whose it is, while it is open; NULL: it is not */
    struct py_lent *lent;  /* of all its parts */
    bool async_op, used;
    PyObject *work; /* when it has ended, with async_op; or NULL */
};

/* --- whose it is ------------------------------------------------------------------------------------------------ */

static const void *this_thread(void)
{
    static _Thread_local char me;

    return &me;
}

struct py_batch *py_batch_find(const struct py_group *group)
{
    struct py_batch *batch = group->batches;

    while (batch != NULL && batch->thread != this_thread())
        batch = batch->next;
    return batch;
}

void py_batch_keep(struct py_batch *batch, struct py_lent *lent)
{
    lent->next = batch->lent;
    batch->lent = lent;
}

static void unlink_batch(struct py_batch *self)
{
    struct py_batch **at = &self->group->batches;

    while (*at != NULL && *at != self)
        at = &(*at)->next;
    if (*at != NULL)
        *at = self->next;
    self->thread = NULL;
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
    return 0;
}

static int clear(PyObject *object)
{
    Py_CLEAR(((struct py_batch *)object)->work);
    return 0;
}

/* An open one is on the stack of a with statement; only an interpreter that ends, or a program that calls __enter__ by
 * hand, drops it: its operations were never issued. */
static void dealloc(PyObject *object)
{
    struct py_batch *self = (struct py_batch *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    if (self->thread != NULL)
        unlink_batch(self);
    py_lent_destroy(self->lent);
    Py_CLEAR(self->work);
    Py_XDECREF((PyObject *)self->group);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *enter(PyObject *object, PyObject *unused)
{
    struct py_batch *self = (struct py_batch *)object;
    choir_group *group;
    choir_status rc;

    (void)unused;
    if (self->used)
        return py_raise(self->group->state, CHOIR_ERR_STATE, "batch",
                        "batch: it serves once, make another");
    group = py_group_enter(self->group, "batch");
    if (group == NULL)
        return NULL;
    rc = choir_batch_begin(group);
    py_group_exit(self->group);
    if (rc != CHOIR_OK)
        return py_raise_last(self->group->state);
    self->used = true;
    self->thread = this_thread();
    self->next = self->group->batches;
    self->group->batches = self;
    return Py_NewRef(object);
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
        self->work = py_work_wrap(self->group, work, lent, Py_None, PY_GIVES_OBJECT);
        if (self->work == NULL)
            return NULL;
    }
    if (raised)
        return NULL;
    return rc == CHOIR_OK ? Py_NewRef(Py_False) : py_raise_last(self->group->state);
}

/* What was issued before an exception is issued all the same: other ranks count on it. */
static PyObject *leave(PyObject *object, PyObject *args)
{
    struct py_batch *self = (struct py_batch *)object;
    PyObject *result;
    choir_group *group;

    (void)args;
    if (self->thread != this_thread())
        return py_raise(self->group->state, CHOIR_ERR_STATE, "batch",
                        "batch: it ends on the thread that began it");
    unlink_batch(self);
    group = py_group_enter(self->group, "batch");
    if (group == NULL)
        return NULL;
    result = end(self, group);
    py_group_exit(self->group);
    py_lent_destroy(self->lent);
    self->lent = NULL;
    return result;
}

static PyObject *get_work(PyObject *object, void *unused)
{
    struct py_batch *self = (struct py_batch *)object;

    (void)unused;
    return Py_NewRef(self->work != NULL ? self->work : Py_None);
}

/* --- the type -------------------------------------------------------------------------------------------------------- */

PyMethodDef py_batch_methods[] = {
    { "batch", PY_METHOD(batch),
      "batch(*, async_op=False) -> Batch\n\n"
      "What this thread issues on the group inside `with group.batch() as batch:` starts together\n"
      "when the block ends, and is one work. Sends and receives may be in any order." },
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
