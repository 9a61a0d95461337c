/*
 * py_store.c - the objects choir.Store and choir.StoreServer.
 *
 * Keys and values are bytes or str (as UTF-8); what comes back is bytes.
 */
#include "choirext.h"

#include <math.h>

struct py_store {
    PyObject_HEAD struct py_state *state;
    choir_store *store; /* NULL: closed */
    unsigned nusing;    /* calls under way, on whatever thread */
    bool closing;       /* closed while in use: the last one ends it */
};

/* --- a handle's life ------------------------------------------------------------------------------------------- */

PyObject *py_store_wrap(struct py_state *state, choir_store *store)
{
    struct py_store *self = (struct py_store *)PyType_GenericAlloc(state->store_type, 0);

    if (self == NULL) {
        choir_store_close(store);
        return NULL;
    }
    self->state = state;
    self->store = store;
    return (PyObject *)self;
}

static void close_store(struct py_store *self)
{
    choir_store *store = self->store;

    self->store = NULL;
    py_leave_quietly();
    choir_store_close(store);
    (void)py_return();
}

static choir_store *store_enter(struct py_store *self, const char *operation)
{
    if (self->store == NULL || self->closing) {
        py_raise(self->state, CHOIR_ERR_STATE, operation, "%s: the store is closed", operation);
        return NULL;
    }
    self->nusing++;
    return self->store;
}

static void store_exit(struct py_store *self)
{
    self->nusing--;
    if (self->closing && self->nusing == 0 && self->store != NULL)
        close_store(self);
}

choir_store *py_store_enter(struct py_state *state, PyObject *object, const char *operation)
{
    if (!PyObject_TypeCheck(object, state->store_type)) {
        PyErr_Format(PyExc_TypeError, "store: a choir.Store is expected, not %R", object);
        return NULL;
    }
    return store_enter((struct py_store *)object, operation);
}

void py_store_exit(PyObject *object)
{
    store_exit((struct py_store *)object);
}

