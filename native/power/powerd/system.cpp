#include "power/powerd/system.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/units.hpp"
#include "power/powerd/system_parts.hpp"

namespace sonde::power {

namespace {

constexpr std::uint64_t most_epochs_ahead =
    1'000'000;  ///< highest epoch accepted beyond ours: a node that reports 2^64 - 1 must not prevent all takeovers

constexpr double most_lease_s =
    600;  ///< longest lease that a node obeys (LeaseKeeper::Limits), whatever longer ones are reported

constexpr double replicate_s = 1.5;  ///< time for standbys to report that they have stored a budget

std::string fence_name(const std::string& name, std::uint64_t instance) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "#%08x", static_cast<unsigned>(instance ^ (instance >> 32)));
  return name.substr(0, 64 - 9) + digits;
}

}  // namespace

bool Manager::Effects::empty() const {
  return commits.empty() && asks.empty() && grants.empty() && telemetry.empty() && replicate.empty() && done.empty() &&
         events.empty() && audit.empty();
}

Result<std::unique_ptr<Manager>> Manager::open(const Settings& settings, const std::optional<Kept>& on_disk,
                                               std::int64_t now_ns) {
  const BudgetConfig& b = settings.budget;
  PolicySettings how;
  how.soft_w = b.soft_w;
  auto policy = make_policy(b.policy, how);
  if (!policy) return policy.error();
  auto racks = limited_racks(settings.nodes, settings.racks);
  if (!racks) return racks.error();
  if (!(b.period_s > 0 && settings.takeover_s >= 2 * b.period_s))
    return Error{"power.bad_value",
                 "[system-manager] takeover is " + format_duration(settings.takeover_s) + " and [budget] period is " +
                     format_duration(b.period_s),
                 "the leader reports once a period: set takeover to at least two periods"};
  Kept kept = on_disk.value_or(Kept{});
  // The file counts if it was changed since.
  if (!on_disk || !(kept.configured_w == b.power_limit_w))
    kept.budget_w = kept.configured_w = b.power_limit_w, kept.shed_w = unknown, kept.shed_left_s = 0;
  std::unique_ptr<Manager> made(new Manager(settings, std::move(*policy), std::move(*racks), kept, now_ns));
  Ledger::Settings s;
  s.budget_w = made->budget_w(), s.lease_s = b.lease_s, s.renew_s = b.renew_s, s.clock_error = b.clock_error;
  std::vector<Member> members;
  for (const auto& node : settings.nodes) members.push_back(node.member);
  if (members.empty()) return Error{"power.bad_node", "no nodes are configured", "add them to [[nodes]]"};
  if (std::isnan(made->budget_w()))
    return Error{"power.no_budget", "no power budget is configured", "set power_limit in [budget]"};
  if (auto tried = Ledger::open(s, std::move(members), {1, "try"}); !tried) return tried.error();
  return made;
}

Manager::Manager(const Settings& settings, std::unique_ptr<Policy> policy, std::vector<Rack> racks, const Kept& kept,
                 std::int64_t now_ns)
    : settings_(settings),
      policy_(std::move(policy)),
      racks_(std::move(racks)),
      kept_(kept),
      on_disk_version_(kept.budget_version),
      seen_epoch_(kept.epoch),
      states_(settings.nodes.size()),
      caps_(settings.nodes.size(), unknown) {
  for (std::size_t k = 0; k < settings_.nodes.size(); ++k) index_[settings_.nodes[k].member.name] = k;
  if (shed()) shed_ends_ns_ = now_ns + ns(kept_.shed_left_s);
  if (settings_.observe) state_ = State::observing;
  longest_lease_s_ = settings_.budget.lease_s;
  hear_of_lease(kept_.lease_s);
  wait_for_leader(now_ns);
  next_ns_ = now_ns;
}

Manager::Effects Manager::take() {
  Effects out = std::move(out_);
  out_ = {};
  return out;
}

JsonLine Manager::event(const char* what) const {
  JsonLine out;
  out.add("event", what);
  return out;
}

Manager::Line Manager::line(const char* what) const {
  Line out;
  out.json.add("manager", settings_.name).add("epoch", fence_.epoch).add("what", what);
  return out;
}

