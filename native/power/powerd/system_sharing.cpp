// Manager: the shares of the budget, and the leases by which nodes get them.
#include "power/powerd/system.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "power/powerd/system_parts.hpp"

namespace sonde::power {

namespace {

constexpr double soft_margin = 0.05;

constexpr double iteration_counts_s =
    30;  ///< what a node took for an iteration, if that was said in so long, or in four of it

std::string instance_name(std::uint64_t instance) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(instance));
  return digits;
}

}  // namespace

/// All nodes in their order, since policies remember them. Nodes to which nothing can be lent now keep their committed
/// power.
std::vector<NodeView> Manager::views(double& budget_w, std::vector<bool>& fixed, std::int64_t now_ns) {
  const BudgetConfig& b = settings_.budget;
  std::vector<NodeView> out(states_.size());
  fixed.assign(states_.size(), false);
  double drawn = 0;
  for (std::size_t k = 0; k < states_.size(); ++k) {
    const NodeState& st = states_[k];
    const Member& member = settings_.nodes[k].member;
    NodeView& v = out[k];
    v.min_w = std::isnan(st.least_w) ? member.min_w : st.least_w,
    v.max_w = std::isnan(st.most_w) ? member.max_w : st.most_w;
    const bool fresh =
        st.power_ns >= 0 && now_ns - st.power_ns <= ns(std::max({3 * st.period_s, 3 * b.period_s, b.lease_s}));
    if (fresh) v.power_w = st.power_w, v.power_cap_w = st.power_cap_w, drawn += st.power_w;
    v.cap_w = ledger_ ? ledger_->confirmed_w(k, now_ns) : st.cap_w;
    if (st.job) {
      const Job& job = jobs_[st.job - 1];
      v.job = static_cast<std::uint32_t>(st.job);
      v.guaranteed_w = std::clamp(job.guaranteed_w, v.min_w, v.max_w);
      v.demand_w = job.demand_w;
      v.weight = job.weight;
      if (st.iteration_ns >= 0 && st.iteration_job == st.job &&
          now_ns - st.iteration_ns <= ns(std::min(std::fmax(iteration_counts_s, 4 * st.iteration_s), 86400.0)))
        v.iteration_s = st.iteration_s;
    }
    bool lendable = seems_there(k, now_ns) && !st.disobeys && st.running.empty();
    double held = member.safe_w;
    if (ledger_) {
      lendable = lendable && ledger_->known(k) && !ledger_->stuck(k) &&
                 now_ns - ledger_->heard_ns(k) < ns(b.lease_s - b.renew_s);
      // The ledger itself reserves power for a node that may have an unknown lease; the other nodes need not go below
      // their safe caps for it.
      if (ledger_->known(k) || ledger_->settled(now_ns)) held = ledger_->committed_w(k, now_ns);
    } else if (st.disobeys) {
      held = std::fmax(member.max_w, st.power_w);
    }
    if (!lendable) fixed[k] = true, v.min_w = v.max_w = held;
  }
  demands_.see(out);
  // From soft_w on, nodes that do not need their caps are asked to stay at their present power.
  if (std::isfinite(b.soft_w)) {
    const bool soft = drawn >= b.soft_w * (soft_ ? 1 - soft_margin : 1);
    if (soft != soft_)
      out_.events.push_back(
          event(soft ? "soft_limit" : "soft_limit_over").add("power_w", drawn).add("soft_w", b.soft_w));
    soft_ = soft;
    for (std::size_t k = 0; soft && k < states_.size(); ++k) {
      NodeView& v = out[k];
      if (fixed[k] || !std::isfinite(v.power_w) || !std::isfinite(v.cap_w)) continue;
      v.max_w = demands_.wants_w(k);
      v.guaranteed_w = std::min(v.guaranteed_w, v.max_w);
    }
  }
  budget_w = this->budget_w();
  return out;
}

