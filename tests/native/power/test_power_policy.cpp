#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/random.hpp"
#include "power/policy.hpp"

using namespace sonde::power;

namespace {

std::vector<double> shares(const char* policy, double budget_w, const std::vector<NodeView>& nodes) {
  auto made = make_policy(policy);
  REQUIRE(made);
  const auto out = share(**made, budget_w, nodes);
  REQUIRE(out);
  return (*out).caps_w;
}
NodeView node(double min_w, double max_w, double demand_w = unknown) {
  NodeView n;
  n.min_w = min_w, n.max_w = max_w, n.demand_w = demand_w;
  return n;
}
bool near(double a, double b) { return std::abs(a - b) < 1e-6; }

class Broken final : public Policy {
 public:
  explicit Broken(double what) : what_(what) {}
  std::string_view name() const override { return "broken"; }
  void propose(double, std::span<const NodeView>, std::span<double> caps) override { std::fill(caps.begin(), caps.end(), what_); }

 private:
  double what_;
};

}  // namespace

TEST_CASE("levelling is weighted max-min: equal above the low by weight, but for those that are full") {
  const std::vector<double> low{10, 0, 0}, high{100, 100, 5}, weight{1, 2, 1};
  const auto out = level(60, low, high, weight);
  CHECK(near(out[0], 25));
  CHECK(near(out[1], 30));
  CHECK(near(out[2], 5));
  CHECK(level(5, low, high, weight) == low);
  CHECK(level(1000, low, high, weight) == high);
}

TEST_CASE("levelling uses all of the total there is room for, whatever the numbers") {
  sonde::Random random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> low, high, weight;
    for (std::uint64_t k = 0, n = 1 + random.below(12); k < n; ++k) {
      low.push_back(random.uniform() * 100);
      high.push_back(low.back() + (random.below(4) ? random.uniform() * 300 : 0));
      weight.push_back(1e-3 + random.uniform() * 10);
    }
    const double least = std::accumulate(low.begin(), low.end(), 0.0), most = std::accumulate(high.begin(), high.end(), 0.0);
    const double total = least + (most - least) * random.uniform() * 1.2;
    const auto out = level(total, low, high, weight);
    CHECK(near(std::accumulate(out.begin(), out.end(), 0.0), std::min(total, most)));
    for (std::size_t k = 0; k < out.size(); ++k) {
      CHECK(out[k] >= low[k]);
      CHECK(out[k] <= high[k]);
      for (std::size_t i = 0; i < out.size(); ++i)
        // Nobody has less by weight than another, unless it is full.
        if (out[k] < high[k] - 1e-6) CHECK((out[k] - low[k]) / weight[k] >= (out[i] - low[i]) / weight[i] - 1e-6);
    }
  }
}

TEST_CASE("uniform gives the same cap to all whose range allows it") {
  const auto caps = shares("uniform", 700, {node(50, 400), node(50, 100), node(200, 400), node(50, 400)});
  CHECK(near(caps[1], 100));
  CHECK(near(caps[0], 200));
  CHECK(near(caps[2], 200));
  CHECK(near(caps[3], 200));
}

TEST_CASE("proportional shares what is above the least by what each wants") {
  const auto caps = shares("proportional", 500, {node(100, 400, 200), node(100, 400, 300)});
  CHECK(near(caps[0], 200));
  CHECK(near(caps[1], 300));
  const auto less = shares("proportional", 350, {node(100, 400, 200), node(100, 400, 300)});
  CHECK(near(less[0], 150));
  CHECK(near(less[1], 200));
}

TEST_CASE("fair keeps guarantees first, then goes up to what each wants by weight, then gives the rest") {
  auto a = node(50, 400, 300), b = node(50, 400, 100), c = node(50, 400, 400);
  a.guaranteed_w = 200, c.weight = 3;
  const auto caps = shares("fair", 450, {a, b, c});
  CHECK(near(caps[0], 200 + 150.0 / 5));
  CHECK(near(caps[1], 50 + 150.0 / 5));
  CHECK(near(caps[2], 50 + 3 * 150.0 / 5));
  CHECK(near(std::accumulate(caps.begin(), caps.end(), 0.0), 450));
  const auto plenty = shares("fair", 1150, {a, b, c});
  CHECK(near(plenty[2], 400));
  CHECK(near(plenty[0] + plenty[1], 750));
  CHECK(plenty[0] > 300);
}

