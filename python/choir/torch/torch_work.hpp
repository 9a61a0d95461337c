/*
 * torch_work.hpp - an operation under way, as c10d wants it.
 */
#ifndef CHOIR_TORCH_WORK_HPP
#define CHOIR_TORCH_WORK_HPP

#include <ATen/record_function.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "torch_callbacks.hpp"
#include "torch_tensors.hpp"

namespace {

c10d::WorkResult to_result(choir_status status)
{
    if (status == CHOIR_OK)
        return c10d::WorkResult::SUCCESS;
    return status == CHOIR_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
}

/*
 * One operation under way. Whoever first learns of its end settles it, once: what is left to do for the result is
 * done, the exception kept, the profiler told. Futures are made when asked for, and completed by a thread of ours
 * (torch_callbacks.hpp).
 */
class ChoirWork : public c10d::Work {
  public:
    /* Takes `work` over; NULL: there was nothing to do. */
    ChoirWork(int rank, OpType type, const char *title, const std::optional<Tensors> &profiled,
              choir_work *work, std::shared_ptr<const Place> place, int64_t limit_ms)
        : c10d::Work(rank, type, title, profiled), work_(work), place_(std::move(place)),
          limit_ms_(limit_ms)
    {
    }

    ~ChoirWork() override
    {
        if (work_ != nullptr && !is_settled())
            leave_behind();
        choir_work_unref(work_);
    }

    void hold(Kept &&kept, Tensors &&outputs, std::function<void()> last_step = nullptr)
    {
        kept_ = std::move(kept);
        outputs_ = std::move(outputs);
        last_step_ = std::move(last_step);
    }

    /* If the profiler watches, it is to see the end when it comes, not when somebody waits. */
    void report_to_profiler()
    {
        if (recordFunctionEndCallback_)
            on_done([](ChoirWork &work, choir_status) { work.isCompleted(); }, false);
    }

    bool isCompleted() override
    {
        choir_status rc = CHOIR_OK;

        if (work_ != nullptr)
            rc = choir_work_test(work_);
        if (rc == CHOIR_IN_PROGRESS)
            return false;
        settle();
        return true;
    }

    bool isSuccess() const override
    {
        return !is_settled() || !exception_;
    }

    std::exception_ptr exception() const override
    {
        return is_settled() ? exception_ : nullptr;
    }

    bool wait(milliseconds timeout) override
    {
        int64_t ms = timeout.count() > 0 ? timeout.count() : 0;
        choir_status rc = CHOIR_OK;

        if (work_ != nullptr)
            rc = choir_work_wait(work_, ms);
        if (rc == CHOIR_ERR_TIMEOUT && choir_work_test(work_) == CHOIR_IN_PROGRESS)
            raise_last(*place_, "wait", 0);
        settle();
        if (aborted_ && rc == CHOIR_ERR_INTERRUPTED)
            return false;
        if (exception_)
            std::rethrow_exception(exception_);
        return true;
    }

    void synchronize() override
    {
        wait(kNoTimeout);
    }

    void abort() override
    {
        aborted_ = true;
        if (work_ != nullptr)
            choir_work_abort(work_);
    }

    int sourceRank() const override
    {
        int rank = -1;

        TORCH_CHECK(work_ != nullptr && choir_work_source(work_, &rank) == CHOIR_OK,
                    "sourceRank() may only be called on a receive that is done");
        return rank;
    }

    Tensors result() override
    {
        TORCH_CHECK(isCompleted(),
                    "Work needs to be completed before calling result(). Should call wait() before "
                    "result().");
        return outputs_;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        {
            std::lock_guard<std::mutex> guard(futures_mutex_);

            if (future_)
                return future_;
            future_ = make_future(c10::ListType::create(c10::TensorType::get()));
        }
        complete(*future_, [](ChoirWork &work, choir_status) { work.complete_future(); });
        return future_;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override
    {
        {
            std::lock_guard<std::mutex> guard(futures_mutex_);

            if (future_result_)
                return future_result_;
            future_result_ = make_future(c10::IntType::get());
        }
        complete(*future_result_, [](ChoirWork &work, choir_status status) {
            work.future_result_->markCompleted((int64_t)to_result(status));
        });
        return future_result_;
    }

    float getDuration() const override
    {
        double ms = 0;

        TORCH_CHECK(work_ == nullptr || choir_work_duration_ms(work_, &ms) == CHOIR_OK,
                    "getDuration() may only be called on a work that is done");
        return (float)ms;
    }

    uint64_t getSequencenumber() const override
    {
        return work_ != nullptr ? choir_work_sequence(work_) : 0;
    }

  private:
    using Done = void (*)(ChoirWork &work, choir_status status);

    struct Call {
        c10::intrusive_ptr<ChoirWork> work;
        Done done;
        bool calls_python;
        bool nested; /* asked for in a callback: it is waited for there, and has no turn */
    };

    static void run_call(Call *given, uint64_t turn) noexcept
    {
        const std::shared_ptr<Turns> turns = given->work->place_->turns; /* the work may end here */

        {
            InCallback inside(turns.get(), turn);

            /* To drop tensors is part of it: their end may be that of the group, which would wait for this turn. */
            log_instead_of_throwing("telling of the end of an operation", [given] {
                const std::unique_ptr<Call> call(given);

                call->done(*call->work, choir_work_test(call->work->work_));
            });
        }
        turns->end(turn);
    }

    /* On the library's thread, or at once on that of who asks. */
    static void tell(void *arg, choir_work *work)
    {
        auto *call = static_cast<Call *>(arg);

        (void)work;
        if (!call->calls_python || asking())
            run_call(call, Turns::NONE);
        else
            hand_over(call);
    }

    static void hand_over(Call *call) noexcept
    {
        Turns &turns = *call->work->place_->turns;
        const uint64_t turn = turns.take(!call->nested);

        if (Completers::all().hand_over([call, turn] { run_call(call, turn); }))
            return;
        turns.end(turn);
        InCallback on_library_thread; /* where it can wait for less */
        run_call(call, Turns::NONE);
    }

    /* Whether this thread is asking the library for a callback: what is done already is called at once. */
    static bool &asking()
    {
        static thread_local bool is_asking = false;

        return is_asking;
    }

    void on_done(Done done, bool calls_python = true)
    {
        if (work_ == nullptr) {
            done(*this, CHOIR_OK);
            return;
        }
        auto call = std::make_unique<Call>(Call{ c10::intrusive_ptr<ChoirWork>::reclaim_copy(this),
                                                 done, calls_python, InCallback::here() });

        if (C10_UNLIKELY(InCallback::on_library_thread())) {
            wait_elsewhere(call.get());
            (void)call.release();
            return;
        }
        bool was_asking = asking();

        asking() = true;
        choir_status rc = choir_work_on_done(work_, tell, call.get());
        asking() = was_asking;
        if (rc != CHOIR_OK)
            raise_last(*place_, "getFuture", 0);
        (void)call.release(); /* tell() has it, or will */
    }

    /* In a hook: the library's thread may be about to wait for this one, and calls nobody meanwhile. */
    void wait_elsewhere(Call *call)
    {
        const uint64_t turn = place_->turns->take(false);

        if (Completers::all().hand_over([call, turn] {
                (void)choir_work_wait(call->work->work_, 0);
                run_call(call, turn);
            }))
            return;
        place_->turns->end(turn);
        C10_THROW_ERROR(DistBackendError, "choir: no thread to complete a future");
    }

    /* Torch calls the callbacks of a future in the order in which they were added, when whoever waits for it knows: so
     * the first of them waits for the turn of the others. */
    static c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr type)
    {
        auto future = c10::make_intrusive<c10::ivalue::Future>(std::move(type));

        future->addCallback([](c10::ivalue::Future &) { InCallback::await_turn(); }, false);
        return future;
    }

