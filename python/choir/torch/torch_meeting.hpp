/*
 * torch_meeting.hpp - how ranks meet in torch's store.
 */
#ifndef CHOIR_TORCH_MEETING_HPP
#define CHOIR_TORCH_MEETING_HPP

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "torch_errors.hpp"

namespace {

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

} // namespace

#endif
