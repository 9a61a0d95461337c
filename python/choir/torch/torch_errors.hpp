/*
 * torch_errors.hpp - torch's exceptions for what libchoir says, and its names for what all of this uses.
 */
#ifndef CHOIR_TORCH_ERRORS_HPP
#define CHOIR_TORCH_ERRORS_HPP

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cxxabi.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <choir/choir.h>

namespace {

using at::Tensor;
using c10d::OpType;
using std::chrono::milliseconds;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class Turns; /* torch_callbacks.hpp */

/* What its operations need to know of a group, which may end before them. */
struct Place {
    std::vector<int64_t> global_ranks; /* empty: ranks of the group are those of the job */
    std::shared_ptr<Turns> turns;      /* of the callbacks */
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

/* For what the library calls, or Python through ctypes: they are C, and nothing may be thrown through them. A thread that
 * asks for the interpreter's lock after its end is unwound, by something that must not be caught, nor pass through what
 * throws nothing: so it stays here, until the process ends. */
template <class Step> void log_instead_of_throwing(const char *what, Step step) noexcept
{
    try {
        step();
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind &) {
        for (;;)
            pause();
#endif
    } catch (const std::exception &error) {
        LOG(ERROR) << "choir: " << what << " failed: " << error.what();
    } catch (...) {
        LOG(ERROR) << "choir: " << what << " failed";
    }
}

} // namespace

#endif
