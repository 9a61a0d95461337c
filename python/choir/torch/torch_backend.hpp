/*
 * torch_backend.hpp - the backend: what torch calls, in libchoir's terms.
 */
#ifndef CHOIR_TORCH_BACKEND_HPP
#define CHOIR_TORCH_BACKEND_HPP

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "torch_meeting.hpp"
#include "torch_sparse.hpp"
#include "torch_tensors.hpp"
#include "torch_work.hpp"

namespace {

/* A group of the library's, while the backend or the end of the interpreter uses it. */
struct Joined {
    Joined(choir_group *group_, std::shared_ptr<Turns> turns_)
        : group(group_), turns(std::move(turns_))
    {
    }
    ~Joined()
    {
        WithoutInterpreterLock unlocked;

        if (lost || process != getpid())
            return;
        choir_group_destroy(group);
        if (!InCallback::here())
            turns->wait_for_all();
    }
    Joined(const Joined &) = delete;
    Joined &operator=(const Joined &) = delete;

    /* False if something was pending, which is aborted after a while. */
    bool end_pending(int64_t grace_ms)
    {
        if (choir_group_wait_pending(group, grace_ms) != CHOIR_ERR_TIMEOUT)
            return true;
        choir_group_abort(group);
        return false;
    }

    void give_up()
    {
        if (choir_group_wait_pending(group, 1) != CHOIR_ERR_TIMEOUT && turns->none())
            return;
        lost = true;
        LOG(WARNING) << "choir: a callback is still running when the interpreter ends";
    }

    const pid_t process = getpid(); /* a forked child has neither the group nor the threads whose turns they are */
    choir_group *const group;
    const std::shared_ptr<Turns> turns;
    std::atomic<bool> lost{ false }; /* a callback may never return: its group is left as it is */
    std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook; /* set once, before the library knows of it */
};

/* Those that live, for the end of the interpreter; in a forked child its own. */
struct Living {
    std::mutex mutex;
    std::list<std::weak_ptr<Joined>> all;

    void add(const std::shared_ptr<Joined> &joined)
    {
        std::lock_guard<std::mutex> guard(mutex);

        all.remove_if([](const std::weak_ptr<Joined> &one) { return one.expired(); });
        all.push_back(joined);
    }