std::string Manager::who_text(const Caller& who, const std::string& user) {
  JsonLine out;
  out.add("client", who.client);
  if (!who.name.empty()) out.add("name", who.name);
  if (!who.host.empty()) out.add("host", who.host);
  if (who.pid >= 0) out.add("pid", who.pid);
  if (!user.empty()) out.add("user_by_own_word", user);
  return out.text();
}

bool Manager::plausible(std::uint64_t epoch) const {
  return epoch <= std::max(seen_epoch_, kept_.epoch) + most_epochs_ahead;
}

bool Manager::seems_there(std::size_t node, std::int64_t now_ns) const {
  const NodeState& st = states_[node];
  return st.heard_ns >= 0 && now_ns - st.heard_ns <= ns(std::max(settings_.budget.lease_s,
                                                                 state_ == State::leading ? 0 : 2.5 * st.period_s));
}

/// A change of a later epoch counts more than any of an earlier one, even if the later manager never heard of it.
std::uint64_t Manager::next_version() const { return std::max(kept_.budget_version + 1, fence_.epoch << 20); }

Kept Manager::as_of(Kept kept, std::int64_t now_ns) const {
  if (!std::isnan(kept.shed_w)) kept.shed_left_s = std::max(0.0, seconds(shed_ends_ns_ - now_ns));
  return kept;
}

// ---- received messages

void Manager::node_said(const std::string& node, const Report& told, double power_w, double period_s,
                        const std::string& trouble, std::int64_t asked_ns, std::int64_t now_ns) {
  const auto at = index_.find(node);
  if (at == index_.end()) {
    if (!counts_.unknown_nodes++)
      out_.events.push_back(
          event("unknown_node").add("node", node).add("hint", "add it to [[nodes]], or end its node manager"));
    return;
  }
  const std::size_t k = at->second;
  NodeState& st = states_[k];
  const Member& member = settings_.nodes[k].member;
  Report report = told;
  if (!plausible(report.seen.epoch)) {
    // No manager had this fence: the ledger treats the node as one that obeys no manager yet.
    if (!counts_.implausible++)
      out_.events.push_back(event("implausible_epoch").add("node", node).add("epoch", report.seen.epoch));
    report.seen = {};
  } else {
    seen_epoch_ = std::max(seen_epoch_, report.seen.epoch);
  }
  st.heard_ns = now_ns;
  st.unanswered = 0;
  if (!st.refusal.empty() && now_ns - st.refused_ns > ns(settings_.budget.lease_s)) st.refusal.clear();
  if (period_s > 0 && std::isfinite(period_s)) st.period_s = std::min(period_s, 86400.0);
  st.leased = report.leased;
  st.seen_epoch = report.seen.epoch;
  st.cap_w = report.cap_w;
  if (!asked_ns) st.trouble = trouble;  // an answer contains no trouble
  // No message travels longer than a lease.
  st.namesakes.heard(report, power_w, member, asked_ns, now_ns, settings_.budget.lease_s);
  count_namesakes(k, now_ns);
  const double allowed = std::isfinite(report.cap_w)                      ? report.cap_w
                         : report.leased && std::isfinite(report.lease_w) ? report.lease_w
                                                                          : member.safe_w;
  if (!st.running.empty()) {
    st.power_w = st.cap_w = 0;
    for (const auto& one : st.running) st.power_w += one.power_w, st.cap_w += one.cap_w;
    st.power_ns = now_ns, st.allowed_w = st.power_cap_w = unknown;
  } else if (std::isfinite(power_w) && power_w >= 0) {
    st.power_w = power_w, st.power_ns = now_ns;
    // Power covers the time since the last reading: a cap that was lowered meanwhile is no disobedience.
    st.obedience.add(power_w, std::isfinite(st.allowed_w) ? std::max(allowed, st.allowed_w) : allowed, seconds(now_ns));
    st.power_cap_w = std::fmin(allowed, st.allowed_w);
    st.allowed_w = allowed;
    if (st.disobeys != st.obedience.disobeys()) {
      st.disobeys = !st.disobeys;
      out_.events.push_back(event(st.disobeys ? "node_disobeys" : "node_obeys")
                                .add("node", node)
                                .add("power_w", power_w)
                                .add("cap_w", allowed));
      Line l = line(st.disobeys ? "node_disobeys" : "node_obeys");
      l.json.add("node", node).add("power_w", power_w).add("cap_w", allowed);
      out_.audit.push_back(std::move(l));
    }
  }
  // Then the reports of its hardware do not count: it is counted at its highest power, or at its draw if that is more.
  if (st.disobeys) report.cap_w = std::fmax(member.max_w, st.power_w);
  if (!ledger_) return;
  if (ledger_->heard(k, report, asked_ns, now_ns)) st.look = false;
}

