// The properties of this machine that a probe would find, for `sonde doctor`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include "core/clock.hpp"
#include "core/ticks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_machine(nb::module_& m) {
  m.def("clock_cost_s", &sonde::clock_cost_s, "rounds"_a = 20,
        "Cost in s of one reading of the probes' clock: the minimum of `rounds` means over 1000 readings.");
  m.def(
      "clock_pair", [] { return sonde::both_clocks(sonde::ticks); },
      "The present time as (ns of CLOCK_MONOTONIC, ticks); the call tracer's time stamps are in these ticks.");
  m.def(
      "tick_kind", [] { return sonde::to_string(sonde::tick_kind); },
      "The source of these ticks: tsc, cntvct or clock.");
}