static void store_dealloc(PyObject *object)
{
    struct py_store *self = (struct py_store *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (self->store != NULL)
        close_store(self);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *store_close(PyObject *object, PyObject *unused)
{
    struct py_store *self = (struct py_store *)object;

    (void)unused;
    if (self->store == NULL || self->closing)
        Py_RETURN_NONE;
    self->closing = true;
    if (self->nusing > 0)
        choir_store_interrupt(self->store); /* the last to return closes it */
    else
        close_store(self);
    Py_RETURN_NONE;
}

static PyObject *with_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *store_leave(PyObject *self, PyObject *args)
{
    (void)args;
    return store_close(self, NULL);
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

struct text {
    choir_bytes bytes;
    Py_buffer view;
    bool has_view;
};

static int text_get(PyObject *object, const char *name, struct text *out)
{
    Py_ssize_t count;

    out->has_view = false;
    if (PyUnicode_Check(object)) {
        out->bytes.data = PyUnicode_AsUTF8AndSize(object, &count);
        out->bytes.nbytes = (size_t)count;
        return out->bytes.data != NULL ? 0 : -1;
    }
    if (!PyObject_CheckBuffer(object)) {
        PyErr_Format(PyExc_TypeError, "%s: bytes or str are expected, not %R", name,
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (PyObject_GetBuffer(object, &out->view, PyBUF_SIMPLE) < 0)
        return -1;
    out->has_view = true;
    out->bytes = (choir_bytes){ out->view.buf, (size_t)out->view.len };
    return 0;
}

static void text_release(struct text *text)
{
    if (text->has_view)
        PyBuffer_Release(&text->view);
    text->has_view = false;
}

/* Several of them, from a sequence that stays as it is: `tuple` keeps them. */
struct texts {
    PyObject *tuple;
    size_t count;
    struct text *held;
    choir_bytes *bytes;
};

static void texts_release(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        text_release(&texts->held[i]);
    PyMem_Free(texts->held);
    PyMem_Free(texts->bytes);
    Py_XDECREF(texts->tuple);
}

static int texts_fill(struct texts *out, const char *name)
{
    Py_ssize_t count = PyTuple_Size(out->tuple);

    out->held = PyMem_Calloc((size_t)count + 1, sizeof(*out->held));
    out->bytes = PyMem_Calloc((size_t)count + 1, sizeof(*out->bytes));
    if (out->held == NULL || out->bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (text_get(PyTuple_GetItem(out->tuple, i), name, &out->held[i]) < 0)
            return -1;
        out->bytes[i] = out->held[i].bytes;
        out->count++;
    }
    return 0;
}

static int texts_get(PyObject *sequence, const char *name, struct texts *out)
{
    *out = (struct texts){ 0 };
    if (PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        PyErr_Format(PyExc_TypeError, "%s: a list is expected, not %R", name, sequence);
        return -1;
    }
    out->tuple = PySequence_Tuple(sequence);
    if (out->tuple != NULL && texts_fill(out, name) == 0)
        return 0;
    texts_release(out);
    *out = (struct texts){ 0 };
    return -1;
}

/* Takes the blob. */
static PyObject *bytes_of(choir_blob *blob)
{
    PyObject *bytes = PyBytes_FromStringAndSize(blob->data, (Py_ssize_t)blob->nbytes);

    choir_blob_free(blob);
    return bytes;
}

/* Takes the list. */
static PyObject *list_of(choir_blob *blobs, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(blobs[i].data, (Py_ssize_t)blobs[i].nbytes);

        if (bytes == NULL || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0)
            Py_CLEAR(list);
    }
    choir_blob_free_list(blobs, count);
    return list;
}

/* --- one call -------------------------------------------------------------------------------------------------- */

enum { MAX_GIVEN = 4 };

/* From arguments to the end: key, value and time-out where the method has them. */
struct call {
    struct py_store *self;
    choir_store *store;
    PyObject *given[MAX_GIVEN];
    struct text texts[MAX_GIVEN];
    int ntexts;
    int64_t timeout_ms;
    choir_status rc;
    bool raised;
};

static int begin(struct call *call, PyObject *object, const struct py_params *params,
                 PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    call->self = (struct py_store *)object;
    call->store = NULL;
    call->ntexts = 0;
    call->timeout_ms = 0;
    for (int i = 0; i < MAX_GIVEN; i++)
        call->given[i] = NULL;
    if (py_params_read(params, args, nargs, kwnames, call->given) < 0)
        return -1;
    call->store = store_enter(call->self, params->method);
    return call->store != NULL ? 0 : -1;
}

static int take_text(struct call *call, int index, const char *name, choir_bytes *out)
{
    struct text *text = &call->texts[call->ntexts];

    if (text_get(call->given[index], name, text) < 0)
        return -1;
    call->ntexts++;
    *out = text->bytes;
    return 0;
}

/* True if it went well; an exception is set otherwise. */
static bool finish(struct call *call)
{
    bool well = !call->raised && call->rc == CHOIR_OK;

    if (!well && !call->raised)
        py_raise_last(call->self->state);
    for (int i = 0; i < call->ntexts; i++)
        text_release(&call->texts[i]);
    store_exit(call->self);
    return well;
}

/* The arguments were wrong. */
static PyObject *refuse(struct call *call)
{
    for (int i = 0; i < call->ntexts; i++)
        text_release(&call->texts[i]);
    if (call->store != NULL)
        store_exit(call->self);
    return NULL;
}

/* --- values ------------------------------------------------------------------------------------------------------ */

static PyObject *store_write(PyObject *object, const struct py_params *params,
                             PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             choir_status (*write)(choir_store *, choir_bytes, choir_bytes))
{
    choir_bytes key, value;
    struct call call;

    if (begin(&call, object, params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "key", &key) < 0 || take_text(&call, 1, "value", &value) < 0)
        return refuse(&call);
    PY_CALL(&call, write(call.store, key, value));
    return finish(&call) ? Py_NewRef(Py_None) : NULL;
}

static const char *const key_value[] = { "key", "value", NULL };

static PyObject *store_set(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const struct py_params params = { "set", key_value, 2, 2 };

    return store_write(self, &params, args, nargs, kwnames, choir_store_set);
}

static PyObject *store_append(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    static const struct py_params params = { "append", key_value, 2, 2 };

    return store_write(self, &params, args, nargs, kwnames, choir_store_append);
}

static PyObject *queue_push(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    static const struct py_params params = { "queue_push", key_value, 2, 2 };

    return store_write(self, &params, args, nargs, kwnames, choir_store_queue_push);
}

static const char *const key_timeout[] = { "key", "timeout", NULL };

static PyObject *store_fetch(PyObject *object, const struct py_params *params,
                             PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             choir_status (*fetch)(choir_store *, choir_bytes, int64_t,
                                                   choir_blob *))
{
    choir_blob value = { 0 };
    choir_bytes key;
    struct call call;

    if (begin(&call, object, params, args, nargs, kwnames) < 0 ||
        py_read_timeout(call.given[1], &call.timeout_ms) < 0 ||
        take_text(&call, 0, "key", &key) < 0)
        return refuse(&call);
    PY_CALL(&call, fetch(call.store, key, call.timeout_ms, &value));
    return finish(&call) ? bytes_of(&value) : NULL;
}

static PyObject *store_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const struct py_params params = { "get", key_timeout, 2, 1 };

    return store_fetch(self, &params, args, nargs, kwnames, choir_store_get);
}

static PyObject *queue_pop(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const struct py_params params = { "queue_pop", key_timeout, 2, 1 };

    return store_fetch(self, &params, args, nargs, kwnames, choir_store_queue_pop);
}

static choir_status try_pop(choir_store *store, choir_bytes key, int64_t timeout_ms,
                            choir_blob *value_out)
{
    (void)timeout_ms;
    return choir_store_queue_try_pop(store, key, value_out);
}

static PyObject *queue_try_pop(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames)
{
    static const char *const names[] = { "key", NULL };
    static const struct py_params params = { "queue_try_pop", names, 1, 1 };

    return store_fetch(self, &params, args, nargs, kwnames, try_pop);
}

static PyObject *store_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const char *const names[] = { "key", "amount", NULL };
    static const struct py_params params = { "add", names, 2, 2 };
    int64_t amount, sum = 0;
    choir_bytes key;
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "key", &key) < 0)
        return refuse(&call);
    amount = PyLong_AsLongLong(call.given[1]);
    if (amount == -1 && PyErr_Occurred())
        return refuse(&call);
    PY_CALL(&call, choir_store_add(call.store, key, amount, &sum));
    return finish(&call) ? PyLong_FromLongLong(sum) : NULL;
}

