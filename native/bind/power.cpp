// sonde._core: the policies of power, so that a replay runs the same code as the live system
// (sonde.power.recording.policy).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "bind/raise.hpp"
#include "power/policy.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace power = sonde::power;

namespace {

/// One row for each node: min, max, guaranteed, weight, power, demand, cap, iteration, job.
using Nodes = nb::ndarray<const double, nb::shape<-1, 9>, nb::c_contig, nb::device::cpu>;

struct PowerPolicy {
  std::unique_ptr<power::Policy> policy;

  PowerPolicy(std::string_view name, double margin, double step)
      : policy(sonde::py::unwrap(power::make_policy(name, {margin, step}))) {}

  std::pair<std::vector<double>, bool> share(double budget_w, const Nodes& nodes) {
    std::vector<power::NodeView> views;
    for (std::size_t k = 0; k < nodes.shape(0); ++k)
      views.push_back({nodes(k, 0), nodes(k, 1), nodes(k, 2), nodes(k, 3), nodes(k, 4), nodes(k, 5), nodes(k, 6),
                       nodes(k, 7), static_cast<std::uint32_t>(nodes(k, 8))});
    auto shares = sonde::py::unwrap(power::share(*policy, budget_w, views));
    return {std::move(shares.caps_w), shares.corrected};
  }
};

}  // namespace

void bind_power(nb::module_& m) {
  nb::class_<PowerPolicy>(m, "PowerPolicy")
      .def(nb::init<std::string_view, double, double>(), "name"_a, "margin"_a, "step"_a)
      .def("share", &PowerPolicy::share, "budget_w"_a, "nodes"_a);
  m.def("power_policies", [] {
    std::vector<std::pair<std::string_view, std::string_view>> all;
    for (const auto& word : power::policies()) all.emplace_back(word.name, word.what);
    return all;
  });
}
