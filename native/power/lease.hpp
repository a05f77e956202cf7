#pragma once
/// Caps as leases. A manager lends a node a cap for some seconds; a node that hears nothing more goes back to its safe
/// cap by its own clock. This file is the node's side, ledger.hpp the manager's; both are pure: the time is an
/// argument. Why it is safe: docs/adr/0016-power-leases.md.
///
/// A *fence* (epoch, then manager) says whose word counts: a node that has seen one obeys no lower one, ever. A
/// *ticket* is the node's own clock as it last told it to the manager; a lease runs from there, so that a grant that
/// was delayed on its way is the shorter for it, and the manager knows the latest end of each grant without any
/// agreement of clocks.

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace sonde::power {

struct Fence {
  std::uint64_t epoch = 0;  ///< raised by each takeover; 0: nobody's
  std::string manager;      ///< its name; decides where two took over at once

  auto operator<=>(const Fence&) const = default;
};

struct Ticket {
  std::uint64_t instance = 0;  ///< of the node manager: random at its start, so that tickets of an earlier one are void
  std::int64_t at_ns = 0;      ///< its CLOCK_BOOTTIME, which goes on while a machine sleeps

  bool operator==(const Ticket&) const = default;
};

/// What a manager sends to a node.
struct Grant {
  Fence fence;
  std::uint64_t sequence = 0;  ///< grows with each grant of a fence
  Ticket ticket;
  double lease_s = 0;  ///< from the ticket on
  double cap_w = 0;
};

enum class Refusal : std::uint8_t { none, stale_epoch, stale_sequence, void_ticket, expired, bad_lease, out_of_range };
const char* name_of(Refusal refusal);

/// The leases of one node. Owner-thread.
class LeaseKeeper {
 public:
  struct Limits {
    double min_w = 0, max_w = 0;
    double safe_w = 0;          ///< within them
    double most_lease_s = 600;  ///< longer leases are refused: nobody could take the power back meanwhile
  };

  /// `seen`: the highest fence that this node has obeyed, which the caller keeps on disk. Impossible limits are the
  /// caller's error.
  LeaseKeeper(const Limits& limits, std::uint64_t instance, Fence seen = {})
      : limits_(limits), instance_(instance), seen_(std::move(seen)) {}

  Ticket ticket(std::int64_t now_ns) const { return {instance_, now_ns}; }
  /// Obeys a fence without changing the cap: a manager that takes over learns what its predecessor lent, and ends it. A
  /// lease that runs goes on. `none` or `stale_epoch`. The caller stores seen() on disk before it reports it.
  Refusal fence(const Fence& fence);
  /// `none`: cap_w() is the grant's from now on.
  Refusal offer(const Grant& grant, std::int64_t now_ns);
  /// The hardware's range has changed. A lease outside of it ends.
  void bound(double min_w, double max_w) {
    limits_.min_w = min_w, limits_.max_w = max_w;
    if (!(cap_w_ >= min_w && cap_w_ <= max_w)) drop();
  }
  /// Back to the safe cap at once: the node manager ends, or its hardware did not follow.
  void drop() { until_ns_ = 0; }

  /// What the hardware has to be set to.
  double cap_w(std::int64_t now_ns) const { return leased(now_ns) ? cap_w_ : limits_.safe_w; }
  bool leased(std::int64_t now_ns) const { return until_ns_ > now_ns; }
  /// When the cap changes by itself; 0: never.
  std::int64_t ends_ns() const { return until_ns_; }
  /// The grant that is in force, or was the last.
  std::uint64_t sequence() const { return sequence_; }
  const Fence& seen() const { return seen_; }
  const Limits& limits() const { return limits_; }
  std::uint64_t instance() const { return instance_; }

 private:
  Limits limits_;
  std::uint64_t instance_;
  Fence seen_;
  std::uint64_t sequence_ = 0;  ///< of grants under seen_
  double cap_w_ = 0;
  std::int64_t until_ns_ = 0;
};

}  // namespace sonde::power
