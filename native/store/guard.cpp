#include "store/guard.hpp"

#include <atomic>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "core/thrown.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t text_bytes_max = 1024;  // it travels with an answer

class Guard final : public Backend {
 public:
  Guard(std::unique_ptr<Backend> backend, std::string who)
      : backend_(std::move(backend)), who_(std::move(who)), caps_(backend_->caps()) {}

  Caps caps() const override { return caps_; }

  void execute(std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes, Arena& arena) override {
    if (half_done_.load(std::memory_order_acquire)) return fail(outcomes.first(ops.size()), not_again().what, arena);
    try {
      backend_->execute(ops, safety, outcomes, arena);
    } catch (...) {
      std::string why;
      try {
        why = threw(who_).what;
      } catch (const std::bad_alloc&) {
        why.clear();  // likely the same was thrown; what follows has to happen without a text
      }
      try {
        backend_->roll_back();
      } catch (...) {
        half_done_.store(true, std::memory_order_release);
        try {
          why += "; then it could not undo the batch, and stopped working until it is opened again: " +
                 text_of_exception();
        } catch (const std::bad_alloc&) {
          why.clear();
        }
      }
      fail(outcomes.first(ops.size()), why, arena);
    }
  }

  Result<void> sync(bool all) override {
    if (half_done_.load(std::memory_order_acquire)) return not_again();
    try {
      return backend_->sync(all);
    } catch (...) {
      return threw(who_);
    }
  }

  Result<void> settle() override {
    if (half_done_.load(std::memory_order_acquire)) return not_again();
    try {
      return backend_->settle();
    } catch (...) {
      return threw(who_);
    }
  }

  std::string describe() const override {
    try {
      return backend_->describe();
    } catch (...) {
      return threw(who_).what;
    }
  }

 private:
  Error not_again() const {
    return {"store.internal", who_ + " could not undo a batch in which it threw an exception, and stopped working",
            "start the server again, or open the backend again"};
  }

  /// The first operation without an outcome is taken for the one that threw: it has the text.
  void fail(std::span<Outcome> outcomes, std::string_view why, Arena& arena) const {
    std::size_t at = 0;
    while (at + 1 < outcomes.size() && outcomes[at].status != Status::pending) ++at;
    for (std::size_t k = 0; k < outcomes.size(); ++k) {
      if (k == at || (caps_.role == Role::data && outcomes[k].status == Status::pending))
        outcomes[k] = {Status::internal, 0, 0, {}};
      else if (caps_.role != Role::data) outcomes[k] = {Status::aborted, 0, 0, {}};
    }
    try {
      if (at < outcomes.size()) outcomes[at].data = arena.copy(bytes_of(why.substr(0, text_bytes_max)));
    } catch (const std::bad_alloc&) {
      // The first exception was likely the same: the status is sent without its text.
    }
  }

  std::unique_ptr<Backend> backend_;
  std::string who_;
  Caps caps_;
  std::atomic<bool> half_done_ = false;
};

}  // namespace

Error threw(const std::string& who) {
  return {"store.internal", who + " threw an exception: " + text_of_exception(),
          "this is an error in its code: report it to its author"};
}

Result<std::unique_ptr<Backend>> guarded(std::unique_ptr<Backend> backend, const std::string& who) {
  try {
    return std::unique_ptr<Backend>(std::make_unique<Guard>(std::move(backend), who));
  } catch (...) {
    return threw(who);
  }
}

}  // namespace sonde::store
