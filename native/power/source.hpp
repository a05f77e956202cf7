#pragma once
/// Where a number of the power stack comes from, and of what it is. Names travel, so that none is ever given another
/// meaning.

#include <cstdint>
#include <optional>
#include <string_view>

namespace sonde::power {

/// Never another than what was read: simulated hardware is asked for by name.
enum class Source : std::uint8_t { none, powercap, cpufreq, nvml, redfish, ipmi, simulated };
enum class SensorKind : std::uint8_t { power, energy, temperature, voltage, fan, utilisation };

const char* name_of(Source source);
const char* name_of(SensorKind kind);
std::optional<Source> source_named(std::string_view name);

}  // namespace sonde::power
