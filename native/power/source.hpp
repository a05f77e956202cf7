#pragma once
/// The origin of a number of the power stack, and its kind. Names are sent, so that a value never changes its meaning.

#include <cstdint>
#include <optional>
#include <string_view>

namespace sonde::power {

/// Always the source that was read: simulated hardware must be requested by name.
enum class Source : std::uint8_t { none, powercap, cpufreq, nvml, redfish, ipmi, simulated };
enum class SensorKind : std::uint8_t { power, energy, temperature, voltage, fan, utilisation };

const char* name_of(Source source);
const char* name_of(SensorKind kind);
std::optional<Source> source_named(std::string_view name);

}  // namespace sonde::power
