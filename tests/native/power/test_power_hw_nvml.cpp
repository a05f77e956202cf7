// GPUs by NVML, over a small library that calls itself libnvidia-ml.so.1.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "nvml/fake_nvml.hpp"
#include "power/conformance/suite.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

/// Loaded by its path first, it is what the name stands for from then on.
struct Fake {
  void* library = ::dlopen(SONDE_TEST_NVML, RTLD_NOW | RTLD_LOCAL);
  FakeGpu* gpu(unsigned k) const {
    return reinterpret_cast<decltype(&fake_nvml_gpu)>(::dlsym(library, "fake_nvml_gpu"))(k);
  }
  int opened() const { return reinterpret_cast<decltype(&fake_nvml_opened)>(::dlsym(library, "fake_nvml_opened"))(); }
  Fake() {
    REQUIRE(library);
    for (unsigned k : {0u, 1u}) *gpu(k) = FakeGpu{};
  }
};

std::unique_ptr<Hardware> opened(const std::function<void(HardwareSpec&)>& change = {}) {
  HardwareSpec spec;
  spec.kind = Source::nvml;
  if (change) change(spec);
  auto out = open_hardware(spec);
  REQUIRE_MESSAGE(out, (out ? "" : out.error().what));
  return std::move(*out);
}

}  // namespace

TEST_CASE("nvml: GPUs are read and capped") {
  const Fake fake;
  {
    const auto hardware = opened();
    CHECK(fake.opened() == 1);
    CHECK(hardware->model() == "Fake GPU");
    CHECK(hardware->domains() == std::vector<std::string>{"gpu-0", "gpu-1"});
    CHECK(hardware->range(1).min_w == 100);
    CHECK(hardware->range(1).max_w == 350);
    CHECK((*hardware->read())[0].power_w == 250);
    CHECK(*hardware->cap(1, 150.5) == doctest::Approx(150.5));
    CHECK(fake.gpu(1)->limit_mw == 150'500);
    CHECK(fake.gpu(0)->limit_mw == 350'000);
    CHECK((*hardware->read())[1].cap_w == doctest::Approx(150.5));
    CHECK(hardware->sensors()->size() == 4);
  }
  CHECK(fake.opened() == 0);
  CHECK(opened([](auto& s) { s.domains = "gpu-1"; })->domains() == std::vector<std::string>{"gpu-1"});
}

TEST_CASE("nvml: what fails is named") {
  const Fake fake;
  fake.gpu(0)->limits_code = 3;
  const auto hardware = opened();
  CHECK(!hardware->range(0).settable);
  CHECK(hardware->range(0).why_not.find("Not Supported") != std::string::npos);
  const auto code = [](const auto& result) { return result ? std::string() : result.error().code; };
  CHECK(code(hardware->cap(0, 200)) == "power.read_only");
  fake.gpu(1)->set_code = 4;
  CHECK(code(hardware->cap(1, 200)) == "power.read_only");
  CHECK(code(hardware->cap(1, 99999)) == "power.out_of_range");
  fake.gpu(1)->power_code = 15;
  auto now = hardware->read();
  REQUIRE(now);
  CHECK((*now)[0].power_w == 250);
  CHECK((*now)[1].trouble.starts_with("power.hardware_gone: gpu-1"));
  fake.gpu(0)->power_code = 15;
  CHECK(code(hardware->read()) == "power.hardware_gone");
}

TEST_CASE("nvml: a counter that could not be read once does not count its whole life") {
  const Fake fake;
  const auto hardware = opened();
  (void)hardware->read();
  fake.gpu(0)->energy_code = 999;
  (void)hardware->read();
  fake.gpu(0)->energy_code = 0;
  (void)hardware->read();
  auto now = hardware->read();
  REQUIRE(now);
  CHECK((*now)[0].energy_j < 1000);  // of 5 kJ in its life
}

TEST_CASE("nvml: the suite, with and without a counter of energy") {
  for (const int code : {0, 3}) {
    const Fake fake;
    fake.gpu(0)->energy_code = fake.gpu(1)->energy_code = code;
    conformance::Settings settings;
    settings.spec.kind = Source::nvml;
    auto all = conformance::check(settings);
    REQUIRE(all);
    for (const auto& one : *all)
      CHECK_MESSAGE(one.outcome == conformance::Outcome::passed, (one.name + ": " + one.reason));
    CHECK(fake.gpu(0)->limit_mw == 350'000);
  }
}