TEST_CASE("greedy takes from who leaves power unused and gives it to who comes against the cap") {
  auto idle = node(50, 400), busy = node(50, 400);
  idle.power_w = 80, idle.cap_w = 200, idle.job = 0;
  busy.power_w = 199, busy.cap_w = 200, busy.job = 1;
  const auto caps = shares("greedy", 400, {idle, busy});
  CHECK(near(caps[0], 84));
  CHECK(near(caps[1], 316));
}

TEST_CASE("slack gives the late nodes of a job what its early ones have too much, and settles where they are level") {
  // A node's time is its work over its cap.
  const std::vector<double> work{100, 200, 300};
  std::vector<NodeView> nodes(3, node(50, 400));
  auto policy = make_policy("slack");
  REQUIRE(policy);
  for (auto& n : nodes) n.job = 1, n.cap_w = 200;
  double spread = 0;
  for (int period = 0; period < 200; ++period) {
    for (std::size_t k = 0; k < 3; ++k) nodes[k].iteration_s = work[k] / nodes[k].cap_w;
    const auto out = share(**policy, 600, nodes);
    REQUIRE(out);
    CHECK((*out).sum_w <= 600);
    for (std::size_t k = 0; k < 3; ++k) nodes[k].cap_w = (*out).caps_w[k];
    spread = nodes[2].iteration_s - nodes[0].iteration_s;
  }
  CHECK(near(nodes[0].cap_w + nodes[1].cap_w + nodes[2].cap_w, 600));
  CHECK(std::abs(spread) < 0.01);
}

TEST_CASE("whatever a policy proposes, caps are in range and their sum within the budget") {
  sonde::Random random(11);
  const double huge = std::numeric_limits<double>::max(), inf = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 5000; ++round) {
    std::vector<NodeView> nodes;
    double least = 0, most = 0;
    for (std::uint64_t k = 0, n = 1 + random.below(20); k < n; ++k) {
      NodeView v = node(random.uniform() * 100, 0);
      v.max_w = v.min_w + (random.below(3) ? random.uniform() * 500 : 0);
      v.guaranteed_w = random.below(2) ? random.uniform() * 600 : 0;
      v.weight = 1e-3 + random.uniform() * 5;
      const auto odd = [&](double usual) { return random.below(8) ? usual : std::vector<double>{unknown, inf, -inf, -1, 99'999, huge, 0}[random.below(7)]; };
      v.power_w = odd(random.uniform() * 600), v.demand_w = odd(unknown), v.cap_w = odd(random.uniform() * 600), v.iteration_s = odd(random.uniform());
      v.job = static_cast<std::uint32_t>(random.below(4));
      least += v.min_w, most += v.max_w;
      nodes.push_back(v);
    }
    const double budget = least + (most - least) * random.uniform() * 1.1;
    std::vector<std::unique_ptr<Policy>> all;
    for (const auto& word : policies()) all.push_back(std::move(*make_policy(word.name)));
    for (const double bad : {unknown, inf, -inf, huge, -1.0}) all.push_back(std::make_unique<Broken>(bad));
    for (const auto& policy : all) {
      CAPTURE(policy->name());
      const auto out = share(*policy, budget, nodes);
      REQUIRE(out);
      double sum = 0;
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        CHECK((*out).caps_w[k] >= nodes[k].min_w);
        CHECK((*out).caps_w[k] <= nodes[k].max_w);
        sum += (*out).caps_w[k];
      }
      CHECK(sum <= budget);
    }
  }
}

TEST_CASE("a budget below the least caps, and nodes that are none, are refused by name") {
  auto policy = make_policy("fair");
  REQUIRE(policy);
  const std::vector<NodeView> two{node(100, 400), node(150, 400)};
  const auto small = share(**policy, 249, two);
  REQUIRE(!small);
  CHECK(small.error().code == "power.budget_too_small");
  CHECK(small.error().what.find("249 W") != std::string::npos);
  CHECK(small.error().what.find("250 W") != std::string::npos);
  CHECK(share(**policy, 250, two));
  CHECK(share(**policy, 0, {}));
  CHECK(share(**policy, unknown, two).error().code == "power.budget_too_small");
  CHECK(share(**policy, 900, std::vector<NodeView>{node(400, 100)}).error().code == "power.bad_node");
  auto light = node(1, 2);
  light.weight = 0;
  CHECK(share(**policy, 900, std::vector<NodeView>{light}).error().code == "power.bad_node");
  const auto none = make_policy("uniforn");
  REQUIRE(!none);
  CHECK(none.error().what.find("uniform") != std::string::npos);
}
