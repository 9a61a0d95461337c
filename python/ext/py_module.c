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

static PyMethodDef methods[] = {
    { "version", version, METH_NOARGS,
      "version() -> str\n\nThe version of the C library that is loaded." },
    { NULL, NULL, 0, NULL },
};

struct py_state *py_state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static int start(PyObject *module)
{
    struct py_state *state = py_state_of(module);

    state->module = module;
    if (py_error_add(state) < 0 || py_group_add(state) < 0)
        return -1;
    return 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct py_state *state = py_state_of(module);

    if (state == NULL)
        return 0;
    Py_VISIT(state->group_type);
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
    Py_CLEAR(state->group_type);
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
