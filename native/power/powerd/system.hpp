#pragma once
/// The system manager: enforces the cluster's budget, or stands by for the leader. Pure: time and received messages are
/// arguments; take() returns what to send, store and report. system_run.cpp adds bus, disk and clock; the tests add a
/// simulated world.
///
/// It *follows* until no manager has reported a budget for `takeover_s`. Then it takes the next epoch, stores it,
/// fences the nodes and *leads*; it follows again when it hears of a higher fence. The ledger (ledger.hpp) and the
/// racks (racks.hpp) guarantee all safety: this code only decides what they are asked for.
///
/// Nodes that draw more than their lease, or whose hardware cannot report its cap, are counted at their highest power,
/// and the others get less. Node managers of one name (namesakes.hpp) are all counted, and lent at most their safe cap.
/// Owner-thread.

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bus/request.hpp"
#include "core/json.hpp"
#include "power/config.hpp"
#include "power/hardware/node.hpp"
#include "power/ledger.hpp"
#include "power/messages.hpp"
#include "power/namesakes.hpp"
#include "power/powerd/kept.hpp"
#include "power/powerd/racks.hpp"

namespace sonde::power {

class Manager {
 public:
  struct Settings {
    std::string cluster, name;
    std::uint64_t instance = 0;  ///< random at each start, so that two managers of the same name have different fences
    BudgetConfig budget;
    std::vector<NodeConfig> nodes;
    std::map<std::string, RackConfig> racks;
    double takeover_s = 6;
    std::uint32_t priority = 0;
    bool observe = false;
  };

  enum class State : std::uint8_t { following, leading, observing };

  struct Caller {
    std::string client, name, host;  ///< of its participant; empty: not known
    std::int64_t pid = -1;
  };
  /// FENCE_NODE; or GET_POWER_NODE for a node that obeys already or that is only observed.
  struct Ask {
    std::size_t node = 0;
    bool fence = false;
    bool missing =
        false;  ///< it has not answered for long: asked separately, so that it does not take the others' places
  };
  struct Line {
    JsonLine json;
    bool sync = false;
  };
  /// To be stored on disk, then confirmed with kept(). `log` is written first.
  struct Commit {
    std::uint64_t number = 0;
    Kept kept;
    std::optional<Line> log;
    bool must_log = false;  ///< if `log` cannot be written, nothing is stored and the commit has failed
  };
  struct Done {
    std::uint64_t order = 0;
    bus::AnswerOf<SystemAnswer> answer;
  };
  struct Effects {
    std::vector<Commit> commits;
    std::vector<Ask> asks;
    std::vector<std::pair<std::size_t, Grant>> grants;
    std::vector<ClusterTelemetry> telemetry;
    std::vector<std::uint64_t>
        replicate;  ///< budget versions that standbys must confirm; the result goes to replicated()
    std::vector<Done> done;
    std::vector<JsonLine> events;
    std::vector<Line> audit;
    bool empty() const;
  };
  struct Counts {
    std::uint64_t takeovers = 0, stepped_back = 0, grants = 0, refused = 0, orders = 0, orders_refused = 0,
                  corrected = 0, unknown_nodes = 0, implausible = 0, namesakes = 0;
  };

  /// `kept`: from its disk. Errors: those of Ledger::open() and limited_racks(), power.unknown_policy, power.bad_value
  /// (takeover_s below two periods).
  static Result<std::unique_ptr<Manager>> open(const Settings& settings, const std::optional<Kept>& kept,
                                               std::int64_t now_ns);

