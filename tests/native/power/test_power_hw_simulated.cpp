// The simulated node.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "power/hardware/hardware.hpp"
#include "power/hardware/simulated.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;

TEST_CASE("simulated: power goes towards the lower of demand and cap, and energy is its integral") {
  PowerModel model({60, 300, 0, 0.5, 1});
  CHECK(model.now_w() == 60);
  model.pass(0.5, 1, 1e9);
  CHECK(model.now_w() == doctest::Approx(300 - 240 * std::exp(-1)));
  model.pass(100, 1, 1e9);
  CHECK(model.now_w() == doctest::Approx(300));
  model.pass(100, 1, 150);
  CHECK(model.now_w() == doctest::Approx(150));
  model.pass(100, 0, 150);
  CHECK(model.now_w() == doctest::Approx(60));
  model.pass(100, 1, 10);  // no cap brings it below idle
  CHECK(model.now_w() == doctest::Approx(60));

  PowerModel once({60, 300, 0, 0.5, 1}), often({60, 300, 0, 0.5, 1});
  once.pass(2, 0.7, 200);
  double sum = 0;
  for (int k = 0; k < 20000; ++k) {
    often.pass(1e-4, 0.7, 200);
    sum += often.now_w() * 1e-4;
  }
  CHECK(once.energy_j() == doctest::Approx(often.energy_j()));
  CHECK(once.energy_j() == doctest::Approx(sum).epsilon(1e-3));
  CHECK(once.now_w() == doctest::Approx(often.now_w()));
}

TEST_CASE("simulated: noise is of its seed, has its size, and is of the measurement alone") {
  PowerModel one({60, 300, 5, 0.5, 7}), same({60, 300, 5, 0.5, 7}), other({60, 300, 5, 0.5, 8});
  double sum = 0, squares = 0;
  int differ = 0;
  const int many = 20000;
  for (int k = 0; k < many; ++k) {
    const double w = one.measured(200);
    CHECK(w == same.measured(200));
    differ += w != other.measured(200);
    sum += w - 200;
    squares += (w - 200) * (w - 200);
  }
  CHECK(differ > many / 2);
  CHECK(std::abs(sum / many) < 0.25);
  CHECK(std::sqrt(squares / many) == doctest::Approx(5).epsilon(0.05));
  CHECK(one.energy_j() == 0);
  CHECK(PowerModel({0, 300, 50, 0.5, 1}).measured(0) >= 0);
}

TEST_CASE("simulated: says so, holds a cap, and keeps it in a folder as hardware does") {
  const PowerTree tree;
  HardwareSpec spec;
  spec.kind = Source::simulated;
  spec.load = 1;
  spec.noise_w = 0;
  spec.lag_s = 0.005;
  spec.root = tree.root;
  auto one = open_hardware(spec);
  REQUIRE(one);
  CHECK((*one)->source() == Source::simulated);
  CHECK((*one)->domains() == std::vector<std::string>{"node"});
  CHECK(*(*one)->cap(0, 120) == 120);
  one->reset();  // the process ends; the hardware goes on
  auto two = open_hardware(spec);
  REQUIRE(two);
  CHECK((*(*two)->read())[0].cap_w == 120);
  sleep_until(now_s() + 0.05);
  (void)(*two)->read();
  sleep_until(now_s() + 0.05);
  CHECK((*(*two)->read())[0].power_w == doctest::Approx(120).epsilon(0.01));
  // Somebody else overwrites it.
  tree.put("simulated-cap", "250");
  CHECK((*(*two)->read())[0].cap_w == 250);
  tree.put("simulated-cap", "rubbish");
  auto broken = (*two)->read();
  REQUIRE(!broken);
  CHECK(broken.error().code == "power.hardware_failed");
}

TEST_CASE("simulated: the load is a file's where one is named, and a file without a load is told") {
  const PowerTree tree;
  HardwareSpec spec;
  spec.kind = Source::simulated;
  spec.noise_w = 0;
  spec.lag_s = 0;
  spec.load_file = tree.root + "/load";
  tree.put("load", "1");
  auto one = open_hardware(spec);
  REQUIRE(one);
  sleep_until(now_s() + 0.005);
  CHECK((*(*one)->read())[0].power_w == doctest::Approx(300));
  tree.put("load", "0.25");
  sleep_until(now_s() + 0.005);
  CHECK((*(*one)->read())[0].power_w == doctest::Approx(120));
  tree.put("load", "17");
  sleep_until(now_s() + 0.005);
  auto now = (*one)->read();
  REQUIRE(now);
  CHECK((*now)[0].power_w == doctest::Approx(120));
  CHECK((*now)[0].trouble.find("has a load of 17") != std::string::npos);
  tree.gone("load");
  CHECK((*(*one)->read())[0].trouble.starts_with("power.hardware_gone"));
}

TEST_CASE("hardware: settings that a kind does not have, or that cannot be, are refused") {
  const auto code = [](const std::function<void(HardwareSpec&)>& change, Source kind = Source::simulated) {
    HardwareSpec spec;
    spec.kind = kind;
    change(spec);
    auto opened = open_hardware(spec);
    return opened ? std::string("opened") : opened.error().code;
  };
  CHECK(code([](auto&) {}) == "opened");
  CHECK(code([](auto& s) { s.url = "https://bmc"; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.idle_w = 400; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.load = 2; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.noise_w = -1; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.lag_s = NAN; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.min_w = 200, s.max_w = 100; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.max_w = -5; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.timeout_s = 0; }) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.domains = "gpu*"; }) == "power.unknown_domain");
  CHECK(code([](auto& s) { s.load = 0.1; }, Source::powercap) == "power.bad_hardware");
  CHECK(code([](auto&) {}, Source::none) == "power.bad_hardware");
  CHECK(code([](auto&) {}, Source::cpufreq) == "power.bad_hardware");
  CHECK(code([](auto& s) { s.url = "bmc; reboot", s.user = "u", s.password_file = "/x"; }, Source::ipmi) != "opened");
  std::vector<Source> kinds;
  for (const auto& one : hardware_kinds()) kinds.push_back(one.kind);
  CHECK(kinds == std::vector<Source>{Source::powercap, Source::nvml, Source::redfish, Source::ipmi, Source::simulated});
}
