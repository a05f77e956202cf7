#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  void propose(double, std::span<const NodeView>, std::span<double> caps) override {
    std::fill(caps.begin(), caps.end(), what_);
  }

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
    const double least = std::accumulate(low.begin(), low.end(), 0.0),
                 most = std::accumulate(high.begin(), high.end(), 0.0);
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

TEST_CASE(
    "what a node wants: as it was seen below its cap; all it can get where that was never seen, or where it uses that "
    "up") {
  Demands demands;
  std::vector<NodeView> one{node(50, 400)};
  auto& n = one[0];
  const auto wants = [&](double power_w, double cap_w, double power_cap_w = unknown) {
    n.power_w = power_w, n.cap_w = cap_w, n.power_cap_w = power_cap_w;
    demands.see(one);
    return demands.wants_w(0);
  };
  CHECK(wants(unknown, 200) == 400);
  CHECK(wants(200, 200) == 400);
  CHECK(demands.held_back(0));
  // Its cap was raised, and what it drew is of before: nothing is known yet.
  CHECK(wants(200, 300, 200) == 400);
  CHECK(wants(220, 300) == doctest::Approx(231));
  CHECK_FALSE(demands.held_back(0));
  // Exactly what it wanted: it is content. Noise changes nothing.
  CHECK(wants(220, 231) == doctest::Approx(231));
  for (const double noise : {0.99, 1.01, 1.0, 1.02, 0.98}) CHECK(wants(220 * noise, 240) == doctest::Approx(231));
  // It is held below that, and is known to want it all the same.
  CHECK(wants(150, 150) == doctest::Approx(231));
  // With all of it it comes against its cap: it wants more.
  CHECK(wants(231, 231) == 400);
  CHECK(wants(250, 380) == doctest::Approx(262.5));
  // It wants less.
  CHECK(wants(100, 262) == doctest::Approx(105));
  n.demand_w = 333;
  CHECK(wants(100, 105) == 333);
}

TEST_CASE("what nodes want all the time is what they get all the time, under every policy, after a while") {
  sonde::Random random(23);
  for (int round = 0; round < 30; ++round) {
    const std::size_t count = 2 + random.below(8);
    std::vector<double> demand;
    std::vector<NodeView> first;
    double least = 0, most = 0;
    for (std::size_t k = 0; k < count; ++k) {
      NodeView n = node(40 + random.uniform() * 40, 0);
      n.max_w = n.min_w + 100 + random.uniform() * 300;
      n.weight = 0.5 + random.uniform(), n.job = static_cast<std::uint32_t>(random.below(3));
      n.guaranteed_w = random.below(3) ? 0 : n.min_w + 50;
      demand.push_back(n.min_w * 0.8 + random.uniform() * (n.max_w * 1.2 - n.min_w * 0.8));
      n.cap_w = n.min_w;
      least += n.min_w, most += n.max_w;
      first.push_back(n);
    }
    const double budget = least + (most - least) * (0.1 + 0.9 * random.uniform());
    for (const auto& word : policies()) {
      CAPTURE(word.name);
      CAPTURE(round);
      PolicySettings settings;
      if (round % 2) settings.soft_w = budget * 0.6;
      auto policy = make_policy(word.name, settings);
      REQUIRE(policy);
      auto nodes = first;
      std::vector<double> low(count, 1e9), high(count, 0);
      for (int period = 0; period < 160; ++period) {
        for (std::size_t k = 0; k < count; ++k)
          nodes[k].power_w = std::min(nodes[k].cap_w, demand[k] * (1 + 0.01 * (2 * random.uniform() - 1)));
        const auto out = share(**policy, budget, nodes);
        REQUIRE(out);
        for (std::size_t k = 0; k < count; ++k) {
          nodes[k].power_cap_w = std::min(nodes[k].cap_w, (*out).caps_w[k]);
          nodes[k].cap_w = (*out).caps_w[k];
          if (period >= 120) low[k] = std::min(low[k], nodes[k].cap_w), high[k] = std::max(high[k], nodes[k].cap_w);
        }
      }
      for (std::size_t k = 0; k < count; ++k) {
        CAPTURE(demand[k]);
        CAPTURE(nodes[k].max_w);
        CHECK(high[k] - low[k] < 1);
      }
    }
  }
}

TEST_CASE(
    "soft: nobody is held back while the cluster is far from its budget, near to it shares are fair, and in between it "
    "stays what it is") {
  PolicySettings settings;
  settings.soft_w = 800;
  auto policy = make_policy("soft", settings), fair = make_policy("fair");
  REQUIRE(policy);
  std::vector<NodeView> nodes(4, node(50, 400));
  const auto caps = [&](double each_w, double first_w) {
    for (auto& n : nodes) n.power_w = each_w, n.cap_w = 400;
    nodes[0].power_w = first_w;
    nodes[0].weight = 3, nodes[0].guaranteed_w = 390;
    const auto out = share(**policy, 1000, nodes);
    REQUIRE(out);
    CHECK((*out).sum_w <= 1000);
    return (*out).caps_w;
  };
  // Far from it: each has what it uses and an equal part of the rest, whatever is guaranteed.
  auto got = caps(100, 150);
  CHECK(near(got[1], got[2]));
  CHECK(got[0] < 350);
  CHECK(got[1] > 200);
  CHECK(near(got[0] + got[1] + got[2] + got[3], 1000));
  got = caps(200, 220);
  CHECK(got[0] >= 389.9);             // 820 W: near
  CHECK(caps(180, 190)[0] >= 389.9);  // 730 W: and still
  CHECK(caps(150, 190)[0] < 350);     // 640 W: no more
  // A budget that holds all at their highest: everybody has that.
  auto plenty = share(**policy, 1600, nodes);
  REQUIRE(plenty);
  for (const double w : (*plenty).caps_w) CHECK(near(w, 400));
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
      const auto odd = [&](double usual) {
        return random.below(8) ? usual : std::vector<double>{unknown, inf, -inf, -1, 99'999, huge, 0}[random.below(7)];
      };
      v.power_w = odd(random.uniform() * 600), v.demand_w = odd(unknown), v.cap_w = odd(random.uniform() * 600),
      v.iteration_s = odd(random.uniform());
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