void Manager::node_ranges(const std::string& node, double least_w, double most_w) {
  const auto at = index_.find(node);
  if (at == index_.end()) return;
  const Member& member = settings_.nodes[at->second].member;
  NodeState& st = states_[at->second];
  // The range always contains the safe cap: the ledger relies on it. A node that reports a wider range than configured
  // changes nothing.
  const double least = std::isfinite(least_w) ? std::clamp(least_w, member.min_w, member.safe_w) : member.min_w;
  const double most = std::isfinite(most_w) ? std::clamp(most_w, member.safe_w, member.max_w) : member.max_w;
  if (least == st.least_w && most == st.most_w) return;
  const bool narrower = least > member.min_w || most < member.max_w;
  st.least_w = least, st.most_w = most;
  if (narrower) out_.events.push_back(event("node_range").add("node", node).add("min_w", least).add("max_w", most));
}

void Manager::node_refused(std::size_t node, std::uint32_t refused, const std::string& message, std::int64_t now_ns) {
  if (node >= states_.size()) return;
  ++counts_.refused;
  NodeState& st = states_[node];
  st.look = true;  // an answer with a refusal contains no lease
  switch (static_cast<PowerCode>(refused)) {
    case PowerCode::stale_epoch:
    case PowerCode::stale_sequence:
    case PowerCode::void_ticket:
    case PowerCode::lease_expired: return;
    default: break;
  }
  st.refused_ns = now_ns;
  if (st.refusal == message) return;
  st.refusal = message;
  Line l = line("node_refuses");
  l.json.add("node", settings_.nodes[node].member.name).add("code", refused).add("why", message.substr(0, 256));
  out_.audit.push_back(std::move(l));
  out_.events.push_back(
      event("node_refuses").add("node", settings_.nodes[node].member.name).add("code", refused).add("what", message));
}

void Manager::cluster_said(const ClusterTelemetry& t, std::int64_t now_ns) {
  if (t.cluster != settings_.cluster) return;
  if (t.manager == settings_.name && t.epoch == fence_.epoch) return;  // our own message
  if (t.state != "active" && t.state != "stepping-back") return;
  if (!plausible(t.epoch)) {
    ++counts_.implausible;
    return;
  }
  seen_epoch_ = std::max(seen_epoch_, t.epoch);
  hear_of_lease(t.lease_s);
  if (state_ == State::leading) {
    if (t.state == "active" && std::pair(t.epoch, t.manager) > std::pair(fence_.epoch, settings_.name)) {
      leader_ = t.manager, leader_epoch_ = t.epoch;
      step_back(t.manager + " leads under epoch " + std::to_string(t.epoch), now_ns);
      adopt(t, now_ns);
    }
    return;
  }
  if (t.epoch < leader_epoch_) return;
  const bool other = t.manager != leader_ || t.epoch != leader_epoch_;
  leader_ = t.manager, leader_epoch_ = t.epoch;
  adopt(t, now_ns);
  if (t.state == "stepping-back") {
    takeover_ns_ = std::min(takeover_ns_, now_ns + ns(settings_.priority * settings_.budget.period_s));
    return;
  }
  // A manager that is cut off from the nodes cannot lead. If this one reaches fewer nodes, a takeover gains nothing.
  std::size_t here = 0;
  for (std::size_t k = 0; k < states_.size(); ++k) here += seems_there(k, now_ns);
  if (2 * std::size_t{t.heard} <= t.nodes && 2 * here > states_.size() && !settings_.budget.without_quorum) return;
  wait_for_leader(now_ns);
  forget_leases(t, other, now_ns);
  if (other) out_.events.push_back(event("following").add("leader", leader_).add("epoch", leader_epoch_));
}

