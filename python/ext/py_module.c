/*
 * py_module.c - the module choir._choir: its state, its start and its end.
 */
#include "choirext.h"

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(choir_version());
}

/* Before anything of Python is taken down: what is still open ends here. */
static PyObject *end(PyObject *module, PyObject *unused)
{
    (void)unused;
    py_nccl_end(py_state_of(module));
    py_groups_end(py_state_of(module)); /* waits for what ends on threads of its own */
    py_work_end_callbacks();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "_end", end, METH_NOARGS, NULL },
    { "version", version, METH_NOARGS,
      "version() -> str\n\nThe version of the C library that is loaded." },
    { NULL, NULL, 0, NULL },
};

struct py_state *py_state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

int py_add_methods(PyTypeObject *type, PyMethodDef *list)
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

/* atexit.register(module._end) */
static int watch_end(PyObject *module)
{
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *function = PyObject_GetAttrString(module, "_end"), *done = NULL;

    if (atexit != NULL && function != NULL)
        done = PyObject_CallMethod(atexit, "register", "O", function);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* Callbacks come on threads of the library's, which can only visit the process's first interpreter. */
static int refuse_others(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
        return 0;
    PyErr_SetString(PyExc_ImportError, "choir cannot be imported in a subinterpreter: import it in "
                                       "the process's main interpreter");
    return -1;
}

static int start(PyObject *module)
{
    struct py_state *state = py_state_of(module);

    if (refuse_others() < 0)
        return -1;
    state->module = module;
    if (py_error_add(state) < 0 || py_group_add(state) < 0 || py_work_add(state) < 0 ||
        py_batch_add(state) < 0 || py_store_add(state) < 0 || py_sparse_add(state) < 0 ||
        py_tools_add(state) < 0 || py_nccl_add(state) < 0 || py_dlpack_add(state) < 0)
        return -1;
    return watch_end(module);
}

/* Every type that the state holds. */
#define EACH_TYPE(DO)                                                                              \
    DO(state->group_type);                                                                         \
    DO(state->work_type);                                                                          \
    DO(state->batch_type);                                                                         \
    DO(state->store_type);                                                                         \
    DO(state->server_type);                                                                        \
    DO(state->sparse_type);                                                                        \
    DO(state->part_type)

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct py_state *state = py_state_of(module);

    if (state == NULL)
        return 0;
    EACH_TYPE(Py_VISIT);
    Py_VISIT(state->error);
    for (int i = 0; i < PY_NSTATUS; i++)
        Py_VISIT(state->by_status[i]);
    return 0;
}

static int clear(PyObject *module)
{
    struct py_state *state = py_state_of(module);

    if (state == NULL)
        return 0;
    EACH_TYPE(Py_CLEAR);
    py_dlpack_forget(state);
    Py_CLEAR(state->error);
    for (int i = 0; i < PY_NSTATUS; i++)
        Py_CLEAR(state->by_status[i]);
    return 0;
}

static void free_state(void *module)
{
    (void)clear(module);
}

static PyModuleDef_Slot slots[] = {
    { Py_mod_exec, start },
    { 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "choir._choir",
    .m_doc = "The C library, for Python. Import choir instead.",
    .m_size = sizeof(struct py_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = free_state,
};

PyMODINIT_FUNC PyInit__choir(void);

PyMODINIT_FUNC PyInit__choir(void)
{
    return PyModuleDef_Init(&definition);
}
