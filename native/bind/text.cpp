#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bind/raise.hpp"
#include "core/error_kind.hpp"
#include "core/hostlist.hpp"
#include "core/units.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sonde;

void bind_text(nb::module_& m) {
  m.def(
      "error_kind",
      [](std::string_view code) -> std::optional<std::string_view> {
        const auto kind = listed_kind(code);
        return kind ? std::optional(name_of(*kind)) : std::nullopt;
      },
      "code"_a,
      "The kind of an error's code, such as \"usage\"; None for a code that native/core/error_kind.cpp lacks.");
  m.def("format_duration", &format_duration, "value_s"_a, "See sonde.core.units.format_duration.");
  m.def(
      "parse_duration", [](std::string_view text) { return py::unwrap(parse_duration(text)); }, "text"_a,
      "See sonde.core.units.parse_duration.");
  m.def("format_size", &format_size, "bytes"_a, "exact"_a = false, "See sonde.core.units.format_size.");
  m.def(
      "parse_size", [](std::string_view text) { return py::unwrap(parse_size(text)); }, "text"_a,
      "See sonde.core.units.parse_size.");
  m.def("format_power", &format_power, "value_w"_a, "See sonde.core.units.format_power.");
  m.def(
      "parse_power", [](std::string_view text) { return py::unwrap(parse_power(text)); }, "text"_a,
      "See sonde.core.units.parse_power.");
  m.def(
      "hostlist_expand",
      [](std::string_view text, const std::vector<std::string>& within) {
        return py::unwrap(hostlist_expand(text, within));
      },
      "text"_a, "within"_a = std::vector<std::string>{}, "See sonde.core.hostlist.expand.");
  m.def(
      "hostlist_fold", [](const std::vector<std::string>& hosts) { return py::unwrap(hostlist_fold(hosts)); },
      "hosts"_a, "See sonde.core.hostlist.fold.");
  m.def(
      "hostlist_check",
      [](std::string_view text) {
        if (auto checked = hostlist_check(text); !checked) py::raise(checked.error());
      },
      "text"_a, "See sonde.core.hostlist.check.");
}
