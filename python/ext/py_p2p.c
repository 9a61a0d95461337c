/*
 * py_p2p.c - messages between two ranks.
 */
#include "choirext.h"

static PyObject *send(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { TENSOR, TO, TAG, COMMON };
    static const char *const names[] = { "tensor", "to", "tag", PY_COMMON_NAMES };
    static const struct py_params params = { "send", names, 3, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    int to = 0, tag = 0;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[TO], "to", &to) < 0 || py_read_int(given[TAG], "tag", &tag) < 0 ||
        (buf = py_call_lend(&call, given[TENSOR], PY_READ)) == NULL)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_send(call.group, *buf, to, tag, &call.opts, call.work_out));
    return py_call_end(&call, given[TENSOR]);
}

static PyObject *recv(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { TENSOR, SOURCE, TAG, COMMON };
    static const char *const names[] = { "tensor", "source", "tag", PY_COMMON_NAMES };
    static const struct py_params params = { "recv", names, 3, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    int from = 0, tag = 0;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[SOURCE], "source", &from) < 0 ||
        py_read_int(given[TAG], "tag", &tag) < 0 ||
        (buf = py_call_lend(&call, given[TENSOR], PY_WRITE)) == NULL)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_recv(call.group, *buf, from, tag, &call.opts, call.work_out));
    return py_call_end(&call, given[TENSOR]);
}

static PyObject *recv_any(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    enum { TENSOR, TAG, COMMON };
    static const char *const names[] = { "tensor", "tag", PY_COMMON_NAMES };
    static const struct py_params params = { "recv_any", names, 2, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_call call;
    int from = 0, tag = 0;
    choir_buf *buf;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[TAG], "tag", &tag) < 0 ||
        (buf = py_call_lend(&call, given[TENSOR], PY_WRITE)) == NULL)
        return py_call_fail(&call);
    /* One that goes on is asked when it is done: `from` is gone by then. */
    PY_ISSUE(&call, choir_recv_any(call.group, *buf, tag, call.lasting ? NULL : &from, &call.opts,
                                   call.work_out));
    return py_call_end_source(&call, from);
}

static PyObject *sendrecv(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    enum { INPUT, TO, OUTPUT, SOURCE, TAG, COMMON };
    static const char *const names[] = {
        "input", "to", "output", "source", "tag", PY_COMMON_NAMES
    };
    static const struct py_params params = { "sendrecv", names, 5, 4 };
    PyObject *given[COMMON + PY_NCOMMON];
    int to = 0, from = 0, tag = 0;
    choir_buf *in, *out;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[TO], "to", &to) < 0 || py_read_int(given[SOURCE], "source", &from) < 0 ||
        py_read_int(given[TAG], "tag", &tag) < 0 ||
        (in = py_call_lend(&call, given[INPUT], PY_READ)) == NULL ||
        (out = py_call_lend(&call, given[OUTPUT], PY_WRITE)) == NULL)
        return py_call_fail(&call);
    PY_ISSUE(&call,
             choir_sendrecv(call.group, *in, to, *out, from, tag, &call.opts, call.work_out));
    return py_call_end(&call, given[OUTPUT]);
}

PyMethodDef py_p2p_methods[] = {
    { "send", PY_METHOD(send),
      "send(tensor, to, tag=0, *, ...)\n\n"
      "Send to a rank that receives with the same tag. Done when the buffer may be used again.\n"
      "Gives `tensor`." },
    { "recv", PY_METHOD(recv),
      "recv(tensor, source, tag=0, *, ...)\n\n"
      "Receive from a rank; the buffer has exactly the message's size. Gives `tensor`." },
    { "sendrecv", PY_METHOD(sendrecv),
      "sendrecv(input, to, output, source, tag=0, *, ...)\n\n"
      "Send to a rank and receive from another, or the same, at once: neither waits for the other,\n"
      "so all ranks of a ring may call it. Gives `output`." },
    { "recv_any", PY_METHOD(recv_any),
      "recv_any(tensor, tag=0, *, ...)\n\n"
      "Receive from whoever comes first. Gives the rank it came from." },
    { NULL, NULL, 0, NULL },
};
