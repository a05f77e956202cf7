#include <nanobind/nanobind.h>

#include "net/mode_table.hpp"

namespace nb = nanobind;

void bind_net(nb::module_& m) {
  m.def(
      "net_modes",
      [] {
        nb::list out;
        for (const auto& mode : sonde::net::mode_list()) {
          nb::dict row;
          row["name"] = mode.name;
          row["text"] = mode.text;
          row["pattern"] = sonde::net::to_string(mode.pattern);
          row["value"] = sonde::net::to_string(mode.value);
          row["by_receiver"] = mode.by_receiver;
          row["value_choice"] = mode.value_choice;
          out.append(row);
        }
        return out;
      },
      "Modes of sonde-net as a list of dicts: name, text, pattern, value, by_receiver, value_choice.");
}
