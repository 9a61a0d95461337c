/*
 * torch_callbacks.hpp - where Python comes in: its lock, and the threads that call it.
 *
 * The library runs callbacks one after another, on one thread. One of torch's may wait for any future, PowerSGD's do for
 * that of an operation they have issued: so that thread completes no future, it hands it to a thread of its own
 * (Completers). There a future is completed at once, and its callbacks wait for their turn (Turns): they may issue
 * operations, which must come in the same order on all ranks.
 *
 *   library's thread: an operation is done -> take a turn -> Completers: complete the future -> await the turn -> callbacks
 */
#ifndef CHOIR_TORCH_CALLBACKS_HPP
#define CHOIR_TORCH_CALLBACKS_HPP

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "torch_errors.hpp"

/* Of CPython's stable ABI, bound if the process has them. */
extern "C" {
__attribute__((weak)) int Py_IsInitialized(void);
__attribute__((weak)) int PyGILState_Check(void);
__attribute__((weak)) void *PyEval_SaveThread(void);
__attribute__((weak)) void PyEval_RestoreThread(void *state);
}

namespace {

/* The one of this process, never destroyed: threads may outlive statics. A forked child starts with a fresh one, since who
 * held its lock, or served, is not there; what the old one has is left. So making one allocates nothing. */
template <class One> One &one_of_process()
{
    alignas(One) static unsigned char place[sizeof(One)];
    static One *const one = [] {
        (void)pthread_atfork(nullptr, nullptr, [] { new (place) One; });
        return new (place) One;
    }();

    return *one;
}

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

/*
 * The callbacks of one group's futures: in the order in which the operations ended, one after another. Those asked for in
 * a callback are waited for there and have no turn. A callback may also add one to a future that was made before, and wait
 * for that: nobody can tell, so that patience has an end.
 */
class Turns {
  public:
    enum : uint64_t { NONE = 0, UNORDERED = 1 };
    enum { PATIENCE_MS = 1000 };

    uint64_t take(bool ordered) noexcept
    {
        std::lock_guard<std::mutex> guard(mutex_);

        under_way_++;
        if (!ordered)
            return UNORDERED;
        try {
            waiting_.insert(waiting_.end(), ++last_);
        } catch (const std::bad_alloc &) {
            return UNORDERED; /* out of order is better than never */
        }
        return last_;
    }

    void await(uint64_t turn)
    {
        std::unique_lock<std::mutex> guard(mutex_);

        changed_.wait_for(guard, milliseconds(PATIENCE_MS),
                          [this, turn] { return *waiting_.begin() == turn; });
    }

    void end(uint64_t turn) noexcept
    {
        if (turn == NONE)
            return;
        std::lock_guard<std::mutex> guard(mutex_);

        waiting_.erase(turn);
        under_way_--;
        changed_.notify_all();
    }

    bool none()
    {
        std::lock_guard<std::mutex> guard(mutex_);

        return under_way_ == 0;
    }

    void wait_for_all()
    {
        std::unique_lock<std::mutex> guard(mutex_);

        changed_.wait(guard, [this] { return under_way_ == 0; });
    }

    /* False if the time is up before. */
    bool wait_for_all(milliseconds limit)
    {
        std::unique_lock<std::mutex> guard(mutex_);

        return changed_.wait_for(guard, limit, [this] { return under_way_ == 0; });
    }

  private:
    std::mutex mutex_; /* guards all */
    std::condition_variable changed_;
    size_t under_way_ = 0;
    uint64_t last_ = UNORDERED;
    std::set<uint64_t> waiting_;
};

/* What this thread is doing: nothing of that, a callback of a future, or a hook on the library's thread. */
class InCallback {
  public:
    InCallback() : turns_(nullptr), turn_(Turns::NONE)
    {
        innermost() = this;
    }
    InCallback(Turns *turns, uint64_t turn) : turns_(turns), turn_(turn)
    {
        innermost() = this;
    }
    ~InCallback()
    {
        innermost() = outer_;
    }
    InCallback(const InCallback &) = delete;
    InCallback &operator=(const InCallback &) = delete;

    static bool here()
    {
        return innermost() != nullptr;
    }

    static bool on_library_thread()
    {
        for (const InCallback *in = innermost(); in != nullptr; in = in->outer_) {
            if (in->turns_ == nullptr)
                return true;
        }
        return false;
    }

    /* Once: a callback may complete a future by itself. */
    static void await_turn()
    {
        InCallback *in = innermost();

        if (in == nullptr || in->turn_ <= Turns::UNORDERED)
            return;
        in->turns_->await(std::exchange(in->turn_, Turns::NONE));
    }

  private:
    static InCallback *&innermost()
    {
        static thread_local InCallback *the_innermost = nullptr;

        return the_innermost;
    }

    InCallback *const outer_ = innermost();
    Turns *const turns_; /* null: a hook */
    uint64_t turn_;
};

/* Threads that complete futures, as many as have something to do; some stay for the next ones. */
class Completers {
  public:
    enum { MOST_IDLE = 4 };

    static Completers &all()
    {
        return one_of_process<Completers>();
    }

    /* Never behind another task: it may be what that one waits for. False: there is no memory, or no thread. */
    bool hand_over(std::function<void()> task) noexcept
    try {
        std::lock_guard<std::mutex> guard(mutex_);

        tasks_.push_back(std::move(task));
        if (tasks_.size() <= idle_) {
            wanted_.notify_one();
        } else {
            try {
                std::thread([this] { serve(); }).detach();
            } catch (...) {
                tasks_.pop_back();
                return false;
            }
        }
        under_way_++;
        return true;
    } catch (...) {
        return false;
    }

    bool none()
    {
        std::lock_guard<std::mutex> guard(mutex_);

        return under_way_ == 0;
    }

    /* Until there is nothing to do; false if the time is up before. */
    bool wait_for_all(milliseconds limit)
    {
        std::unique_lock<std::mutex> guard(mutex_);

        return none_.wait_for(guard, limit, [this] { return under_way_ == 0; });
    }

  private:
    void serve()
    {
        std::unique_lock<std::mutex> guard(mutex_);

        (void)pthread_setname_np(pthread_self(), "choir-futures");
        for (;;) {
            if (tasks_.empty()) {
                if (idle_ >= MOST_IDLE)
                    return;
                idle_++;
                wanted_.wait(guard, [this] { return !tasks_.empty(); });
                idle_--;
            }
            std::function<void()> task = std::move(tasks_.front());

            tasks_.pop_front();
            guard.unlock();
            task();
            task = nullptr;
            guard.lock();
            under_way_--;
            if (under_way_ == 0)
                none_.notify_all();
        }
    }

    std::mutex mutex_; /* guards all */
    std::condition_variable wanted_, none_;
    std::list<std::function<void()>> tasks_;
    size_t idle_ = 0, under_way_ = 0;
};

} // namespace

#endif
