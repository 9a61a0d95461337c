/*
 * choir_torch.cpp - a c10d Backend on libchoir, for torch.distributed on CPU tensors.
 *
 * The only C++ of the tree, because c10d has no other door. It is compiled against the torch that is installed, at
 * first use (backend_build.py), and holds no logic that libchoir lacks: it turns tensors into buffers, statuses into torch's
 * exceptions, and handles of works into c10d Works that keep the tensors alive.
 *
 *   tensors -> struct Lent -> choir_*() -> null Work (asyncOp false: done on return) or ChoirWork
 *
 * Python is not included: choir_torch_register() defines operators, of which choir::attach puts a backend on a
 * ProcessGroup that Python hands over boxed (__init__.py). Read top-down: errors, tensors, works, the backend,
 * how a group is made, the operators.
 */
#include <ATen/MemoryOverlap.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <choir/choir.h>

/* Of CPython's stable ABI, bound if the process has them: torch drops a backend with the interpreter's lock held, and
 * a callback that we would wait for may need it. */
extern "C" {
__attribute__((weak)) int Py_IsInitialized(void);
__attribute__((weak)) int PyGILState_Check(void);
__attribute__((weak)) void *PyEval_SaveThread(void);
__attribute__((weak)) void PyEval_RestoreThread(void *state);
}

namespace {

using at::Tensor;
using c10d::OpType;
using std::chrono::milliseconds;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

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

/* --- errors ------------------------------------------------------------------------------------------ */

/* What an error text needs to know of the group it happened in. */
struct Place {
    std::vector<int64_t> global_ranks; /* empty: ranks of the group are those of the job */
};

std::string describe(const choir_error &error, const Place &place, const char *op, int64_t limit_ms)
{
    std::string text;

    if (error.code == CHOIR_ERR_TIMEOUT && limit_ms > 0)
        text = c10::str("Timed out waiting ", limit_ms, "ms for ", op, ": ");
    text += error.text;
    if (error.culprit >= 0 && (size_t)error.culprit < place.global_ranks.size())
        text += c10::str(" (rank ", error.culprit, " of this group is global rank ",
                         place.global_ranks[error.culprit], ")");
    return text;
}

/* The class says what is lost: an argument is the caller's fault, all else the backend's. */
std::exception_ptr to_exception(const choir_error &error, const Place &place, const char *op,
                                int64_t limit_ms)
{
    const c10::SourceLocation here = { op, __FILE__, __LINE__ };
    std::string text = describe(error, place, op, limit_ms);

    switch (error.code) {
    case CHOIR_ERR_INVALID:
    case CHOIR_ERR_TYPE:
    case CHOIR_ERR_UNSUPPORTED:
        return std::make_exception_ptr(c10::Error(here, text));
    case CHOIR_ERR_NOMEM:
        return std::make_exception_ptr(c10::OutOfMemoryError(here, text));
    case CHOIR_ERR_QUEUE_EMPTY:
        return std::make_exception_ptr(c10::DistQueueEmptyError(here, text));
    case CHOIR_ERR_NETWORK:
        return std::make_exception_ptr(c10::DistNetworkError(here, text));
    default:
        return std::make_exception_ptr(c10::DistBackendError(here, text));
    }
}

/* After a call that failed on this thread. */
[[noreturn]] void raise_last(const Place &place, const char *op, int64_t limit_ms)
{
    std::rethrow_exception(to_exception(*choir_last_error_record(), place, op, limit_ms));
}

/* --- tensors ------------------------------------------------------------------------------------------ */

/* Types that are only moved go by their size. */
choir_type type_by_size(const Tensor &tensor)
{
    switch (tensor.element_size()) {
    case 1:
        return CHOIR_U8;
    case 2:
        return CHOIR_U16;
    case 4:
        return CHOIR_U32;
    case 8:
        return CHOIR_U64;
    case 16:
        return CHOIR_COMPLEX128;
    default:
        TORCH_CHECK(false, "choir: Invalid scalar type ", tensor.scalar_type());
    }
}

choir_type type_of(const Tensor &tensor, bool reduced)
{
    switch (tensor.scalar_type()) {
    case at::kByte:
        return CHOIR_U8;
    case at::kChar:
        return CHOIR_I8;
    case at::kUInt16:
        return CHOIR_U16;
    case at::kShort:
        return CHOIR_I16;
    case at::kUInt32:
        return CHOIR_U32;
    case at::kInt:
        return CHOIR_I32;
    case at::kUInt64:
        return CHOIR_U64;
    case at::kLong:
        return CHOIR_I64;
    case at::kHalf:
        return CHOIR_F16;
    case at::kBFloat16:
        return CHOIR_BF16;
    case at::kFloat:
        return CHOIR_F32;
    case at::kDouble:
        return CHOIR_F64;
    case at::kFloat8_e4m3fn:
        return CHOIR_F8E4M3;
    case at::kFloat8_e5m2:
        return CHOIR_F8E5M2;
    case at::kBool:
        return CHOIR_BOOL;
    case at::kComplexFloat:
        return CHOIR_COMPLEX64;
    case at::kComplexDouble:
        return CHOIR_COMPLEX128;
    default:
        TORCH_CHECK(!reduced, "choir: Invalid scalar type ", tensor.scalar_type(),
                    ": this type can be moved, but not reduced");
        return type_by_size(tensor);
    }
}

/* The tensors of one call, and the buffers that point into them. What is added to `kept` must live until the work is
 * done: sizes and strides are lent as well. */
struct Lent {
    explicit Lent(const char *op_, bool reduced_ = false) : op(op_), reduced(reduced_) {}

    const char *op;
    bool reduced;
    Tensors kept;

    void check(const Tensor &tensor) const
    {
        TORCH_CHECK(tensor.layout() == at::kStrided, "choir::", op,
                    ": only supports dense tensors, got ", tensor.layout());
        TORCH_CHECK(tensor.is_cpu(), "choir::", op, ": unsupported device type ", tensor.device(),
                    ", expected cpu");
    }

