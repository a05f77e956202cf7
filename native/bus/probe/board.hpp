#pragma once
/// Shared memory with which subscribers on this host confirm a message to the writer, without the bus. The writer
/// writes the next message when all have confirmed.

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
  std::atomic<std::uint64_t> current;  ///< burst << 32 | index of the current message
  std::atomic<std::uint32_t> here,
      wanted;  ///< number of confirmations; the last one wakes the writer, which sleeps on `here`
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
  /// A subscriber confirms a message. Confirmations of earlier messages are ignored.
  void tell(std::uint32_t subscriber, std::uint32_t burst, std::uint32_t index, std::int64_t at_ns);
  /// False: not all confirmed in time.
  bool wait(Deadline deadline);
  /// 0: it did not arrive.
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