static PyObject *compare_set(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    static const char *const names[] = { "key", "expected", "desired", NULL };
    static const struct py_params params = { "compare_set", names, 3, 3 };
    choir_bytes key, expected, desired;
    choir_blob value = { 0 };
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "key", &key) < 0 || take_text(&call, 1, "expected", &expected) < 0 ||
        take_text(&call, 2, "desired", &desired) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_compare_set(call.store, key, expected, desired, &value));
    return finish(&call) ? bytes_of(&value) : NULL;
}

static PyObject *store_delete(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    static const char *const names[] = { "key", NULL };
    static const struct py_params params = { "delete", names, 1, 1 };
    bool removed = false;
    choir_bytes key;
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "key", &key) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_delete(call.store, key, &removed));
    return finish(&call) ? PyBool_FromLong(removed) : NULL;
}

static PyObject *queue_length(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    static const char *const names[] = { "key", NULL };
    static const struct py_params params = { "queue_length", names, 1, 1 };
    int64_t length = 0;
    choir_bytes key;
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "key", &key) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_queue_length(call.store, key, &length));
    return finish(&call) ? PyLong_FromLongLong(length) : NULL;
}

static PyObject *store_barrier(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames)
{
    static const char *const names[] = { "key", "size", "timeout", NULL };
    static const struct py_params params = { "barrier", names, 3, 2 };
    choir_bytes key;
    struct call call;
    int size = 0;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        py_read_int(call.given[1], "size", &size) < 0 ||
        py_read_timeout(call.given[2], &call.timeout_ms) < 0 ||
        take_text(&call, 0, "key", &key) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_barrier(call.store, key, size, call.timeout_ms));
    return finish(&call) ? Py_NewRef(Py_None) : NULL;
}

