// Frequencies by cpufreq, over a folder that looks like sysfs.
#include <cmath>
#include <string>
#include <vector>

#include "power/hardware/cpufreq.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

const std::string folder = "devices/system/cpu/cpufreq/";

void policy(const PowerTree& tree, int number, const std::string& cores) {
  const std::string at = folder + "policy" + std::to_string(number) + "/";
  tree.put(at + "scaling_cur_freq", "2100000");
  tree.put(at + "scaling_min_freq", "800000");
  tree.put(at + "scaling_max_freq", "3500000");
  tree.put(at + "cpuinfo_min_freq", "800000");
  tree.put(at + "cpuinfo_max_freq", "3500000");
  tree.put(at + "scaling_governor", "schedutil");
  tree.put(at + "scaling_available_governors", "performance powersave schedutil");
  tree.put(at + "related_cpus", cores);
}

}  // namespace

TEST_CASE("cpufreq: what is there, in the order of numbers") {
  const PowerTree tree;
  policy(tree, 10, "10 11");
  policy(tree, 2, "2");
  tree.gone(folder + "policy2/scaling_cur_freq");
  auto opened = Cpufreq::open(tree.root);
  REQUIRE(opened);
  auto all = opened->read();
  REQUIRE(all);
  REQUIRE(all->size() == 2);
  CHECK((*all)[0].name == "policy2");
  CHECK(std::isnan((*all)[0].current_hz));
  CHECK((*all)[1].cores == std::vector<int>{10, 11});
  CHECK((*all)[1].current_hz == doctest::Approx(2.1e9));
  CHECK((*all)[1].max_hz == doctest::Approx(3.5e9));
  CHECK((*all)[1].governor == "schedutil");
  CHECK((*all)[1].governors.size() == 3);
}

TEST_CASE("cpufreq: limits and governors are set, and what cannot be is not written") {
  const PowerTree tree;
  policy(tree, 0, "0");
  auto opened = Cpufreq::open(tree.root);
  REQUIRE(opened);
  CHECK((*opened->read())[0].max_hz == doctest::Approx(3.5e9));
  REQUIRE(opened->set("policy0", 1e9, 2e9, "powersave"));
  CHECK((*opened->read())[0].max_hz == doctest::Approx(2e9));
  CHECK((*opened->read())[0].governor == "powersave");
  tree.put(folder + "policy0/scaling_cur_freq", "1500000");
  CHECK((*opened->read())[0].current_hz == doctest::Approx(1.5e9));
  CHECK(tree.get(folder + "policy0/scaling_min_freq") == "1000000");
  CHECK(tree.get(folder + "policy0/scaling_max_freq") == "2000000");
  CHECK(tree.get(folder + "policy0/scaling_governor") == "powersave");
  REQUIRE(opened->set("policy0", unknown, 3e9));
  CHECK(tree.get(folder + "policy0/scaling_min_freq") == "1000000");
  REQUIRE(
      opened->set("policy0", 3.2e9, 3.4e9));  // the highest before the least: the kernel would refuse the other order
  const auto code = [&](const Result<void>& done) { return done ? std::string() : done.error().code; };
  CHECK(code(opened->set("policy0", 0, unknown)) == "power.out_of_range");
  CHECK(code(opened->set("policy0", unknown, 9e9)) == "power.out_of_range");
  CHECK(code(opened->set("policy0", unknown, 1e9)) == "power.out_of_range");  // below the least that is set
  CHECK(code(opened->set("policy0", unknown, INFINITY)) == "power.out_of_range");
  CHECK(code(opened->set("policy7", 1e9, 2e9)) == "power.unknown_policy");
  const auto mistyped = opened->set("policy0", 1e9, 2e9, "performanse");
  REQUIRE(!mistyped);
  CHECK(mistyped.error().code == "power.unknown_governor");
  CHECK(mistyped.error().what.find("(nearest: performance)") != std::string::npos);
  CHECK(tree.get(folder + "policy0/scaling_min_freq") == "3200000");
  CHECK(tree.get(folder + "policy0/scaling_max_freq") == "3400000");
}

TEST_CASE("cpufreq: a machine without it has none, and one that lost it says so") {
  const PowerTree tree;
  auto none = Cpufreq::open(tree.root);
  REQUIRE(none);
  CHECK(none->read()->empty());
  policy(tree, 0, "0");
  auto one = Cpufreq::open(tree.root);
  tree.gone(folder + "policy0");
  const auto now = one->read();
  REQUIRE(!now);
  CHECK(now.error().code == "power.hardware_gone");
}
