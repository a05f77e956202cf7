// What a probe would find on this machine, for `sonde doctor`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include "core/clock.hpp"
#include "core/ticks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_machine(nb::module_& m) {
  m.def("clock_cost_s", &sonde::clock_cost_s, "rounds"_a = 20,
        "Cost in s of one reading of the clock that probes use: the least of `rounds` means over 1000 readings.");
  m.def(
      "clock_pair", [] { return sonde::both_clocks(sonde::ticks); },
      "This moment as (ns of CLOCK_MONOTONIC, ticks), the ticks being what the tracer of calls stamps them with.");
  m.def(
      "tick_kind", [] { return sonde::to_string(sonde::tick_kind); }, "What counts those ticks: tsc, cntvct or clock.");
}
