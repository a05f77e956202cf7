#pragma once
/// The memory that a server uses for all its peers together, authenticated or not: the limit, and each connection's
/// share. Any-thread; a Share belongs to one thread.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sonde::store {

class Budget {
 public:
  /// Connections that use at most this may also use the last quarter of the budget, so that a few large ones do not
  /// block the others.
  static constexpr std::size_t small_bytes = 1u << 20;

  explicit Budget(std::size_t max_bytes) : max_(max_bytes) {}

  std::size_t max() const { return max_; }
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  /// Requests and connections that were refused because there was no room.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  /// Whether there is room for a connection that uses `bytes`. False counts as a refusal.
  bool admits(std::size_t bytes) { return used() + bytes <= max_ || refuse(); }

  /// The memory of one connection.
  class Share {
   public:
    explicit Share(Budget& budget) : budget_(budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { budget_.used_.fetch_sub(bytes_, std::memory_order_relaxed); }
    /// Sets the amount that the connection uses. False: there is no room for more, and nothing has changed.
    bool hold(std::size_t bytes) {
      if (bytes == bytes_) return true;
      if (bytes > bytes_ && !budget_.take(bytes - bytes_, bytes)) return false;
      if (bytes < bytes_) budget_.used_.fetch_sub(bytes_ - bytes, std::memory_order_relaxed);
      bytes_ = bytes;
      return true;
    }
    std::size_t bytes() const { return bytes_; }

   private:
    Budget& budget_;
    std::size_t bytes_ = 0;
  };

 private:
  bool take(std::size_t more, std::size_t whole) {
    const std::size_t most = whole <= small_bytes ? max_ : max_ - max_ / 4;
    std::size_t used = used_.load(std::memory_order_relaxed);
    do
      if (more > most || used > most - more) return refuse();
    while (!used_.compare_exchange_weak(used, used + more, std::memory_order_relaxed));
    return true;
  }
  bool refuse() {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  const std::size_t max_;
  std::atomic<std::size_t> used_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
};

}  // namespace sonde::store
