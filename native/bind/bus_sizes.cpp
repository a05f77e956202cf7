#include <nanobind/nanobind.h>

#include "bus/probe/limits.hpp"

namespace nb = nanobind;

// Needs the header only: also available where the bus is not built.
void bind_bus_sizes(nb::module_& m) {
  m.def(
      "bus_sizes",
      [] {
        nb::dict out;
        out["least"] = sonde::bus::probe::least_sample_bytes;
        out["most"] = sonde::bus::probe::most_sample_bytes;
        out["most_datagram"] = sonde::bus::probe::most_datagram_bytes;
        return out;
      },
      "Sizes in B of the samples that sonde-busprobe measures: least, most, most_datagram (bare UDP does not "
      "split samples).");
}
