/*
 * py_lent.c - the memory that one call borrows, until it is done.
 */
#include "choirext.h"

#include <unistd.h>

void py_lent_init(struct py_lent *lent)
{
    lent->next = NULL;
    lent->work = NULL;
    lent->object = NULL;
    lent->nsingle = lent->nlists = 0;
}

struct py_lent *py_lent_create(void)
{
    struct py_lent *lent = PyMem_Malloc(sizeof(*lent));

    if (lent == NULL)
        PyErr_NoMemory();
    else
        py_lent_init(lent);
    return lent;
}

static void release_list(struct py_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        py_buf_release(&list->held[i]);
    PyMem_Free(list->held);
    PyMem_Free(list->bufs);
}

void py_lent_release(struct py_lent *lent)
{
    for (int i = 0; i < lent->nsingle; i++)
        py_buf_release(&lent->single[i]);
    for (int i = 0; i < lent->nlists; i++)
        release_list(&lent->lists[i]);
    lent->nsingle = lent->nlists = 0;
    Py_CLEAR(lent->object);
}

void py_lent_destroy(struct py_lent *lent)
{
    while (lent != NULL) {
        struct py_lent *next = lent->next;

        py_lent_release(lent);
        choir_work_unref(lent->work);
        PyMem_Free(lent);
        lent = next;
    }
}

/* --- until it is done ---------------------------------------------------------------------------------------- */

void py_lent_keep(struct py_lent **list, choir_work *work, struct py_lent *lent)
{
    struct py_lent *last = lent;
    pid_t process = getpid();

    /* Those of a batch hang together: one work stands for all. */
    for (struct py_lent *l = lent; l != NULL; l = l->next) {
        l->work = choir_work_ref(work);
        l->process = process;
        last = l;
    }
    choir_work_unref(work);
    if (lent == NULL)
        return;
    last->next = *list;
    *list = lent;
}

static bool is_done(const struct py_lent *lent)
{
    double ms;

    return choir_work_duration_ms(lent->work, &ms) == CHOIR_OK;
}

void py_lent_reap(struct py_lent **list)
{
    struct py_lent **at = list, *done = NULL;
    pid_t process = getpid();

    while (*at != NULL) {
        struct py_lent *lent = *at;

        if (lent->process != process) {
            *at =
                lent->next; /* a forked child has the parent's works only as they were, for ever */
        } else if (is_done(lent)) {
            *at = lent->next;
            lent->next = done;
            done = lent;
        } else {
            at = &lent->next;
        }
    }
    py_lent_destroy(done); /* may run any code: the list is whole by now */
}

/* --- the collector ------------------------------------------------------------------------------------------- */

/* What a DLPack tensor holds is its maker's secret. */
static int visit_buf(const struct py_buf *buf, visitproc visit, void *arg)
{
    if (buf->lender == PY_VIEW)
        Py_VISIT(buf->view.obj);
    return 0;
}

static int visit_one(const struct py_lent *lent, visitproc visit, void *arg)
{
    int rc = 0;

    Py_VISIT(lent->object);
    for (int i = 0; i < lent->nsingle && rc == 0; i++)
        rc = visit_buf(&lent->single[i], visit, arg);
    for (int i = 0; i < lent->nlists; i++) {
        for (size_t j = 0; j < lent->lists[i].count && rc == 0; j++)
            rc = visit_buf(&lent->lists[i].held[j], visit, arg);
    }
    return rc;
}

int py_lent_visit(const struct py_lent *lent, visitproc visit, void *arg)
{
    int rc = 0;

    for (; lent != NULL && rc == 0; lent = lent->next)
        rc = visit_one(lent, visit, arg);
    return rc;
}

int py_lent_visit_done(const struct py_lent *lent, visitproc visit, void *arg)
{
    int rc = 0;

    for (; lent != NULL && rc == 0; lent = lent->next) {
        if (is_done(lent))
            rc = visit_one(lent, visit, arg);
    }
    return rc;
}

/* --- single buffers ------------------------------------------------------------------------------------------ */

choir_buf *py_lend(struct py_state *state, struct py_lent *lent, PyObject *object, unsigned access,
                   PyObject *type)
{
    struct py_buf *buf = &lent->single[lent->nsingle];

    if (py_buf_get(state, object, access, type, buf) < 0)
        return NULL;
    lent->nsingle++;
    return &buf->buf;
}

