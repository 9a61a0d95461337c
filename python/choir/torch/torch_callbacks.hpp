/*
 * torch_callbacks.hpp - where Python comes in: its lock, and the threads that call it.
 */
#ifndef CHOIR_TORCH_CALLBACKS_HPP
#define CHOIR_TORCH_CALLBACKS_HPP

#include "torch_errors.hpp"

/* Of CPython's stable ABI, bound if the process has them. */
extern "C" {
__attribute__((weak)) int Py_IsInitialized(void);
__attribute__((weak)) int PyGILState_Check(void);
__attribute__((weak)) void *PyEval_SaveThread(void);
__attribute__((weak)) void PyEval_RestoreThread(void *state);
}

namespace {

/* torch asks a work whether it is done, and drops a backend, with the interpreter's lock held; whom we would wait for
 * may need it: for a callback, or to drop a tensor that Python has seen. */
class WithoutInterpreterLock {
  public:
    WithoutInterpreterLock()
    {
        if (Py_IsInitialized != nullptr && PyGILState_Check != nullptr && Py_IsInitialized() &&
            PyGILState_Check())
            state_ = PyEval_SaveThread();
    }
    ~WithoutInterpreterLock()
    {
        if (state_ != nullptr)
            PyEval_RestoreThread(state_);
    }
    WithoutInterpreterLock(const WithoutInterpreterLock &) = delete;
    WithoutInterpreterLock &operator=(const WithoutInterpreterLock &) = delete;

  private:
    void *state_ = nullptr;
};

} // namespace

#endif