void Manager::job_said(const JobTelemetry& t, std::int64_t now_ns) {
  const auto at = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.ends_ns && j.name == t.job; });
  if (at == jobs_.end()) return;
  const auto job = static_cast<std::size_t>(at - jobs_.begin()) + 1;
  if (!t.node_iteration_s.empty() && t.node_iteration_s.size() != t.nodes.size()) {
    if (!counts_.implausible++)
      out_.events.push_back(event("implausible_iterations")
                                .add("job", t.job)
                                .add("nodes", t.nodes.size())
                                .add("iterations", t.node_iteration_s.size()));
    return;
  }
  for (std::size_t i = 0; i < t.node_iteration_s.size(); ++i) {
    const auto node = index_.find(t.nodes[i]);
    if (node == index_.end() || states_[node->second].job != job) continue;
    NodeState& st = states_[node->second];
    const double s = t.node_iteration_s[i];
    st.iteration_s = std::isfinite(s) && s > 0 ? s : unknown;
    st.iteration_ns = now_ns, st.iteration_job = job;
  }
}

/// Record the lease length of a present or former leader: its leases may run when this manager takes over.
void Manager::hear_of_lease(double lease_s) {
  if (!(lease_s > 0)) return;
  longest_lease_s_ = std::max(longest_lease_s_, std::min(lease_s, most_lease_s));
  if (ledger_) ledger_->others_lease(longest_lease_s_);
}

/// `heard_s`: the leader's lease; nothing is stored if no leader was heard to lend yet.
void Manager::keep_lease(double heard_s, std::int64_t now_ns) {
  if (pending_.number) return;
  // Leases longer than its own have run out.
  if (ledger_ && ledger_->alone(now_ns)) longest_lease_s_ = settings_.budget.lease_s;
  if (longest_lease_s_ != kept_.lease_s && (kept_.lease_s > 0 || heard_s > 0))
    commit(as_of(kept_, now_ns), {}, {}, false, now_ns);
}

/// A standby has no ledger: it counts from the time when it saw that no other manager could lend.
void Manager::forget_leases(const ClusterTelemetry& leader, bool other, std::int64_t now_ns) {
  const double lease_s = std::max(settings_.budget.lease_s, std::min(leader.lease_s, most_lease_s));
  std::size_t obey = 0;
  for (std::size_t k = 0; k < states_.size(); ++k)
    obey += seems_there(k, now_ns) && states_[k].seen_epoch == leader.epoch;
  if (other || !(lease_s < longest_lease_s_) || 2 * obey <= states_.size()) shorter_since_ns_ = 0;
  else if (!shorter_since_ns_) shorter_since_ns_ = now_ns;
  else if (now_ns - shorter_since_ns_ > ns(2 * longest_lease_s_ * (1 + settings_.budget.clock_error)))
    longest_lease_s_ = lease_s;
}

/// Take over the leader's budget, so that it outlives the leader; and its lease length, so that leases which outlive
/// the leader are counted.
void Manager::adopt(const ClusterTelemetry& t, std::int64_t now_ns) {
  if (pending_.number) return;
  const bool is_shed =
      std::isfinite(t.restored_w) && t.restored_w > 0 && std::isfinite(t.shed_left_s) && t.shed_left_s > 0;
  const double base = is_shed ? t.restored_w : t.budget_w;
  const bool newer = t.budget_version > kept_.budget_version && t.budget_version < UINT64_MAX / 2;
  // Both were configured differently and never changed since: the lower one holds for both.
  const bool lower = t.budget_version == kept_.budget_version && t.budget_w < budget_w() - 1e-6;
  if (!newer && !lower && !(t.budget_version == kept_.budget_version && on_disk_version_ < t.budget_version))
    return keep_lease(t.lease_s, now_ns);
  double safe = 0;
  for (const auto& node : settings_.nodes) safe += node.member.safe_w;
  if (!(std::isfinite(t.budget_w) && t.budget_w >= safe && base >= t.budget_w && base <= most_power_w)) {
    if (!counts_.implausible++)
      out_.events.push_back(event("implausible_budget")
                                .add("manager", t.manager)
                                .add("budget_w", t.budget_w)
                                .add("safe_w", safe)
                                .add("hint", "all managers of a cluster need the same configuration"));
    return keep_lease(t.lease_s, now_ns);
  }
  Kept next = kept_;
  next.budget_version = t.budget_version;
  next.budget_w = base;
  next.shed_w = is_shed ? t.budget_w : unknown;
  next.shed_left_s = is_shed ? std::min(t.shed_left_s, most_shed_s) : 0;
  commit(next, {}, {}, false, now_ns);
}

