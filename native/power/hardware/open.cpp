#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "power/hardware/kinds.hpp"

namespace sonde::power {

namespace {

/// Settings of another kind are mistakes, not decoration: somebody believes that they do something.
Result<void> only_its_own(const HardwareSpec& spec) {
  const HardwareSpec plain;
  const bool simulated = spec.kind == Source::simulated,
             out_of_band = spec.kind == Source::redfish || spec.kind == Source::ipmi;
  const auto no = [&](const char* setting) {
    return Error{"power.bad_hardware", std::string("hardware of the kind ") + name_of(spec.kind) + " has no " + setting,
                 "remove this setting"};
  };
  if (!out_of_band && !spec.url.empty()) return no("url");
  if (!out_of_band && !spec.user.empty()) return no("user");
  if (!out_of_band && !spec.password_file.empty()) return no("password_file");
  if (spec.kind != Source::redfish && !spec.ca.empty()) return no("ca");
  if (spec.kind != Source::powercap && !simulated && spec.root != plain.root) return no("root");
  if (!simulated &&
      (spec.idle_w != plain.idle_w || spec.busy_w != plain.busy_w || spec.noise_w != plain.noise_w ||
       spec.lag_s != plain.lag_s || spec.load != plain.load || !spec.load_file.empty() || spec.seed != plain.seed))
    return no("idle, busy, noise, lag, load or seed");
  if (!(spec.timeout_s > 0 && spec.timeout_s <= 3600))
    return Error{"power.bad_hardware", "a timeout of " + kinds::exact(spec.timeout_s) + " s",
                 "allowed: above 0, up to 3600 s"};
  for (const double limit : {spec.min_w, spec.max_w})
    if (!std::isnan(limit) && !(limit >= 0 && limit <= 1e9))
      return Error{"power.bad_hardware", "a limit of " + kinds::exact(limit) + " W", "allowed: 0 to 1e9 W"};
  if (spec.min_w > spec.max_w)
    return Error{"power.bad_hardware",
                 "the lowest cap of " + kinds::exact(spec.min_w) + " W is above the highest cap of " +
                     kinds::exact(spec.max_w) + " W",
                 ""};
  return {};
}

}  // namespace

Result<std::unique_ptr<Hardware>> open_hardware(const HardwareSpec& spec) {
  if (const auto good = only_its_own(spec); !good) return good.error();
  switch (spec.kind) {
    case Source::powercap: return kinds::open_powercap(spec);
    case Source::nvml: return kinds::open_nvml(spec);
    case Source::redfish: return kinds::open_redfish(spec);
    case Source::ipmi: return kinds::open_ipmi(spec);
    case Source::simulated: return kinds::open_simulated(spec);
    case Source::cpufreq:
    case Source::none: break;
  }
  return Error{"power.bad_hardware",
               std::string("power cannot be read from hardware of the kind ") + name_of(spec.kind),
               "use powercap, nvml, redfish, ipmi or simulated"};
}

std::vector<HardwareKind> hardware_kinds() {
  return {{Source::powercap, "the packages of a processor, by RAPL through the kernel's powercap", ""},
          {Source::nvml, "NVIDIA GPUs, through libnvidia-ml.so.1", kinds::nvml_missing()},
          {Source::redfish, "a node, by its BMC over HTTPS", kinds::redfish_missing()},
          {Source::ipmi, "a node, by its BMC through ipmitool's DCMI commands", kinds::ipmi_missing()},
          {Source::simulated, "an invented node: a power model, whose values are all marked as simulated", ""}};
}

}  // namespace sonde::power
