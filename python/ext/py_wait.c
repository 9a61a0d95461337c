/*
 * py_wait.c - letting the interpreter go while the library waits, and hearing signals meanwhile.
 *
 * Python's own handler of a signal only sets a flag; what the program wants done runs when the main thread asks
 * (PyErr_CheckSignals). The library's wait asks signals_say() now and then, on the waiting thread, which goes back to
 * Python for a moment.
 */
#include "choirext.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of this thread. */
static _Thread_local PyThreadState *away; /* what PyEval_SaveThread() gave, while it is */
static _Thread_local bool raised;         /* a handler did: once is enough to end a call */
static _Thread_local bool deaf;           /* the caller could not hand an exception on */
static _Thread_local bool known;          /* the library knows whom to ask */

static bool signals_say(void *arg)
{
    PyThreadState *mine = away;
    bool stop;

    (void)arg;
    if (mine == NULL || raised || deaf)
        return false;
    away = NULL;
    PyEval_RestoreThread(mine);
    stop = PyErr_CheckSignals() < 0; /* handlers run here, and may call us */
    away = PyEval_SaveThread();
    raised = stop;
    deaf = false; /* a handler's own call may have left without an ear */
    return stop;
}

/* In a forked child the thread that forked is the main one. */
static void forget_in_child(void)
{
    known = false;
}

/* Only the main thread runs handlers: others are not to be bothered. */
static void make_known(void)
{
    static bool watched; /* under the interpreter's lock */

    if (!watched)
        watched = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    known = true;
    if (getpid() == (pid_t)syscall(SYS_gettid))
        choir_set_interrupt_check(signals_say, NULL);
}

void py_leave(void)
{
    if (!known)
        make_known();
    raised = deaf = false;
    away = PyEval_SaveThread();
}

void py_leave_quietly(void)
{
    py_leave();
    deaf = true;
}

bool py_return(void)
{
    PyEval_RestoreThread(away);
    away = NULL;
    return raised;
}

struct py_visit py_visit_begin(void)
{
    struct py_visit visit = { .away = away, .raised = raised, .deaf = deaf };

    away = NULL; /* signals_say() has nowhere to go back to until the next py_leave() */
    visit.held = PyGILState_Ensure();
    return visit;
}

void py_visit_end(struct py_visit visit)
{
    PyGILState_Release(visit.held);
    away = visit.away;
    raised = visit.raised;
    deaf = visit.deaf;
}
