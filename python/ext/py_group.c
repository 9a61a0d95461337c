/*
 * py_group.c - the object choir.Group: joining, leaving, and what tells about a group.
 */
#include "choirext.h"

#include <string.h>

/* --- the list of all that are open ------------------------------------------------------------------ */

static void link_group(struct py_group *self)
{
    struct py_state *state = self->state;

    self->next = state->groups;
    if (self->next != NULL)
        self->next->prev = self;
    state->groups = self;
}

static void unlink_group(struct py_group *self)
{
    if (self->prev != NULL)
        self->prev->next = self->next;
    else if (self->state->groups == self)
        self->state->groups = self->next;
    if (self->next != NULL)
        self->next->prev = self->prev;
    self->prev = self->next = NULL;
}

/* --- a group's life --------------------------------------------------------------------------------- */

static void destroy(struct py_group *self)
{
    choir_group *group = self->group;

    self->group = NULL;
    unlink_group(self);
    py_leave();
    choir_group_destroy(group);
    (void)py_return();
}

choir_group *py_group_enter(struct py_group *self, const char *operation)
{
    if (self->group == NULL || self->closing) {
        py_raise(self->state, CHOIR_ERR_STATE, operation, "%s: the group is closed", operation);
        return NULL;
    }
    self->nusing++;
    return self->group;
}

void py_group_exit(struct py_group *self)
{
    self->nusing--;
    if (self->closing && self->nusing == 0)
        destroy(self);
}

static PyObject *wrap_group(struct py_state *state, choir_group *group)
{
    struct py_group *self = (struct py_group *)PyType_GenericAlloc(state->group_type, 0);

    if (self == NULL) {
        choir_group_destroy(group);
        return NULL;
    }
    self->state = state;
    self->group = group;
    link_group(self);
    return (PyObject *)self;
}

static void dealloc(PyObject *object)
{
    struct py_group *self = (struct py_group *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (self->group != NULL)
        destroy(self);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *group_close(PyObject *object, PyObject *unused)
{
    struct py_group *self = (struct py_group *)object;

    (void)unused;
    if (self->group == NULL)
        Py_RETURN_NONE;
    if (self->nusing > 0) {
        self->closing = true; /* whoever is the last to use it destroys it */
        choir_group_abort(self->group);
    } else {
        destroy(self);
    }
    Py_RETURN_NONE;
}

static PyObject *group_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *group_leave(PyObject *self, PyObject *args)
{
    (void)args;
    return group_close(self, NULL);
}

/* --- what is asked ------------------------------------------------------------------------------------ */

static PyObject *get_rank(PyObject *object, void *unused)
{
    struct py_group *self = (struct py_group *)object;
    choir_group *group = py_group_enter(self, "rank");
    int rank;

    (void)unused;
    if (group == NULL)
        return NULL;
    rank = choir_group_rank(group);
    py_group_exit(self);
    return PyLong_FromLong(rank);
}

static PyObject *get_size(PyObject *object, void *unused)
{
    struct py_group *self = (struct py_group *)object;
    choir_group *group = py_group_enter(self, "size");
    int size;

    (void)unused;
    if (group == NULL)
        return NULL;
    size = choir_group_size(group);
    py_group_exit(self);
    return PyLong_FromLong(size);
}

/* --- joining ------------------------------------------------------------------------------------------ */

/* The store stays the caller's. */
static int read_init(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                     choir_init_opts *opts)
{
    enum { URL, RANK, SIZE, TIMEOUT, NAME, TOKEN_FILE, COUNT };
    static const char *const names[] = { "url",  "rank",       "size", "timeout",
                                         "name", "token_file", NULL };
    static const struct py_params params = { "init", names, 1, 0 };
    PyObject *given[COUNT];

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_text(given[URL], "url", &opts->url) < 0 ||
        py_read_int(given[RANK], "rank", &opts->rank) < 0 ||
        py_read_int(given[SIZE], "size", &opts->nranks) < 0 ||
        py_read_timeout(given[TIMEOUT], &opts->timeout_ms) < 0 ||
        py_read_text(given[NAME], "name", &opts->name) < 0 ||
        py_read_text(given[TOKEN_FILE], "token_file", &opts->token_file) < 0)
        return -1;
    if ((given[RANK] == NULL) != (given[SIZE] == NULL)) {
        PyErr_SetString(PyExc_TypeError, "init(): rank and size are given together or not at all");
        return -1;
    }
    return 0;
}

static PyObject *init(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    struct py_state *state = py_state_of(module);
    choir_init_opts opts = { .size = sizeof(opts) };
    choir_group *group = NULL;
    choir_status rc;

    if (read_init(args, nargs, kwnames, &opts) < 0)
        return NULL;
    py_leave();
    rc = choir_init(&group, &opts);
    if (py_return()) {
        choir_group_destroy(group);
        return NULL;
    }
    return rc == CHOIR_OK ? wrap_group(state, group) : py_raise_last(state);
}

static PyMethodDef functions[] = {
    { "init", PY_METHOD(init),
      "init(url=None, *, rank=None, size=None, timeout=None, name=None, token_file=None) -> Group\n\n"
      "Join the job: find out who and where the other ranks are and meet them.\n\n"
      "Without arguments the environment of whoever started this process is asked: choir run,\n"
      "torchrun, mpirun, srun; nobody is a job of one rank. Blocks until all ranks have joined." },
    { NULL, NULL, 0, NULL },
};

/* --- the type ----------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    { "close", group_close, METH_NOARGS, "close()\n\nLeave. A program may go on and join again." },
    { "__enter__", group_enter, METH_NOARGS, NULL },
    { "__exit__", group_leave, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
    { "rank", get_rank, NULL, "This process's number in the group, from 0.", NULL },
    { "size", get_size, NULL, "How many ranks the group has.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char doc[] =
    "The ranks that joined together, and their operations. Made by choir.init().";

static PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },
    { Py_tp_dealloc, dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, properties },
    { 0, NULL },
};

static PyType_Spec spec = {
    .name = "choir.Group",
    .basicsize = sizeof(struct py_group),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

/* Methods of other files, as descriptors of the type. */
static int add_methods(PyTypeObject *type, PyMethodDef *list)
{
    for (; list->ml_name != NULL; list++) {
        PyObject *descriptor = PyDescr_NewMethod(type, list);
        int rc = descriptor == NULL
                     ? -1
                     : PyObject_SetAttrString((PyObject *)type, list->ml_name, descriptor);

        Py_XDECREF(descriptor);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int py_group_add(struct py_state *state)
{
    state->group_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &spec, NULL);
    if (state->group_type == NULL || add_methods(state->group_type, py_coll_methods) < 0 ||
        PyModule_AddFunctions(state->module, functions) < 0)
        return -1;
    return PyModule_AddType(state->module, state->group_type);
}