    choir_buf point(const Tensor &tensor)
    {
        choir_buf buf = {};

        buf.data = tensor.data_ptr();
        buf.count = (size_t)tensor.numel();
        buf.type = type_of(tensor, reduced);
        if (!tensor.is_contiguous()) {
            Tensor own = tensor.detach(); /* the caller may change the shape of its own meanwhile */

            buf.ndim = (int)own.dim();
            buf.sizes = own.sizes().data();
            buf.strides = own.strides().data();
            kept.push_back(std::move(own));
        }
        return buf;
    }

    /* Only read: anything that torch can make plain will do. */
    choir_buf in(const Tensor &tensor)
    {
        check(tensor);
        if (C10_LIKELY(tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()))
            return point(tensor);
        if (!tensor.is_conj() && !tensor.is_neg() &&
            at::has_internal_overlap(tensor) == at::MemOverlap::No)
            return point(tensor);
        kept.push_back(tensor.detach().resolve_conj().resolve_neg().contiguous());
        return point(kept.back());
    }

    choir_buf out(const Tensor &tensor)
    {
        check(tensor);
        if (C10_UNLIKELY(!tensor.is_contiguous())) {
            TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "choir::", op,
                        ": elements of an output tensor share memory (strides ", tensor.strides(),
                        ")");
        }
        TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "choir::", op,
                    ": an output tensor is a lazily conjugated or negated view; resolve it first");
        return point(tensor);
    }

    std::vector<choir_buf> ins(const Tensors &tensors)
    {
        std::vector<choir_buf> bufs;

        bufs.reserve(tensors.size());
        for (const Tensor &tensor : tensors)
            bufs.push_back(in(tensor));
        return bufs;
    }

    std::vector<choir_buf> outs(const Tensors &tensors)
    {
        std::vector<choir_buf> bufs;

        bufs.reserve(tensors.size());
        for (const Tensor &tensor : tensors)
            bufs.push_back(out(tensor));
        return bufs;
    }
};

const Tensor &single(const Tensors &tensors, const char *op, const char *which)
{
    TORCH_CHECK(!tensors.empty(), "choir::", op, ": requires non-empty tensor list");
    TORCH_CHECK(tensors.size() == 1, "choir::", op, ": requires a single-element ", which,
                "tensor list, got ", tensors.size());
    return tensors[0];
}

const Tensors &single_list(const std::vector<Tensors> &lists, const char *op, const char *which)
{
    TORCH_CHECK(lists.size() == 1, "choir::", op, ": requires a single-element ", which,
                " list, got ", lists.size());
    return lists[0];
}

void check_length(size_t have, size_t expected, const char *op, const char *which)
{
    TORCH_CHECK(have == expected, "choir::", op, ": invalid ", which,
                " tensor list at index 0 (expected length ", expected, ", got ", have, ")");
}

bool one_type(const Tensors &tensors)
{
    for (const Tensor &tensor : tensors) {
        if (tensor.scalar_type() != tensors[0].scalar_type())
            return false;
    }
    return true;
}

/* --- works -------------------------------------------------------------------------------------------- */

c10d::WorkResult to_result(choir_status status)
{
    if (status == CHOIR_OK)
        return c10d::WorkResult::SUCCESS;
    return status == CHOIR_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
}

/*
 * One operation under way. Whoever first learns of its end settles it, once: what is left to do for the result is
 * done, the exception kept, the profiler told. Futures are made when asked for, and completed by a callback of the
 * library's, on a thread of the library's.
 */
class ChoirWork : public c10d::Work {
  public:
    /* Takes `work` over; NULL: there was nothing to do. */
    ChoirWork(int rank, OpType type, const char *title, const std::optional<Tensors> &profiled,
              choir_work *work, std::shared_ptr<const Place> place, int64_t limit_ms)
        : c10d::Work(rank, type, title, profiled), work_(work), place_(std::move(place)),
          limit_ms_(limit_ms)
    {
        if (work_ == nullptr)
            finish();
    }

    ~ChoirWork() override
    {
        choir_work_unref(work_);
    }

    void hold(Tensors &&kept, Tensors &&outputs, std::function<void()> last_step = nullptr)
    {
        kept_ = std::move(kept);
        outputs_ = std::move(outputs);
        last_step_ = std::move(last_step);
    }

