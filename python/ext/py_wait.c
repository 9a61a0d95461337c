/*
 * py_wait.c - letting the interpreter go while the library waits, and hearing signals meanwhile.
 *
 * Python's own handler of a signal only sets a flag; what the program wants done runs when the main thread asks
 * (PyErr_CheckSignals). The library's wait asks a function of ours now and then, on the waiting thread.
 */
#include "choirext.h"

/* Of this thread: what PyEval_SaveThread() gave, while it is away. */
static _Thread_local PyThreadState *away;
static _Thread_local bool raised;

void py_leave(void)
{
    raised = false;
    away = PyEval_SaveThread();
}

bool py_return(void)
{
    PyEval_RestoreThread(away);
    away = NULL;
    return raised;
}
