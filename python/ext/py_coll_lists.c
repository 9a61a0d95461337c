/*
 * py_coll_lists.c - operations with a buffer for each rank: as a list of buffers, or as parts of one.
 */
#include "choirext.h"

/* The library reads as many buffers as the group has ranks, whatever the list has. */
static int check_count(const struct py_call *call, const struct py_list *list, const char *name)
{
    size_t nranks = (size_t)choir_group_size(call->group);

    if (list->count == nranks)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: has %zu buffers, the group %zu ranks", name, list->count,
                 nranks);
    return -1;
}

/* NULL, with an exception, if it is not one buffer for each rank. */
static struct py_list *lend_ranks(struct py_call *call, PyObject *sequence, const char *name,
                                  enum py_access access)
{
    struct py_list *list = py_call_lend_list(call, sequence, name, access);

    return list != NULL && check_count(call, list, name) == 0 ? list : NULL;
}

/* --- all-gather ---------------------------------------------------------------------------------------------- */

static PyObject *all_gather(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { OUTPUT, INPUT, COMMON };
    static const char *const names[] = { "output", "input", PY_COMMON_NAMES };
    static const struct py_params params = { "all_gather", names, 2, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_list *list = NULL;
    choir_buf *in, *out = NULL;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        (in = py_call_lend(&call, given[INPUT], PY_READ)) == NULL)
        return py_call_fail(&call);
    if (py_is_list(given[OUTPUT]))
        list = lend_ranks(&call, given[OUTPUT], "output", PY_WRITE);
    else
        out = py_call_lend(&call, given[OUTPUT], PY_WRITE);
    if (list != NULL)
        PY_ISSUE(&call, choir_allgather(call.group, *in, list->bufs, &call.opts, call.work_out));
    else if (out != NULL)
        PY_ISSUE(&call, choir_allgather_into(call.group, *in, *out, &call.opts, call.work_out));
    else
        return py_call_fail(&call);
    return py_call_end(&call, given[OUTPUT]);
}

/* k of either form at once. */
static PyObject *all_gather_coalesced(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                      PyObject *kwnames)
{
    enum { OUTPUTS, INPUTS, COMMON };
    static const char *const names[] = { "outputs", "inputs", PY_COMMON_NAMES };
    static const struct py_params params = { "all_gather_coalesced", names, 2, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_list *ins, *outs;
    struct py_call call;
    bool nested;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        (ins = py_call_lend_list(&call, given[INPUTS], "inputs", PY_READ)) == NULL)
        return py_call_fail(&call);
    nested = py_is_list(given[OUTPUTS]) && PySequence_Size(given[OUTPUTS]) > 0;
    if (nested) {
        PyObject *first = PySequence_GetItem(given[OUTPUTS], 0);

        nested = first != NULL && py_is_list(first);
        Py_XDECREF(first);
    }
    if (nested)
        outs = py_lend_lists(call.self->state, call.lent, given[OUTPUTS], "outputs",
                             PY_WRITE | call.lasting, call.dtype);
    else
        outs = py_call_lend_list(&call, given[OUTPUTS], "outputs", PY_WRITE);
    if (outs == NULL)
        return py_call_fail(&call);
    if (outs->count != ins->count * (nested ? (size_t)choir_group_size(call.group) : 1)) {
        PyErr_Format(PyExc_ValueError, "outputs: has %zu buffers, for %zu inputs and %d ranks",
                     outs->count, ins->count, choir_group_size(call.group));
        return py_call_fail(&call);
    }
    if (nested)
        PY_ISSUE(&call, choir_allgather_coalesced(call.group, ins->bufs, outs->bufs, ins->count,
                                                  &call.opts, call.work_out));
    else
        PY_ISSUE(&call, choir_allgather_into_coalesced(call.group, ins->bufs, outs->bufs,
                                                       ins->count, &call.opts, call.work_out));
    return py_call_end(&call, given[OUTPUTS]);
}

/* --- gather, scatter ------------------------------------------------------------------------------------------ */

/* The list is the root's alone. */
static int lend_roots(struct py_call *call, PyObject *sequence, const char *name,
                      enum py_access access, const choir_buf **out)
{
    struct py_list *list;

    *out = NULL;
    if (call->opts.root != choir_group_rank(call->group))
        return 0;
    if (sequence == NULL) {
        PyErr_Format(PyExc_TypeError, "%s: the root has to give a list", name);
        return -1;
    }
    list = lend_ranks(call, sequence, name, access);
    if (list == NULL)
        return -1;
    *out = list->bufs;
    return 0;
}

