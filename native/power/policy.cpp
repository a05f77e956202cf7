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

/// What a node could use: its demand, else what it draws and some more where that comes near its cap, else all.
double wants(const NodeView& n, double margin) {
  if (std::isfinite(n.demand_w)) return std::clamp(n.demand_w, n.min_w, n.max_w);
  if (!std::isfinite(n.power_w)) return n.max_w;
  const bool held_back = std::isfinite(n.cap_w) && n.power_w >= n.cap_w * (1 - margin);
  return held_back ? n.max_w : std::clamp(n.power_w * (1 + margin), n.min_w, n.max_w);
}

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
    // Equal caps, not equal amounts above the least: levelled from 0, then from each one's least.
    const Columns c(nodes);
    std::vector<double> edges;
    for (std::size_t k = 0; k < nodes.size(); ++k) edges.push_back(c.min[k]), edges.push_back(c.max[k]);
    std::sort(edges.begin(), edges.end());
    const auto sum = [&](double at) {
      double s = 0;
      for (std::size_t k = 0; k < nodes.size(); ++k) s += std::clamp(at, c.min[k], c.max[k]);
      return s;
    };
    // The sum grows with the level and is straight between two edges.
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

/// Above the least, in proportion to what each wants.
class Proportional final : public Policy {
 public:
  explicit Proportional(const PolicySettings& s) : margin_(s.margin) {}
  std::string_view name() const override { return "proportional"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> weight;
    for (const auto& n : nodes) weight.push_back(std::max(wants(n, margin_) - n.min_w, 1e-3 * std::max(n.max_w - n.min_w, 1e-9)));
    const auto levelled = level(budget_w, c.min, c.max, weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  double margin_;
};

/// First what is guaranteed, then by weight up to what each wants, then the rest by weight.
class Fair final : public Policy {
 public:
  explicit Fair(const PolicySettings& s) : margin_(s.margin) {}
  std::string_view name() const override { return "fair"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> guaranteed, wanted;
    for (const auto& n : nodes) {
      guaranteed.push_back(std::clamp(n.guaranteed_w, n.min_w, n.max_w));
      wanted.push_back(std::max(guaranteed.back(), wants(n, margin_)));
    }
    // A budget that does not hold all guarantees is shared towards them, none being left with less than its least.
    auto floor = level(budget_w, c.min, guaranteed, c.weight);
    floor = level(budget_w, floor, wanted, c.weight);
    const auto levelled = level(budget_w, floor, c.max, c.weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  double margin_;
};

/// Nodes keep what they use and some room; those that come against their cap are given what others leave, by weight. Idea: EAR's cluster
/// power capping, where nodes ask for more and idle ones release.
class Greedy final : public Policy {
 public:
  explicit Greedy(const PolicySettings& s) : margin_(s.margin) {}
  std::string_view name() const override { return "greedy"; }
  void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) override {
    const Columns c(nodes);
    std::vector<double> keep, most;
    for (const auto& n : nodes) {
      const double draws = known(n.power_w, known(n.cap_w, n.max_w));
      const double cap = known(n.cap_w, n.max_w);
      const bool asks = !std::isfinite(n.power_w) || (n.job && n.power_w >= cap * (1 - margin_));
      keep.push_back(std::clamp(asks ? cap : draws * (1 + margin_), n.min_w, n.max_w));
      most.push_back(asks ? n.max_w : keep.back());
    }
    auto held = level(budget_w, c.min, keep, c.weight);
    const auto levelled = level(budget_w, held, most, c.weight);
    std::copy(levelled.begin(), levelled.end(), caps.begin());
  }

 private:
  double margin_;
};

/// Nodes of a job that are early give to those that are late, within what the job had; jobs among each other by weight. Idea: GEOPM's
/// power balancer, which levels the times of iterations.
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
      // From what each has now, so that what earlier periods mended stays mended.
      std::vector<double> low, high, wish;
      for (const auto k : members) {
        const double now = known(nodes[k].cap_w, caps[k]) * allotted / had;
        low.push_back(nodes[k].min_w), high.push_back(nodes[k].max_w);
        wish.push_back(std::clamp(now * (1 + step_ * (nodes[k].iteration_s - mean_s) / mean_s), nodes[k].min_w, nodes[k].max_w) - nodes[k].min_w + 1e-9);
      }
      const auto levelled = level(allotted, low, high, wish);
      for (std::size_t m = 0; m < members.size(); ++m) caps[members[m]] = levelled[m];
    }
  }

 private:
  Fair fair_;
  double step_;
};

constexpr std::array words{
    PolicyWord{"uniform", "the same cap for all, as far as their ranges allow"},
    PolicyWord{"proportional", "above the least, in proportion to what each wants"},
    PolicyWord{"fair", "what is guaranteed first, then by weight up to what each wants, then the rest by weight"},
    PolicyWord{"greedy", "nodes keep what they use; those that come against their cap get what others leave"},
    PolicyWord{"slack", "nodes of a job that are early give to those that are late"},
};

std::string watts(double w) { return format_power(w); }

}  // namespace

std::span<const PolicyWord> policies() { return words; }

std::vector<double> level(double total, std::span<const double> low, std::span<const double> high, std::span<const double> weight) {
  const std::size_t n = low.size();
  std::vector<double> out(low.begin(), low.end());
  double left = total - std::accumulate(low.begin(), low.end(), 0.0);
  if (!(left > 0)) return out;
  // In the order in which they become full, as what each has above its low grows by weight.
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
  heavy = 0;  // anew: what was taken away leaves rounding
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
      return Error{"power.bad_node", "node " + std::to_string(k) + " has the caps " + watts(n.min_w) + " … " + watts(n.max_w), "the least has to be at most the most, and both finite"};
    if (!(std::isfinite(n.weight) && n.weight > 0)) return Error{"power.bad_node", "node " + std::to_string(k) + " has the weight " + std::to_string(n.weight), "weights are above 0"};
    least += n.min_w;
  }
  // The least caps may add up to the budget itself, but for rounding.
  if (!std::isfinite(budget_w) || budget_w < least * (1 - 1e-12))
    return Error{"power.budget_too_small", "the budget of " + watts(budget_w) + " is below " + watts(least) + ", the sum of the least caps of " + std::to_string(nodes.size()) + " nodes",
                 "raise it, or take nodes out"};
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
    // What is above the least shrinks by one factor: it is within the ranges, and below the budget by more than rounding.
    const double above = out.sum_w - least, room = std::max(0.0, (budget_w - least) * (1 - 1e-12));
    out.sum_w = 0;
    for (std::size_t k = 0; k < nodes.size(); ++k) out.sum_w += out.caps_w[k] = nodes[k].min_w + (above > 0 ? (out.caps_w[k] - nodes[k].min_w) * room / above : 0);
  }
  return out;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicySettings& settings) {
  if (name == "uniform") return std::unique_ptr<Policy>(new Uniform);
  if (name == "proportional") return std::unique_ptr<Policy>(new Proportional(settings));
  if (name == "fair") return std::unique_ptr<Policy>(new Fair(settings));
  if (name == "greedy") return std::unique_ptr<Policy>(new Greedy(settings));
  if (name == "slack") return std::unique_ptr<Policy>(new Slack(settings));
  std::vector<std::string> all;
  std::string listed;
  for (const auto& word : words) {
    all.emplace_back(word.name);
    listed.append(listed.empty() ? "" : ", ").append(word.name);
  }
  return Error{"power.unknown_policy", "there is no policy '" + std::string(name) + "'" + nearest(name, all), "take one of " + listed};
}

}  // namespace sonde::power