/// Report which node managers of one name run at the same time: all of them are counted.
void Manager::count_namesakes(std::size_t k, std::int64_t now_ns) {
  NodeState& st = states_[k];
  const bool before = !st.running.empty();
  st.running = st.namesakes.running(now_ns, std::max(settings_.budget.lease_s, 2.5 * st.period_s));
  if (ledger_) {
    std::vector<std::pair<std::uint64_t, double>> others;
    for (const auto& one : st.running) others.emplace_back(one.instance, one.at_w);
    ledger_->beside(k, std::move(others));
  }
  const bool now = !st.running.empty();
  if (now == before) return;
  counts_.namesakes += now;
  std::vector<std::string> instances;
  for (const auto& one : st.running) instances.push_back(instance_name(one.instance));
  const char* what = now ? "node_name_twice" : "node_name_once";
  const std::string& name = settings_.nodes[k].member.name;
  out_.events.push_back(event(what).add("node", name).add("instances", instances).add("what", trouble_of(k)));
  Line l = line(what);
  l.json.add("node", name).add("instances", instances);
  out_.audit.push_back(std::move(l));
}

void Manager::decide(std::int64_t now_ns) {
  double budget = 0, least = 0;
  std::vector<bool> fixed;
  const auto nodes = views(budget, fixed, now_ns);
  for (const auto& v : nodes) least += v.min_w;
  std::vector<double> caps(nodes.size(), unknown), held(nodes.size()), low(nodes.size()), high(nodes.size()),
      weight(nodes.size());
  const bool over = budget < least;
  if (over) {
    // Disobeying nodes have taken the rest: all others go to their lowest caps.
    for (std::size_t k = 0; k < nodes.size(); ++k) caps[k] = nodes[k].min_w;
  } else if (auto shares = share(*policy_, budget, nodes); shares) {
    caps = std::move(shares->caps_w);
    counts_.corrected += shares->corrected;
  }
  if (over != over_)
    out_.events.push_back(event(over ? "over_budget" : "within_budget").add("budget_w", budget).add("least_w", least));
  over_ = over;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    held[k] = low[k] = high[k] = nodes[k].min_w;
    weight[k] = nodes[k].weight;
    high[k] = nodes[k].max_w;
    if (fixed[k]) caps[k] = unknown;
  }
  fit_racks(racks_, held, low, high, weight, caps);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    // A node that exceeds its cap is asked to go to its safe cap, and so are several nodes of one name. A node that is
    // not heard is asked nothing.
    const bool to_safe = states_[k].disobeys || !states_[k].running.empty() || (ledger_ && ledger_->stuck(k));
    if (fixed[k] && to_safe) caps[k] = settings_.nodes[k].member.safe_w;
    states_[k].wanted_w = caps[k];
  }
  caps_ = std::move(caps);
  decided_ns_ = now_ns;
  if (state_ != State::observing) return;
  std::vector<double> changed;
  std::vector<std::string> names;
  const auto tell = [&] {
    if (!names.empty())
      out_.events.push_back(event("would_set").add("budget_w", budget).add("nodes", names).add("caps_w", changed));
    names.clear(), changed.clear();
  };
  for (std::size_t k = 0; k < caps_.size(); ++k) {
    NodeState& st = states_[k];
    if (std::isnan(caps_[k]) ||
        std::abs(caps_[k] - st.logged_w) < std::max(1.0, 0.02 * settings_.nodes[k].member.max_w))
      continue;
    st.logged_w = caps_[k];
    names.push_back(settings_.nodes[k].member.name), changed.push_back(caps_[k]);
    Line l = line("would_set");
    l.json.add("node", names.back()).add("from_w", st.cap_w).add("to_w", caps_[k]);
    out_.audit.push_back(std::move(l));
    if (names.size() == 32) tell();  // an event has a limited size
  }
  tell();
}

