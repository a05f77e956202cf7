#pragma once
/// The manager's side of leases: the most that each node may draw, and therefore what may be lent now. Whatever
/// messages are lost, repeated, reordered or delayed, and whatever process dies, the sum of the caps of all nodes stays
/// within the budget. Pure: the time is an argument.
///
/// A node counts at the highest of: its safe cap, to which it returns by itself; every cap that was lent to it and may
/// be in force, now or when a message arrives; and the cap that it reported for its hardware. Only the budget beyond
/// these sums is lent. So caps are lowered first, and raised when the lowering was confirmed or when the old leases
/// have run out.
///
/// When another node manager of the same name starts, the leases of the earlier one count in addition until they have
/// run out: the earlier one may run on elsewhere, as on a cloned host.
///
/// Only one of two managers can lend: grants above safe caps require that more than half of the nodes obeyed the
/// manager's fence within the last lease, and a node obeys only one. A manager that takes over counts nodes that it
/// does not hear at their highest power until no lease of another manager can run.

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
  double safe_w = 0;  ///< the cap to which it returns by itself
};

/// A node's report, in an answer or in its telemetry.
struct Report {
  Ticket ticket;
  Fence seen;
  std::uint64_t sequence = 0;  ///< of the grant in force, or of the last one, under `seen`
  bool leased = false;
  double left_s = 0;   ///< of its lease
  double lease_w = 0;  ///< the cap of its lease
  double cap_w = 0;    ///< the cap read back from its hardware; NaN: unknown
};

class Ledger {
 public:
  struct Settings {
    double budget_w = 0;
    double lease_s = 15;
    double others_lease_s = 0;  ///< the longest lease that another manager may have given, as far as it is known
    double renew_s = 5;         ///< a lease is renewed when this part of it has passed; below lease_s
    double resend_s = 1;        ///< an unconfirmed grant is sent again after this time
    double clock_error = 1e-3;  ///< how much slower a node's clock may run than the manager's, as a share: leases are
                                ///< counted longer by it
    /// Lend even if fewer than half of the nodes are heard: for one manager without a standby, when most nodes are
    /// switched off.
    bool without_quorum = false;
  };

  /// Errors: power.bad_node (which, why), power.safe_above_budget (the sum of safe caps; both are named),
  /// power.bad_lease.
  static Result<Ledger> open(const Settings& settings, std::vector<Member> members, Fence own);

  /// A report of a node that arrived at `now_ns`; asked_ns: when its request was sent, 0: no request (telemetry). A
  /// report older than the last one changes nothing. Of a restarted node manager, only answers count to requests that
  /// were sent after the earlier one was heard. Returns whether the node obeys this ledger's fence; false: it has seen
  /// a higher one (see higher()), or must be asked.
  bool heard(std::size_t node, const Report& report, std::int64_t asked_ns, std::int64_t now_ns);

  /// Valid from now on. A budget below the sum of safe caps is refused (power.safe_above_budget) and changes nothing. A
  /// lower budget takes effect as the caps are lowered: until then committed_w() is above it, and nothing is lent
  /// beyond what each node may have anyway.
  Result<void> set_budget(double budget_w);

  /// Another manager lends, or lent, for this time.
  void others_lease(double lease_s) { settings_.others_lease_s = std::max(settings_.others_lease_s, lease_s); }

  /// The grants to send now, so that the nodes come nearer to `caps_w` (one for each member, within its range; NaN:
  /// unchanged): decreases at once, increases as far as the budget allows, renewals. Returned grants count as sent.
  /// Nodes without a known ticket get none.
  std::vector<std::pair<std::size_t, Grant>> due(const std::vector<double>& caps_w, std::int64_t now_ns);

  /// Other node managers of the same name that also run (namesakes.hpp), and the most that each may draw: counted in
  /// addition to the one that is lent to.
  void beside(std::size_t node, std::vector<std::pair<std::uint64_t, double>> others);

  /// The most that all nodes together may draw.
  double committed_w(std::int64_t now_ns) const;
  /// Whether more than half of the nodes answered within the last lease that they obey this ledger.
  bool quorum(std::int64_t now_ns) const;
  /// The same for requests that were sent at `since_ns` or later: then no other manager had a majority at that time.
  bool quorum_since(std::int64_t since_ns) const;
  /// Whether every lease of an earlier manager that may still run is known.
  bool settled(std::int64_t now_ns) const;
  /// Whether no lease of an earlier manager can still run.
  bool alone(std::int64_t now_ns) const;
  /// The most that all node managers of one name together may draw.
  double committed_w(std::size_t node, std::int64_t now_ns) const;
  /// The same for the one node manager that is lent to.
  double own_w(std::size_t node, std::int64_t now_ns) const;
  /// The node's last reported cap, as of now: its safe cap once its lease has run out.
  double confirmed_w(std::size_t node, std::int64_t now_ns) const;
  bool known(std::size_t node) const { return books_[node].known; }
  bool stuck(std::size_t node) const { return books_[node].stuck; }  ///< its hardware reports more than it was lent
  std::int64_t heard_ns(std::size_t node) const { return books_[node].heard_ns; }
  const std::vector<Member>& members() const { return members_; }
  const Settings& settings() const { return settings_; }
  const Fence& fence() const { return fence_; }
  /// The highest fence in any node's report. Above fence(): another manager has taken over, and this one steps back.
  const Fence& higher() const { return higher_; }
  std::size_t find(const std::string& node) const;  ///< members().size(): not found

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
    bool known = false;  ///< it obeys this fence: everything that may be in force is recorded here
    bool heard = false;
    Ticket ticket;
    std::int64_t heard_ns = 0;              ///< when that ticket arrived
    std::int64_t asked_ns = 0;              ///< of the last answer under this fence
    double told_w = 0;                      ///< the cap of its hardware
    bool stuck = false;                     ///< that cap is above what it should be
    std::map<std::uint64_t, Lent> earlier;  ///< by instance: other node managers of the same name
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