void Manager::audit_works(bool works, const std::string& trouble) {
  if (works == audit_works_) return;
  audit_works_ = works, audit_trouble_ = trouble;
  out_.events.push_back(works ? event("audit_works") : event("audit_trouble").add("what", trouble));
}

// ---- storage

void Manager::commit(const Kept& kept, Pending pending, std::optional<Line> log, bool must_log, std::int64_t now_ns) {
  (void)now_ns;
  pending.number = ++commits_;
  pending.kept = kept;
  pending.kept.lease_s = longest_lease_s_;
  pending_ = pending;
  Commit out;
  out.number = pending_.number;
  out.kept = pending_.kept;
  out.log = std::move(log);
  out.must_log = must_log;
  out_.commits.push_back(std::move(out));
}

void Manager::kept(std::uint64_t number, const Result<void>& result, std::int64_t now_ns) {
  if (number != pending_.number) return;
  const Pending done = pending_;
  pending_ = {};
  const bool fine = static_cast<bool>(result);
  if (!fine)
    out_.events.push_back(event("not_kept")
                              .add("code", result.error().code)
                              .add("what", result.error().what)
                              .add("hint", result.error().hint));
  // Another manager's budget holds even if it cannot be stored; a manager that asks whether it is stored gets "no".
  if (fine || (!done.takes_over && !done.order)) {
    kept_ = done.kept;
    if (fine) on_disk_version_ = kept_.budget_version;
    if (shed()) shed_ends_ns_ = now_ns + ns(kept_.shed_left_s);
    if (ledger_) (void)ledger_->set_budget(budget_w());
  }
  if (done.takes_over) {
    if (fine && state_ == State::following && now_ns >= takeover_ns_) begin_to_lead(now_ns);
    else wait_for_leader(now_ns);
    return;
  }
  if (!done.order || orders_.empty() || orders_.front().number != done.order) return;
  Order& order = orders_.front();
  if (!fine) {
    finish(order, code(bus::ReplyCode::failed), result.error().what, unknown, now_ns);
    orders_.pop_front();
    return;
  }
  order.version = kept_.budget_version;
  order.kept_ns = now_ns;
  order.step = Step::replicates;
  order.until_ns = now_ns + ns(replicate_s);
  out_.events.push_back(event("budget")
                            .add("budget_w", budget_w())
                            .add("version", kept_.budget_version)
                            .add("by", name_of(order.command.order)));
  out_.telemetry.push_back(telemetry(now_ns));
  out_.replicate.push_back(order.version);
  next_period_ns_ = now_ns;  // shared again at once
  for (auto& st : states_)
    if (st.unanswered < 3) st.asked_ns = -1;  // comply() waits for their answer
}

void Manager::replicated(std::uint64_t version, std::size_t have, std::size_t of, std::int64_t now_ns) {
  if (orders_.empty()) return;
  Order& order = orders_.front();
  if (order.step != Step::replicates || order.version != version) return;
  if (have < of)
    order.message = std::to_string(have) + " of " + std::to_string(of) +
                    " standbys confirmed it: if this manager is lost now, another may lead with the former budget";
  Order next = std::move(order);
  orders_.pop_front();
  goes_on(std::move(next), now_ns);
}

// ---- leadership

void Manager::take_over(std::int64_t now_ns) {
  Kept next = as_of(kept_, now_ns);
  next.epoch = std::max(seen_epoch_, kept_.epoch) + 1;
  Pending pending;
  pending.takes_over = true;
  commit(next, pending, {}, false, now_ns);
}

