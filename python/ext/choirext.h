/*
 * choirext.h - what the files of the extension choir._choir share.
 *
 * The extension converts arguments, holds references and lets the interpreter go while it waits; it decides
 * nothing that the C library does not. It is written on the limited API (3.11): one file serves all later
 * versions. Reading order: py_module.c, py_group.c, py_coll.c, py_call.c, then the rest.
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
#include <sys/types.h>

#include <choir/choir.h>

/* --- the module (py_module.c) ------------------------------------------------------------------- */

enum { PY_NSTATUS = 64 }; /* codes are above -64 */

struct py_group;
struct dl_exchange; /* py_dlpack.c */

enum { PY_NEXCHANGES = 4 };

/* One for each time that the module was imported anew; every object of ours points to it. */
struct py_state {
    PyObject *module; /* borrowed */
    PyTypeObject *group_type, *work_type, *batch_type, *store_type, *server_type, *sparse_type,
        *part_type;
    PyObject *error;                 /* choir.Error */
    PyObject *by_status[PY_NSTATUS]; /* its subclass for status -i; NULL: none */
    struct py_group *groups;         /* all that are open, for the end of the interpreter */
    struct {
        unsigned count;
        pid_t process;        /* a forked child has none of them */
    } ending;                 /* groups that nobody refers to any more, and that are not gone yet */
    bool ended;               /* the interpreter is ending */
    struct py_lent *unwaited; /* of works of communicators under way whose handle is gone */

    /* Types of tensors met lately, and how they are read. */
    struct {
        PyTypeObject *type;
        const struct dl_exchange *exchange; /* NULL: it has none */
    } exchanges[PY_NEXCHANGES];
    unsigned next_exchange;
    PyObject *is_conj, *is_neg, *detach; /* names of PyTorch's methods */
};

struct py_state *py_state_of(PyObject *module);

/* Each file that adds to the module does it in one function: 0, or -1 with an exception set. */
int py_error_add(struct py_state *state);
int py_group_add(struct py_state *state);
int py_work_add(struct py_state *state);
int py_batch_add(struct py_state *state);
int py_store_add(struct py_state *state);
int py_sparse_add(struct py_state *state);
int py_nccl_add(struct py_state *state);
int py_tools_add(struct py_state *state);
int py_dlpack_add(struct py_state *state);

/* Have `list` as methods of the type, which other files define. */
int py_add_methods(PyTypeObject *type, PyMethodDef *list);

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

/* For ends that cannot raise: signals are left for later. */
void py_leave_quietly(void);

/* A callback of the library's, on any thread, also on one that is between the two: in between, Python may be touched,
 * and called back from there. */
struct py_visit {
    PyGILState_STATE held;
    PyThreadState *away;
    bool raised, deaf;
};
struct py_visit py_visit_begin(void);
void py_visit_end(struct py_visit visit);

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

/* Whether these, of __exit__(), tell of an exception. */
bool py_leaves_by_exception(PyObject *args);

/* 0, or -1 with an exception. Each takes NULL for the default, and leaves *out alone then. */
int py_read_int(PyObject *value, const char *name, int *out);
int py_read_bool(PyObject *value, bool *out);
int py_read_double(PyObject *value, const char *name, double *out);
int py_read_size(PyObject *value, const char *name, size_t *out);      /* not NULL */
int py_read_text(PyObject *value, const char *name, const char **out); /* lives as long as value */
int py_read_redop(PyObject *value, choir_redop *out);
int py_read_type(PyObject *value, choir_type *out);

/* Seconds (a number or a timedelta) to milliseconds: None is 0, the object's own; infinite is -1, none. */
int py_read_timeout(PyObject *value, int64_t *out);

/* The same for a property that is set: None would mean nothing. */
int py_read_new_timeout(PyObject *value, int64_t *out);

/* --- buffers (py_buffer.c) --------------------------------------------------------------------------- */

enum { PY_BUF_DIMS = 8 };

enum py_lender { PY_NOBODY, PY_VIEW, PY_DLPACK, PY_DLPACK_OLD };

/* Memory lent by a Python object; must not move meanwhile. */
struct py_buf {
    choir_buf buf;
    enum py_lender lender;
    union {
        Py_buffer view;
        void *managed; /* a DLPack tensor; NULL: the object is known to last */
    };
    int64_t sizes[PY_BUF_DIMS], strides[PY_BUF_DIMS]; /* of what is not contiguous */
};

enum py_access {
    PY_READ = 0,
    PY_WRITE = 1,
    PY_LASTING = 2, /* the memory is used after the method has returned */
    PY_MOVED = 4,   /* elements are copied, not added up: types that only are that will do */
};

