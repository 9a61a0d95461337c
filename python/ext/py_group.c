/*
 * py_group.c - the object choir.Group: joining, leaving, deriving. What tells about a group is in py_group_info.c,
 * its operations in py_coll.c and its neighbours.
 */
#include "choirext.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

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
    struct py_lent *unwaited = self->unwaited;

    self->group = NULL;
    self->unwaited = NULL;
    unlink_group(self);
    py_leave_quietly();
    choir_group_destroy(group);
    (void)py_return();
    py_lent_destroy(unwaited); /* everything is done now */
}

choir_group *py_group_enter(struct py_group *self, const char *operation)
{
    if (self->unwaited != NULL)
        py_lent_reap(&self->unwaited); /* runs code that may close the group */
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
    if (self->closing && self->nusing == 0 && self->group != NULL)
        destroy(self);
}

PyObject *py_group_wrap(struct py_state *state, choir_group *group)
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

/* --- the end of one that was forgotten ------------------------------------------------------------------- */

void py_ending_begins(struct py_state *state)
{
    if (state->ending.process != getpid())
        state->ending.count = 0;
    state->ending.process = getpid();
    state->ending.count++;
}

void py_ending_is_over(struct py_state *state)
{
    if (state->ending.process == getpid())
        state->ending.count--;
}

void py_pause_ms(void)
{
    const struct timespec moment = { 0, 1000000 };

    py_leave_quietly();
    nanosleep(&moment, NULL);
    (void)py_return();
}

/* Let whoever uses it on another thread come back, for a while. */
static bool wait_for_users(struct py_group *self)
{
    for (int ms = 0; self->nusing > 1 && ms < PY_PATIENCE_MS; ms++)
        py_pause_ms();
    return self->nusing <= 1;
}

/* Let what is under way go on for a while. CHOIR_ERR_STATE: not here, in a callback, which may be part of it; in a forked
 * child nothing here waits. Another failure: a callback does not return, and the group cannot end. */
static choir_status let_finish(choir_group *group, int64_t timeout_ms)
{
    choir_status rc = choir_group_wait_pending(group, timeout_ms);

    if (rc != CHOIR_OK && rc != CHOIR_ERR_FORKED && rc != CHOIR_ERR_STATE) {
        choir_group_abort(group);
        rc = choir_group_wait_pending(group, PY_PATIENCE_MS);
    }
    return rc;
}

struct rest {
    struct py_state *state;
    choir_group *group;
    struct py_lent *unwaited;
};

static void end_rest(void *arg)
{
    struct rest *rest = arg;
    PyGILState_STATE held;
    bool done = let_finish(rest->group, PY_GRACE_MS) == CHOIR_OK;

    if (done)
        choir_group_destroy(rest->group);
    held = PyGILState_Ensure();
    if (done)
        py_lent_destroy(rest->unwaited);
    py_ending_is_over(rest->state);
    PyMem_Free(rest);
    PyGILState_Release(held);
}

/* Have it ended by a thread of its own. False: there is none to be had. */
static bool end_elsewhere(struct py_group *self)
{
    struct rest *rest = PyMem_Malloc(sizeof(*rest));

    if (rest == NULL)
        return false;
    *rest = (struct rest){ self->state, self->group, self->unwaited };
    if (PyThread_start_new_thread(end_rest, rest) == (unsigned long)-1) {
        PyMem_Free(rest);
        return false;
    }
    /* It cannot be over before this thread lets the interpreter go. */
    py_ending_begins(self->state);
    self->unwaited = NULL;
    return true;
}

/* Whoever still uses it, or ends it, has it. */
static void let_go(struct py_group *self)
{
    self->group = NULL;
    unlink_group(self);
}

