#pragma once
/// The counters of a server: operations by kind and outcome, bytes, connections, durations of messages. Any-thread;
/// counting takes no lock.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "store/types.hpp"

namespace sonde::store {

/// Durations in classes of a factor of two, from 1 µs to some 70 minutes.
class Durations {
 public:
  static constexpr std::size_t classes = 33;
  void add(std::int64_t ns);
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum_s() const { return static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9; }
  /// The upper edge of the class that the q-quantile lies in, s; 0 without any.
  double quantile_s(double q) const;
  std::uint64_t in_class(std::size_t k) const { return counts_[k].load(std::memory_order_relaxed); }
  static double edge_s(std::size_t k) { return 1e-6 * static_cast<double>(std::uint64_t{1} << k); }

 private:
  std::array<std::atomic<std::uint64_t>, classes> counts_{};
  std::atomic<std::uint64_t> count_ = 0, sum_ns_ = 0;
};

struct Metrics {
  std::array<std::atomic<std::uint64_t>, 128> operations{};  ///< by Code
  std::array<std::atomic<std::uint64_t>, 16> outcomes{};     ///< by Status
  std::array<Durations, role_count> waited, worked;          ///< of a message: before the backend, and in it
  std::array<Durations, role_count> synced;                  ///< each sync() of the role's backend
  std::atomic<std::uint64_t> bytes_in = 0, bytes_out = 0;    ///< data, without headers and tables
  std::atomic<std::uint64_t> frames = 0, bad_frames = 0, refused = 0;
  std::atomic<std::uint64_t> connections = 0, connections_ever = 0;
  std::atomic<std::uint64_t> dropped = 0;  ///< connections that ended because the server could not go on with them

  void failed(std::string what);
  std::string last_error() const;
  double last_error_s_ago() const;
  /// Records the refusal of an unauthenticated peer. It is separate from the errors, which the peer must not be able to
  /// hide, and contains no text from the peer.
  void turned_away(const std::string& host, const std::string& code);
  std::string last_refused() const;
  double last_refused_s_ago() const;

 private:
  struct Last {
    std::string what;
    double at_s = 0;
    double s_ago() const;
  };
  mutable std::mutex mutex_;
  Last error_, refused_;
};

}  // namespace sonde::store