static PyObject *gather(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { INPUT, OUTPUTS, ROOT, COMMON };
    static const char *const names[] = { "input", "outputs", "root", PY_COMMON_NAMES };
    static const struct py_params params = { "gather", names, 3, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    const choir_buf *outs;
    struct py_call call;
    choir_buf *in;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[ROOT], "root", &call.opts.root) < 0 ||
        (in = py_call_lend(&call, given[INPUT], PY_READ)) == NULL ||
        lend_roots(&call, given[OUTPUTS], "outputs", PY_WRITE, &outs) < 0)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_gather(call.group, *in, outs, &call.opts, call.work_out));
    return py_call_end(&call, outs != NULL ? given[OUTPUTS] : Py_None);
}

static PyObject *scatter(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { OUTPUT, INPUTS, ROOT, COMMON };
    static const char *const names[] = { "output", "inputs", "root", PY_COMMON_NAMES };
    static const struct py_params params = { "scatter", names, 3, 1 };
    PyObject *given[COMMON + PY_NCOMMON];
    const choir_buf *ins;
    struct py_call call;
    choir_buf *out;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_read_int(given[ROOT], "root", &call.opts.root) < 0 ||
        (out = py_call_lend(&call, given[OUTPUT], PY_WRITE)) == NULL ||
        lend_roots(&call, given[INPUTS], "inputs", PY_READ, &ins) < 0)
        return py_call_fail(&call);
    PY_ISSUE(&call, choir_scatter(call.group, ins, *out, &call.opts, call.work_out));
    return py_call_end(&call, given[OUTPUT]);
}

/* --- reduce-scatter --------------------------------------------------------------------------------------------- */

static PyObject *reduce_scatter(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    enum { OUTPUT, INPUT, OP, FACTOR, COMMON };
    static const char *const names[] = { "output", "input", "op", "factor", PY_COMMON_NAMES };
    static const struct py_params params = { "reduce_scatter", names, 3, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_list *list = NULL;
    choir_buf *out, *in = NULL;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_call_read_reduction(&call, given[OP], given[FACTOR]) < 0 ||
        (out = py_call_lend(&call, given[OUTPUT], PY_WRITE)) == NULL)
        return py_call_fail(&call);
    if (py_is_list(given[INPUT]))
        list = lend_ranks(&call, given[INPUT], "input", PY_READ);
    else
        in = py_call_lend(&call, given[INPUT], PY_READ);
    if (list != NULL)
        PY_ISSUE(&call,
                 choir_reduce_scatter(call.group, list->bufs, *out, &call.opts, call.work_out));
    else if (in != NULL)
        PY_ISSUE(&call,
                 choir_reduce_scatter_from(call.group, *in, *out, &call.opts, call.work_out));
    else
        return py_call_fail(&call);
    return py_call_end(&call, given[OUTPUT]);
}

static PyObject *reduce_scatter_coalesced(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                          PyObject *kwnames)
{
    enum { OUTPUTS, INPUTS, OP, FACTOR, COMMON };
    static const char *const names[] = { "outputs", "inputs", "op", "factor", PY_COMMON_NAMES };
    static const struct py_params params = { "reduce_scatter_coalesced", names, 3, 2 };
    PyObject *given[COMMON + PY_NCOMMON];
    struct py_list *ins, *outs;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0 ||
        py_call_read_reduction(&call, given[OP], given[FACTOR]) < 0 ||
        (ins = py_call_lend_list(&call, given[INPUTS], "inputs", PY_READ)) == NULL ||
        (outs = py_call_lend_list(&call, given[OUTPUTS], "outputs", PY_WRITE)) == NULL)
        return py_call_fail(&call);
    if (ins->count != outs->count) {
        PyErr_Format(PyExc_ValueError, "outputs: has %zu buffers, inputs %zu", outs->count,
                     ins->count);
        return py_call_fail(&call);
    }
    PY_ISSUE(&call, choir_reduce_scatter_coalesced(call.group, ins->bufs, outs->bufs, ins->count,
                                                   &call.opts, call.work_out));
    return py_call_end(&call, given[OUTPUTS]);
}

/* --- all-to-all --------------------------------------------------------------------------------------------------- */