/* --- several keys ------------------------------------------------------------------------------------------------ */

static PyObject *multi_get(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const char *const names[] = { "keys", "timeout", NULL };
    static const struct py_params params = { "multi_get", names, 2, 1 };
    choir_blob *values = NULL;
    struct texts keys;
    struct call call;
    PyObject *result;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        py_read_timeout(call.given[1], &call.timeout_ms) < 0 ||
        texts_get(call.given[0], "keys", &keys) < 0)
        return refuse(&call);
    PY_CALL(&call,
            choir_store_multi_get(call.store, keys.bytes, keys.count, call.timeout_ms, &values));
    result = finish(&call) ? list_of(values, keys.count) : NULL;
    texts_release(&keys);
    return result;
}

static PyObject *multi_set(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    static const char *const names[] = { "keys", "values", NULL };
    static const struct py_params params = { "multi_set", names, 2, 2 };
    struct texts keys = { 0 }, values = { 0 };
    PyObject *result = NULL;
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0)
        return refuse(&call);
    if (texts_get(call.given[0], "keys", &keys) < 0 ||
        texts_get(call.given[1], "values", &values) < 0) {
        (void)refuse(&call);
    } else if (keys.count != values.count) {
        PyErr_Format(PyExc_ValueError, "values: %zu for %zu keys", values.count, keys.count);
        (void)refuse(&call);
    } else {
        PY_CALL(&call, choir_store_multi_set(call.store, keys.bytes, values.bytes, keys.count));
        result = finish(&call) ? Py_NewRef(Py_None) : NULL;
    }
    texts_release(&keys);
    texts_release(&values);
    return result;
}

static PyObject *store_check(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    static const char *const names[] = { "keys", NULL };
    static const struct py_params params = { "check", names, 1, 1 };
    struct texts keys;
    struct call call;
    bool all = false;
    PyObject *result;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        texts_get(call.given[0], "keys", &keys) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_check(call.store, keys.bytes, keys.count, &all));
    result = finish(&call) ? PyBool_FromLong(all) : NULL;
    texts_release(&keys);
    return result;
}

static PyObject *store_wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    static const char *const names[] = { "keys", "timeout", NULL };
    static const struct py_params params = { "wait", names, 2, 1 };
    struct texts keys;
    struct call call;
    PyObject *result;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        py_read_timeout(call.given[1], &call.timeout_ms) < 0 ||
        texts_get(call.given[0], "keys", &keys) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_wait(call.store, keys.bytes, keys.count, call.timeout_ms));
    result = finish(&call) ? Py_NewRef(Py_None) : NULL;
    texts_release(&keys);
    return result;
}

static const char *const no_names[] = { NULL };

static PyObject *store_count(PyObject *object, PyObject *unused)
{
    static const struct py_params params = { "count", no_names, 0, 0 };
    int64_t count = 0;
    struct call call;

    (void)unused;
    if (begin(&call, object, &params, NULL, 0, NULL) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_count(call.store, &count));
    return finish(&call) ? PyLong_FromLongLong(count) : NULL;
}

static PyObject *store_keys(PyObject *object, PyObject *unused)
{
    static const struct py_params params = { "keys", no_names, 0, 0 };
    choir_blob *keys = NULL;
    struct call call;
    size_t count = 0;

    (void)unused;
    if (begin(&call, object, &params, NULL, 0, NULL) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_list(call.store, &keys, &count));
    return finish(&call) ? list_of(keys, count) : NULL;
}

/* --- other handles -------------------------------------------------------------------------------------------------- */

static PyObject *derive(PyObject *object, const char *what,
                        choir_status (*make)(choir_store *, choir_store **))
{
    const struct py_params params = { what, no_names, 0, 0 };
    choir_store *made = NULL;
    struct call call;

    if (begin(&call, object, &params, NULL, 0, NULL) < 0)
        return refuse(&call);
    PY_CALL(&call, make(call.store, &made));
    return finish(&call) ? py_store_wrap(((struct py_store *)object)->state, made) : NULL;
}

