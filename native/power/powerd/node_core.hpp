#pragma once
/// A node manager without the bus: its hardware, its lease, its disk. LeaseKeeper decides which manager it obeys. The
/// hardware's cap is read back, and corrected if something else changed it. Any-thread: requests are answered while the
/// main loop supervises the hardware. Queries never wait for the hardware, orders do.
///
/// A lease has an end, and setting the safe cap takes as long as the hardware takes. So it starts *early*, by twice the
/// longest recent exchange. If that fails, a watchdog process (hardware/guardian.hpp) does it half as long before the
/// end: `watch` passes it the time.

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
    double tolerance = 0.005;    ///< a cap that differs by more was changed by something else, as a share
    double reopen_s = 10;        ///< between attempts to open hardware that has gone
    double early_s = 0.05;       ///< the least time before the end of a lease at which setting the safe cap begins
    /// When the watchdog process has to set the safe cap, unless it gets another time by then; 0: never. Called before
    /// a cap above the safe one is written, and with 0 only after the safe one was read back. Never waits.
    std::function<void(std::int64_t boottime_ns)> watch;
    std::function<std::uint64_t()> watch_acted;  ///< how often the watchdog acted
  };

  /// Stores the original settings, sets the safe cap. A disk that cannot be written, or hardware that does not follow,
  /// is a trouble and no error: the node is managed as far as possible. Errors: those of Node::open(), power.bad_node
  /// (the safe cap is outside the hardware's range), power.state (the fence on disk is damaged).
  static Result<std::unique_ptr<NodeCore>> open(const Settings& settings, NodeState& state);

  struct Reply {
    std::uint32_t code = 0;  ///< bus::ReplyCode or PowerCode
    std::string message;
  };
  /// FENCE_NODE and SET_POWER_NODE. An order answered with code 0 is on disk and in the hardware. A cap that the
  /// hardware already had at the last reading is not written again: settings of BMCs wear out, and renewals would keep
  /// a slow one busy. look() keeps it in place.
  Reply obey(const NodeCommand& command);
  NodeAnswer answer(NodeAsk ask) const;
  /// The answer to an order: the lease, and what may be set.
  NodeAnswer said() const;
  NodeTelemetry telemetry(double period_s);

  /// Reads the hardware, and corrects its cap. Call it once a second, and when ends_ns() has come.
  void look();
  /// Sets the safe cap if the lease has ended.
  void expire();
  /// On CLOCK_BOOTTIME, when to call expire(): this early before the lease ends; 0: never.
  std::int64_t ends_ns() const;
  /// On CLOCK_BOOTTIME, when the last exchange with the hardware began or ended.
  std::int64_t moved_ns() const { return moved_ns_; }
  /// Grows with each change of the hardware's cap, by orders or seen in readings.
  std::uint64_t cap_changes() const { return cap_changes_; }

  /// Ends the lease: sets the safe cap, or with `restore` the settings from before the first cap. Errors: those of the
  /// hardware, power.state.
  Result<void> end(bool restore);

  /// A code and a sentence about the present fault; empty: none.
  std::string trouble() const;
  struct Facts {
    std::string model;
    Source source = Source::none;
    double min_w = unknown, max_w = unknown, safe_w = unknown, cap_w = unknown;
    bool settable = false;
    std::uint64_t overwritten = 0;  ///< how often a changed cap was found
    std::uint64_t guarded = 0;      ///< how often the watchdog process had to set the safe cap
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
  bool range_changed();
  Report report_locked(std::int64_t now_ns) const;
  std::string trouble_locked() const;

  Settings settings_;
  NodeState& state_;
  std::mutex hardware_mutex_;  ///< taken first. Of whoever changes anything
  std::unique_ptr<Node> node_;
  Range range_;
  double wanted_w_ = unknown;    ///< the cap that was last set
  double followed_w_ = unknown;  ///< and what was then read back
  bool follows_ = false;
  bool agrees_ = false;  ///< the last read-back, after setting or by a look, still agrees
  std::int64_t reopened_ns_ = 0;
  bool kept_ = false, fence_kept_ = false;  ///< on disk: the originals, the fence
  Obedience obedience_;
  double disobeyed_s_ = 0;       ///< of the last report
  std::int64_t watched_ns_ = 0;  ///< the last argument of `watch`
  std::uint64_t guarded_seen_ = 0;
  std::int64_t looked_ns_ = 0;              ///< realtime of the last reading
  std::atomic<double> slowest_s_ = 0;       ///< longest recent exchange with the hardware
  std::atomic<std::int64_t> waits_ns_ = 0;  ///< since when one is under way; 0: none is
  std::atomic<std::int64_t> moved_ns_ = 0;
  std::atomic<std::uint64_t> cap_changes_ = 0;

  mutable std::mutex mutex_;  ///< for the members below; never held while waiting for hardware or disk
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
