/*
 * py_nccl.h - what the files of choir.nccl share: its exceptions, and communicators in capsules.
 */
#ifndef PY_NCCL_H
#define PY_NCCL_H

#include "choirext.h"

/* --- exceptions (py_nccl.c), classes of choir/nccl.py; all return NULL -------------------------------------- */

/* Raise choir.nccl.<name>. `index` is that of the element it is about, -1 for none. The format is PyUnicode_FromFormat()'s. */
PyObject *py_nccl_refuse(const char *name, long index, const char *format, ...);

/* The same, with the exception that is set as its cause. */
PyObject *py_nccl_refuse_because(const char *name, long index, const char *format, ...);

/* Arguments that are none of those expected. */
PyObject *py_nccl_wrong_arguments(const char *name, const char *expected);

/* The library's last failure: a rule's class, or the one choir.nccl has for its code. */
PyObject *py_nccl_raise(struct py_state *state, const choir_comm_fault *fault);

/* --- communicators (py_nccl.c); NULL with an exception ------------------------------------------------------- */

/* A capsule as it is, or what an object has as `capsule`; referenced. */
PyObject *py_nccl_capsule(PyObject *object, long index);

/* The communicator of a capsule, which lives as long as the capsule. */
choir_comm *py_nccl_comm(PyObject *capsule, long index);

/* A work of the capsule's has a handle: at the end of the communicator it may be under way. */
void py_nccl_gives_handles(PyObject *capsule);

/* --- calls (py_nccl_call.c) ---------------------------------------------------------------------------------- */

extern PyMethodDef py_nccl_calls[];

#endif