static PyObject *store_clone(PyObject *self, PyObject *unused)
{
    (void)unused;
    return derive(self, "clone", choir_store_clone);
}

static PyObject *store_unprefixed(PyObject *self, PyObject *unused)
{
    (void)unused;
    return derive(self, "unprefixed", choir_store_unprefixed);
}

static PyObject *store_prefix(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    static const char *const names[] = { "prefix", NULL };
    static const struct py_params params = { "prefix", names, 1, 1 };
    choir_store *made = NULL;
    choir_bytes prefix;
    struct call call;

    if (begin(&call, object, &params, args, nargs, kwnames) < 0 ||
        take_text(&call, 0, "prefix", &prefix) < 0)
        return refuse(&call);
    PY_CALL(&call, choir_store_prefix(call.store, prefix, &made));
    return finish(&call) ? py_store_wrap(((struct py_store *)object)->state, made) : NULL;
}

static PyObject *tell(PyObject *object, const char *what, void (*call)(choir_store *store))
{
    struct py_store *self = (struct py_store *)object;
    choir_store *store = store_enter(self, what);

    if (store == NULL)
        return NULL;
    call(store);
    store_exit(self);
    Py_RETURN_NONE;
}

static PyObject *store_interrupt(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tell(self, "interrupt", choir_store_interrupt);
}

static PyObject *store_resume(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tell(self, "resume", choir_store_resume);
}

static PyObject *get_timeout(PyObject *object, void *unused)
{
    struct py_store *self = (struct py_store *)object;
    choir_store *store = store_enter(self, "timeout");
    int64_t ms;

    (void)unused;
    if (store == NULL)
        return NULL;
    ms = choir_store_timeout(store);
    store_exit(self);
    return PyFloat_FromDouble(ms < 0 ? INFINITY : (double)ms / 1e3);
}

static int set_timeout(PyObject *object, PyObject *value, void *unused)
{
    struct py_store *self = (struct py_store *)object;
    choir_store *store;
    int64_t ms = 0;
    choir_status rc;

    (void)unused;
    if (py_read_new_timeout(value, &ms) < 0 || (store = store_enter(self, "timeout")) == NULL)
        return -1;
    rc = choir_store_set_timeout(store, ms);
    if (rc != CHOIR_OK)
        py_raise_last(self->state);
    store_exit(self);
    return rc == CHOIR_OK ? 0 : -1;
}

/* --- opening ----------------------------------------------------------------------------------------------------------- */

static int read_token(struct py_state *state, PyObject *file, choir_token *token,
                      const choir_token **out)
{
    const char *path = NULL;

    if (py_read_text(file, "token_file", &path) < 0)
        return -1;
    if (path == NULL)
        return 0;
    if (choir_token_read(path, token) != CHOIR_OK) {
        py_raise_last(state);
        return -1;
    }
    *out = token;
    return 0;
}

static PyObject *open_store(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { URL, TIMEOUT, TOKEN_FILE, SIZE, RUN_ID, COUNT };
    static const char *const names[] = { "url", "timeout", "token_file", "size", "run_id", NULL };
    static const struct py_params params = { "open_store", names, 1, 1 };
    choir_store_open_opts opts = { .size = sizeof(opts) };
    struct py_state *state = py_state_of(module);
    PyObject *given[COUNT];
    choir_store *store = NULL;
    const char *url = NULL;
    choir_token token;
    choir_status rc;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_text(given[URL], "url", &url) < 0 ||
        py_read_timeout(given[TIMEOUT], &opts.timeout_ms) < 0 ||
        read_token(state, given[TOKEN_FILE], &token, &opts.token) < 0 ||
        py_read_int(given[SIZE], "size", &opts.nranks) < 0 ||
        py_read_text(given[RUN_ID], "run_id", &opts.run_id) < 0)
        return NULL;
    py_leave();
    rc = choir_store_open(url, &opts, &store);
    if (py_return()) {
        choir_store_close(store);
        return NULL;
    }
    return rc == CHOIR_OK ? py_store_wrap(state, store) : py_raise_last(state);
}

