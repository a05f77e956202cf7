#include "power/source.hpp"

#include <array>

namespace sonde::power {

namespace {
constexpr std::array sources{"none", "powercap", "cpufreq", "nvml", "redfish", "ipmi", "simulated"};
constexpr std::array kinds{"power", "energy", "temperature", "voltage", "fan", "utilisation"};
}  // namespace

const char* name_of(Source source) { return sources[static_cast<std::size_t>(source)]; }
const char* name_of(SensorKind kind) { return kinds[static_cast<std::size_t>(kind)]; }

std::optional<Source> source_named(std::string_view name) {
  for (std::size_t k = 0; k < sources.size(); ++k)
    if (name == sources[k]) return static_cast<Source>(k);
  return {};
}

}  // namespace sonde::power
