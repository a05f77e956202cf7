#pragma once
/// A node manager without the bus: its hardware, its lease, its disk. What it obeys, LeaseKeeper decides; what the hardware has is read back, and put
/// right where something else changed it. Any-thread: requests are answered while the main loop looks after the hardware. Questions never wait
/// for the hardware, orders do.

#include <atomic>
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
    Open open;                        ///< the hardware: at the start, and again when it had gone
    Clock boottime_ns, realtime_ns;
    std::uint64_t instance = 0;       ///< random, not 0
    double tolerance = 0.005;         ///< a cap that differs by more was changed by somebody else, as a share
    double reopen_s = 10;             ///< between tries to open hardware that has gone
  };

  /// Keeps the originals, sets the safe cap. A disk that takes nothing, or hardware that does not follow, is trouble and no error: the node is managed
  /// as far as that goes. Errors: those of Node::open(), power.bad_node (the safe cap is none of the hardware's range), power.state (the fence on disk
  /// is damaged).
  static Result<std::unique_ptr<NodeCore>> open(Settings settings, NodeState& state);

  struct Reply {
    std::uint32_t code = 0;           ///< bus::ReplyCode or PowerCode
    std::string message;
  };
  /// FENCE_NODE and SET_POWER_NODE. What it answers with code 0 is on disk and in the hardware.
  Reply obey(const NodeCommand& command);
  NodeAnswer answer(NodeAsk ask) const;
  /// Of an order: the lease, and what may be set.
  NodeAnswer said() const;
  NodeTelemetry telemetry(double period_s);

  /// Reads the hardware, mends what is not as it should be. Once a second, and when ends_ns() has come.
  void look();
  /// The lease has ended, where it has: the safe cap.
  void expire();
  /// On CLOCK_BOOTTIME, when the cap changes by itself; 0: never.
  std::int64_t ends_ns() const;

  /// No lease any more: the safe cap, or with `restore` what the hardware had before the first. Errors: those of the hardware, power.state.
  Result<void> end(bool restore);

  /// A code and a sentence of what is wrong now; empty: nothing.
  std::string trouble() const;
  struct Facts {
    std::string model;
    Source source = Source::none;
    double min_w = unknown, max_w = unknown, safe_w = unknown, cap_w = unknown;
    bool settable = false;
    std::uint64_t overwritten = 0;    ///< how often a cap was found changed
  };
  Facts facts() const;

 private:
  NodeCore(Settings settings, NodeState& state, std::unique_ptr<Node> node, const LeaseKeeper& keeper);
  void keep_originals();
  void keep_fence();
  NodeAnswer said_locked() const;
  Result<double> apply(double cap_w);
  void settle();
  void reopen(std::int64_t now_ns);
  Report report_locked(std::int64_t now_ns) const;
  std::string trouble_locked() const;

  Settings settings_;
  NodeState& state_;
  std::mutex hardware_mutex_;         ///< taken first. Of whoever changes anything
  std::unique_ptr<Node> node_;
  Range range_;
  double wanted_w_ = unknown;         ///< what was set last
  double followed_w_ = unknown;       ///< and what was read back then
  bool follows_ = false;
  std::int64_t reopened_ns_ = 0;
  bool kept_ = false, fence_kept_ = false;   ///< on disk: the originals, the fence
  Obedience obedience_;

  mutable std::mutex mutex_;          ///< of what follows: never held while hardware or disk is waited for
  LeaseKeeper keeper_;
  NodeReading reading_;
  std::string model_;
  double cap_w_ = unknown;            ///< read back
  double energy_j_ = unknown, energy_before_j_ = 0;
  double drawn_w_ = 0;                ///< sum over the looks since the last telemetry
  std::uint32_t looks_ = 0;
  std::uint64_t overwritten_ = 0;
  std::string hardware_trouble_, originals_trouble_, fence_trouble_, overwritten_trouble_, disobedience_;
  std::int64_t overwritten_ns_ = 0;
};

}  // namespace sonde::power
