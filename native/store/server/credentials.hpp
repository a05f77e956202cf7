#pragma once
/// Asks MUNGE whose credentials are, in threads of its own: its daemon may take seconds, or not answer at all, and
/// no connection may wait for what another one sent. Any-thread.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/error.hpp"

namespace sonde::store {

class Credentials {
 public:
  static constexpr std::size_t threads_max = 4;

  struct Question {
    std::string credential, payload;
    /// Whether the answer is still needed. Called by any thread.
    std::function<bool()> wanted;
    /// Called once with the uid or an error, by any thread; not after ~Credentials began.
    std::function<void(Result<unsigned>)> answer;
  };

  /// waiting_max: questions that may wait for a thread.
  explicit Credentials(std::size_t waiting_max);
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;
  /// Does not wait for a daemon that hangs: such a thread ends by itself when libmunge gives up.
  ~Credentials();

  /// False: too many wait already, or there is no thread.
  bool ask(Question question);
  std::size_t waiting() const;

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace sonde::store