void Manager::lend(std::int64_t now_ns) {
  auto due = ledger_->due(within_racks(*ledger_, racks_, caps_, now_ns), now_ns);
  counts_.grants += due.size();
  for (auto& [k, grant] : due) {
    NodeState& st = states_[k];
    if (std::isnan(st.logged_w) ||
        std::abs(grant.cap_w - st.logged_w) >= std::max(1.0, 0.02 * settings_.nodes[k].member.max_w)) {
      Line l = line("cap");
      l.json.add("node", settings_.nodes[k].member.name)
          .add("from_w", st.logged_w)
          .add("to_w", grant.cap_w)
          .add("sequence", grant.sequence);
      out_.audit.push_back(std::move(l));
      st.logged_w = grant.cap_w;
    }
    out_.grants.emplace_back(k, std::move(grant));
  }
}

void Manager::ask(std::int64_t now_ns) {
  const BudgetConfig& b = settings_.budget;
  for (std::size_t k = 0; k < states_.size(); ++k) {
    NodeState& st = states_[k];
    const bool missing = !(st.heard_ns >= 0 && now_ns - st.heard_ns <= ns(b.lease_s)) && st.unanswered >= 3;
    double every_s = std::min(1.0, b.period_s);
    bool fence = false;
    if (ledger_) {
      fence = !ledger_->known(k) && !st.look;
      if (ledger_->known(k)) every_s = std::min(b.renew_s, 2 * b.period_s);
      if (st.look) every_s = std::min(0.2, b.period_s);
    } else if (st.period_s > 0 && st.period_s <= b.period_s) {
      continue;  // its telemetry contains everything
    }
    if (missing) every_s = 4 * b.period_s;
    if (st.asked_ns >= 0 && now_ns - st.asked_ns < ns(every_s)) continue;
    st.asked_ns = now_ns;
    ++st.unanswered;
    out_.asks.push_back({k, fence, missing});
  }
}

void Manager::tick(std::int64_t now_ns) {
  const auto period = ns(settings_.budget.period_s);
  leader_near_ = now_ns < takeover_ns_;
  for (std::size_t j = 0; j < jobs_.size(); ++j)
    if (jobs_[j].ends_ns && now_ns >= jobs_[j].ends_ns) end_job(j, "its time is over"), next_period_ns_ = now_ns;
  if (state_ == State::following) {
    if (!leader_near_ && !pending_.number) take_over(now_ns);
    run_orders(now_ns);
    next_ns_ = leader_near_ ? std::min(takeover_ns_, now_ns + ns(10)) : now_ns + ns(0.1);
    return;
  }
  if (ledger_ && ledger_->higher() > ledger_->fence()) {
    step_back(
        "node managers obey " + ledger_->higher().manager + " under epoch " + std::to_string(ledger_->higher().epoch),
        now_ns);
    next_ns_ = now_ns;
    return;
  }
  if (shed() && now_ns >= shed_ends_ns_ && !pending_.number && ledger_) shed_over(now_ns);
  if (ledger_) keep_lease(0, now_ns);
  run_orders(now_ns);
  if (now_ns >= next_period_ns_) {
    for (std::size_t k = 0; k < states_.size(); ++k) {
      if (!states_[k].running.empty()) count_namesakes(k, now_ns);
      const bool there = seems_there(k, now_ns);
      if (there != states_[k].there)
        out_.events.push_back(event(there ? "node_heard" : "node_lost").add("node", settings_.nodes[k].member.name));
      states_[k].there = there;
    }
    decide(now_ns);
    if (state_ == State::leading || !leader_near_) out_.telemetry.push_back(telemetry(now_ns));
    next_period_ns_ = now_ns + period;
  }
  if (ledger_) lend(now_ns);
  ask(now_ns);
  comply(now_ns);
  const double soon = orders_.empty() && complying_.empty() ? 0.5 : 0.1;
  next_ns_ = std::min(next_period_ns_, now_ns + ns(soon));
}

}  // namespace sonde::power
