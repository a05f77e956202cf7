#pragma once
/// A node manager without the bus: its hardware, its lease, its disk. What it obeys, LeaseKeeper decides; what the
/// hardware has is read back, and put right where something else changed it. Any-thread: requests are answered while
/// the main loop looks after the hardware. Questions never wait for the hardware, orders do.
///
/// A lease has an end, and to set the safe cap takes as long as the hardware takes: it is begun *early*, by twice the
/// longest exchange of late. Where that does not happen, a guardian (hardware/guardian.hpp) is to do it half as long
/// before the end: `watch` says when.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "power/config.hpp"
#include "power/hardware/node.hpp"
#include "power/messages.hpp"
#include "power/powerd/state.hpp"

namespace sonde::power {

class NodeCore {
 public:
  using Open = std::function<Result<std::unique_ptr<Node>>()>;
  using Clock = std::function<std::int64_t()>;
  struct Settings {
    Member member;
    Open open;  ///< the hardware: at the start, and again when it had gone
    Clock boottime_ns, realtime_ns;
    std::uint64_t instance = 0;  ///< random, not 0
    double tolerance = 0.005;    ///< a cap that differs by more was changed by somebody else, as a share
    double reopen_s = 10;        ///< between tries to open hardware that has gone
    double early_s = 0.05;       ///< the least time before the end of a lease at which the safe cap is begun to be set
    /// When somebody else has to set the safe cap, unless another time is told by then; 0: not at all. Told before a
    /// cap above the safe one is written, and 0 only after the safe one was read back. Never waits.
    std::function<void(std::int64_t boottime_ns)> watch;
    std::function<std::uint64_t()> watch_acted;  ///< how often it did
  };

  /// Keeps the originals, sets the safe cap. A disk that takes nothing, or hardware that does not follow, is trouble
  /// and no error: the node is managed as far as that goes. Errors: those of Node::open(), power.bad_node (the safe cap
  /// is none of the hardware's range), power.state (the fence on disk is damaged).
  static Result<std::unique_ptr<NodeCore>> open(Settings settings, NodeState& state);

  struct Reply {
    std::uint32_t code = 0;  ///< bus::ReplyCode or PowerCode
    std::string message;
  };
  /// FENCE_NODE and SET_POWER_NODE. What it answers with code 0 is on disk and in the hardware. A cap that the hardware
  /// was last read to have is not written again: settings of BMCs wear out, and a slow one would be kept busy by
  /// renewals. look() sees to it that it stays.
  Reply obey(const NodeCommand& command);
  NodeAnswer answer(NodeAsk ask) const;
  /// Of an order: the lease, and what may be set.
  NodeAnswer said() const;
  NodeTelemetry telemetry(double period_s);

  /// Reads the hardware, mends what is not as it should be. Once a second, and when ends_ns() has come.
  void look();
  /// The lease has ended, where it has: the safe cap.
  void expire();
  /// On CLOCK_BOOTTIME, when expire() is to be called: that early before the lease ends; 0: never.
  std::int64_t ends_ns() const;
  /// On CLOCK_BOOTTIME, when an exchange with the hardware began or ended last.
  std::int64_t moved_ns() const { return moved_ns_; }
  /// Of orders and of readings: grows when the hardware's cap is another one.
  std::uint64_t cap_changes() const { return cap_changes_; }

  /// No lease any more: the safe cap, or with `restore` what the hardware had before the first. Errors: those of the
  /// hardware, power.state.
  Result<void> end(bool restore);

  /// A code and a sentence of what is wrong now; empty: nothing.
  std::string trouble() const;
  struct Facts {
    std::string model;
    Source source = Source::none;
    double min_w = unknown, max_w = unknown, safe_w = unknown, cap_w = unknown;
    bool settable = false;
    std::uint64_t overwritten = 0;  ///< how often a cap was found changed
    std::uint64_t guarded = 0;      ///< how often the guardian had to set the safe cap
  };
  Facts facts() const;

 private:
  NodeCore(Settings settings, NodeState& state, std::unique_ptr<Node> node, const LeaseKeeper& keeper);
  void keep_originals();
  void keep_fence();
  NodeAnswer said_locked() const;
  Result<double> apply(double cap_w, std::int64_t lease_ends_ns);
  void settle();
  std::int64_t early_ns(std::int64_t lease_ns) const;
  std::int64_t early_locked() const { return early_ns(lease_ns_); }
  std::int64_t due_ns(double cap_w, std::int64_t lease_ends_ns) const;
  void tell_watch(std::int64_t boottime_ns);
  bool was_guarded();
  void has_cap_locked(double cap_w, std::int64_t before_ns, std::int64_t after_ns);
  void reopen(std::int64_t now_ns);
  Report report_locked(std::int64_t now_ns) const;
  std::string trouble_locked() const;

  Settings settings_;
  NodeState& state_;
  std::mutex hardware_mutex_;  ///< taken first. Of whoever changes anything
  std::unique_ptr<Node> node_;
  Range range_;
  double wanted_w_ = unknown;    ///< what was set last
  double followed_w_ = unknown;  ///< and what was read back then
  bool follows_ = false;
  bool agrees_ = false;  ///< what was read back last, after that or by a look, is still that
  std::int64_t reopened_ns_ = 0;
  bool kept_ = false, fence_kept_ = false;  ///< on disk: the originals, the fence
  Obedience obedience_;
  std::int64_t watched_ns_ = 0;  ///< what `watch` was told last
  std::uint64_t guarded_seen_ = 0;
  std::int64_t looked_ns_ = 0;              ///< realtime of the last reading
  std::atomic<double> slowest_s_ = 0;       ///< of the exchanges with the hardware of late
  std::atomic<std::int64_t> waits_ns_ = 0;  ///< since when one is under way; 0: none is
  std::atomic<std::int64_t> moved_ns_ = 0;
  std::atomic<std::uint64_t> cap_changes_ = 0;

  mutable std::mutex mutex_;  ///< of what follows: never held while hardware or disk is waited for
  LeaseKeeper keeper_;
  NodeReading reading_;
  std::string model_;
  std::int64_t lease_ns_ = 0;      ///< how long the lease is
  double cap_w_ = unknown;         ///< read back
  std::int64_t cap_since_ns_ = 0;  ///< realtime: since when it has that at the latest where it is lower than before, at
                                   ///< the earliest where higher; 0: not known
  double energy_j_ = unknown, energy_before_j_ = 0;
  double drawn_w_ = 0;  ///< sum over the looks since the last telemetry
  std::uint32_t looks_ = 0;
  std::uint64_t overwritten_ = 0;
  std::string hardware_trouble_, originals_trouble_, fence_trouble_, overwritten_trouble_, disobedience_,
      guarded_trouble_;
  std::int64_t overwritten_ns_ = 0, guarded_ns_ = 0;
  std::uint64_t guarded_ = 0;
};

}  // namespace sonde::power
