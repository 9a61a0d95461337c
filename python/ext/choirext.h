/*
 * choirext.h - what the files of the extension choir._choir share.
 *
 * The extension converts arguments, holds references and lets the interpreter go while it waits; it decides
 * nothing that the C library does not. It is written on the limited API (3.11): one file serves all later
 * versions. Reading order: py_module.c, py_error.c, py_args.c, py_buffer.c, py_group.c, py_coll.c.
 *
 * Rules:
 *   - no call of the library that may wait runs with the interpreter's lock held: py_leave(), py_return();
 *   - an object of ours that a call uses cannot end meanwhile: py_group_enter(), py_group_exit().
 */
#ifndef CHOIR_EXT_H
#define CHOIR_EXT_H

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include <choir/choir.h>

/* --- the module (py_module.c) ------------------------------------------------------------------- */

enum { PY_NSTATUS = 64 }; /* codes are above -64 */

struct py_group;

/* One for each interpreter that has imported the module; every object of ours points to it. */
struct py_state {
    PyObject *module; /* borrowed */
    PyTypeObject *group_type;
    PyObject *error;                 /* choir.Error */
    PyObject *by_status[PY_NSTATUS]; /* its subclass for status -i; NULL: none */
    struct py_group *groups;         /* all that are open, for the end of the interpreter */
};

struct py_state *py_state_of(PyObject *module);

/* Each file that adds to the module does it in one function: 0, or -1 with an exception set. */
int py_error_add(struct py_state *state);
int py_group_add(struct py_state *state);

/* --- errors (py_error.c) ------------------------------------------------------------------------- */

/* A failure as an exception, not raised. */
PyObject *py_error_from(struct py_state *state, const choir_error *record);

/* Raise what the library's last failure on this thread says, or `record`. Returns NULL. */
PyObject *py_raise_last(struct py_state *state);
PyObject *py_raise_record(struct py_state *state, const choir_error *record);

/* Raise a failure of the binding's own, in the form of the library's. Returns NULL. */
PyObject *py_raise(struct py_state *state, choir_status code, const char *operation,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* --- letting the interpreter go (py_wait.c) -------------------------------------------------------- */

/* Between the two other Python threads run and nothing of Python may be touched. While the library waits in
 * between, signals are looked at; if a handler raises, the call ends with CHOIR_ERR_INTERRUPTED and that exception
 * is set: py_return() is true then, whatever the call returned. */
void py_leave(void);
bool py_return(void);

/* Function and flags of a method's table entry. */
#define PY_METHOD(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

/* --- arguments (py_args.c) -------------------------------------------------------------------------- */

/* The parameters of one method: the first `npositional` may be given by place, `nrequired` must be given. */
struct py_params {
    const char *method;
    const char *const *names; /* ends with NULL */
    int npositional, nrequired;
};

/* Sort what METH_FASTCALL | METH_KEYWORDS hands over into values[], NULL for what is not given; None counts as
 * not given where that is allowed, behind the required ones. */
int py_params_read(const struct py_params *params, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **values);

/* 0, or -1 with an exception. Each takes NULL for the default, and leaves *out alone then. */
int py_read_int(PyObject *value, const char *name, int *out);
int py_read_bool(PyObject *value, bool *out);
int py_read_double(PyObject *value, double *out);
int py_read_text(PyObject *value, const char *name, const char **out); /* lives as long as value */
int py_read_redop(PyObject *value, choir_redop *out);
int py_read_type(PyObject *value, choir_type *out);

/* Seconds (a number or a timedelta) to milliseconds: None is 0, the object's own; infinite is -1, none. */
int py_read_timeout(PyObject *value, int64_t *out);

/* --- buffers (py_buffer.c) --------------------------------------------------------------------------- */

enum { PY_BUF_DIMS = 8 };

/* Memory lent by a Python object. Zeroed is empty, and fine to release. */
struct py_buf {
    choir_buf buf;
    Py_buffer view;
    bool has_view;
    int64_t sizes[PY_BUF_DIMS], strides[PY_BUF_DIMS]; /* of what is not contiguous */
};

enum py_access { PY_READ, PY_WRITE };

/* `type` is a name given by the caller (bf16), or NULL: what the object says. 0, or -1 with an exception. */
int py_buf_get(struct py_state *state, PyObject *object, enum py_access access, PyObject *type,
               struct py_buf *out);
void py_buf_release(struct py_buf *buf);

/* --- groups (py_group.c) ----------------------------------------------------------------------------- */

struct py_group {
    PyObject_HEAD struct py_state *state;
    choir_group *group;           /* NULL: closed */
    unsigned nusing;              /* calls under way, on whatever thread */
    bool closing;                 /* closed while in use: the last one ends it */
    struct py_group *prev, *next; /* of state->groups */
};

/* The library's group, which stays until py_group_exit(); NULL, with an exception, if it is closed. */
choir_group *py_group_enter(struct py_group *self, const char *operation);
void py_group_exit(struct py_group *self);

/* --- operations (py_coll.c) -------------------------------------------------------------------------- */

extern PyMethodDef py_coll_methods[];

#endif