/* Lengths of parts, one for each rank, to be freed; *out is NULL if there are none. */
static int read_splits(const struct py_call *call, PyObject *given, const char *name, size_t **out)
{
    Py_ssize_t nranks = choir_group_size(call->group), count;

    *out = NULL;
    if (given == NULL)
        return 0;
    count = PySequence_Size(given);
    if (count < 0)
        return -1;
    if (count != nranks) {
        PyErr_Format(PyExc_ValueError, "%s: has %zd lengths, the group %zd ranks", name, count,
                     nranks);
        return -1;
    }
    *out = PyMem_Calloc((size_t)count, sizeof(**out));
    if (*out == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(given, i);

        int rc = item == NULL ? -1 : py_read_size(item, name, &(*out)[i]);

        Py_XDECREF(item);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static PyObject *all_to_all_lists(struct py_call *call, PyObject *output, PyObject *input)
{
    struct py_list *ins = lend_ranks(call, input, "input", PY_READ), *outs;

    if (ins == NULL || (outs = lend_ranks(call, output, "output", PY_WRITE)) == NULL)
        return py_call_fail(call);
    PY_ISSUE(call, choir_alltoall(call->group, ins->bufs, outs->bufs, &call->opts, call->work_out));
    return py_call_end(call, output);
}

static PyObject *all_to_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { OUTPUT, INPUT, OUTPUT_SPLITS, INPUT_SPLITS, COMMON };
    static const char *const names[] = { "output", "input", "output_splits", "input_splits",
                                         PY_COMMON_NAMES };
    static const struct py_params params = { "all_to_all", names, 4, 2 };
    size_t *in_splits = NULL, *out_splits = NULL;
    PyObject *given[COMMON + PY_NCOMMON], *result;
    choir_buf *in, *out;
    struct py_call call;

    if (py_call_begin(&call, self, &params, args, nargs, kwnames, given, COMMON) < 0)
        return py_call_fail(&call);
    if (py_is_list(given[OUTPUT]) && given[OUTPUT_SPLITS] == NULL && given[INPUT_SPLITS] == NULL)
        return all_to_all_lists(&call, given[OUTPUT], given[INPUT]);
    if ((in = py_call_lend(&call, given[INPUT], PY_READ)) == NULL ||
        (out = py_call_lend(&call, given[OUTPUT], PY_WRITE)) == NULL ||
        read_splits(&call, given[INPUT_SPLITS], "input_splits", &in_splits) < 0 ||
        read_splits(&call, given[OUTPUT_SPLITS], "output_splits", &out_splits) < 0) {
        result = py_call_fail(&call);
    } else {
        PY_ISSUE(&call, choir_alltoall_base(call.group, *in, in_splits, *out, out_splits,
                                            &call.opts, call.work_out));
        result = py_call_end(&call, given[OUTPUT]);
    }
    PyMem_Free(in_splits);
    PyMem_Free(out_splits);
    return result;
}

PyMethodDef py_list_methods[] = {
    { "all_gather", PY_METHOD(all_gather),
      "all_gather(output, input, *, ...)\n\n"
      "Everybody's `input`, everywhere. `output` is a list of one buffer for each rank, in rank\n"
      "order, or one buffer that takes all of them behind each other. Gives `output`." },
    { "all_gather_coalesced", PY_METHOD(all_gather_coalesced),
      "all_gather_coalesced(outputs, inputs, *, ...)\n\n"
      "Several at once: outputs[r][j] is rank r's inputs[j]; or outputs[j] takes all ranks'\n"
      "inputs[j] behind each other. Gives `outputs`." },
    { "gather", PY_METHOD(gather),
      "gather(input, outputs=None, root=0, *, ...)\n\n"
      "The root's outputs[r] is rank r's `input`. Gives `outputs` to the root." },
    { "scatter", PY_METHOD(scatter),
      "scatter(output, inputs=None, root=0, *, ...)\n\n"
      "Rank r's `output` is the root's inputs[r]. Gives `output`." },
    { "reduce_scatter", PY_METHOD(reduce_scatter),
      "reduce_scatter(output, input, op=\"sum\", *, factor=1.0, ...)\n\n"
      "`output` is the reduction of all ranks' input[r], for this rank r; or of the r-th of equal\n"
      "parts, if `input` is one buffer. Gives `output`." },
    { "reduce_scatter_coalesced", PY_METHOD(reduce_scatter_coalesced),
      "reduce_scatter_coalesced(outputs, inputs, op=\"sum\", *, factor=1.0, ...)\n\n"
      "Several at once, of one buffer each. Gives `outputs`." },
    { "all_to_all", PY_METHOD(all_to_all),
      "all_to_all(output, input, output_splits=None, input_splits=None, *, ...)\n\n"
      "output[i] is rank i's input[r], for this rank r. With one buffer each, parts of them: equal\n"
      "ones, or of the lengths given, in elements. Gives `output`." },
    { NULL, NULL, 0, NULL },
};