/* --- the type ------------------------------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    { "set", PY_METHOD(store_set), "set(key, value)\n\nCreate or overwrite." },
    { "get", PY_METHOD(store_get),
      "get(key, timeout=None) -> bytes\n\nWait until the key exists and fetch its value." },
    { "add", PY_METHOD(store_add),
      "add(key, amount) -> int\n\nAdd to a decimal number; a missing one counts as 0." },
    { "compare_set", PY_METHOD(compare_set),
      "compare_set(key, expected, desired) -> bytes\n\n"
      "If the value is `expected` (a missing one is, if that is empty): store `desired` and give it.\n"
      "Otherwise give the present value; if there is none, `expected`." },
    { "append", PY_METHOD(store_append), "append(key, value)\n\nPut bytes behind the value." },
    { "delete", PY_METHOD(store_delete),
      "delete(key) -> bool\n\nRemove a value; whether there was one." },
    { "multi_get", PY_METHOD(multi_get),
      "multi_get(keys, timeout=None) -> list\n\nget for several keys at once, in their order." },
    { "multi_set", PY_METHOD(multi_set), "multi_set(keys, values)\n\nset for several keys." },
    { "check", PY_METHOD(store_check),
      "check(keys) -> bool\n\nWhether all of them exist, without waiting." },
    { "wait", PY_METHOD(store_wait), "wait(keys, timeout=None)\n\nWait until all of them exist." },
    { "count", store_count, METH_NOARGS,
      "count() -> int\n\nHow many values there are in all, under whatever prefix." },
    { "keys", store_keys, METH_NOARGS,
      "keys() -> list\n\nThe keys below this handle's prefix, without it, in no order." },
    { "queue_push", PY_METHOD(queue_push), "queue_push(key, value)\n\nPut behind a queue." },
    { "queue_pop", PY_METHOD(queue_pop),
      "queue_pop(key, timeout=None) -> bytes\n\nThe oldest element, waiting for one." },
    { "queue_try_pop", PY_METHOD(queue_try_pop),
      "queue_try_pop(key) -> bytes\n\nThe oldest element; QueueEmptyError if there is none." },
    { "queue_length", PY_METHOD(queue_length), "queue_length(key) -> int" },
    { "barrier", PY_METHOD(store_barrier),
      "barrier(key, size, timeout=None)\n\nReturn when `size` callers have called it with this key." },
    { "clone", store_clone, METH_NOARGS,
      "clone() -> Store\n\nAnother handle to the same data, with a time-out of its own." },
    { "prefix", PY_METHOD(store_prefix),
      "prefix(prefix) -> Store\n\nA handle that puts `prefix` and \"/\" in front of every key." },
    { "unprefixed", store_unprefixed, METH_NOARGS,
      "unprefixed() -> Store\n\nA handle to the same data without any prefix." },
    { "interrupt", store_interrupt, METH_NOARGS,
      "interrupt()\n\nMake every wait on this handle, also those to come, raise InterruptedError." },
    { "resume", store_resume, METH_NOARGS, "resume()\n\nUndo interrupt()." },
    { "close", store_close, METH_NOARGS, "close()\n\nEnd this handle; others stay." },
    { "__enter__", with_enter, METH_NOARGS, NULL },
    { "__exit__", store_leave, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
    { "timeout", get_timeout, set_timeout,
      "How long waits last that are not told otherwise, in seconds; math.inf: for ever.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char doc[] =
    "A small dictionary through which processes find each other. Made by choir.open_store(). Keys and\n"
    "values are bytes or str; what comes back is bytes.";

static PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },
    { Py_tp_dealloc, store_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, properties },
    { 0, NULL },
};

static PyType_Spec spec = {
    .name = "choir.Store",
    .basicsize = sizeof(struct py_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

/* --- a server -------------------------------------------------------------------------------------------------------------- */

struct py_server {
    PyObject_HEAD struct py_state *state;
    choir_store_server *server; /* NULL: closed */
};

