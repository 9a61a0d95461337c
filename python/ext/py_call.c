/*
 * py_call.c - one call of an operation: what all of them have in common. See struct py_call.
 */
#include "choirext.h"

#include <stdio.h>

static int read_common(struct py_call *call, PyObject **common)
{
    if (py_read_timeout(common[PY_TIMEOUT], &call->opts.timeout_ms) < 0 ||
        py_read_text(common[PY_ALGO], "algo", &call->opts.algo) < 0 ||
        py_read_bool(common[PY_ASYNC], &call->async_op) < 0)
        return -1;
    call->dtype = common[PY_DTYPE];
    return 0;
}

/* What is borrowed beyond the call has a place of its own. */
static int find_place(struct py_call *call)
{
    if (call->self->batches != NULL && py_batch_find(call->self, &call->batch) < 0)
        return -1;
    if (!call->async_op && call->batch == NULL) {
        py_lent_init(&call->here);
        call->lent = &call->here;
        return 0;
    }
    if (call->batch == NULL)
        call->work_out = &call->work;
    call->lasting = PY_LASTING;
    call->lent = py_lent_create();
    return call->lent != NULL ? 0 : -1;
}

int py_call_begin(struct py_call *call, PyObject *self, const struct py_params *params,
                  PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **given,
                  int common)
{
    call->self = (struct py_group *)self;
    call->method = params->method;
    call->group = NULL;
    call->opts = (choir_coll_opts){ .size = sizeof(call->opts) };
    call->async_op = call->raised = false;
    call->rc = CHOIR_OK;
    call->batch = NULL;
    call->work = NULL;
    call->work_out = NULL;
    call->lasting = 0;
    call->lent = NULL;
    if (py_params_read(params, args, nargs, kwnames, given) < 0 ||
        read_common(call, given + common) < 0)
        return -1;
    call->group = py_group_enter(call->self, params->method);
    return call->group != NULL ? find_place(call) : -1;
}

int py_call_read_reduction(struct py_call *call, PyObject *op, PyObject *factor)
{
    call->opts.factor = 1;
    if (py_read_redop(op, &call->opts.op) < 0 ||
        py_read_double(factor, "factor", &call->opts.factor) < 0)
        return -1;
    return 0;
}

choir_buf *py_call_lend(struct py_call *call, PyObject *object, enum py_access access)
{
    return py_lend(call->self->state, call->lent, object, access | call->lasting, call->dtype);
}

struct py_list *py_call_lend_list(struct py_call *call, PyObject *sequence, const char *name,
                                  enum py_access access)
{
    return py_lend_list(call->self->state, call->lent, sequence, name, access | call->lasting,
                        call->dtype);
}

/* Reading a buffer may run any code: whether the call is part of a batch must not have changed by that. If so there is an
 * exception. */
bool py_call_ready(struct py_call *call)
{
    if (call->self->batches == NULL ? call->batch == NULL
                                    : py_batch_is_open(call->self, call->batch))
        return true;
    py_raise(call->self->state, CHOIR_ERR_STATE, "batch",
             "batch: one was begun or ended while a buffer was being read");
    call->raised = true;
    return false;
}

static void give_back(struct py_call *call)
{
    if (call->lent == &call->here)
        py_lent_release(call->lent);
    else
        py_lent_destroy(call->lent);
}

PyObject *py_call_fail(struct py_call *call)
{
    give_back(call);
    py_batch_unref(call->batch);
    if (call->group != NULL)
        py_group_exit(call->self);
    return NULL;
}

/* What is refused has not become an operation yet: the record does not name it. */
static void raise_last(struct py_call *call)
{
    choir_error record = *choir_last_error_record();

    if (record.operation[0] == '\0')
        snprintf(record.operation, sizeof(record.operation), "%s", call->method);
    py_raise_record(call->self->state, &record);
}

/* The call was refused, has failed, or a signal's handler has raised. */
static PyObject *fail(struct py_call *call)
{
    if (!call->raised)
        raise_last(call);
    if (call->work != NULL) { /* issued before the handler raised */
        py_lent_keep(&call->self->unwaited, call->work, call->lent);
        call->lent = NULL;
    }
    return py_call_fail(call);
}

/* What goes on after the method has returned. */
static PyObject *end_later(struct py_call *call, PyObject *result, enum py_gives gives)
{
    PyObject *made = Py_None;

    if (call->batch != NULL) {
        py_batch_keep(call->batch, call->lent);
        py_batch_unref(call->batch);
        Py_INCREF(made);
    } else {
        made = py_work_wrap(call->self->state, call->self, call->work, call->lent, result, gives);
    }
    py_group_exit(call->self);
    return made;
}

PyObject *py_call_end(struct py_call *call, PyObject *result)
{
    if (call->rc != CHOIR_OK || call->raised)
        return fail(call);
    if (call->lent != &call->here)
        return end_later(call, result, PY_GIVES_OBJECT);
    py_lent_release(&call->here);
    py_group_exit(call->self);
    return Py_NewRef(result);
}

PyObject *py_call_end_source(struct py_call *call, int source)
{
    if (call->rc != CHOIR_OK || call->raised)
        return fail(call);
    if (call->lent != &call->here)
        return end_later(call, Py_None, PY_GIVES_SOURCE);
    py_lent_release(&call->here);
    py_group_exit(call->self);
    return PyLong_FromLong(source);
}
