/*
 * py_coll.c - operations on one buffer of each rank.
 */
#include "choirext.h"

#include <string.h>

/* --- reductions -------------------------------------------------------------------------------------------- */

/* `input` has to be laid out as the buffer is: the library gets its address alone. */
static bool same_layout(const choir_buf *a, const choir_buf *b)
{
    size_t nbytes = (size_t)a->ndim * sizeof(*a->sizes);

    return a->type == b->type && a->count == b->count && a->ndim == b->ndim &&
           (a->ndim == 0 || (memcmp(a->sizes, b->sizes, nbytes) == 0 &&
                             memcmp(a->strides, b->strides, nbytes) == 0));
}

static int lend_input(struct py_call *call, const choir_buf *buf, PyObject *input)
{
    const choir_buf *in;

    if (input == NULL)
        return 0;
    in = py_call_lend(call, input, PY_READ);
    if (in == NULL)
        return -1;
    if (!same_layout(buf, in)) {
        PyErr_Format(PyExc_ValueError,
                     "input: %zu elements of %s; expected type, shape and strides of the output, "
                     "%zu of %s",
                     in->count, choir_type_name(in->type), buf->count, choir_type_name(buf->type));
        return -1;
    }
    call->opts.input = in->data;
    return 0;
}

static PyObject *all_reduce(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { TENSOR, OP, INPUT, FACTOR, COMMON };
    static const char *const names[] = { "tensor", "op", "input", "factor", PY_COMMON_NAMES };
    static const struct py_params params = { "all_reduce", names, 2, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_call_read_reduction(&call, given[OP], given[FACTOR]) < 0 ||
        (buf = py_call_lend(&call, given[TENSOR], PY_WRITE)) == NULL ||
        lend_input(&call, buf, given[INPUT]) < 0)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_allreduce(call.group, *buf, &call.opts, call.work_out));
    return py_call_end(&call, given[TENSOR]);
}

static PyObject *reduce(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { TENSOR, ROOT, OP, INPUT, FACTOR, COMMON };
    static const char *const names[] = {
        "tensor", "root", "op", "input", "factor", PY_COMMON_NAMES
    };
    static const struct py_params params = { "reduce", names, 3, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_call_read_reduction(&call, given[OP], given[FACTOR]) < 0 ||
        py_read_int(given[ROOT], "root", &call.opts.root) < 0)
        return py_call_fail(&call);
    /* Only the root's is written. */
    buf = py_call_lend(&call, given[TENSOR],
                       call.opts.root == choir_group_rank(call.group) ? PY_WRITE : PY_READ);
    if (buf == NULL || lend_input(&call, buf, given[INPUT]) < 0)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_reduce(call.group, *buf, &call.opts, call.work_out));
    return py_call_end(&call, given[TENSOR]);
}

static PyObject *all_reduce_coalesced(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                      PyObject *kwnames)
{
    enum { TENSORS, OP, FACTOR, COMMON };
    static const char *const names[] = { "tensors", "op", "factor", PY_COMMON_NAMES };
    static const struct py_params params = { "all_reduce_coalesced", names, 2, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    struct py_list *list;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_call_read_reduction(&call, given[OP], given[FACTOR]) < 0 ||
        (list = py_call_lend_list(&call, given[TENSORS], "tensors", PY_WRITE)) == NULL)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_allreduce_coalesced(call.group, list->bufs, list->count, &call.opts,
                                              call.work_out));
    return py_call_end(&call, given[TENSORS]);
}

/* --- the others --------------------------------------------------------------------------------------------- */

static PyObject *broadcast(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    enum { TENSOR, ROOT, COMMON };
    static const char *const names[] = { "tensor", "root", PY_COMMON_NAMES };
    static const struct py_params params = { "broadcast", names, 2, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[ROOT], "root", &call.opts.root) < 0)
        return py_call_fail(&call);
    buf = py_call_lend(&call, given[TENSOR],
                       call.opts.root == choir_group_rank(call.group) ? PY_READ : PY_WRITE);
    if (buf == NULL)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_broadcast(call.group, *buf, &call.opts, call.work_out));
    return py_call_end(&call, given[TENSOR]);
}

static PyObject *barrier(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { COMMON };
    static const char *const names[] = { PY_COMMON_NAMES };
    static const struct py_params params = { "barrier", names, 0, 0 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_barrier(call.group, &call.opts, call.work_out));
    return py_call_end(&call, Py_None);
}

static PyObject *monitored_barrier(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    enum { NAME_ALL, COMMON };
    static const char *const names[] = { "name_all", PY_COMMON_NAMES };
    static const struct py_params params = { "monitored_barrier", names, 0, 0 };
    PyObject *given[COMMON + PY_NCOMMON];
    bool name_all = false;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_bool(given[NAME_ALL], &name_all) < 0)
        return py_call_fail(&call);
    if (call.async_op) {
        PyErr_SetString(PyExc_ValueError, "monitored_barrier is always done on return");
        return py_call_fail(&call);
    }
    PY_ISSUE(&call, choir_monitored_barrier(call.group, name_all, &call.opts));
    return py_call_end(&call, Py_None);
}

PyMethodDef py_coll_methods[] = {
    { "all_reduce", PY_METHOD(all_reduce),
      "all_reduce(tensor, op=\"sum\", *, input=None, factor=1.0, timeout=None, algo=None, "
      "dtype=None, async_op=False)\n\n"
      "Reduce over all ranks; every rank gets the result, in place. `input`, laid out as `tensor`,\n"
      "is where this rank's elements are read from, if not there. `op` is one of sum, avg, product,\n"
      "min, max, band, bor, bxor, premul-sum (each rank's elements times its `factor`).\n"
      "Gives `tensor`." },
    { "reduce", PY_METHOD(reduce),
      "reduce(tensor, root=0, op=\"sum\", *, input=None, factor=1.0, ...)\n\n"
      "The same, for the root alone; the others' buffers are not changed. Gives `tensor`." },
    { "all_reduce_coalesced", PY_METHOD(all_reduce_coalesced),
      "all_reduce_coalesced(tensors, op=\"sum\", *, factor=1.0, ...)\n\n"
      "Several buffers of one type as if they were one. Gives `tensors`." },
    { "broadcast", PY_METHOD(broadcast),
      "broadcast(tensor, root=0, *, ...)\n\nThe root's elements, everywhere. Gives `tensor`." },
    { "barrier", PY_METHOD(barrier), "barrier(*, ...)\n\nDone when every rank has entered it." },
    { "monitored_barrier", PY_METHOD(monitored_barrier),
      "monitored_barrier(*, name_all=False, timeout=None)\n\n"
      "The same; if not all come in time, every rank is told who did not: the first, or all." },
    { NULL, NULL, 0, NULL },
};
