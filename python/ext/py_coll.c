/*
 * py_coll.c - the operations of a group.
 */
#include "choirext.h"

static PyObject *all_reduce(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { TENSOR, OP, FACTOR, DTYPE, TIMEOUT, ASYNC, COUNT };
    static const char *const names[] = { "tensor",  "op",       "factor", "dtype",
                                         "timeout", "async_op", NULL };
    static const struct py_params params = { "all_reduce", names, 2, 1 };
    struct py_group *self = (struct py_group *)object;
    choir_coll_opts opts = { .size = sizeof(opts) };
    PyObject *given[COUNT];
    struct py_buf buf;
    choir_group *group;
    choir_status rc;
    bool raised;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_redop(given[OP], &opts.op) < 0 || py_read_double(given[FACTOR], &opts.factor) < 0 ||
        py_read_timeout(given[TIMEOUT], &opts.timeout_ms) < 0)
        return NULL;
    if (given[ASYNC] != NULL && given[ASYNC] != Py_False) {
        PyErr_SetString(PyExc_NotImplementedError, "all_reduce: async_op is not there yet");
        return NULL;
    }
    if (py_buf_get(self->state, given[TENSOR], PY_WRITE, given[DTYPE], &buf) < 0)
        return NULL;
    group = py_group_enter(self, "all_reduce");
    if (group == NULL) {
        py_buf_release(&buf);
        return NULL;
    }
    py_leave();
    rc = choir_allreduce(group, buf.buf, &opts, NULL);
    raised = py_return();
    py_buf_release(&buf);
    py_group_exit(self);
    if (raised)
        return NULL;
    return rc == CHOIR_OK ? Py_NewRef(given[TENSOR]) : py_raise_last(self->state);
}

PyMethodDef py_coll_methods[] = {
    { "all_reduce", PY_METHOD(all_reduce),
      "all_reduce(tensor, op=\"sum\", *, ...)\n\nReduce over all ranks, in place, with the same "
      "result everywhere." },
    { NULL, NULL, 0, NULL },
};
