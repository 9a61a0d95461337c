/*
 * py_tools.c - functions of the module that need no group: reductions inside the process, the flight record, knobs.
 */
#include "choirext.h"

#include <string.h>

/* --- reduce_local -------------------------------------------------------------------------------------------------- */

/* Addresses and factors of the sources, checked against the output. */
struct sources {
    const void **data;
    double *factors;
};

static int check_source(const choir_buf *out, const choir_buf *in, size_t index)
{
    if (in->type == out->type && in->count == out->count && in->ndim == 0)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "inputs: number %zu has %zu elements of %s; expected %zu of %s, contiguous", index,
                 in->count, choir_type_name(in->type), out->count, choir_type_name(out->type));
    return -1;
}

static int fill_sources(struct sources *sources, const choir_buf *out, const struct py_list *list,
                        PyObject *factors)
{
    sources->data = PyMem_Calloc(list->count + 1, sizeof(*sources->data));
    sources->factors = PyMem_Calloc(list->count + 1, sizeof(*sources->factors));
    if (sources->data == NULL || sources->factors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < list->count; i++) {
        PyObject *factor = factors == NULL ? NULL : PySequence_GetItem(factors, (Py_ssize_t)i);
        int rc = factors != NULL && factor == NULL ? -1 : 0;

        sources->data[i] = list->bufs[i].data;
        sources->factors[i] = 1;
        if (rc == 0)
            rc = py_read_double(factor, "factors", &sources->factors[i]);
        Py_XDECREF(factor);
        if (rc < 0 || check_source(out, &list->bufs[i], i) < 0)
            return -1;
    }
    return 0;
}

static PyObject *reduce_into(struct py_state *state, struct py_lent *lent, PyObject **given,
                             const choir_reduce_local_opts *asked)
{
    enum { OUTPUT, INPUTS, OP, FACTORS };
    choir_reduce_local_opts opts = *asked;
    struct sources sources = { 0 };
    struct py_list *list = NULL;
    choir_status rc = CHOIR_OK;
    choir_buf *out;
    bool well;

    out = py_lend(state, lent, given[OUTPUT], PY_WRITE, NULL);
    well = out != NULL &&
           (list = py_lend_list(state, lent, given[INPUTS], "inputs", PY_READ, NULL)) != NULL &&
           fill_sources(&sources, out, list, given[FACTORS]) == 0;
    if (well && out->ndim != 0) {
        PyErr_SetString(PyExc_ValueError, "output: is not contiguous");
        well = false;
    }
    if (well) {
        opts.factors = sources.factors;
        py_leave();
        rc = choir_reduce_local(out->data, sources.data, list->count, out->count, out->type, &opts);
        well = !py_return();
    }
    PyMem_Free(sources.data);
    PyMem_Free(sources.factors);
    if (well && rc != CHOIR_OK)
        py_raise_last(state);
    return well && rc == CHOIR_OK ? Py_NewRef(given[OUTPUT]) : NULL;
}

static PyObject *reduce_local(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    enum { OUTPUT, INPUTS, OP, FACTORS, DIVISOR, COUNT };
    static const char *const names[] = { "output", "inputs", "op", "factors", "divisor", NULL };
    static const struct py_params params = { "reduce_local", names, 3, 2 };
    choir_reduce_local_opts opts = { .size = sizeof(opts) };
    PyObject *given[COUNT], *result;
    struct py_lent lent;
    int divisor = 0;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_redop(given[OP], &opts.op) < 0 ||
        py_read_int(given[DIVISOR], "divisor", &divisor) < 0)
        return NULL;
    if (divisor < 0) {
        PyErr_SetString(PyExc_ValueError, "divisor: is below 0");
        return NULL;
    }
    opts.divisor = (size_t)divisor;
    py_lent_init(&lent);
    result = reduce_into(py_state_of(module), &lent, given, &opts);
    py_lent_release(&lent);
    return result;
}

/* --- the flight record ------------------------------------------------------------------------------------------------ */

static PyObject *trace_dump(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    static const char *const names[] = { "format", NULL };
    static const struct py_params params = { "trace_dump", names, 1, 0 };
    choir_trace_format format = CHOIR_TRACE_JSON;
    struct py_state *state = py_state_of(module);
    choir_blob blob = { 0 };
    PyObject *given[1], *bytes;
    const char *name = "json";
    choir_status rc;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_text(given[0], "format", &name) < 0)
        return NULL;
    if (strcmp(name, "pickle") == 0) {
        format = CHOIR_TRACE_PICKLE;
    } else if (strcmp(name, "json") != 0) {
        PyErr_Format(PyExc_ValueError, "format: '%s' is neither json nor pickle", name);
        return NULL;
    }
    py_leave_quietly();
    rc = choir_trace_dump(format, &blob);
    (void)py_return();
    if (rc != CHOIR_OK)
        return py_raise_last(state);
    bytes = PyBytes_FromStringAndSize(blob.data, (Py_ssize_t)blob.nbytes);
    choir_blob_free(&blob);
    return bytes;
}

static PyObject *trace_reset(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    choir_trace_reset();
    Py_RETURN_NONE;
}

/* --- knobs ------------------------------------------------------------------------------------------------------------- */

static PyObject *params(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    choir_param p;

    (void)module;
    (void)unused;
    for (size_t i = 0; list != NULL && choir_param_get(i, &p) == CHOIR_OK; i++) {
        PyObject *dict = Py_BuildValue("{s:s, s:s, s:s, s:s, s:s, s:z}", "name", p.name, "type",
                                       p.type, "unit", p.unit, "fallback", p.fallback, "help",
                                       p.help, "value", p.value);

        if (dict == NULL || PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

static PyMethodDef functions[] = {
    { "reduce_local", PY_METHOD(reduce_local),
      "reduce_local(output, inputs, op=\"sum\", *, factors=None, divisor=None)\n\n"
      "Combine buffers of this process, in the order given, with the kernels of the collectives: one\n"
      "pass, one rounding. `factors` are those of premul-sum, `divisor` is that of avg. Gives "
      "`output`." },
    { "trace_dump", PY_METHOD(trace_dump),
      "trace_dump(format=\"json\") -> bytes\n\n"
      "The last operations of this process; \"pickle\" is for PyTorch's analyser of flight records." },
    { "trace_reset", trace_reset, METH_NOARGS, "trace_reset()\n\nForget what is recorded." },
    { "params", params, METH_NOARGS,
      "params() -> list\n\nThe environment variables that the library reads, and their values." },
    { NULL, NULL, 0, NULL },
};

int py_tools_add(struct py_state *state)
{
    return PyModule_AddFunctions(state->module, functions);
}