static void end_server(struct py_server *self)
{
    choir_store_server *server = self->server;

    self->server = NULL;
    py_leave_quietly();
    choir_store_server_destroy(server);
    (void)py_return();
}

static void server_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    end_server((struct py_server *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *server_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    end_server((struct py_server *)object);
    Py_RETURN_NONE;
}

static PyObject *server_leave(PyObject *self, PyObject *args)
{
    (void)args;
    return server_close(self, NULL);
}

static PyObject *serve_store(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    enum { BIND, TOKEN_FILE, TORCH_BIND, COUNT };
    static const char *const names[] = { "bind", "token_file", "torch_bind", NULL };
    static const struct py_params params = { "serve_store", names, 1, 0 };
    choir_store_server_create_opts opts = { .size = sizeof(opts) };
    struct py_state *state = py_state_of(module);
    struct py_server *self;
    PyObject *given[COUNT];
    choir_token token;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_text(given[BIND], "bind", &opts.bind) < 0 ||
        read_token(state, given[TOKEN_FILE], &token, &opts.token) < 0 ||
        py_read_text(given[TORCH_BIND], "torch_bind", &opts.torch_bind) < 0)
        return NULL;
    self = (struct py_server *)PyType_GenericAlloc(state->server_type, 0);
    if (self == NULL)
        return NULL;
    self->state = state;
    if (choir_store_server_create(&opts, &self->server) == CHOIR_OK)
        return (PyObject *)self;
    py_raise_last(state);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *text_or_none(const char *text)
{
    if (text == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(text);
}

static PyObject *get_address(PyObject *object, void *unused)
{
    struct py_server *self = (struct py_server *)object;

    (void)unused;
    return text_or_none(self->server == NULL ? NULL : choir_store_server_address(self->server));
}

static PyObject *get_torch_address(PyObject *object, void *unused)
{
    struct py_server *self = (struct py_server *)object;

    (void)unused;
    return text_or_none(self->server == NULL ? NULL
                                             : choir_store_server_torch_address(self->server));
}

static PyMethodDef server_methods[] = {
    { "close", server_close, METH_NOARGS, "close()\n\nEnd it; what was stored is gone." },
    { "__enter__", with_enter, METH_NOARGS, NULL },
    { "__exit__", server_leave, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef server_properties[] = {
    { "address", get_address, NULL, "Where it listens, \"127.0.0.1:40123\"; None once closed.",
      NULL },
    { "torch_address", get_torch_address, NULL, "Where it speaks PyTorch's protocol, or None.",
      NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static const char server_doc[] =
    "A store served over TCP by a thread of this process. Made by choir.serve_store().";

static PyType_Slot server_slots[] = {
    { Py_tp_doc, (void *)server_doc },
    { Py_tp_dealloc, server_dealloc },
    { Py_tp_methods, server_methods },
    { Py_tp_getset, server_properties },
    { 0, NULL },
};

static PyType_Spec server_spec = {
    .name = "choir.StoreServer",
    .basicsize = sizeof(struct py_server),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = server_slots,
};

static PyMethodDef functions[] = {
    { "open_store", PY_METHOD(open_store),
      "open_store(url, *, timeout=None, token_file=None, size=None, run_id=None) -> Store\n\n"
      "Open the store at `url`: hash:// (inside this process), file:///path, tcp://host:port (a\n"
      "server of ours), tcp://host:port?protocol=torch (PyTorch's TCPStore)." },
    { "serve_store", PY_METHOD(serve_store),
      "serve_store(bind=\"127.0.0.1:0\", *, token_file=None, torch_bind=None) -> StoreServer\n\n"
      "Serve a store over TCP, on a thread of its own; `torch_bind`: in PyTorch's protocol too." },
    { NULL, NULL, 0, NULL },
};

int py_store_add(struct py_state *state)
{
    state->store_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &spec, NULL);
    state->server_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &server_spec,
                                                                  NULL);
    if (state->store_type == NULL || state->server_type == NULL ||
        PyModule_AddType(state->module, state->store_type) < 0 ||
        PyModule_AddType(state->module, state->server_type) < 0)
        return -1;
    return PyModule_AddFunctions(state->module, functions);
}