    /* If the profiler watches, it is to see the end when it comes, not when somebody waits. */
    void report_to_profiler()
    {
        if (recordFunctionEndCallback_)
            on_done([](ChoirWork &work, choir_status) { work.isCompleted(); });
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
        std::lock_guard<std::mutex> guard(mutex_);

        return !exception_;
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
            future_ = c10::make_intrusive<c10::ivalue::Future>(
                c10::ListType::create(c10::TensorType::get()));
        }
        on_done([](ChoirWork &work, choir_status) { work.complete_future(); });
        return future_;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override
    {
        {
            std::lock_guard<std::mutex> guard(futures_mutex_);

            if (future_result_)
                return future_result_;
            future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        }
        on_done([](ChoirWork &work, choir_status status) {
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
    };

    static void run_call(void *arg, choir_work *work)
    {
        std::unique_ptr<Call> call(static_cast<Call *>(arg));

        call->done(*call->work, choir_work_test(work));
    }

    void on_done(Done done)
    {
        auto call = std::make_unique<Call>(
            Call{ c10::intrusive_ptr<ChoirWork>::reclaim_copy(this), done });

        if (work_ == nullptr) {
            done(*this, CHOIR_OK);
            return;
        }
        if (choir_work_on_done(work_, run_call, call.get()) != CHOIR_OK)
            raise_last(*place_, "getFuture", 0);
        (void)call.release(); /* run_call() has it, or will */
    }

    void complete_future()
    {
        settle();
        if (exception_)
            future_->setError(exception_);
        else
            future_->markCompleted(c10::IValue(outputs_));
    }

    /* After the end: the exception is whole when this returns. */
    void settle()
    {
        std::call_once(settled_, [this] {
            std::exception_ptr failure;

            if (work_ != nullptr && choir_work_error_record(work_) != nullptr)
                failure = to_exception(*choir_work_error_record(work_), *place_,
                                       choir_optype_name(choir_work_op(work_)), limit_ms_);
            if (!failure && last_step_) {
                try {
                    last_step_();
                } catch (...) {
                    failure = std::current_exception();
                }
            }
            if (work_ != nullptr)
                finish(failure);
            kept_.clear();
        });
    }

    choir_work *const work_;
    const std::shared_ptr<const Place> place_;
    const int64_t limit_ms_; /* its own or the group's time, for the text of a time-out */
    Tensors kept_;           /* lent to the operation; dropped when it is settled */
    Tensors outputs_;
    std::function<void()> last_step_;
    std::once_flag settled_;
    std::atomic<bool> aborted_{ false };
    std::mutex futures_mutex_; /* guards making them */
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

/* --- meeting in torch's store --------------------------------------------------------------------------- */

/*
 * The store that torch hands over can be of any kind, also a Python class with little more than set, get and add; and
 * it may hold what an earlier group of the same name left. So rank 0 numbers its attempts, and each other rank
 * remembers, in the store, the last one it followed: it waits for a newer one.
 *
 *   choir/attempts       how many rank 0 has begun
 *   choir/word/<n>       where rank 0's own store listens in attempt n, and the token (choir_init_opts.carry)
 *   choir/followed/<r>   the last attempt that rank r followed
 */
class Meeting {
  public:
    Meeting(c10d::Store &store, int rank) : store_(store), rank_(rank) {}

    /* Before choir_init(): on rank 0 a number, on the others the word itself. */
    void prepare()
    {
        if (rank_ == 0) {
            attempt_ = store_.add("choir/attempts", 1);
            return;
        }
        std::string own = c10::str("choir/followed/", rank_);
        int64_t followed = store_.add(own, 0);

        (void)store_.get(word_key(followed + 1)); /* waits */
        attempt_ = store_.add("choir/attempts", 0);
        word_ = store_.get_to_str(word_key(attempt_));
        store_.add(own, attempt_ - followed);
    }

    static choir_status carry(void *arg, char *word, size_t room, int64_t)
    {
        auto &self = *static_cast<Meeting *>(arg);

        try {
            if (self.rank_ == 0)
                self.store_.set(word_key(self.attempt_), std::string(word));
            else
                snprintf(word, room, "%s", self.word_.c_str());
            return CHOIR_OK;
        } catch (...) {
            self.failure_ = std::current_exception();
            return CHOIR_ERR_NETWORK;
        }
    }

    void rethrow_failure() const
    {
        if (failure_)
            std::rethrow_exception(failure_);
    }

  private:
    static std::string word_key(int64_t attempt)
    {
        return c10::str("choir/word/", attempt);
    }

    c10d::Store &store_;
    const int rank_;
    int64_t attempt_ = 0;
    std::string word_;
    std::exception_ptr failure_;
};

choir_group *join(c10d::Store &store, int rank, int size, milliseconds timeout,
                  const std::string &name, const std::string &url, const Place &place)
{
    Meeting meeting(store, rank);
    choir_init_opts opts = {};
    choir_group *group = nullptr;

    if (size > 1)
        meeting.prepare();
    opts.size = sizeof(opts);
    opts.rank = rank;
    opts.nranks = size;
    opts.timeout_ms = timeout.count();
    opts.name = name.c_str();
    opts.url = url.empty() ? nullptr : url.c_str();
    opts.carry = Meeting::carry;
    opts.carry_arg = &meeting;
    if (choir_init(&group, &opts) != CHOIR_OK) {
        meeting.rethrow_failure();
        raise_last(place, "init", timeout.count());
    }
    return group;
}

/* --- the backend ---------------------------------------------------------------------------------------- */

class ChoirBackend;

/* Those that live, for the end of the interpreter. */
struct Living {
    std::mutex mutex;
    std::set<ChoirBackend *> all;
};

Living &living()
{
    static auto *const the_living = new Living; /* never destroyed: backends may outlive statics */

    return *the_living;
}

int64_t to_call_ms(milliseconds timeout)
{
    return timeout.count() > 0 ? timeout.count() : 0; /* unset: the group's */
}

class ChoirBackend : public c10d::Backend {
  public:
    struct ChoirOptions : Options {
        explicit ChoirOptions(milliseconds timeout) : Options("choir", timeout) {}
    };

    ChoirBackend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                 c10::intrusive_ptr<ChoirOptions> options, std::string url)
        : Backend(rank, size), options_(std::move(options)), url_(std::move(url))
    {
        auto place = std::make_shared<Place>();

        for (uint64_t global : options_->global_ranks_in_group)
            place->global_ranks.push_back((int64_t)global);
        place_ = place;
        group_ = join(*store, rank, size, options_->timeout, options_->group_name, url_, *place_);
        (void)choir_group_set_timeout(group_, options_->timeout.count());
        init();
        std::lock_guard<std::mutex> guard(living().mutex);
        living().all.insert(this);
    }

    ~ChoirBackend() override
    {
        {
            std::lock_guard<std::mutex> guard(living().mutex);

            living().all.erase(this);
        }
        WithoutInterpreterLock unlocked;

        choir_group_destroy(group_);
    }

    const std::string getBackendName() const override
    {
        return "choir";
    }

    c10::intrusive_ptr<Options> getBackendOptions() override
    {
        return options_;
    }

    bool supportsSplitting() const override
    {
        return true;
    }

    bool supportsCoalescing() const override
    {
        return true;
    }

    /* --- one tensor, all ranks --- */

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override
    {
        Lent lent("broadcast");
        const Tensor &tensor = single(tensors, lent.op, "");

        TORCH_CHECK(opts.rootTensor == 0, "choir::broadcast: invalid root tensor: ",
                    opts.rootTensor);
        choir_buf buf = rank_ == opts.rootRank ? lent.in(tensor) : lent.out(tensor);
        choir_coll_opts o = rooted(opts, "broadcast");

        return issue(OpType::BROADCAST, "choir:broadcast", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_broadcast(group_, buf, &o, work); });
    }

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        Lent lent("allreduce", true);
        const Tensor &tensor = single(tensors, lent.op, "");

        if (tensor.layout() == at::kSparse)
            return allreduce_sparse(tensors, opts);
        choir_buf buf = lent.out(tensor);
        choir_coll_opts o = reduced(opts);

        return issue(OpType::ALLREDUCE, "choir:all_reduce", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_allreduce(group_, buf, &o, work); });
    }

    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;

    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override
    {
        Lent lent("allreduce_coalesced", true);
        std::vector<choir_buf> bufs = lent.outs(tensors);
        choir_coll_opts o = reduced(opts);

        if (tensors.empty())
            return nothing(OpType::ALLREDUCE_COALESCED, opts.asyncOp);
        if (!one_type(tensors))
            return each(OpType::ALLREDUCE_COALESCED, opts.asyncOp, o, lent, tensors, bufs.size(),
                        [&](size_t i) { return choir_allreduce(group_, bufs[i], &o, nullptr); });
        return issue(OpType::ALLREDUCE_COALESCED, "choir:all_reduce", opts.asyncOp, o, lent,
                     tensors, [&](choir_work **work) {
                         return choir_allreduce_coalesced(group_, bufs.data(), bufs.size(), &o,
                                                          work);
                     });
    }

    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    {
        Lent lent("reduce", true);
        const Tensor &tensor = single(tensors, lent.op, "");

        TORCH_CHECK(opts.rootTensor == 0, "choir::reduce: invalid root tensor: ", opts.rootTensor);
        choir_buf buf = rank_ == opts.rootRank ? lent.out(tensor) : lent.in(tensor);
        choir_coll_opts o = rooted(opts, "reduce");

        fill_redop(opts.reduceOp, o);
        return issue(OpType::REDUCE, "choir:reduce", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_reduce(group_, buf, &o, work); });
    }

    /* --- gathering and scattering --- */

    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override
    {
        Lent lent("allgather");
        const Tensor &input = single(inputs, lent.op, "input ");

        TORCH_CHECK(outputs.size() == 1, "choir::allgather: requires input/output tensor lists to "
                                         "have the same length");
        check_length(outputs[0].size(), (size_t)size_, lent.op, "output");
        choir_buf in = lent.in(input);
        std::vector<choir_buf> outs = lent.outs(outputs[0]);
        choir_coll_opts o = plain(opts);

        return issue(
            OpType::ALLGATHER, "choir:all_gather", opts.asyncOp, o, lent, outputs[0],
            [&](choir_work **work) { return choir_allgather(group_, in, outs.data(), &o, work); },
            inputs);
    }

    WorkPtr _allgather_base(Tensor &output, Tensor &input,
                            const c10d::AllgatherOptions &opts) override
    {
        Lent lent("_allgather_base");
        choir_buf in = lent.in(input), out = lent.out(output);
        choir_coll_opts o = plain(opts);

        return issue(
            OpType::_ALLGATHER_BASE, "choir:_all_gather_base", opts.asyncOp, o, lent, { output },
            [&](choir_work **work) { return choir_allgather_into(group_, in, out, &o, work); },
            { input });
    }

    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override
    {
        Lent lent("allgather_coalesced");
        Tensors flat;

        TORCH_CHECK(outputs.size() == (size_t)size_,
                    "choir::allgather_coalesced: output lists should be equal to world size");
        for (const Tensors &list : outputs) {
            TORCH_CHECK(list.size() == inputs.size(),
                        "choir::allgather_coalesced: invalid output size: (expected length ",
                        inputs.size(), ", got ", list.size(), ")");
            flat.insert(flat.end(), list.begin(), list.end());
        }
        if (inputs.empty())
            return nothing(OpType::ALLGATHER_COALESCED, opts.asyncOp);
        std::vector<choir_buf> ins = lent.ins(inputs), outs = lent.outs(flat);
        choir_coll_opts o = plain(opts);
        size_t k = ins.size();

        if (!one_type(inputs))
            return each(
                OpType::ALLGATHER_COALESCED, opts.asyncOp, o, lent, flat, k,
                [&](size_t i) {
                    std::vector<choir_buf> column;

                    for (size_t r = 0; r < (size_t)size_; r++)
                        column.push_back(outs[r * k + i]);
                    return choir_allgather(group_, ins[i], column.data(), &o, nullptr);
                },
                inputs);
        return issue(
            OpType::ALLGATHER_COALESCED, "choir:all_gather", opts.asyncOp, o, lent, flat,
            [&](choir_work **work) {
                return choir_allgather_coalesced(group_, ins.data(), outs.data(), k, &o, work);
            },
            inputs);
    }

    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override
    {
        Lent lent("allgather_into_tensor_coalesced");

        TORCH_CHECK(outputs.size() == inputs.size(),
                    "choir::allgather_into_tensor_coalesced: requires input/output tensor lists to "
                    "have the same length");
        if (inputs.empty())
            return nothing(OpType::COALESCED, opts.asyncOp);
        std::vector<choir_buf> ins = lent.ins(inputs), outs = lent.outs(outputs);
        choir_coll_opts o = plain(opts);

        if (!one_type(inputs))
            return each(
                OpType::COALESCED, opts.asyncOp, o, lent, outputs, ins.size(),
                [&](size_t i) {
                    return choir_allgather_into(group_, ins[i], outs[i], &o, nullptr);
                },
                inputs);
        return issue(
            OpType::COALESCED, "choir:all_gather_into_tensor_coalesced", opts.asyncOp, o, lent,
            outputs,
            [&](choir_work **work) {
                return choir_allgather_into_coalesced(group_, ins.data(), outs.data(), ins.size(),
                                                      &o, work);
            },
            inputs);
    }

    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override
    {
        Lent lent("gather");
        const Tensor &input = single(inputs, lent.op, "input ");
        choir_coll_opts o = rooted(opts, lent.op);
        Tensors none;
        const Tensors &list = rank_ == opts.rootRank ? single_list(outputs, lent.op, "output")
                                                     : none;

        TORCH_CHECK(rank_ == opts.rootRank || outputs.empty(),
                    "choir::gather: requires empty output on non-root");
        TORCH_CHECK(rank_ != opts.rootRank || list.size() == (size_t)size_,
                    "choir::gather: Incorrect output list size ", list.size(),
                    ". Output list size should be ", size_, ", same as size of the process group.");
        choir_buf in = lent.in(input);
        std::vector<choir_buf> outs = lent.outs(list);

        return issue(
            OpType::GATHER, "choir:gather", opts.asyncOp, o, lent, list,
            [&](choir_work **work) {
                return choir_gather(group_, in, outs.empty() ? nullptr : outs.data(), &o, work);
            },
            inputs);
    }

    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override
    {
        Lent lent("scatter");
        const Tensor &output = single(outputs, lent.op, "output ");
        choir_coll_opts o = rooted(opts, lent.op);
        Tensors none;
        const Tensors &list = rank_ == opts.rootRank ? single_list(inputs, lent.op, "input")
                                                     : none;

        TORCH_CHECK(rank_ == opts.rootRank || inputs.empty(),
                    "choir::scatter: requires empty input on non-root");
        TORCH_CHECK(rank_ != opts.rootRank || list.size() == (size_t)size_,
                    "choir::scatter: Incorrect input list size ", list.size(),
                    ". Input list size should be ", size_, ", same as size of the process group.");
        choir_buf out = lent.out(output);
        std::vector<choir_buf> ins = lent.ins(list);

        return issue(
            OpType::SCATTER, "choir:scatter", opts.asyncOp, o, lent, outputs,
            [&](choir_work **work) {
                return choir_scatter(group_, ins.empty() ? nullptr : ins.data(), out, &o, work);
            },
            list);
    }

    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override
    {
        Lent lent("reduce_scatter", true);

        TORCH_CHECK(outputs.size() == 1, "choir::reduce_scatter: only supports 1 output, got ",
                    outputs.size());
        const Tensors &list = single_list(inputs, lent.op, "input");

        check_length(list.size(), (size_t)size_, lent.op, "input");
        choir_buf out = lent.out(outputs[0]);
        std::vector<choir_buf> ins = lent.ins(list);
        choir_coll_opts o = reduced(opts);

        return issue(
            OpType::REDUCE_SCATTER, "choir:reduce_scatter", opts.asyncOp, o, lent, outputs,
            [&](choir_work **work) {
                return choir_reduce_scatter(group_, ins.data(), out, &o, work);
            },
            list);
    }

    WorkPtr _reduce_scatter_base(Tensor &output, Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override
    {
        Lent lent("_reduce_scatter_base", true);
        choir_buf in = lent.in(input), out = lent.out(output);
        choir_coll_opts o = reduced(opts);

        return issue(
            OpType::_REDUCE_SCATTER_BASE, "choir:_reduce_scatter_base", opts.asyncOp, o, lent,
            { output },
            [&](choir_work **work) { return choir_reduce_scatter_from(group_, in, out, &o, work); },
            { input });
    }

    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override
    {
        Lent lent("reduce_scatter_tensor_coalesced", true);

        TORCH_CHECK(outputs.size() == inputs.size(),
                    "choir::reduce_scatter_tensor_coalesced: requires input/output tensor lists to "
                    "have the same length");
        if (inputs.empty())
            return nothing(OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts.asyncOp);
        std::vector<choir_buf> ins = lent.ins(inputs), outs = lent.outs(outputs);
        choir_coll_opts o = reduced(opts);

        if (!one_type(inputs))
            return each(
                OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts.asyncOp, o, lent, outputs, ins.size(),
                [&](size_t i) {
                    return choir_reduce_scatter_from(group_, ins[i], outs[i], &o, nullptr);
                },
                inputs);
        return issue(
            OpType::REDUCE_SCATTER_TENSOR_COALESCED, "choir:reduce_scatter_tensor_coalesced",
            opts.asyncOp, o, lent, outputs,
            [&](choir_work **work) {
                return choir_reduce_scatter_coalesced(group_, ins.data(), outs.data(), ins.size(),
                                                      &o, work);
            },
            inputs);
    }

    WorkPtr alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &out_splits,
                          std::vector<int64_t> &in_splits,
                          const c10d::AllToAllOptions &opts) override
    {
        Lent lent("alltoall_base");
        choir_buf in = lent.in(input), out = lent.out(output);
        bool even = in_splits.empty() && out_splits.empty();
        std::vector<size_t> in_counts = counts(input, in_splits, even),
                            out_counts = counts(output, out_splits, even);
        choir_coll_opts o = plain(opts);

        return issue(
            OpType::ALLTOALL_BASE, "choir:all_to_all", opts.asyncOp, o, lent, { output },
            [&](choir_work **work) {
                return choir_alltoall_base(group_, in, even ? nullptr : in_counts.data(), out,
                                           even ? nullptr : out_counts.data(), &o, work);
            },
            { input });
    }

    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override
    {
        Lent lent("alltoall");

        TORCH_CHECK(outputs.size() == (size_t)size_ && inputs.size() == (size_t)size_,
                    "choir::alltoall: the length of a tensor list does not match world size");
        std::vector<choir_buf> ins = lent.ins(inputs), outs = lent.outs(outputs);
        choir_coll_opts o = plain(opts);

        return issue(
            OpType::ALLTOALL, "choir:all_to_all", opts.asyncOp, o, lent, outputs,
            [&](choir_work **work) {
                return choir_alltoall(group_, ins.data(), outs.data(), &o, work);
            },
            inputs);
    }

    /* --- nothing but being there --- */

    WorkPtr barrier(const c10d::BarrierOptions &opts) override
    {
        Lent lent("barrier");
        choir_coll_opts o = plain(opts);

        return issue(OpType::BARRIER, "choir:barrier", opts.asyncOp, o, lent, {},
                     [&](choir_work **work) { return choir_barrier(group_, &o, work); });
    }

    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override
    {
        choir_coll_opts o = plain(opts);

        /* As gloo has it: no time at all is a question to which rank 0 knows the answer. */
        if (opts.timeout.count() == 0 && rank_ == 0 && size_ > 1)
            C10_THROW_ERROR(DistBackendError,
                            "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms.");
        if (opts.timeout.count() == 0)
            o.timeout_ms = 1;
        if (choir_monitored_barrier(group_, wait_all_ranks, &o) != CHOIR_OK)
            raise_last(*place_, "monitoredBarrier", 0);
    }

    /* --- two ranks --- */

    WorkPtr send(Tensors &tensors, int to, int tag) override
    {
        Lent lent("send");
        choir_buf buf = lent.in(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(OpType::SEND, "choir:send", true, o, lent, tensors,
                     [&](choir_work **work) { return choir_send(group_, buf, to, tag, &o, work); });
    }

    WorkPtr recv(Tensors &tensors, int from, int tag) override
    {
        Lent lent("recv");
        choir_buf buf = lent.out(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(
            OpType::RECV, "choir:recv", true, o, lent, tensors,
            [&](choir_work **work) { return choir_recv(group_, buf, from, tag, &o, work); });
    }

    WorkPtr recvAnysource(Tensors &tensors, int tag) override
    {
        Lent lent("recvAnysource");
        choir_buf buf = lent.out(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(
            OpType::RECVANYSOURCE, "choir:recvAnySource", true, o, lent, tensors,
            [&](choir_work **work) { return choir_recv_any(group_, buf, tag, nullptr, &o, work); });
    }

    /* --- several as one --- */

    void startCoalescing() override
    {
        check(choir_batch_begin(group_), "startCoalescing", 0);
        TORCH_CHECK(batch_thread_.load(std::memory_order_acquire) == std::thread::id(),
                    "choir::startCoalescing: another thread is coalescing on this group");
        batch_.emplace();
        batch_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }

    WorkPtr endCoalescing() override
    {
        TORCH_CHECK(in_batch(), "choir::endCoalescing: startCoalescing was not called");
        Batch batch = std::move(*batch_);
        choir_work *work = nullptr;

        batch_.reset();
        /* Release, pairs with the acquire in startCoalescing(): the next thread finds no batch. */
        batch_thread_.store(std::thread::id(), std::memory_order_release);
        check(choir_batch_end(group_, &work), "endCoalescing", 0);
        return wrap(OpType::COALESCED, "choir:coalesced", work, 0, std::move(batch.kept),
                    std::move(batch.outputs));
    }

    /* --- state --- */

    void setTimeout(milliseconds timeout) override
    {
        check(choir_group_set_timeout(group_, timeout.count()), "setTimeout", 0);
        options_->timeout = timeout;
    }

    void setSequenceNumberForGroup() override {} /* libchoir counts, from 0 on all ranks */

    uint64_t getSequenceNumberForGroup() override
    {
        return choir_group_collective_sequence(group_);
    }

    c10d::ErrorType getError() override
    {
        choir_status rc = choir_group_error(group_, nullptr);

        if (rc == CHOIR_OK)
            return c10d::ErrorType::SUCCESS;
        if (rc == CHOIR_ERR_TIMEOUT)
            return c10d::ErrorType::TIMEOUT;
        return rc == CHOIR_ERR_REMOTE ? c10d::ErrorType::REMOTE_ERROR
                                      : c10d::ErrorType::COMM_ERROR;
    }

    void registerOnCompletionHook(
        std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override
    {
        TORCH_CHECK(onCompletionHook_ == nullptr, "choir: there is a completion hook already");
        onCompletionHook_ = std::move(hook);
        check(choir_group_on_done(group_, tell_hook, this), "registerOnCompletionHook", 0);
    }

    void waitForPendingWorks() override
    {
        check(choir_group_wait_pending(group_, 0), "waitForPendingWorks", 0);
    }

    void enableCollectivesTiming() override {} /* always on */

    /* Only members call it: so it is a group of its own, which they meet for in `store`. */
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                      const std::vector<int> &ranks,
                                      const c10::intrusive_ptr<Options> &opts) override
    {
        auto mine = std::find(ranks.begin(), ranks.end(), rank_);
        auto options = c10::make_intrusive<ChoirOptions>(opts ? opts->timeout : options_->timeout);

        if (mine == ranks.end())
            return nullptr;
        if (opts) {
            options->group_name = opts->group_name;
            options->group_desc = opts->group_desc;
        }
        for (int rank : ranks)
            options->global_ranks_in_group.push_back(
                place_->global_ranks.empty() ? (uint64_t)rank
                                             : (uint64_t)place_->global_ranks.at((size_t)rank));
        return c10::make_intrusive<ChoirBackend>(store, (int)(mine - ranks.begin()),
                                                 (int)ranks.size(), std::move(options), url_);
    }

    void abort() override
    {
        choir_group_abort(group_);
    }

    /* Sends and receives that nobody answers are no reason to wait for long; the destructor drops them. */
    void shutdown() override
    {
        enum { GRACE_MS = 1000 };

        (void)choir_group_shutdown(group_, GRACE_MS);
    }

    /* The interpreter is about to end: what is pending must call no Python later. */
    void end_pending()
    {
        enum { GRACE_MS = 500 };

        if (choir_group_wait_pending(group_, GRACE_MS) != CHOIR_ERR_TIMEOUT)
            return;
        choir_group_abort(group_);
        (void)choir_group_wait_pending(group_, GRACE_MS);
    }

  private:
    struct Batch {
        Tensors kept, outputs;
    };

    void check(choir_status rc, const char *op, int64_t limit_ms) const
    {
        if (C10_UNLIKELY(rc != CHOIR_OK))
            raise_last(*place_, op, limit_ms);
    }

    static const Tensor &single_p2p(const Tensors &tensors, int tag)
    {
        TORCH_CHECK(tensors.size() == 1, "choir: send and recv take a single tensor, got ",
                    tensors.size());
        TORCH_CHECK(tag >= 0, "Tag must be nonnegative");
        return tensors[0];
    }

    /* --- options --- */

    static choir_coll_opts base_opts()
    {
        choir_coll_opts o = {};

        o.size = sizeof(o);
        return o;
    }

    template <class Options_> static choir_coll_opts plain(const Options_ &opts)
    {
        choir_coll_opts o = base_opts();

        o.timeout_ms = to_call_ms(opts.timeout);
        return o;
    }

    template <class Options_> choir_coll_opts rooted(const Options_ &opts, const char *op) const
    {
        choir_coll_opts o = plain(opts);

        TORCH_CHECK(opts.rootRank >= 0 && opts.rootRank < size_, "choir::", op,
                    ": invalid root rank: ", opts.rootRank);
        o.root = (int)opts.rootRank;
        return o;
    }

    template <class Options_> static choir_coll_opts reduced(const Options_ &opts)
    {
        choir_coll_opts o = plain(opts);

        fill_redop(opts.reduceOp, o);
        return o;
    }

    /* The numbers are c10d's (types.def). */
    static void fill_redop(const c10d::ReduceOp &op, choir_coll_opts &o)
    {
        TORCH_CHECK(op.op_ < c10d::ReduceOp::UNUSED, "Unhandled ReduceOp");
        o.op = (choir_redop)op.op_;
        if (C10_LIKELY(op.op_ != c10d::ReduceOp::PREMUL_SUM))
            return;
        const auto *premul = reinterpret_cast<const c10d::PreMulSumSupplement *>(
            op.supplement_.get());

        TORCH_CHECK(premul != nullptr, "choir: PREMUL_SUM without its factor");
        o.factor = premul->tensor_factor.defined() ? premul->tensor_factor.item<double>()
                                                   : premul->double_factor;
    }

    /* Rows of dimension 0 as elements; equal parts if the call has splits on the other side only. */
    std::vector<size_t> counts(const Tensor &tensor, const std::vector<int64_t> &splits,
                               bool even) const
    {
        int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
        int64_t row = rows > 0 ? tensor.numel() / rows : 0, sum = 0;
        std::vector<size_t> list;

        if (even) {
            TORCH_CHECK(rows % size_ == 0,
                        "choir::alltoall_base: Tensor's dim 0 does not divide equally across group "
                        "size");
            return list;
        }
        if (splits.empty()) {
            TORCH_CHECK(rows % size_ == 0,
                        "choir::alltoall_base: Tensor's dim 0 does not divide equally across group "
                        "size");
            list.assign((size_t)size_, (size_t)(rows / size_ * row));
            return list;
        }
        TORCH_CHECK(splits.size() == (size_t)size_,
                    "choir::alltoall_base: Number of tensor splits not equal to group size");
        for (int64_t split : splits) {
            TORCH_CHECK(split >= 0, "choir::alltoall_base: a split is negative: ", split);
            sum += split;
            list.push_back((size_t)(split * row));
        }
        TORCH_CHECK(sum == rows,
                    "choir::alltoall_base: Split sizes doesn't match total dim 0 size");
        return list;
    }

    /* --- issuing --- */

    bool in_batch() const
    {
        /* Relaxed: only a thread itself stores its own id. */
        return batch_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }

    int64_t limit_of(int64_t timeout_ms) const
    {
        return timeout_ms > 0 ? timeout_ms : choir_group_timeout(group_);
    }

    static void put(Tensors &into, const Tensors &more)
    {
        into.insert(into.end(), more.begin(), more.end());
    }

    WorkPtr wrap(OpType type, const char *title, choir_work *work, int64_t timeout_ms,
                 Tensors &&kept, Tensors &&outputs, std::function<void()> last_step = nullptr)
    {
        bool watched = at::hasCallbacks();
        std::optional<Tensors> profiled;

        if (watched)
            profiled = kept.empty() ? outputs : kept;
        auto wrapped = c10::make_intrusive<ChoirWork>(rank_, type, watched ? title : nullptr,
                                                      profiled, work, place_, limit_of(timeout_ms));

        wrapped->hold(std::move(kept), std::move(outputs), std::move(last_step));
        if (watched)
            wrapped->report_to_profiler();
        return wrapped;
    }

    WorkPtr nothing(OpType type, bool async)
    {
        return async ? wrap(type, nullptr, nullptr, 0, {}, {}) : WorkPtr();
    }

    /* One call: part of a batch, done on return, or under way. */
    template <class Call>
    WorkPtr issue(OpType type, const char *title, bool async, const choir_coll_opts &o, Lent &lent,
                  const Tensors &outputs, Call call, const Tensors &inputs = {})
    {
        choir_work *work = nullptr;

        if (C10_UNLIKELY(in_batch())) {
            check(call(nullptr), lent.op, 0);
            put(batch_->kept, lent.kept);
            put(batch_->kept, inputs);
            put(batch_->outputs, outputs);
            return WorkPtr();
        }
        if (!async && C10_LIKELY(!at::hasCallbacks())) {
            choir_status rc = call(nullptr);

            if (C10_UNLIKELY(rc != CHOIR_OK))
                raise_last(*place_, lent.op, limit_of(o.timeout_ms));
            return WorkPtr();
        }
        {
            choir_status rc = call(&work);

            if (C10_UNLIKELY(rc != CHOIR_OK))
                raise_last(*place_, lent.op, limit_of(o.timeout_ms));
        }
        put(lent.kept, inputs);
        return wrap(type, title, work, o.timeout_ms, std::move(lent.kept), Tensors(outputs));
    }

    /* Several calls as one work, where the library has no call for all of them. */
    template <class Call>
    WorkPtr each(OpType type, bool async, const choir_coll_opts &o, Lent &lent,
                 const Tensors &outputs, size_t count, Call call, const Tensors &inputs = {})
    {
        bool nested = in_batch();
        choir_status rc = CHOIR_OK;
        choir_work *work = nullptr;

        if (!nested)
            check(choir_batch_begin(group_), lent.op, 0);
        for (size_t i = 0; i < count && rc == CHOIR_OK; i++)
            rc = call(i);
        std::exception_ptr failure;

        if (rc != CHOIR_OK)
            failure = to_exception(*choir_last_error_record(), *place_, lent.op, 0);
        if (!nested)
            check(choir_batch_end(group_, &work), lent.op, 0);
        put(lent.kept, inputs);
        if (nested) {
            put(batch_->kept, lent.kept);
            put(batch_->outputs, outputs);
        }
        WorkPtr wrapped;

        if (!nested)
            wrapped = wrap(type, "choir:coalesced", work, o.timeout_ms, std::move(lent.kept),
                           Tensors(outputs));
        if (failure)
            std::rethrow_exception(failure);
        if (!nested && !async) {
            wrapped->wait();
            return WorkPtr();
        }
        return wrapped;
    }

    static void tell_hook(void *arg, const choir_work_info *info)
    {
        using clock = std::chrono::steady_clock;
        using std::chrono::nanoseconds;
        auto *self = static_cast<ChoirBackend *>(arg);
        auto now = clock::now();
        auto took = nanoseconds((int64_t)(info->finished_ns - info->started_ns));

        self->onCompletionHook_(std::make_shared<c10d::WorkInfo>(
            (OpType)info->op, info->sequence, now - took, now,
            std::chrono::duration<float>((float)(info->active_ms / 1000))));
    }

    const c10::intrusive_ptr<ChoirOptions> options_;
    const std::string url_;
    std::shared_ptr<const Place> place_;
    choir_group *group_ = nullptr;
    std::optional<Batch> batch_;                /* of batch_thread_, and touched by no other */
    std::atomic<std::thread::id> batch_thread_; /* who is coalescing; none: nobody is */
};

/* --- sparse tensors ------------------------------------------------------------------------------------- */

/* What a sparse all-reduce reads and writes; lives as long as the work. */
struct Sparse {
    Tensor given, indices, values;
    std::vector<int64_t> shape;
    choir_sparse in = {}, out = {};

    ~Sparse()
    {
        choir_sparse_free(&out);
    }

    explicit Sparse(const Tensor &tensor)
        : given(tensor), indices(tensor._indices().contiguous()),
          values(tensor._values().contiguous())
    {
        int64_t nnz = tensor._nnz();

        shape.assign(tensor.sizes().begin(), tensor.sizes().begin() + tensor.sparse_dim());
        in.ndim = (int)tensor.sparse_dim();
        in.nnz = (size_t)nnz;
        in.value_count = 1;
        for (int64_t d = 1; d < values.dim(); d++)
            in.value_count *= (size_t)values.size(d);
        in.shape = shape.data();
        in.indices = indices.data_ptr<int64_t>();
        in.values = values.data_ptr();
        in.type = type_of(values, true);
    }

    /* The sum into the tensor of the call. */
    void deliver()
    {
        std::vector<int64_t> sizes = values.sizes().vec();
        Tensor sum_indices = at::empty({ out.ndim, (int64_t)out.nnz }, indices.options());

        sizes[0] = (int64_t)out.nnz;
        Tensor sum_values = at::empty(sizes, values.options());

        if (out.nnz > 0) {
            memcpy(sum_indices.data_ptr(), out.indices, sum_indices.nbytes());
            memcpy(sum_values.data_ptr(), out.values, sum_values.nbytes());
        }
        Tensor sum = at::_sparse_coo_tensor_unsafe(sum_indices, sum_values, given.sizes());

        sum._coalesced_(true);
        at::NoGradGuard no_grad;
        given.copy_(sum);
        given._coalesced_(true);
    }
};

WorkPtr ChoirBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    const Tensor &tensor = single(tensors, "allreduce_sparse", "");

    TORCH_CHECK(tensor.layout() == at::kSparse, "choir::allreduce_sparse: expected a tensor of ",
                "layout sparse_coo, got ", tensor.layout());
    TORCH_CHECK(opts.reduceOp.op_ == c10d::ReduceOp::SUM,
                "choir::allreduce_sparse: unsupported reduction operation "
                "(allreduce of sparse tensors only works with ReduceOp.SUM)");
    TORCH_CHECK(!in_batch(), "choir::allreduce_sparse: cannot be coalesced with others");
    auto sparse = std::make_shared<Sparse>(tensor);
    choir_coll_opts o = plain(opts);
    choir_work *work = nullptr;

    if (choir_allreduce_sparse(group_, &sparse->in, &sparse->out, &o, &work) != CHOIR_OK)
        raise_last(*place_, "allreduce_sparse", limit_of(o.timeout_ms));
    WorkPtr wrapped = wrap(OpType::_ALLREDUCE_SPARSE, "choir:all_reduce", work, o.timeout_ms, {},
                           Tensors(tensors), [sparse] { sparse->deliver(); });

    if (opts.asyncOp)
        return wrapped;
    wrapped->wait();
    return WorkPtr();
}

/* --- operators ------------------------------------------------------------------------------------------ */

/* Make the backend of `pg`, which has the store, and put it there as the one for CPU tensors. */
void attach(const c10::intrusive_ptr<c10d::ProcessGroup> &pg, int64_t timeout_ms, std::string name,
            std::string url, std::vector<int64_t> global_ranks)
{
    auto options = c10::make_intrusive<ChoirBackend::ChoirOptions>(milliseconds(timeout_ms));

    options->group_name = std::move(name);
    options->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
    auto backend = c10::make_intrusive<ChoirBackend>(pg->getStore(), pg->getRank(), pg->getSize(),
                                                     std::move(options), std::move(url));

    pg->setBackend(at::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
}

void end_pending()
{
    std::vector<c10::intrusive_ptr<ChoirBackend>> all;

    {
        std::lock_guard<std::mutex> guard(living().mutex);

        for (ChoirBackend *backend : living().all)
            all.push_back(c10::intrusive_ptr<ChoirBackend>::reclaim_copy(backend));
    }
    for (auto &backend : all)
        backend->end_pending();
}

/* The record of the last operations, for PyTorch's analyser or for people, into a file. */
void dump_flight_record(std::string path, bool json)
{
    if (choir_trace_dump_file(json ? CHOIR_TRACE_JSON : CHOIR_TRACE_PICKLE, path.c_str()) !=
        CHOIR_OK)
        raise_last(Place(), "dump_flight_record", 0);
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) const char *choir_torch_built_for(void)
{
    return CHOIR_TORCH_BUILT_FOR; /* of backend_build.py, which knows the build as well as the version */
}

/* Only after built_for() was found to be the torch that runs: another one has other virtual tables. */
__attribute__((visibility("default"))) void choir_torch_register(void)
{
    static auto *const library = new torch::Library(torch::Library::DEF, "choir", std::nullopt,
                                                    __FILE__, __LINE__);

    library->def("attach", attach);
    library->def("end_pending", end_pending);
    library->def("dump_flight_record", dump_flight_record);
}
}