    std::vector<std::shared_ptr<Joined>> list()
    {
        std::lock_guard<std::mutex> guard(mutex);
        std::vector<std::shared_ptr<Joined>> found;

        for (const std::weak_ptr<Joined> &one : all) {
            if (std::shared_ptr<Joined> joined = one.lock())
                found.push_back(std::move(joined));
        }
        return found;
    }
};

Living &living()
{
    return one_of_process<Living>();
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
        place->turns = std::make_shared<Turns>();
        place_ = place;
        joined_ = std::make_shared<Joined>(
            join(*store, rank, size, options_->timeout, options_->group_name, url_, *place_),
            place_->turns);
        group_ = joined_->group;
        (void)choir_group_set_timeout(group_, options_->timeout.count());
        init();
        living().add(joined_);
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
    try {
        Lent lent("broadcast");
        const Tensor &tensor = single(tensors, lent.op, "");

        TORCH_CHECK(opts.rootTensor == 0, "choir::broadcast: invalid root tensor: ",
                    opts.rootTensor);
        choir_buf buf = rank_ == opts.rootRank ? lent.in(tensor) : lent.out(tensor);
        choir_coll_opts o = rooted(opts, "broadcast");

        return issue(OpType::BROADCAST, "choir:broadcast", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_broadcast(group_, buf, &o, work); });
    } catch (...) {
        return refused();
    }

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    try {
        Lent lent("allreduce", true);
        const Tensor &tensor = single(tensors, lent.op, "");

        if (tensor.layout() == at::kSparse)
            return allreduce_sparse(tensors, opts);
        choir_buf buf = lent.out(tensor);
        choir_coll_opts o = reduced(opts);

        return issue(OpType::ALLREDUCE, "choir:all_reduce", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_allreduce(group_, buf, &o, work); });
    } catch (...) {
        return refused();
    }

    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;

    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    try {
        Lent lent("reduce", true);
        const Tensor &tensor = single(tensors, lent.op, "");

        TORCH_CHECK(opts.rootTensor == 0, "choir::reduce: invalid root tensor: ", opts.rootTensor);
        choir_buf buf = rank_ == opts.rootRank ? lent.out(tensor) : lent.in(tensor);
        choir_coll_opts o = rooted(opts, "reduce");

        fill_redop(opts.reduceOp, o);
        return issue(OpType::REDUCE, "choir:reduce", opts.asyncOp, o, lent, tensors,
                     [&](choir_work **work) { return choir_reduce(group_, buf, &o, work); });
    } catch (...) {
        return refused();
    }

    /* --- gathering and scattering --- */

    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr _allgather_base(Tensor &output, Tensor &input,
                            const c10d::AllgatherOptions &opts) override
    try {
        Lent lent("_allgather_base");
        choir_buf in = lent.in(input), out = lent.out(output);
        choir_coll_opts o = plain(opts);

        return issue(
            OpType::_ALLGATHER_BASE, "choir:_all_gather_base", opts.asyncOp, o, lent, { output },
            [&](choir_work **work) { return choir_allgather_into(group_, in, out, &o, work); },
            { input });
    } catch (...) {
        return refused();
    }

    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr _reduce_scatter_base(Tensor &output, Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override
    try {
        Lent lent("_reduce_scatter_base", true);
        choir_buf in = lent.in(input), out = lent.out(output);
        choir_coll_opts o = reduced(opts);

        return issue(
            OpType::_REDUCE_SCATTER_BASE, "choir:_reduce_scatter_base", opts.asyncOp, o, lent,
            { output },
            [&](choir_work **work) { return choir_reduce_scatter_from(group_, in, out, &o, work); },
            { input });
    } catch (...) {
        return refused();
    }

    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &out_splits,
                          std::vector<int64_t> &in_splits,
                          const c10d::AllToAllOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override
    try {
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
    } catch (...) {
        return refused();
    }

    /* --- nothing but being there --- */

    WorkPtr barrier(const c10d::BarrierOptions &opts) override
    try {
        Lent lent("barrier");
        choir_coll_opts o = plain(opts);

        return issue(OpType::BARRIER, "choir:barrier", opts.asyncOp, o, lent, {},
                     [&](choir_work **work) { return choir_barrier(group_, &o, work); });
    } catch (...) {
        return refused();
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
    try {
        Lent lent("send");
        choir_buf buf = lent.in(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(OpType::SEND, "choir:send", true, o, lent, tensors,
                     [&](choir_work **work) { return choir_send(group_, buf, to, tag, &o, work); });
    } catch (...) {
        return refused();
    }

    WorkPtr recv(Tensors &tensors, int from, int tag) override
    try {
        Lent lent("recv");
        choir_buf buf = lent.out(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(
            OpType::RECV, "choir:recv", true, o, lent, tensors,
            [&](choir_work **work) { return choir_recv(group_, buf, from, tag, &o, work); });
    } catch (...) {
        return refused();
    }

    WorkPtr recvAnysource(Tensors &tensors, int tag) override
    try {
        Lent lent("recvAnysource");
        choir_buf buf = lent.out(single_p2p(tensors, tag));
        choir_coll_opts o = base_opts();

        return issue(
            OpType::RECVANYSOURCE, "choir:recvAnySource", true, o, lent, tensors,
            [&](choir_work **work) { return choir_recv_any(group_, buf, tag, nullptr, &o, work); });
    } catch (...) {
        return refused();
    }

    /* --- several as one --- */

    void startCoalescing() override
    {
        std::thread::id nobody, me = std::this_thread::get_id();

        /* Acquire, pairs with the release of who had it before: there is no batch then. */
        TORCH_CHECK(batch_thread_.compare_exchange_strong(nobody, me, std::memory_order_acquire),
                    "choir::startCoalescing: ", nobody == me ? "this" : "another",
                    " thread is coalescing on this group already");
        if (choir_batch_begin(group_) != CHOIR_OK) {
            batch_thread_.store(std::thread::id(), std::memory_order_release);
            raise_last(*place_, "startCoalescing", 0);
        }
        batch_.emplace();
    }

    WorkPtr endCoalescing() override
    {
        TORCH_CHECK(in_batch(), "choir::endCoalescing: startCoalescing was not called");
        Batch batch = std::move(*batch_);
        choir_work *work = nullptr;

        batch_.reset();
        /* Release, pairs with the acquire in startCoalescing(): the next thread finds no batch. */
        batch_thread_.store(std::thread::id(), std::memory_order_release);
        choir_status rc = choir_batch_end(group_, &work);
        WorkPtr wrapped;

        if (rc == CHOIR_OK)
            wrapped = wrap(OpType::COALESCED, "choir:coalesced", work, 0, std::move(batch.kept),
                           std::move(batch.outputs));
        if (batch.refusal)
            std::rethrow_exception(batch.refusal);
        check(rc, "endCoalescing", 0);
        return wrapped;
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
        TORCH_CHECK(joined_->hook == nullptr, "choir: there is a completion hook already");
        joined_->hook = std::move(hook);
        choir_status rc = choir_group_on_done(group_, tell_hook, joined_.get());

        if (rc != CHOIR_OK) {
            std::exception_ptr failure = to_exception(*choir_last_error_record(), *place_,
                                                      "registerOnCompletionHook", 0);

            joined_->hook = nullptr;
            std::rethrow_exception(failure);
        }
        /* hasHooks() looks whether there is one, and destroy_process_group() waits then; nobody calls it. */
        onCompletionHook_ = [](std::shared_ptr<c10d::WorkInfo>) {};
    }

    void waitForPendingWorks() override
    {
        if (InCallback::here())
            C10_THROW_ERROR(DistBackendError,
                            "choir::waitForPendingWorks: a callback cannot wait for callbacks");
        for (;;) { /* callbacks may issue operations */
            check(choir_group_wait_pending(group_, 0), "waitForPendingWorks", 0);
            if (joined_->turns->none())
                return;
            joined_->turns->wait_for_all();
        }
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

        if (choir_group_wait_pending(group_, GRACE_MS) != CHOIR_OK)
            return;
        if (!InCallback::here())
            (void)joined_->turns->wait_for_all(milliseconds(GRACE_MS));
        (void)choir_group_shutdown(group_, GRACE_MS);
    }

  private:
    /* What comes after a refusal is no part of it, as if that had been raised at once. What came before is issued all the
     * same: other ranks count on it. */
    struct Batch {
        Kept kept;
        Tensors outputs;
        std::exception_ptr refusal;
    };

    /* Of an operation, where it has caught something. torch's coalescing manager does not end a batch in which
     * anything is raised, and all that this thread calls later would be part of it: so endCoalescing() raises it. */
    WorkPtr refused()
    {
        if (!in_batch())
            throw;
        if (!batch_->refusal)
            batch_->refusal = std::current_exception();
        return WorkPtr();
    }

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

        if (splits.empty()) {
            TORCH_CHECK(rows % size_ == 0,
                        "choir::alltoall_base: Tensor's dim 0 does not divide equally across group "
                        "size");
            if (!even)
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
                 Kept &&kept, Tensors &&outputs, std::function<void()> last_step = nullptr)
    {
        bool watched = at::hasCallbacks();
        std::optional<Tensors> profiled;

        if (watched)
            profiled = kept.tensors.empty() ? outputs : kept.tensors;
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
            if (batch_->refusal)
                return WorkPtr();
            lent.keep(inputs, outputs);
            check(call(nullptr), lent.op, 0);
            batch_->kept.add(std::move(lent.kept));
            put(batch_->outputs, outputs);
            return WorkPtr();
        }
        if (!async && C10_LIKELY(!at::hasCallbacks())) {
            choir_status rc = call(nullptr);

            if (C10_UNLIKELY(rc != CHOIR_OK))
                raise_last(*place_, lent.op, limit_of(o.timeout_ms));
            return WorkPtr();
        }
        lent.keep(inputs, outputs);
        {
            choir_status rc = call(&work);

            if (C10_UNLIKELY(rc != CHOIR_OK))
                raise_last(*place_, lent.op, limit_of(o.timeout_ms));
        }
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

        if (nested && batch_->refusal)
            return WorkPtr();
        lent.keep(inputs, outputs);
        if (!nested)
            check(choir_batch_begin(group_), lent.op, 0);
        for (size_t i = 0; i < count && rc == CHOIR_OK; i++)
            rc = call(i);
        std::exception_ptr failure;

        if (rc != CHOIR_OK)
            failure = to_exception(*choir_last_error_record(), *place_, lent.op, 0);
        if (!nested)
            check(choir_batch_end(group_, &work), lent.op, 0);
        if (nested) {
            batch_->kept.add(std::move(lent.kept));
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
        auto *joined = static_cast<Joined *>(arg);
        auto now = clock::now();
        auto took = nanoseconds((int64_t)(info->finished_ns - info->started_ns));
        InCallback inside;

        log_instead_of_throwing("a completion hook", [&] {
            joined->hook(std::make_shared<c10d::WorkInfo>(
                (OpType)info->op, info->sequence, now - took, now,
                std::chrono::duration<float>((float)(info->active_ms / 1000))));
        });
    }

    const c10::intrusive_ptr<ChoirOptions> options_;
    const std::string url_;
    std::shared_ptr<const Place> place_;
    std::shared_ptr<Joined> joined_;
    choir_group *group_ = nullptr; /* joined_'s */
    std::optional<Batch> batch_;                /* of batch_thread_, and touched by no other */
    std::atomic<std::thread::id> batch_thread_; /* who is coalescing; none: nobody is */
};

WorkPtr ChoirBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
try {
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
} catch (...) {
    return refused();
}

} // namespace

#endif
