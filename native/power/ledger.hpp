#pragma once
/// The manager's side of leases: what each node may be at, at the most, and therefore what may be lent now. Whatever is
/// lost, repeated, reordered or delayed, and whoever dies, the sum of the caps of all nodes stays within the budget.
/// Pure: the time is an argument.
///
/// A node is counted at the highest of: its safe cap, which it goes to by itself; every cap that was lent to it and may
/// be in force, now or when a message arrives; and what it said that its hardware has. Power is lent only out of what
/// the budget has beyond these sums, so that caps are lowered first, and raised when that was confirmed or when the old
/// leases have run out.
///
/// Where another node manager of the same name begins, what was lent to the earlier one counts beside it until that has
/// run out: the earlier one may run on elsewhere, as on a cloned host.
///
/// Of two managers only one can lend: grants above safe caps need that more than half of the nodes obeyed the manager's
/// fence within the last lease, and a node obeys one. One that takes over counts nodes that it does not hear at their
/// most until no lease of another can run.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "power/lease.hpp"

namespace sonde::power {

struct Member {
  std::string name;
  double min_w = 0, max_w = 0;
  double safe_w = 0;  ///< what it goes to by itself
};

/// What a node says, in an answer or in its telemetry.
struct Report {
  Ticket ticket;
  Fence seen;
  std::uint64_t sequence = 0;  ///< of the grant in force, or the last, under `seen`
  bool leased = false;
  double left_s = 0;   ///< of its lease
  double lease_w = 0;  ///< what it was lent
  double cap_w = 0;    ///< what its hardware was read back to have; NaN: it cannot tell
};

class Ledger {
 public:
  struct Settings {
    double budget_w = 0;
    double lease_s = 15;
    double others_lease_s = 0;  ///< the longest for which another manager may have lent, as far as that is known
    double renew_s = 5;         ///< a lease is renewed when so much of it has gone; below lease_s
    double resend_s = 1;        ///< a grant that nobody confirmed is sent again
    double clock_error = 1e-3;  ///< how much slower a node's clock may run than the manager's, as a share: leases are
                                ///< counted longer by it
    /// Lend although others than half of the nodes are heard: for one manager without a standby, where most nodes are
    /// switched off.
    bool without_quorum = false;
  };

  /// Errors: power.bad_node (which, why), power.safe_above_budget (the sum of safe caps; both are named),
  /// power.bad_lease.
  static Result<Ledger> open(const Settings& settings, std::vector<Member> members, Fence own);

  /// A node said something, that arrived at `now_ns`; asked_ns: when the question was sent that it answers, 0: it was
  /// not asked (telemetry). A report that comes after a newer one changes nothing; of a node manager that started anew
  /// counts what it answers to a question that was sent after the earlier one was heard. Returns whether the node obeys
  /// this ledger's fence; false: it has seen a higher one (see higher()), or has to be asked.
  bool heard(std::size_t node, const Report& report, std::int64_t asked_ns, std::int64_t now_ns);

  /// From now on. A budget below the sum of safe caps is refused (power.safe_above_budget) and changes nothing. A
  /// smaller one takes as long as it takes to lower the caps: until then committed_w() is above it, and nothing is lent
  /// beyond what each node may have anyway.
  Result<void> set_budget(double budget_w);

  /// Another manager lends, or lent, for so long.
  void others_lease(double lease_s) { settings_.others_lease_s = std::max(settings_.others_lease_s, lease_s); }

  /// What to send now, so that the nodes come nearer to `caps_w` (one for each member, within its range; NaN: as it
  /// is): decreases at once, increases as far as the budget has room, renewals. What is returned counts as sent. Nodes
  /// that did not say a ticket yet get nothing.
  std::vector<std::pair<std::size_t, Grant>> due(const std::vector<double>& caps_w, std::int64_t now_ns);

  /// Other node managers of that name that run as well (namesakes.hpp), and what each may be at, at most: counted
  /// beside the one that is lent to.
  void beside(std::size_t node, std::vector<std::pair<std::uint64_t, double>> others);

  /// What the nodes may be at together, at most.
  double committed_w(std::int64_t now_ns) const;
  /// Whether more than half of the nodes answered within the last lease, as obeying this ledger.
  bool quorum(std::int64_t now_ns) const;
  /// The same of questions that were sent at `since_ns` or later: then no other manager had their majority at that
  /// time.
  bool quorum_since(std::int64_t since_ns) const;
  /// Whether no lease of an earlier manager can run any more that this one does not know.
  bool settled(std::int64_t now_ns) const;
  /// Whether no lease of an earlier manager can run any more at all.
  bool alone(std::int64_t now_ns) const;
  /// The most that all node managers of one name may be at, together.
  double committed_w(std::size_t node, std::int64_t now_ns) const;
  /// The same of the one alone that is lent to.
  double own_w(std::size_t node, std::int64_t now_ns) const;
  /// What a node said last, as it is now: its safe cap once its lease has run out.
  double confirmed_w(std::size_t node, std::int64_t now_ns) const;
  bool known(std::size_t node) const { return books_[node].known; }
  bool stuck(std::size_t node) const {
    return books_[node].stuck;
  }  ///< its hardware has more than it was lent, by its own word
  std::int64_t heard_ns(std::size_t node) const { return books_[node].heard_ns; }
  const std::vector<Member>& members() const { return members_; }
  const Settings& settings() const { return settings_; }
  const Fence& fence() const { return fence_; }
  /// The highest fence that any node told. Above fence(): somebody has taken over, and this manager steps back.
  const Fence& higher() const { return higher_; }
  std::size_t find(const std::string& node) const;  ///< members().size(): there is none

 private:
  struct Sent {
    std::uint64_t sequence = 0;
    double cap_w = 0;
    std::int64_t ends_ns = 0;  ///< by the manager's clock, at the latest
    std::int64_t sent_ns = 0;
  };
  /// A lease of one node manager that may be in force.
  struct Lent {
    double lent_w = 0;  ///< the cap of the lease that it confirmed
    std::int64_t lent_ends_ns = 0;
    std::vector<Sent> sent;  ///< not confirmed, and not run out
    double highest_w(std::int64_t now_ns) const;
  };
  struct Book : Lent {
    bool known = false;  ///< it obeys this fence: whatever may be in force stands here
    bool heard = false;
    Ticket ticket;
    std::int64_t heard_ns = 0;              ///< when that ticket came
    std::int64_t asked_ns = 0;              ///< of the last answer under this fence
    double told_w = 0;                      ///< its hardware
    bool stuck = false;                     ///< that is above what it should be
    std::map<std::uint64_t, Lent> earlier;  ///< by instance: other node managers of that name
    std::vector<std::pair<std::uint64_t, double>> beside;
  };
  Ledger(const Settings& settings, std::vector<Member> members, Fence own);
  std::int64_t longest(double lease_s) const;

  Settings settings_;
  std::vector<Member> members_;
  std::map<std::string, std::size_t> index_;
  Fence fence_, higher_;
  std::int64_t majority_ns_ = 0;  ///< since when more than half obey; 0: not yet
  std::vector<Book> books_;
  std::uint64_t sequence_ = 0;
};

}  // namespace sonde::power