/* As of one that nobody closed. False with an exception, a signal handler's: it has ended all the same. */
static bool end_gently(struct py_group *self)
{
    choir_status rc;
    bool raised;

    self->closing = true;
    self->nusing++;
    py_leave();
    rc = let_finish(self->group, self->nusing > 1 ? 1 : PY_GRACE_MS);
    raised = py_return();
    /* What a thread of its own ends nobody else may be about to use. */
    if (rc == CHOIR_ERR_STATE && (!wait_for_users(self) || !end_elsewhere(self))) {
        choir_group_abort(self->group);
        rc = CHOIR_OK;
    }
    /* One that is still in use ends with the process. */
    if (rc != CHOIR_OK || !wait_for_users(self))
        let_go(self);
    py_group_exit(self);
    return !raised;
}

static void end_forgotten(struct py_group *self)
{
    if (!end_gently(self))
        PyErr_WriteUnraisable(NULL); /* there is nobody to raise it to */
}

/* Also those that end on other threads, which need the interpreter for it. */
void py_groups_end(struct py_state *state)
{
    while (state->groups != NULL) {
        PyObject *self = Py_NewRef((PyObject *)state->groups);

        end_forgotten((struct py_group *)self);
        Py_DECREF(self);
    }
    for (int ms = 0; ms < PY_GRACE_MS + PY_PATIENCE_MS; ms++) {
        if (state->ending.count == 0 || state->ending.process != getpid())
            break;
        py_pause_ms();
    }
}

/* What is lent to works under way is the library's: not to be collected. */
static int traverse(PyObject *object, visitproc visit, void *arg)
{
    struct py_group *self = (struct py_group *)object;

    Py_VISIT(Py_TYPE(object));
    return py_lent_visit_done(self->unwaited, visit, arg);
}

static int clear(PyObject *object)
{
    struct py_group *self = (struct py_group *)object;

    py_lent_reap(&self->unwaited);
    return 0;
}

