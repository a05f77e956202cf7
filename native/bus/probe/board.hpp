#pragma once
/// Where subscribers of this host tell a writer that a message is there, without the bus: the next one is written when
/// all have it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/deadline.hpp"
#include "core/error.hpp"

namespace sonde::bus::probe {

/// Any-thread, several processes.
struct Board {
  static constexpr std::uint32_t most = 256;
  std::atomic<std::uint64_t> current;       ///< burst << 32 | index of the message that is under way
  std::atomic<std::uint32_t> here, wanted;  ///< how many have it; the last one wakes the writer, who sleeps on `here`
  std::atomic<std::int64_t> arrived_ns[most];  ///< of each subscriber, CLOCK_MONOTONIC; 0: not yet
};

class SharedBoard {
 public:
  static Result<std::unique_ptr<SharedBoard>> make();
  static Result<std::unique_ptr<SharedBoard>> open(const std::string& path);
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  /// Before a message is written.
  void begin(std::uint32_t burst, std::uint32_t index, std::uint32_t subscribers);
  /// A subscriber has one. What is not under way any more is not noted.
  void tell(std::uint32_t subscriber, std::uint32_t burst, std::uint32_t index, std::int64_t at_ns);
  /// False: not all have it by then.
  bool wait(Deadline deadline);
  /// 0: it never came.
  std::int64_t arrived_ns(std::uint32_t subscriber) const {
    return board_->arrived_ns[subscriber].load(std::memory_order_acquire);
  }
  std::string path() const;

 private:
  SharedBoard(int fd, Board* board) : fd_(fd), board_(board) {}
  static Result<std::unique_ptr<SharedBoard>> map(int fd);
  int fd_;
  Board* board_;
};

}  // namespace sonde::bus::probe
