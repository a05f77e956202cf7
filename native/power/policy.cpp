#include "power/policy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/nearest.hpp"
#include "core/units.hpp"

namespace sonde::power {

namespace {

double known(double value, double otherwise) { return std::isfinite(value) ? value : otherwise; }

struct Columns {
  std::vector<double> min, max, weight, ones;
  explicit Columns(std::span<const NodeView> nodes) : ones(nodes.size(), 1) {
    for (const auto& n : nodes) min.push_back(n.min_w), max.push_back(n.max_w), weight.push_back(n.weight);
  }
};

/// The same cap for all, as far as their ranges allow.
class Uniform final : public Policy {
 public:
  std::string_view name() const override { return "uniform"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    // Equal caps, not equal amounts above the lowest cap: levelled from 0, then from each node's lowest cap.
    const Columns c(nodes);
    std::vector<double> edges;
    for (std::size_t k = 0; k < nodes.size(); ++k) edges.push_back(c.min[k]), edges.push_back(c.max[k]);
    std::sort(edges.begin(), edges.end());
    const auto sum = [&](double at) {
      double s = 0;
      for (std::size_t k = 0; k < nodes.size(); ++k) s += std::clamp(at, c.min[k], c.max[k]);
      return s;
    };
    // The sum grows with the level, linearly between two edges.
    double at = edges.empty() ? 0 : edges.front();
    for (std::size_t k = 1; k < edges.size(); ++k) {
      const double below = sum(edges[k - 1]), above = sum(edges[k]);
      if (budget_w >= above) {
        at = edges[k];
        continue;
      }
      if (budget_w > below) at = edges[k - 1] + (edges[k] - edges[k - 1]) * (budget_w - below) / (above - below);
      break;
    }
    for (std::size_t k = 0; k < nodes.size(); ++k) caps[k] = std::clamp(at, c.min[k], c.max[k]);
  }
};

/// Above the lowest cap, in proportion to each node's demand.
class Proportional final : public Policy {
 public:
  explicit Proportional(const PolicySettings& s) : demands_(s.margin) {}
  std::string_view name() const override { return "proportional"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> weight;
    demands_.see(nodes);
    for (std::size_t k = 0; k < nodes.size(); ++k)
      weight.push_back(
          std::max(demands_.wants_w(k) - nodes[k].min_w, 1e-3 * std::max(nodes[k].max_w - nodes[k].min_w, 1e-9)));
    const auto levelled = level(budget_w, c.min, c.max, weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  Demands demands_;
};

/// Guarantees first, then by weight up to the demands, then the rest by weight.
class Fair final : public Policy {
 public:
  explicit Fair(const PolicySettings& s) : demands_(s.margin) {}
  std::string_view name() const override { return "fair"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> guaranteed, wanted;
    demands_.see(nodes);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      guaranteed.push_back(std::clamp(nodes[k].guaranteed_w, nodes[k].min_w, nodes[k].max_w));
      wanted.push_back(std::max(guaranteed.back(), demands_.wants_w(k)));
    }
    // A budget below the sum of the guarantees is shared towards them; no node gets less than its lowest cap.
    auto floor = level(budget_w, c.min, guaranteed, c.weight);
    floor = level(budget_w, floor, wanted, c.weight);
    const auto levelled = level(budget_w, floor, c.max, c.weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  Demands demands_;
};

/// Nodes keep what they use and a reserve; nodes at their caps get what others leave, by weight. Idea: EAR's cluster
/// power capping, where nodes ask for more and idle ones release.
class Greedy final : public Policy {
 public:
  explicit Greedy(const PolicySettings& s) : margin_(s.margin), demands_(s.margin) {}
  std::string_view name() const override { return "greedy"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> keep, most;
    demands_.see(nodes);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const NodeView& n = nodes[k];
      const double cap = known(n.cap_w, n.max_w), wants = demands_.wants_w(k);
      const bool held = !std::isfinite(n.power_w) || demands_.held_back(k);
      const bool asks = held && (n.job || !std::isfinite(n.power_w));
      // A node without a job gets no power that others may ask for, but it grows as it needs to.
      keep.push_back(std::clamp(asks   ? std::min(cap, wants)
                                : held ? std::min(n.power_w * (1 + margin_), wants)
                                       : wants,
                                n.min_w, n.max_w));
      most.push_back(asks ? std::max(keep.back(), wants) : keep.back());
    }
    auto held = level(budget_w, c.min, keep, c.weight);
    const auto levelled = level(budget_w, held, most, c.weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  double margin_;
  Demands demands_;
};

/// Early nodes of a job give power to late ones, within the job's power; jobs among each other by weight. Idea: GEOPM's
/// power balancer, which equalises iteration times.
class Slack final : public Policy {
 public:
  explicit Slack(const PolicySettings& s) : fair_(s), step_(s.step) {}
  std::string_view name() const override { return "slack"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    fair_.propose(budget_w, nodes, caps);
    std::vector<std::uint32_t> jobs;
    for (const auto& n : nodes)
      if (n.job && std::find(jobs.begin(), jobs.end(), n.job) == jobs.end()) jobs.push_back(n.job);
    for (const auto job : jobs) {
      std::vector<std::size_t> members;
      double had = 0, allotted = 0, mean_s = 0;
      bool timed = true;
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        if (nodes[k].job != job) continue;
        members.push_back(k);
        had += known(nodes[k].cap_w, caps[k]);
        allotted += caps[k];
        mean_s += nodes[k].iteration_s;
        timed = timed && std::isfinite(nodes[k].iteration_s) && nodes[k].iteration_s > 0;
      }
      mean_s /= static_cast<double>(members.size());
      if (members.size() < 2 || !timed || had <= 0) continue;
      // Start from the present caps, so that earlier corrections stay.
      std::vector<double> low, high, wish;
      for (const auto k : members) {
        const double now = known(nodes[k].cap_w, caps[k]) * allotted / had;
        low.push_back(nodes[k].min_w), high.push_back(nodes[k].max_w);
        wish.push_back(
            std::clamp(now * (1 + step_ * (nodes[k].iteration_s - mean_s) / mean_s), nodes[k].min_w, nodes[k].max_w) -
            nodes[k].min_w + 1e-9);
      }
      const auto levelled = level(allotted, low, high, wish);
      for (std::size_t m = 0; m < members.size(); ++m) caps[members[m]] = levelled[m];
    }
  }

 private:
  Fair fair_;
  double step_;
};

/// No node is limited until the cluster comes near its budget; then as Fair. Idea: EAR's soft cluster cap, which sets
/// caps on nodes only above a share of the limit. The sum of caps is within the budget here, too: if it is too small
/// for the highest caps of all nodes, unused power is shared.
class Soft final : public Policy {
 public:
  explicit Soft(const PolicySettings& s) : fair_(s), demands_(s.margin), soft_w_(s.soft_w), near_(s.near) {}
  std::string_view name() const override { return "soft"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    // Both policies see the nodes, so that each knows their demands when its turn comes.
    fair_.propose(budget_w, nodes, caps);
    demands_.see(nodes);
    double drawn = 0;
    for (const auto& n : nodes)
      if (std::isfinite(n.power_w) && n.power_w > 0) drawn += n.power_w;
    const double from = std::fmin(soft_w_, near_ * budget_w);
    is_near_ = drawn >= from * (is_near_ ? again : 1);
    if (is_near_) return;
    const Columns c(nodes);
    std::vector<double> wanted;
    for (std::size_t k = 0; k < nodes.size(); ++k) wanted.push_back(demands_.wants_w(k));
    const auto used = level(budget_w, c.min, wanted, c.ones), levelled = level(budget_w, used, c.max, c.ones);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  static constexpr double again = 0.9;  // share of the threshold at which it began
  Fair fair_;
  Demands demands_;
  double soft_w_, near_;
  bool is_near_ = false;
};

constexpr std::array words{
    PolicyWord{"uniform", "the same cap for all nodes, as far as their ranges allow"},
    PolicyWord{"proportional", "each node gets its lowest cap, and a part of the rest in proportion to what it wants"},
    PolicyWord{"fair",
               "first the guaranteed power, then by weight up to what each node wants, then the rest by weight"},
    PolicyWord{"greedy", "each node keeps what it uses; nodes that reach their cap get what the others do not use"},
    PolicyWord{"slack", "in each job, nodes that finish early give power to nodes that finish late"},
    PolicyWord{"soft", "no node is limited until the cluster comes near its budget; then the same as `fair`"},
};

std::string watts(double w) { return format_power(w); }

}  // namespace

std::span<const PolicyWord> policies() { return words; }

void Demands::see(std::span<const NodeView> nodes) {
  known_.resize(nodes.size(), unknown), wants_.resize(nodes.size()), held_.resize(nodes.size());
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const NodeView& n = nodes[k];
    double& is = known_[k];
    const double cap = known(n.power_cap_w, n.cap_w);
    held_[k] = std::isfinite(n.power_w) && std::isfinite(cap) && n.power_w >= cap * (1 - margin_ / 2);
    if (std::isfinite(n.demand_w)) {
      is = n.demand_w;
    } else if (held_[k]) {
      // Nearer to its cap than a content node comes: (1 + margin)(1 - margin/2)(1 - margin/5) is above 1.
      if (cap >= is * (1 - margin_ / 5)) is = unknown;
    } else if (std::isfinite(n.power_w)) {
      const double now = std::max(0.0, n.power_w) * (1 + margin_);
      if (!(now <= is * (1 + margin_ / 2) && now * (1 + margin_ / 2) >= is)) is = now;
    }
    wants_[k] = std::clamp(known(is, n.max_w), n.min_w, n.max_w);
  }
}

std::vector<double> level(double total, std::span<const double> low, std::span<const double> high,
                          std::span<const double> weight) {
  const std::size_t n = low.size();
  std::vector<double> out(low.begin(), low.end());
  double left = total - std::accumulate(low.begin(), low.end(), 0.0);
  if (!(left > 0)) return out;
  // Sorted by when they become full, while each grows above its low in proportion to its weight.
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto full_at = [&](std::size_t k) { return (high[k] - low[k]) / weight[k]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return full_at(a) < full_at(b); });
  double heavy = 0;
  for (std::size_t k = 0; k < n; ++k) heavy += weight[k];
  double at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double to = std::max(full_at(order[i]), at), needs = (to - at) * heavy;
    if (needs >= left || !(heavy > 0)) break;
    left -= needs;
    at = to;
    out[order[i]] = high[order[i]];
    heavy -= weight[order[i]];
    order[i] = n;  // it is full
  }
  heavy = 0;  // summed again: subtraction leaves rounding errors
  for (const auto k : order)
    if (k < n) heavy += weight[k];
  if (!(heavy > 0)) return out;
  at += left / heavy;
  for (const auto k : order)
    if (k < n) out[k] = std::min(low[k] + at * weight[k], high[k]);
  return out;
}

Result<Shares> share(Policy& policy, double budget_w, std::span<const NodeView> nodes) {
  double least = 0;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const auto& n = nodes[k];
    if (!(std::isfinite(n.min_w) && std::isfinite(n.max_w) && n.min_w >= 0 && n.max_w >= n.min_w))
      return Error{"power.bad_node",
                   "node " + std::to_string(k) + " has the caps " + watts(n.min_w) + " … " + watts(n.max_w),
                   "the lowest cap must not be above the highest, and both must be finite"};
    if (!(std::isfinite(n.weight) && n.weight > 0))
      return Error{"power.bad_node", "node " + std::to_string(k) + " has the weight " + std::to_string(n.weight),
                   "weights must be above 0"};
    least += n.min_w;
  }
  // The lowest caps may add up to the budget itself, except for rounding.
  if (!std::isfinite(budget_w) || budget_w < least * (1 - 1e-12))
    return Error{"power.budget_too_small",
                 "the budget of " + watts(budget_w) + " is below " + watts(least) + ", the sum of the lowest caps of " +
                     std::to_string(nodes.size()) + " nodes",
                 "raise it, or remove nodes"};
  Shares out;
  out.caps_w.assign(nodes.size(), unknown);
  policy.propose(budget_w, nodes, out.caps_w);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    double& cap = out.caps_w[k];
    const double held = std::isfinite(cap) ? std::clamp(cap, nodes[k].min_w, nodes[k].max_w) : nodes[k].min_w;
    if (!std::isfinite(cap) || std::abs(held - cap) > 1e-6 * std::max(1.0, nodes[k].max_w)) out.corrected = true;
    cap = held;
    out.sum_w += cap;
  }
  if (out.sum_w > budget_w) {
    if (out.sum_w > budget_w * (1 + 1e-9)) out.corrected = true;
    // The amounts above the lowest caps shrink by one factor: the caps stay in range, and below the budget by more than
    // rounding.
    const double above = out.sum_w - least, room = std::max(0.0, (budget_w - least) * (1 - 1e-12));
    out.sum_w = 0;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      out.sum_w += out.caps_w[k] = nodes[k].min_w + (above > 0 ? (out.caps_w[k] - nodes[k].min_w) * room / above : 0);
  }
  return out;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicySettings& settings) {
  if (name == "uniform") return std::unique_ptr<Policy>(new Uniform);
  if (name == "proportional") return std::unique_ptr<Policy>(new Proportional(settings));
  if (name == "fair") return std::unique_ptr<Policy>(new Fair(settings));
  if (name == "greedy") return std::unique_ptr<Policy>(new Greedy(settings));
  if (name == "slack") return std::unique_ptr<Policy>(new Slack(settings));
  if (name == "soft") return std::unique_ptr<Policy>(new Soft(settings));
  std::vector<std::string> all;
  std::string listed;
  for (const auto& word : words) {
    all.emplace_back(word.name);
    listed.append(listed.empty() ? "" : ", ").append(word.name);
  }
  return Error{"power.unknown_policy", "there is no policy '" + std::string(name) + "'" + nearest(name, all),
               "use one of " + listed};
}

}  // namespace sonde::power