  /// Received messages. `asked_ns`: when the request was sent; 0: telemetry. `power_w` NaN: not reported.
  void node_said(const std::string& node, const Report& report, double power_w, double period_s,
                 const std::string& trouble, std::int64_t asked_ns, std::int64_t now_ns);
  /// The range of the hardware from an answer, W; NaN: not reported.
  void node_ranges(const std::string& node, double least_w, double most_w);
  /// A node's answer with another code than ok.
  void node_refused(std::size_t node, std::uint32_t code, const std::string& message, std::int64_t now_ns);
  void cluster_said(const ClusterTelemetry& telemetry, std::int64_t now_ns);
  /// How long nodes took for their part of an iteration: for jobs named by SET_JOB, and for the nodes of those jobs.
  void job_said(const JobTelemetry& telemetry, std::int64_t now_ns);
  /// Results in a Done of that number; not before kept() and replicated().
  void order(std::uint64_t number, const SystemCommand& command, const Caller& who, std::int64_t deadline_ns,
             std::int64_t now_ns);
  void kept(std::uint64_t number, const Result<void>& result, std::int64_t now_ns);
  /// How many standbys have a version on their disks, and how many standbys there are.
  void replicated(std::uint64_t version, std::size_t have, std::size_t of, std::int64_t now_ns);
  /// Whether the audit log can be written: if not, the budget is not raised.
  void audit_works(bool works, const std::string& trouble = {});
  /// The process ends: standbys need not wait.
  void close(std::int64_t now_ns);

  /// To be called after received messages, and at next_ns().
  void tick(std::int64_t now_ns);
  std::int64_t next_ns() const { return next_ns_; }
  Effects take();

  bus::AnswerOf<SystemAnswer> answer(const SystemQuery& query, std::int64_t now_ns) const;
  State state() const { return state_; }
  /// Whether it answers to "active": it leads, or it observes and no manager leads.
  bool serves_active() const { return state_ == State::leading || (state_ == State::observing && !leader_near_); }
  double budget_w() const { return shed() ? kept_.shed_w : kept_.budget_w; }
  /// The fence under which it leads, or led last.
  const Fence& fence() const { return fence_; }
  std::uint64_t budget_version() const { return kept_.budget_version; }
  /// The version on disk.
  std::uint64_t kept_version() const { return on_disk_version_; }
  const Ledger* ledger() const { return ledger_.get(); }
  const std::vector<NodeConfig>& nodes() const { return settings_.nodes; }
  const Counts& counts() const { return counts_; }

 private:
  struct NodeState {
    std::int64_t heard_ns = -1, power_ns = -1, asked_ns = -1, refused_ns = -1;
    double power_w = unknown, period_s = 0, wanted_w = unknown, cap_w = unknown, allowed_w = unknown,
           logged_w = unknown;
    double least_w = unknown, most_w = unknown;  ///< the range of its hardware, within the configuration
    double power_cap_w = unknown,
           iteration_s = unknown;  ///< the lowest cap while it drew power_w; time of its part of its job
    std::int64_t iteration_ns = -1;
    std::uint64_t seen_epoch = 0;   ///< the epoch that it obeys
    std::size_t iteration_job = 0;  ///< the job of iteration_s, as `job`
    bool leased = false, disobeys = false, look = false, there = false;
    unsigned unanswered = 0;  ///< requests since it was last heard
    Obedience obedience;
    Namesakes namesakes;
    std::vector<Namesakes::One> running;  ///< if there is more than one
    std::string trouble, refusal;
    std::size_t job = 0;  ///< index in jobs_, + 1; 0: no job
  };
  struct Job {
    std::string name, user;
    double guaranteed_w = 0, demand_w = unknown, weight = 1;
    std::int64_t ends_ns = 0;  ///< 0: no end
  };
  enum class Step : std::uint8_t { waits, commits, replicates, complies };
  struct Order {
    std::uint64_t number = 0;
    SystemCommand command;
    Caller who;
    std::int64_t begun_ns = 0, deadline_ns = 0, until_ns = 0;
    std::int64_t kept_ns = 0;  ///< since when it is on the disk
    Step step = Step::waits;
    double from_w = 0, to_w = 0;
    std::uint64_t version = 0;
    bool answered = false;
    std::string message;
  };
  struct Pending {
    std::uint64_t number = 0;  ///< of the commit; 0: no commit is under way
    Kept kept;
    bool takes_over = false;
    std::uint64_t order = 0;
  };

