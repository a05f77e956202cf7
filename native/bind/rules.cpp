// sonde._core: stopping rules and their replay.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/raise.hpp"
#include "core/replay.hpp"
#include "core/rule.hpp"
#include "core/stats/pooled.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Samples = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OptionTuple = std::tuple<std::string, std::string, std::string, double, double, double>;
using InfoTuple = std::tuple<std::string, std::string, std::string, std::vector<OptionTuple>>;
using ReplayTuple = std::tuple<int, std::uint64_t, std::uint64_t, std::uint64_t, double, double, double, std::string>;

std::vector<InfoTuple> rule_list() {
  std::vector<InfoTuple> out;
  for (const sonde::RuleInfo& info : sonde::rule_list()) {
    std::vector<OptionTuple> options;
    for (const sonde::RuleOption& o : info.options) {
      options.emplace_back(o.name, o.type, o.text, o.fallback, o.least, o.most);
    }
    out.emplace_back(info.name, info.text, info.source, std::move(options));
  }
  return out;
}

void check_rule(const std::string& spec) {
  const auto rule = sonde::make_rule(spec, {});
  if (!rule) sonde::py::raise(rule.error());
}

ReplayTuple replay(const Samples& x, const std::optional<Numbers>& epoch, const std::string& spec, std::uint64_t cap,
                   std::uint64_t min_samples, std::uint64_t seed, std::size_t burst, double level) {
  const std::span<const double> samples(x.data(), x.shape(0));
  const auto epochs =
      epoch ? std::span<const std::int32_t>(epoch->data(), epoch->shape(0)) : std::span<const std::int32_t>();
  const sonde::RuleContext context{cap, min_samples, seed};
  auto result = [&] {
    const nb::gil_scoped_release free;
    return sonde::replay(samples, epochs, spec, context, burst, level);
  }();
  if (!result) sonde::py::raise(result.error());
  const sonde::Replay& r = *result;
  return {static_cast<int>(r.decision), r.n, r.skipped, r.epochs, r.estimate, r.ci_low, r.ci_high, r.why};
}

}  // namespace

void bind_rules(nb::module_& m) {
  m.def("rule_list", &rule_list, "(name, text, source, [(option, type, text, fallback, least, most)]) of every rule.");
  m.def("check_rule", &check_rule, "spec"_a, "Raises UsageError if spec is not a rule.");
  m.def("decision_names", [] {
    std::vector<std::string> out;
    for (int k = 0; k < 4; ++k) out.emplace_back(sonde::decision_name(static_cast<sonde::Decision>(k)));
    return out;
  });
  m.def("replay", &replay, "x"_a, "epoch"_a.none(), "spec"_a, "cap"_a, "min_samples"_a, "seed"_a, "burst"_a, "level"_a,
        "(decision, n, skipped, epochs, estimate, ci_low, ci_high, why)");
}