void Manager::begin_to_lead(std::int64_t now_ns) {
  const BudgetConfig& b = settings_.budget;
  Ledger::Settings s;
  s.budget_w = budget_w(), s.lease_s = b.lease_s, s.renew_s = b.renew_s, s.clock_error = b.clock_error,
  s.without_quorum = b.without_quorum;
  s.others_lease_s = longest_lease_s_;
  std::vector<Member> members;
  for (const auto& node : settings_.nodes) members.push_back(node.member);
  const Fence fence{kept_.epoch, fence_name(settings_.name, settings_.instance)};
  auto ledger = Ledger::open(s, std::move(members), fence);
  if (!ledger) {
    out_.events.push_back(event("cannot_lead")
                              .add("code", ledger.error().code)
                              .add("what", ledger.error().what)
                              .add("hint", ledger.error().hint));
    return wait_for_leader(now_ns);
  }
  fence_ = fence;
  seen_epoch_ = std::max(seen_epoch_, fence_.epoch);
  ledger_ = std::make_unique<Ledger>(std::move(*ledger));
  state_ = State::leading;
  ++counts_.takeovers;
  caps_.assign(states_.size(), unknown);
  for (auto& st : states_) st.asked_ns = -1, st.unanswered = 0, st.logged_w = unknown, st.look = false;
  next_period_ns_ = now_ns;
  over_ = soft_ = false;
  out_.events.push_back(event("leading")
                            .add("manager", settings_.name)
                            .add("epoch", fence_.epoch)
                            .add("budget_w", budget_w())
                            .add("version", kept_.budget_version)
                            .add("after", leader_));
  Line l = line("takeover");
  l.json.add("after", leader_)
      .add("budget_w", budget_w())
      .add("budget_version", kept_.budget_version)
      .add("policy", policy_->name());
  l.sync = true;
  out_.audit.push_back(std::move(l));
}

void Manager::step_back(const std::string& why, std::int64_t now_ns) {
  ClusterTelemetry last = telemetry(now_ns);
  last.state = "stepping-back";
  out_.telemetry.push_back(std::move(last));
  out_.events.push_back(
      event("stepped_back").add("manager", settings_.name).add("epoch", fence_.epoch).add("why", why));
  Line l = line("stepped_back");
  l.json.add("why", why);
  l.sync = true;
  out_.audit.push_back(std::move(l));
  ++counts_.stepped_back;
  if (ledger_) seen_epoch_ = std::max(seen_epoch_, ledger_->higher().epoch);
  state_ = State::following;
  ledger_.reset();
  std::erase_if(out_.commits, [&](const Commit& c) { return c.number == pending_.number; });
  pending_ = {};
  caps_.assign(states_.size(), unknown);
  wait_for_leader(now_ns);
  refuse_all(code(PowerCode::not_active), settings_.name + " no longer leads: " + why, now_ns);
}

void Manager::refuse_all(std::uint32_t why, const std::string& message, std::int64_t now_ns) {
  for (auto& order : orders_)
    finish(order, why,
           order.step == Step::replicates
               ? message +
                     "; the order is on its disk, and would apply if it led again: send the order to the present leader"
               : message,
           unknown, now_ns);
  orders_.clear();
  for (auto& order : complying_)
    if (!order.answered)
      finish(order, code(bus::ReplyCode::ok),
             "this manager no longer leads: it is unknown here whether the nodes comply", unknown, now_ns);
  complying_.clear();
}

void Manager::close(std::int64_t now_ns) {
  if (state_ == State::leading) step_back("it ends", now_ns);
  takeover_ns_ = INT64_MAX;
}

// ---- reports

