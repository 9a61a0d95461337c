/*
 * choir_torch.cpp - a c10d Backend on libchoir, for torch.distributed on CPU tensors.
 *
 * This and its headers are the only C++ of the package, because c10d has no other door. It is compiled against the torch that is
 * installed, at first use (backend_build.py), as one piece: torch's own headers are most of the time. It holds no logic that
 * libchoir lacks: it turns tensors into buffers, statuses into torch's exceptions, and handles of works into c10d Works that keep
 * the tensors alive.
 *
 *   tensors -> struct Lent -> choir_*() -> null Work (asyncOp false: done on return) or ChoirWork
 *
 *   torch_errors.hpp    statuses as exceptions
 *   torch_tensors.hpp   tensors as buffers; torch_sparse.hpp those with indices
 *   torch_callbacks.hpp Python's lock, and who calls it
 *   torch_work.hpp      what is under way
 *   torch_meeting.hpp   how a group is made
 *   torch_backend.hpp   what torch calls
 *
 * Python is not included: choir_torch_register() defines operators, of which choir::attach puts a backend on a
 * ProcessGroup that Python hands over boxed (__init__.py).
 */
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "torch_backend.hpp"

namespace {

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

/* The interpreter is about to end: what is pending must call no Python later. What has begun to is waited for: it would
 * need the interpreter's lock once more, which ends its thread. It may issue what is pending then, in any group, so all
 * are looked at until there are no callbacks, and after that nothing is pending. */
void end_pending()
{
    enum { GRACE_MS = 500 };
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30); /* as docs/torch.md has it */
    WithoutInterpreterLock unlocked;
    bool ended = false;

    while (!ended && std::chrono::steady_clock::now() < until) {
        ended = Completers::all().wait_for_all(milliseconds(GRACE_MS));
        for (const std::shared_ptr<Joined> &joined : living().list())
            ended = joined->end_pending(GRACE_MS) && ended;
        ended = ended && Completers::all().none();
    }
    for (const std::shared_ptr<Joined> &joined : living().list())
        joined->give_up();
}

/* The record of the last operations, for PyTorch's analyser or for people, into a file. */
void dump_flight_record(std::string path, bool json)
{
    if (choir_trace_dump_file(json ? CHOIR_TRACE_JSON : CHOIR_TRACE_PICKLE, path.c_str()) !=
        CHOIR_OK)
        raise_last(Place(), "dump_flight_record", 0);
}

/* For as long as the process lives; null, and logged, if torch refused. */
torch::Library *register_operators() noexcept
{
    torch::Library *registered = nullptr;

    log_instead_of_throwing("registering with torch", [&registered] {
        auto library = std::make_unique<torch::Library>(torch::Library::DEF, "choir", std::nullopt,
                                                        __FILE__, __LINE__);

        library->def("attach", attach);
        library->def("end_pending", end_pending);
        library->def("dump_flight_record", dump_flight_record);
        registered = library.release();
    });
    return registered;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) const char *choir_torch_built_for(void)
{
    return CHOIR_TORCH_BUILT_FOR; /* of backend_build.py, which knows the build as well as the version */
}

/* Only after built_for() was found to be the torch that runs: another one has other virtual tables. May be called by
 * several threads, and again. */
__attribute__((visibility("default"))) bool choir_torch_register(void)
{
    static const torch::Library *const library = register_operators();

    return library != nullptr;
}
}