/* `type` is a name given by the caller (bf16), or NULL: what the object says. 0, or -1 with an exception; then
 * there is nothing to release. */
int py_buf_get(struct py_state *state, PyObject *object, unsigned access, PyObject *type,
               struct py_buf *out);
void py_buf_release(struct py_buf *buf);

/* For py_buffer.c. Sizes and strides, in elements, of `out` from those given; strides NULL: contiguous. */
int py_buf_shape(struct py_buf *out, int ndim, const int64_t *sizes, const int64_t *strides);

/* The same through DLPack (py_dlpack.c): 1 if that is how it is read, 0 if the object does not know DLPack. */
int py_dlpack_get(struct py_state *state, PyObject *object, unsigned access, struct py_buf *out);
void py_dlpack_release(struct py_buf *buf);
void py_dlpack_forget(struct py_state *state);

/* --- what a call borrows (py_lent.c) ------------------------------------------------------------------- */

struct py_list {
    size_t count;
    choir_buf *bufs;     /* as the library wants them */
    struct py_buf *held; /* as many */
};

/* All memory that one call borrows: at most two buffers and two lists. */
struct py_lent {
    struct py_lent *next; /* in a batch, or among those that nobody waits for */
    choir_work *work;     /* of the latter */
    pid_t process;        /* which began that */
    PyObject *object;     /* what else has to last; or NULL */
    int nsingle, nlists;
    struct py_list lists[2];
    struct py_buf single[2];
};

void py_lent_init(struct py_lent *lent);
struct py_lent *py_lent_create(void);
void py_lent_release(struct py_lent *lent); /* the memory goes back; the struct stays */
void py_lent_destroy(struct py_lent *lent); /* and all behind it; accepts NULL */

/* A list of what works under way borrow whose handles are gone. Put `lent` on it, and what hangs behind it, until `work` is
 * done; takes both. And give back what is done by now, which may run any code. */
void py_lent_keep(struct py_lent **list, choir_work *work, struct py_lent *lent);
void py_lent_reap(struct py_lent **list);

/* For the collector: what they hold, as far as it is known to Python. */
int py_lent_visit(const struct py_lent *lent, visitproc visit, void *arg);
int py_lent_visit_done(const struct py_lent *list, visitproc visit,
                       void *arg); /* of one of py_lent_keep()'s */

/* One buffer or list more: NULL with an exception. */
choir_buf *py_lend(struct py_state *state, struct py_lent *lent, PyObject *object, unsigned access,
                   PyObject *type);
bool py_is_list(PyObject *object); /* of buffers, not one itself */
struct py_list *py_lend_list(struct py_state *state, struct py_lent *lent, PyObject *sequence,
                             const char *name, unsigned access, PyObject *type);

/* The same for a sequence of sequences, one behind the other. */
struct py_list *py_lend_lists(struct py_state *state, struct py_lent *lent, PyObject *sequences,
                              const char *name, unsigned access, PyObject *type);

/* --- groups (py_group.c) ----------------------------------------------------------------------------- */

struct py_batch;
struct py_open;

struct py_group {
    PyObject_HEAD struct py_state *state;
    choir_group *group;           /* NULL: closed */
    unsigned nusing;              /* calls under way, on whatever thread */
    bool closing;                 /* closed while in use: the last one ends it */
    struct py_open *batches;      /* those that are open (py_batch.c) */
    struct py_lent *unwaited;     /* of works under way whose handle is gone */
    struct py_group *prev, *next; /* of state->groups */
};

/* Of py_group_info.c. */
extern PyMethodDef py_info_methods[];
extern PyGetSetDef py_group_properties[];
PyObject *py_group_repr(PyObject *object);

PyObject *py_group_wrap(struct py_state *state, choir_group *group);

/* The library's group, which stays until py_group_exit(); NULL, with an exception, if it is closed. */
choir_group *py_group_enter(struct py_group *self, const char *operation);
void py_group_exit(struct py_group *self);

/* End what is still open, when the interpreter ends. */
void py_groups_end(struct py_state *state);

/* Something ends on a thread of its own, for which the interpreter's end waits a while. */
void py_ending_begins(struct py_state *state);
void py_ending_is_over(struct py_state *state);

/* Let other threads run for a moment. */
void py_pause_ms(void);

enum {
    /* What was forgotten, not closed, as by a program that dies of an exception: how long what is under way may go on
     * before it is aborted. For ever would leave the others waiting for a rank that does nothing any more. */
    PY_GRACE_MS = 5000,
    /* And how long its users on other threads, and callbacks, have to leave, before it is left to the end of the process. */
    PY_PATIENCE_MS = 2000,
};