ClusterTelemetry Manager::telemetry(std::int64_t now_ns) const {
  const BudgetConfig& b = settings_.budget;
  ClusterTelemetry t;
  t.cluster = settings_.cluster, t.manager = settings_.name;
  t.epoch = state_ == State::leading ? fence_.epoch : leader_epoch_;
  t.budget_version = kept_.budget_version;
  t.state = state_ == State::leading ? "active" : state_ == State::observing ? "observing" : "standby";
  if (state_ == State::following) t.budget_version = on_disk_version_;
  t.policy = policy_->name();
  // Includes a predecessor's leases until they have run out: the next leader counts on them.
  t.period_s = b.period_s, t.lease_s = longest_lease_s_;
  t.budget_w = budget_w();
  if (shed()) t.restored_w = kept_.budget_w, t.shed_left_s = std::max(0.0, seconds(shed_ends_ns_ - now_ns));
  if (ledger_) {
    const bool settled = ledger_->settled(now_ns);
    t.committed_w = 0;
    for (std::size_t k = 0; k < states_.size(); ++k) {
      const double most = ledger_->committed_w(k, now_ns), safe = settings_.nodes[k].member.safe_w;
      if (settled || ledger_->known(k)) {
        t.committed_w += most;
        continue;
      }
      ++t.unknown_nodes;
      t.committed_w += safe, t.unknown_w += most - safe;
    }
  }
  t.nodes = static_cast<std::uint32_t>(states_.size());
  for (std::size_t k = 0; k < states_.size(); ++k) {
    const NodeState& st = states_[k];
    t.safe_w += settings_.nodes[k].member.safe_w;
    if (!seems_there(k, now_ns)) continue;
    ++t.heard;
    t.leased += st.leased;
    if (std::isfinite(st.power_w)) t.power_w = (std::isfinite(t.power_w) ? t.power_w : 0) + st.power_w;
  }
  return t;
}

std::string Manager::trouble_of(std::size_t node) const {
  const NodeState& st = states_[node];
  if (!st.running.empty())
    return "power.name_twice: " + std::to_string(st.running.size()) + " node managers have the name " +
           settings_.nodes[node].member.name +
           ": all are counted, and each gets at most its safe cap; give each a name of its own (--name), and add each "
           "name to [[nodes]]";
  if (st.disobeys)
    return "power.disobeys: it draws " + format_power(st.power_w) + " at a cap of " + format_power(st.allowed_w) +
           ", and is counted at its highest power";
  if (!st.trouble.empty()) return st.trouble;
  if (ledger_ && ledger_->stuck(node))
    return std::isfinite(st.cap_w)
               ? "power.stuck: its hardware is set to " + format_power(st.cap_w) + ", more than its lease"
               : "power.stuck: its hardware cannot report its cap; the node is counted at its highest power";
  if (!seems_there(node, state_ == State::leading ? decided_ns_ : st.heard_ns))
    return "power.lost: nothing is received from it";
  return st.refusal;
}

bus::AnswerOf<SystemAnswer> Manager::answer(const SystemQuery& query, std::int64_t now_ns) const {
  bus::AnswerOf<SystemAnswer> out;
  out.server = settings_.name;
  out.body.cluster = telemetry(now_ns);
  if (query.ask == SystemAsk::GET_INFO) {
    out.body.services = {"GET_INFO", "GET_POWER"};
    if (state_ == State::leading)
      for (const auto order : {SystemOrder::SET_POWER, SystemOrder::SHED, SystemOrder::SET_JOB, SystemOrder::END_JOB})
        out.body.services.emplace_back(name_of(order));
    return out;
  }
  for (std::size_t k = 0; k < states_.size(); ++k) {
    const NodeState& st = states_[k];
    const Member& member = settings_.nodes[k].member;
    NodeShare s;
    s.node = member.name;
    s.heard = seems_there(k, now_ns), s.leased = st.leased && s.heard;
    if (s.heard) s.power_w = st.power_w;
    s.cap_w = st.cap_w;
    if (ledger_ && (ledger_->known(k) || ledger_->settled(now_ns))) s.committed_w = ledger_->committed_w(k, now_ns);
    s.wanted_w = st.wanted_w;
    s.min_w = std::isnan(st.least_w) ? member.min_w : st.least_w,
    s.max_w = std::isnan(st.most_w) ? member.max_w : st.most_w, s.safe_w = member.safe_w;
    if (st.heard_ns >= 0) s.age_s = seconds(now_ns - st.heard_ns);
    if (st.job) s.job = jobs_[st.job - 1].name;
    s.trouble = trouble_of(k).substr(0, 256);
    out.body.nodes.push_back(std::move(s));
  }
  return out;
}

}  // namespace sonde::power