  Manager(const Settings& settings, std::unique_ptr<Policy> policy, std::vector<Rack> racks, const Kept& kept,
          std::int64_t now_ns);
  bool shed() const { return !std::isnan(kept_.shed_w); }
  void commit(const Kept& kept, Pending pending, std::optional<Line> log, bool must_log, std::int64_t now_ns);
  void take_over(std::int64_t now_ns);
  void begin_to_lead(std::int64_t now_ns);
  void step_back(const std::string& why, std::int64_t now_ns);
  void refuse_all(std::uint32_t code, const std::string& message, std::int64_t now_ns);
  void wait_for_leader(std::int64_t now_ns) {
    takeover_ns_ = now_ns + static_cast<std::int64_t>(
                                (settings_.takeover_s + settings_.priority * settings_.budget.period_s) * 1e9);
  }
  void shed_over(std::int64_t now_ns);
  void run_orders(std::int64_t now_ns);
  void begin(Order& order, std::int64_t now_ns);
  void set_job(Order& order, std::int64_t now_ns);
  void end_job(std::size_t job, const char* why);
  void finish(Order& order, std::uint32_t code, const std::string& message, double comply_s, std::int64_t now_ns);
  void goes_on(Order order, std::int64_t now_ns);
  void comply(std::int64_t now_ns);
  std::vector<NodeView> views(double& budget_w, std::vector<bool>& fixed, std::int64_t now_ns);
  void count_namesakes(std::size_t node, std::int64_t now_ns);
  void decide(std::int64_t now_ns);
  void lend(std::int64_t now_ns);
  void ask(std::int64_t now_ns);
  void hear_of_lease(double lease_s);
  void keep_lease(double heard_s, std::int64_t now_ns);
  void forget_leases(const ClusterTelemetry& leader, bool other, std::int64_t now_ns);
  void adopt(const ClusterTelemetry& telemetry, std::int64_t now_ns);
  bool seems_there(std::size_t node, std::int64_t now_ns) const;
  bool plausible(std::uint64_t epoch) const;
  ClusterTelemetry telemetry(std::int64_t now_ns) const;
  std::string trouble_of(std::size_t node) const;
  Line line(const char* what) const;
  JsonLine event(const char* what) const;
  std::uint64_t next_version() const;
  Kept as_of(Kept kept, std::int64_t now_ns) const;
  static std::string who_text(const Caller& who, const std::string& user);

  Settings settings_;
  std::unique_ptr<Policy> policy_;
  Demands demands_;
  std::vector<Rack> racks_;
  std::map<std::string, std::size_t> index_;
  State state_ = State::following;
  Fence fence_;
  std::unique_ptr<Ledger> ledger_;
  Kept kept_;                   ///< without shed_left_s, which is not updated: see shed_ends_ns_
  double longest_lease_s_ = 0;  ///< that may run: own leases, those that were heard of, those on disk
  std::int64_t shorter_since_ns_ =
      0;  ///< since when more than half of the nodes obey the leader and it reports no longer leases; 0: not so
  std::uint64_t on_disk_version_ = 0;
  std::int64_t shed_ends_ns_ = 0;
  std::uint64_t seen_epoch_ = 0;  ///< the highest that any message contained
  std::string leader_;            ///< the last leader that was heard
  std::uint64_t leader_epoch_ = 0;
  bool leader_near_ = false;
  std::int64_t takeover_ns_ = 0, next_period_ns_ = 0, next_ns_ = 0, decided_ns_ = 0;
  std::vector<NodeState> states_;
  std::vector<double> caps_;  ///< the wanted caps
  std::vector<Job> jobs_;
  std::deque<Order> orders_;  ///< one is carried out at a time; those that wait for the nodes come later
  std::vector<Order> complying_;
  Pending pending_;
  std::uint64_t commits_ = 0;
  bool audit_works_ = true, soft_ = false, over_ = false;
  std::string audit_trouble_;
  Effects out_;
  Counts counts_;
};

/// The metrics for a scraper, as OpenMetrics.
std::string metrics_text(const SystemAnswer& answer, const Manager::Counts& counts, bool leads,
                         std::uint64_t audit_lost, std::uint64_t bus_failed);

}  // namespace sonde::power
