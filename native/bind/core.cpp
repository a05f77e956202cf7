// Python module sonde._core: each topic has a file, which adds its names here.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_stats(nb::module_& m);
void bind_rules(nb::module_& m);
void bind_text(nb::module_& m);
void bind_net(nb::module_& m);
void bind_blocks(nb::module_& m);
void bind_machine(nb::module_& m);
void bind_noise(nb::module_& m);
void bind_bus_sizes(nb::module_& m);
void bind_power(nb::module_& m);

NB_MODULE(_core, m) {
  m.doc() = "Sonde's native core: statistics, stopping rules, units and host lists.";
  bind_stats(m);
  bind_rules(m);
  bind_text(m);
  bind_net(m);
  bind_blocks(m);
  bind_machine(m);
  bind_noise(m);
  bind_bus_sizes(m);
  bind_power(m);
}