/* --- lists ------------------------------------------------------------------------------------------------- */

/* An empty list with room for `count`. */
static struct py_list *open_list(struct py_lent *lent, size_t count)
{
    struct py_list *list = &lent->lists[lent->nlists];

    list->count = 0;
    list->bufs = PyMem_Calloc(count + 1, sizeof(*list->bufs));
    list->held = PyMem_Calloc(count + 1, sizeof(*list->held));
    lent->nlists++;
    if (list->bufs != NULL && list->held != NULL)
        return list;
    PyErr_NoMemory();
    return NULL;
}

/* Memory is held as if it were to outlast the call: an argument does, but another thread may take elements out of a list
 * meanwhile. */
static int fill_list(struct py_state *state, struct py_list *list, PyObject *tuple, unsigned access,
                     PyObject *type)
{
    Py_ssize_t count = PyTuple_Size(tuple);

    for (Py_ssize_t i = 0; i < count; i++) {
        struct py_buf *held = &list->held[list->count];

        if (py_buf_get(state, PyTuple_GetItem(tuple, i), access | PY_LASTING, type, held) < 0)
            return -1;
        list->bufs[list->count++] = held->buf;
    }
    return 0;
}

/* A tensor is a sequence too, of its rows: that is never what was meant. */
bool py_is_list(PyObject *object)
{
    if (PyList_Check(object) || PyTuple_Check(object))
        return true;
    return !PyObject_CheckBuffer(object) && PySequence_Check(object) && !PyUnicode_Check(object) &&
           !PyDict_Check(object) && !PyObject_HasAttrString(object, "__dlpack__");
}

static PyObject *tuple_of(PyObject *sequence, const char *name)
{
    if (py_is_list(sequence))
        return PySequence_Tuple(sequence);
    PyErr_Format(PyExc_TypeError, "%s: a list of buffers is expected, not %R", name,
                 (PyObject *)Py_TYPE(sequence));
    return NULL;
}

struct py_list *py_lend_list(struct py_state *state, struct py_lent *lent, PyObject *sequence,
                             const char *name, unsigned access, PyObject *type)
{
    PyObject *tuple = tuple_of(sequence, name);
    struct py_list *list = NULL;

    if (tuple == NULL)
        return NULL;
    list = open_list(lent, (size_t)PyTuple_Size(tuple));
    if (list != NULL && fill_list(state, list, tuple, access, type) < 0)
        list = NULL;
    Py_DECREF(tuple);
    return list;
}

/* How many there are in all; -1 with an exception. */
static Py_ssize_t count_all(PyObject *tuples, const char *name)
{
    Py_ssize_t sum = 0;

    for (Py_ssize_t i = 0; i < PyTuple_Size(tuples); i++) {
        PyObject *tuple = PyTuple_GetItem(tuples, i);

        Py_ssize_t count = py_is_list(tuple) ? PySequence_Size(tuple) : -1;

        if (count < 0) {
            PyErr_Format(PyExc_TypeError, "%s: a list of lists is expected, not of %R", name,
                         (PyObject *)Py_TYPE(tuple));
            return -1;
        }
        sum += count;
    }
    return sum;
}

static int fill_lists(struct py_state *state, struct py_list *list, PyObject *tuples, size_t room,
                      unsigned access, PyObject *type)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuples); i++) {
        PyObject *tuple = PySequence_Tuple(PyTuple_GetItem(tuples, i));
        int rc = -1;

        if (tuple != NULL && list->count + (size_t)PyTuple_Size(tuple) <= room)
            rc = fill_list(state, list, tuple, access, type);
        else if (tuple != NULL)
            PyErr_SetString(PyExc_RuntimeError, "a list has changed while it was read");
        Py_XDECREF(tuple);
        if (rc < 0)
            return -1;
    }
    return 0;
}

struct py_list *py_lend_lists(struct py_state *state, struct py_lent *lent, PyObject *sequences,
                              const char *name, unsigned access, PyObject *type)
{
    PyObject *tuples = tuple_of(sequences, name);
    Py_ssize_t count = tuples == NULL ? -1 : count_all(tuples, name);
    struct py_list *list = count < 0 ? NULL : open_list(lent, (size_t)count);

    if (list != NULL && fill_lists(state, list, tuples, (size_t)count, access, type) < 0)
        list = NULL;
    Py_XDECREF(tuples);
    return list;
}