    /* A future that others may have by now is completed in any case: if `done` cannot be called later, with why. */
    void complete(c10::ivalue::Future &future, Done done)
    {
        try {
            on_done(done);
        } catch (...) {
            future.setErrorIfNeeded(std::current_exception());
        }
    }

    /* What an operation still needs when nobody has its handle any more. */
    struct Left {
        Kept kept;
        Tensors outputs;
        std::function<void()> last_step;
    };

    static void end_left(void *arg, choir_work *work)
    {
        InCallback inside; /* who drops what is left may drop the group, and must not wait for callbacks here */

        log_instead_of_throwing("the last step of an operation for which nobody waited", [&] {
            const std::unique_ptr<Left> left(static_cast<Left *>(arg));

            if (left->last_step && choir_work_error_record(work) == nullptr)
                left->last_step();
        });
    }

    /* Dropped before anybody learnt of the end: the operation goes on, in memory that must last as long. */
    void leave_behind() noexcept
    {
        auto *left = new Left{ std::move(kept_), std::move(outputs_), std::move(last_step_) };

        /* If there is no memory to be told, what is lent is lost: who writes there would not know. */
        (void)choir_work_on_done(work_, end_left, left);
    }

    void complete_future()
    {
        settle();
        if (exception_)
            future_->setError(exception_);
        else
            future_->markCompleted(c10::IValue(outputs_));
    }

    bool is_settled() const
    {
        /* Acquire, pairs with the release in settle_now(): the exception is seen. */
        return settled_.load(std::memory_order_acquire);
    }

    /* After the end: the exception is whole when this returns. */
    void settle()
    {
        if (C10_LIKELY(is_settled()))
            return;
        /* Relaxed: this only elects who settles; what it comes to travels with settled_. */
        if (!settling_.exchange(true, std::memory_order_relaxed)) {
            settle_now();
            return;
        }
        WithoutInterpreterLock unlocked; /* who settles may need it */
        std::unique_lock<std::mutex> guard(mutex_);

        cv_.wait(guard, [this] { return is_settled(); });
    }

    /* What is lent is dropped last, when nobody waits for us any more. Torch's lock is held for what calls nobody. */
    void settle_now()
    {
        Kept dropped = std::move(kept_);
        std::exception_ptr failure = outcome();

        if (recordFunctionEndCallback_) {
            log_instead_of_throwing("telling the profiler", recordFunctionEndCallback_);
            recordFunctionEndCallback_ = nullptr;
        }
        {
            std::lock_guard<std::mutex> guard(mutex_);

            completed_ = true;
            exception_ = failure;
            /* Release, pairs with the acquire in is_settled(). */
            settled_.store(true, std::memory_order_release);
        }
        cv_.notify_all();
    }

    std::exception_ptr outcome()
    try {
        if (work_ != nullptr && choir_work_error_record(work_) != nullptr)
            return to_exception(*choir_work_error_record(work_), *place_,
                                choir_optype_name(choir_work_op(work_)), limit_ms_);
        if (last_step_)
            last_step_();
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }

    choir_work *const work_;
    const std::shared_ptr<const Place> place_;
    const int64_t limit_ms_; /* its own or the group's time, for the text of a time-out */
    Kept kept_;              /* lent to the operation; dropped when it is settled */
    Tensors outputs_;
    std::function<void()> last_step_;
    std::atomic<bool> settling_{ false }; /* somebody does */
    std::atomic<bool> settled_{ false };
    std::atomic<bool> aborted_{ false };
    std::mutex futures_mutex_; /* guards making them */
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

} // namespace

#endif