/* Out of the list first: ending lets other threads run, and what they find there can be referred to. */
static void dealloc(PyObject *object)
{
    struct py_group *self = (struct py_group *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *kind, *value, *trace;

    PyObject_GC_UnTrack(object);
    unlink_group(self);
    PyErr_Fetch(&kind, &value, &trace);
    if (self->group != NULL) {
        py_ending_begins(self->state);
        end_forgotten(self);
        py_ending_is_over(self->state);
    }
    PyErr_Restore(kind, value, trace);
    py_batches_forget(self);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* --- leaving --------------------------------------------------------------------------------------------- */

static PyObject *group_close(PyObject *object, PyObject *unused)
{
    struct py_group *self = (struct py_group *)object;
    bool raised = false;

    (void)unused;
    if (self->group == NULL || self->closing)
        Py_RETURN_NONE;
    self->closing = true; /* whoever is the last to use it destroys it */
    self->nusing++;
    py_leave();
    if (self->nusing > 1)
        choir_group_abort(self->group);
    else
        (void)choir_group_wait_pending(self->group, 0);
    raised = py_return();
    if (raised)
        choir_group_abort(self->group);
    py_group_exit(self);
    return raised ? NULL : Py_NewRef(Py_None);
}

static PyObject *group_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* An exception is not to wait for the others, who may wait for what this rank does not do any more. */
static PyObject *group_leave(PyObject *object, PyObject *args)
{
    struct py_group *self = (struct py_group *)object;

    if (!py_leaves_by_exception(args) || self->group == NULL || self->closing)
        return group_close(object, NULL);
    return end_gently(self) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *group_abort(PyObject *object, PyObject *unused)
{
    struct py_group *self = (struct py_group *)object;

    (void)unused;
    if (self->group == NULL)
        return py_raise(self->state, CHOIR_ERR_STATE, "abort", "abort: the group is closed");
    self->nusing++; /* also while another thread closes it, which may wait for long */
    py_leave_quietly();
    choir_group_abort(self->group);
    (void)py_return();
    py_group_exit(self);
    Py_RETURN_NONE;
}

/* --- waiting for all of it --------------------------------------------------------------------------------- */

static PyObject *wait_for_all(PyObject *object, const struct py_params *params,
                              PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                              choir_status (*call)(choir_group *group, int64_t timeout_ms))
{
    struct py_group *self = (struct py_group *)object;
    int64_t timeout_ms = 0;
    PyObject *given[1], *result = NULL;
    choir_group *group;
    choir_status rc;
    bool raised;

    if (py_params_read(params, args, nargs, kwnames, given) < 0 ||
        py_read_timeout(given[0], &timeout_ms) < 0 ||
        (group = py_group_enter(self, params->method)) == NULL)
        return NULL;
    py_leave();
    rc = call(group, timeout_ms);
    raised = py_return();
    if (!raised)
        result = rc == CHOIR_OK ? Py_NewRef(Py_None) : py_raise_last(self->state);
    py_group_exit(self);
    return result;
}

static const char *const timeout_alone[] = { "timeout", NULL };

static PyObject *wait_pending(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    static const struct py_params params = { "wait_pending", timeout_alone, 1, 0 };

    return wait_for_all(self, &params, args, nargs, kwnames, choir_group_wait_pending);
}

static PyObject *group_shutdown(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    static const struct py_params params = { "shutdown", timeout_alone, 1, 0 };

    return wait_for_all(self, &params, args, nargs, kwnames, choir_group_shutdown);
}

/* --- deriving ------------------------------------------------------------------------------------------------- */

/* To be freed; NULL with an exception. */
static int *read_ranks(PyObject *given, size_t *count_out)
{
    PyObject *tuple = PySequence_Tuple(given);
    Py_ssize_t count = tuple == NULL ? -1 : PyTuple_Size(tuple);
    int *ranks = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(*ranks));

    if (count >= 0 && ranks == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; ranks != NULL && i < count; i++) {
        if (py_read_int(PyTuple_GetItem(tuple, i), "ranks", &ranks[i]) < 0) {
            PyMem_Free(ranks);
            ranks = NULL;
        }
    }
    Py_XDECREF(tuple);
    *count_out = (size_t)count;
    return ranks;
}

static PyObject *split_by(struct py_group *self, choir_group *group, const int *ranks, size_t count,
                          const choir_group_split_opts *opts)
{
    choir_group *child = NULL;
    choir_status rc;
    bool raised;

    py_leave();
    rc = choir_group_split(group, ranks, count, opts, &child);
    raised = py_return();
    if (raised) {
        choir_group_destroy(child);
        return NULL;
    }
    if (rc != CHOIR_OK)
        return py_raise_last(self->state);
    return child != NULL ? py_group_wrap(self->state, child) : Py_NewRef(Py_None);
}

static PyObject *split(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { RANKS, NAME, DESCRIPTION, TIMEOUT, COUNT };
    static const char *const names[] = { "ranks", "name", "description", "timeout", NULL };
    static const struct py_params params = { "split", names, 1, 1 };
    struct py_group *self = (struct py_group *)object;
    choir_group_split_opts opts = { .size = sizeof(opts) };
    PyObject *given[COUNT], *result;
    choir_group *group;
    size_t count;
    int *ranks;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_text(given[NAME], "name", &opts.name) < 0 ||
        py_read_text(given[DESCRIPTION], "description", &opts.description) < 0 ||
        py_read_timeout(given[TIMEOUT], &opts.timeout_ms) < 0 ||
        (ranks = read_ranks(given[RANKS], &count)) == NULL)
        return NULL;
    group = py_group_enter(self, "split");
    result = group == NULL ? NULL : split_by(self, group, ranks, count, &opts);
    if (group != NULL)
        py_group_exit(self);
    PyMem_Free(ranks);
    return result;
}

/* --- joining ------------------------------------------------------------------------------------------ */

/* Who brings rank 0's word to the others, and what was raised meanwhile. */
struct carrier {
    PyObject *callable; /* borrowed; or NULL */
    PyObject *type, *value, *trace;
};

/* On rank 0 there is a word to tell, on the others room for what is returned. */
static int call_carrier(const struct carrier *self, char *word, size_t room)
{
    PyObject *told = word[0] != '\0' ? PyObject_CallFunction(self->callable, "s", word)
                                     : PyObject_CallFunction(self->callable, "O", Py_None);
    const char *text = NULL;
    int rc = -1;

    if (told == NULL)
        return -1;
    if (word[0] != '\0') {
        rc = 0;
    } else if (py_read_text(told, "what carry() returns", &text) == 0) {
        rc = (size_t)snprintf(word, room, "%s", text) < room ? 0 : -1;
        if (rc < 0)
            PyErr_SetString(PyExc_ValueError, "carry() returned more than a word of rank 0's");
    }
    Py_DECREF(told);
    return rc;
}

static choir_status carry(void *arg, char *word, size_t room, int64_t timeout_ms)
{
    struct carrier *self = arg;
    struct py_visit visit = py_visit_begin();
    int rc = call_carrier(self, word, room);

    (void)timeout_ms;
    if (rc < 0)
        PyErr_Fetch(&self->type, &self->value, &self->trace);
    py_visit_end(visit);
    return rc < 0 ? CHOIR_ERR_NETWORK : CHOIR_OK;
}

/* What is given stays the caller's. The store, if there is one, is in use until py_store_exit(). */
static int read_init(struct py_state *state, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames, choir_init_opts *opts, struct carrier *carrier,
                     PyObject **store_out)
{
    enum { URL, RANK, SIZE, TIMEOUT, NAME, TOKEN_FILE, STORE, CARRY, COUNT };
    static const char *const names[] = { "url",        "rank",  "size",  "timeout", "name",
                                         "token_file", "store", "carry", NULL };
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
    carrier->callable = given[CARRY];
    if (given[CARRY] != NULL && !PyCallable_Check(given[CARRY])) {
        PyErr_SetString(PyExc_TypeError, "init(): carry is not callable");
        return -1;
    }
    opts->carry = given[CARRY] != NULL ? carry : NULL;
    opts->carry_arg = carrier;
    if (given[STORE] == NULL)
        return 0;
    opts->store = py_store_enter(state, given[STORE], "init");
    *store_out = given[STORE];
    return opts->store != NULL ? 0 : -1;
}

static PyObject *join(struct py_state *state, const choir_init_opts *opts, struct carrier *carrier)
{
    choir_group *group = NULL;
    choir_status rc;
    bool raised;

    py_leave();
    rc = choir_init(&group, opts);
    raised = py_return();
    if (carrier->type != NULL) {
        PyErr_Restore(carrier->type, carrier->value, carrier->trace);
        raised = true;
    }
    if (raised) {
        choir_group_destroy(group);
        return NULL;
    }
    return rc == CHOIR_OK ? py_group_wrap(state, group) : py_raise_last(state);
}

static PyObject *init(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    struct py_state *state = py_state_of(module);
    choir_init_opts opts = { .size = sizeof(opts) };
    struct carrier carrier = { 0 };
    PyObject *store = NULL, *group;

    if (read_init(state, args, nargs, kwnames, &opts, &carrier, &store) < 0)
        return NULL;
    group = join(state, &opts, &carrier);
    if (store != NULL)
        py_store_exit(store); /* another thread may have closed it meanwhile */
    return group;
}

static PyObject *fake_group(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    enum { RANK, SIZE, FAILS, COUNT };
    static const char *const names[] = { "rank", "size", "error_on_collective", NULL };
    static const struct py_params params = { "fake_group", names, 2, 2 };
    choir_group_create_fake_opts opts = { .size = sizeof(opts) };
    struct py_state *state = py_state_of(module);
    PyObject *given[COUNT];
    choir_group *group;
    int rank = 0, size = 0;

    if (py_params_read(&params, args, nargs, kwnames, given) < 0 ||
        py_read_int(given[RANK], "rank", &rank) < 0 ||
        py_read_int(given[SIZE], "size", &size) < 0 ||
        py_read_bool(given[FAILS], &opts.error_on_collective) < 0)
        return NULL;
    if (choir_group_create_fake(rank, size, &opts, &group) != CHOIR_OK)
        return py_raise_last(state);
    return py_group_wrap(state, group);
}

static PyMethodDef functions[] = {
    { "init", PY_METHOD(init),
      "init(url=None, *, rank=None, size=None, timeout=None, name=None, token_file=None, "
      "store=None, carry=None) -> Group\n\n"
      "Join the job: find out who and where the other ranks are, and meet them.\n\n"
      "Without arguments the environment of whoever started this process is asked: choir run,\n"
      "torchrun, mpirun, srun; if nobody did, it is a job of one rank. `url` names another place to\n"
      "meet (tcp://host:port, file:///path), with `rank` and `size`; or `store` does; or a word of\n"
      "rank 0's, which the caller brings to the others: carry(word) is called there with it, and\n"
      "elsewhere, with None, returns it. Who sees it may join; `url` then only tells how ranks reach\n"
      "each other. `timeout`, in seconds, is for everything together. Blocks until all ranks have\n"
      "joined." },
    { "fake_group", PY_METHOD(fake_group),
      "fake_group(rank, size, *, error_on_collective=False) -> Group\n\n"
      "A group without peers, for tracing and for checking arguments: every operation is done at\n"
      "once." },
    { NULL, NULL, 0, NULL },
};

/* --- the type ----------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    { "split", PY_METHOD(split),
      "split(ranks, *, name=None, description=None, timeout=None) -> Group | None\n\n"
      "A group of some of the ranks, in rising order. All ranks call it, each with the list it\n"
      "belongs to or with an empty one; who is in no list gets None." },
    { "wait_pending", PY_METHOD(wait_pending),
      "wait_pending(timeout=None)\n\nWait until everything issued is done and its callbacks have "
      "run." },
    { "shutdown", PY_METHOD(group_shutdown),
      "shutdown(timeout=None)\n\nThe same, and refuse what comes after." },
    { "abort", group_abort, METH_NOARGS,
      "abort()\n\nEnd at once, without agreement: everything pending and to come fails, here and on "
      "the other\nranks." },
    { "close", group_close, METH_NOARGS,
      "close()\n\nLeave, when everything issued is done. A program may go on and join again." },
    { "__enter__", group_enter, METH_NOARGS, NULL },
    { "__exit__", group_leave, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static const char doc[] =
    "The ranks that joined together, and their operations. Made by choir.init().\n\n"
    "Every operation takes, by name: `timeout` in seconds (None: the group's own; math.inf: none),\n"
    "`async_op` to get a Work at once instead of the result when it is done, `dtype` to read memory as\n"
    "elements of that name (\"bf16\"), `algo` to choose an algorithm. Buffers are anything with the\n"
    "buffer protocol or DLPack in host memory; nothing is copied.";

static PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },    { Py_tp_dealloc, dealloc },
    { Py_tp_methods, methods },    { Py_tp_getset, py_group_properties },
    { Py_tp_repr, py_group_repr }, { Py_tp_traverse, traverse },
    { Py_tp_clear, clear },        { 0, NULL },
};

static PyType_Spec spec = {
    .name = "choir.Group",
    .basicsize = sizeof(struct py_group),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int py_group_add(struct py_state *state)
{
    PyMethodDef *more[] = { py_info_methods, py_coll_methods,   py_list_methods,
                            py_p2p_methods,  py_sparse_methods, py_batch_methods };

    state->group_type = (PyTypeObject *)PyType_FromModuleAndSpec(state->module, &spec, NULL);
    if (state->group_type == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (py_add_methods(state->group_type, more[i]) < 0)
            return -1;
    }
    if (PyModule_AddFunctions(state->module, functions) < 0)
        return -1;
    return PyModule_AddType(state->module, state->group_type);
}
