/*
 * py_group_info.c - what a group tells about itself and its ranks.
 */
#include "choirext.h"

#include <math.h>

/* --- properties that are one question ------------------------------------------------------------------------ */

/* The question, with the group open meanwhile. */
static PyObject *ask(PyObject *object, const char *what,
                     PyObject *(*question)(struct py_state *state, choir_group *group))
{
    struct py_group *self = (struct py_group *)object;
    choir_group *group = py_group_enter(self, what);
    PyObject *answer;

    if (group == NULL)
        return NULL;
    answer = question(self->state, group);
    py_group_exit(self);
    return answer;
}

#define PROPERTY(name, answer)                                                                     \
    static PyObject *ask_##name(struct py_state *state, choir_group *group)                        \
    {                                                                                              \
        (void)state;                                                                               \
        return answer;                                                                             \
    }                                                                                              \
    static PyObject *get_##name(PyObject *self, void *unused)                                      \
    {                                                                                              \
        (void)unused;                                                                              \
        return ask(self, #name, ask_##name);                                                       \
    }

static PyObject *seconds_of(int64_t ms)
{
    return PyFloat_FromDouble(ms < 0 ? INFINITY : (double)ms / 1e3);
}

static PyObject *error_of(struct py_state *state, choir_group *group)
{
    choir_error record;

    if (choir_group_error(group, &record) == CHOIR_OK)
        Py_RETURN_NONE;
    return py_error_from(state, &record);
}

/* A handle of its own, which outlives the group. */
static PyObject *store_of(struct py_state *state, choir_group *group)
{
    choir_store *store = choir_group_store(group), *clone;

    if (store == NULL)
        Py_RETURN_NONE;
    if (choir_store_clone(store, &clone) != CHOIR_OK)
        return py_raise_last(state);
    return py_store_wrap(state, clone);
}

PROPERTY(rank, PyLong_FromLong(choir_group_rank(group)))
PROPERTY(size, PyLong_FromLong(choir_group_size(group)))
PROPERTY(local_rank, PyLong_FromLong(choir_group_local_rank(group)))
PROPERTY(local_size, PyLong_FromLong(choir_group_local_size(group)))
PROPERTY(processors, PyLong_FromLong(choir_group_processors(group)))
PROPERTY(name, PyUnicode_FromString(choir_group_name(group)))
PROPERTY(description, PyUnicode_FromString(choir_group_description(group)))
PROPERTY(origin, PyUnicode_FromString(choir_group_origin(group)))
PROPERTY(collective_sequence, PyLong_FromUnsignedLongLong(choir_group_collective_sequence(group)))
PROPERTY(p2p_sequence, PyLong_FromUnsignedLongLong(choir_group_p2p_sequence(group)))
PROPERTY(timeout, seconds_of(choir_group_timeout(group)))
PROPERTY(error, error_of(state, group))
PROPERTY(store, store_of(state, group))

static PyObject *get_closed(PyObject *object, void *unused)
{
    struct py_group *self = (struct py_group *)object;

    (void)unused;
    return PyBool_FromLong(self->group == NULL || self->closing);
}

static int set_timeout(PyObject *object, PyObject *value, void *unused)
{
    struct py_group *self = (struct py_group *)object;
    choir_group *group;
    int64_t ms = 0;
    choir_status rc;

    (void)unused;
    if (py_read_new_timeout(value, &ms) < 0 || (group = py_group_enter(self, "timeout")) == NULL)
        return -1;
    rc = choir_group_set_timeout(group, ms);
    if (rc != CHOIR_OK)
        py_raise_last(self->state);
    py_group_exit(self);
    return rc == CHOIR_OK ? 0 : -1;
}

PyGetSetDef py_group_properties[] = {
    { "rank", get_rank, NULL, "This process's number in the group, from 0.", NULL },
    { "size", get_size, NULL, "How many ranks the group has.", NULL },
    { "local_rank", get_local_rank, NULL, "Its number among those that share memory with it.",
      NULL },
    { "local_size", get_local_size, NULL, "How many those are, itself included.", NULL },
    { "processors", get_processors, NULL, "How many processors the ranks of this host share.",
      NULL },
    { "name", get_name, NULL, "The same on every rank, unique in this process.", NULL },
    { "description", get_description, NULL, "For people.", NULL },
    { "origin", get_origin, NULL, "How rank, size and meeting place were found, for people.",
      NULL },
    { "collective_sequence", get_collective_sequence, NULL, "How many collectives were issued.",
      NULL },
    { "p2p_sequence", get_p2p_sequence, NULL, "How many sends and receives were issued.", NULL },
    { "timeout", get_timeout, set_timeout,
      "How long an operation may take that is not told otherwise, in seconds; math.inf: for ever.",
      NULL },
    { "error", get_error, NULL, "What the group failed with first, as an exception; or None.",
      NULL },
    { "store", get_store, NULL,
      "A handle to the store in which the ranks met, or None. Keys that start with \"choir/\" are "
      "taken.",
      NULL },
    { "closed", get_closed, NULL, "Whether it was closed.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

PyObject *py_group_repr(PyObject *object)
{
    struct py_group *self = (struct py_group *)object;

    if (self->group == NULL)
        return PyUnicode_FromString("<choir.Group, closed>");
    return PyUnicode_FromFormat("<choir.Group '%s', rank %d of %d>", choir_group_name(self->group),
                                choir_group_rank(self->group), choir_group_size(self->group));
}

/* --- questions about one rank ---------------------------------------------------------------------------------- */

/* Enter the group with the rank that the argument is; NULL with an exception. */
static choir_group *enter_with(PyObject *object, PyObject *arg, const char *what, int *rank_out)
{
    if (py_read_int(arg, "rank", rank_out) < 0)
        return NULL;
    return py_group_enter((struct py_group *)object, what);
}

static PyObject *peer(PyObject *object, PyObject *arg)
{
    struct py_group *self = (struct py_group *)object;
    int rank = 0;
    choir_group *group = enter_with(object, arg, "peer", &rank);
    PyObject *answer;
    choir_peer p;

    if (group == NULL)
        return NULL;
    if (choir_group_peer(group, rank, &p) != CHOIR_OK)
        answer = py_raise_last(self->state);
    else
        answer = Py_BuildValue("{s:i, s:i, s:O, s:L, s:s, s:s, s:s, s:s, s:s, s:s}", "rank", p.rank,
                               "host_index", p.host_index, "shares_memory",
                               p.shares_memory ? Py_True : Py_False, "pid", (long long)p.pid,
                               "host", p.host, "boot_id", p.boot_id, "address", p.address,
                               "version", p.version, "build", p.build, "cpu", p.cpu);
    py_group_exit(self);
    return answer;
}

static PyObject *alive(PyObject *object, PyObject *arg)
{
    struct py_group *self = (struct py_group *)object;
    int rank = 0;
    choir_group *group = enter_with(object, arg, "alive", &rank);
    PyObject *answer;
    bool lives;

    if (group == NULL)
        return NULL;
    answer = choir_group_alive(group, rank, &lives) == CHOIR_OK ? PyBool_FromLong(lives)
                                                                : py_raise_last(self->state);
    py_group_exit(self);
    return answer;
}

static PyObject *global_rank(PyObject *object, PyObject *arg)
{
    struct py_group *self = (struct py_group *)object;
    int rank = 0, global;
    choir_group *group = enter_with(object, arg, "global_rank", &rank);

    if (group == NULL)
        return NULL;
    global = choir_group_global_rank(group, rank);
    py_group_exit(self);
    if (global < 0)
        return py_raise(self->state, CHOIR_ERR_INVALID, "global_rank",
                        "global_rank: the group has no rank %d", rank);
    return PyLong_FromLong(global);
}

PyMethodDef py_info_methods[] = {
    { "peer", peer, METH_O,
      "peer(rank) -> dict\n\nWhat is known of a rank: host, pid, address, version, processor." },
    { "alive", alive, METH_O,
      "alive(rank) -> bool\n\nWhether a rank of this host still runs, as the kernel says." },
    { "global_rank", global_rank, METH_O,
      "global_rank(rank) -> int\n\nWhich rank of the first group a rank of this one is." },
    { NULL, NULL, 0, NULL },
};