/* --- batches (py_batch.c) ---------------------------------------------------------------------------- */

/* This thread's batch of that group, referenced, or NULL. -1 with an exception: it had one, which somebody dropped. */
int py_batch_find(struct py_group *group, struct py_batch **out);
bool py_batch_is_open(const struct py_group *group, const struct py_batch *batch);
void py_batch_keep(struct py_batch *batch, struct py_lent *lent);
void py_batch_unref(struct py_batch *batch); /* accepts NULL */

/* The group is gone: so are those that were left open. */
void py_batches_forget(struct py_group *group);

extern PyMethodDef py_batch_methods[];

/* --- works (py_work.c) ------------------------------------------------------------------------------- */

enum py_gives { PY_GIVES_OBJECT, PY_GIVES_SOURCE };

/* The handle of `work`, which it takes, with what it borrows. `result` is what it gives when it is done. `group` is NULL for
 * that of a communicator. On failure, with an exception, all is kept until it is done. */
PyObject *py_work_wrap(struct py_state *state, struct py_group *group, choir_work *work,
                       struct py_lent *lent, PyObject *result, enum py_gives gives);

/* No callback begins any more, and none runs when this returns, unless it does not end. */
void py_work_end_callbacks(void);

/* --- communicators (py_nccl.c) ------------------------------------------------------------------------ */

/* Give back what works that are done had borrowed, and at the end of the interpreter have the others end. */
void py_nccl_reap(struct py_state *state);
void py_nccl_end(struct py_state *state);

/* The same as py_error_from(), of a class of choir.nccl's. */
PyObject *py_nccl_error_from(struct py_state *state, const choir_error *record);

/* --- stores (py_store.c) ----------------------------------------------------------------------------- */

PyObject *py_store_wrap(struct py_state *state, choir_store *store);

/* The library's store, which stays until py_store_exit(), whoever closes it. NULL with an exception. */
choir_store *py_store_enter(struct py_state *state, PyObject *object, const char *operation);
void py_store_exit(PyObject *object);

/* --- operations (py_coll.c, py_coll_lists.c, py_p2p.c, py_sparse.c) ----------------------------------- */

/* Every operation ends with these parameters, by name only. */
#define PY_COMMON_NAMES "timeout", "algo", "dtype", "async_op", NULL

enum py_common { PY_TIMEOUT, PY_ALGO, PY_DTYPE, PY_ASYNC, PY_NCOMMON };

/* One call of an operation, from its arguments to its result:
 *
 *   if (py_call_begin(...) < 0 || <more arguments> || <py_call_lend()...>)
 *       return py_call_fail(&call);
 *   PY_ISSUE(&call, choir_x(call.group, ..., &call.opts, call.work_out));
 *   return py_call_end(&call, result);
 */
struct py_call {
    struct py_group *self;
    const char *method;
    choir_group *group;
    choir_coll_opts opts;
    PyObject *dtype;
    bool async_op, raised;
    choir_status rc;
    struct py_batch *batch; /* it is part of; referenced */
    choir_work *work, **work_out;
    unsigned lasting; /* PY_LASTING, or 0 */
    struct py_lent *lent;
    struct py_lent here; /* if it does not outlast the call */
};

int py_call_begin(struct py_call *call, PyObject *self, const struct py_params *params,
                  PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **given,
                  int common);
int py_call_read_reduction(struct py_call *call, PyObject *op, PyObject *factor);
choir_buf *py_call_lend(struct py_call *call, PyObject *object, enum py_access access);
struct py_list *py_call_lend_list(struct py_call *call, PyObject *sequence, const char *name,
                                  enum py_access access);
bool py_call_ready(struct py_call *call);
PyObject *py_call_fail(struct py_call *call);
PyObject *py_call_end(struct py_call *call, PyObject *result);
PyObject *py_call_end_source(struct py_call *call, int source);

#define PY_CALL(call, expression)                                                                  \
    do {                                                                                           \
        py_leave();                                                                                \
        (call)->rc = (expression);                                                                 \
        (call)->raised = py_return();                                                              \
    } while (0)

/* The same for an operation. */
#define PY_ISSUE(call, expression)                                                                 \
    do {                                                                                           \
        if (py_call_ready(call))                                                                   \
            PY_CALL(call, expression);                                                             \
    } while (0)

extern PyMethodDef py_coll_methods[], py_list_methods[], py_p2p_methods[], py_sparse_methods[];

#endif
