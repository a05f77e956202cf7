#pragma once
/// Shared by the sources of Manager: system.cpp, system_orders.cpp, system_sharing.cpp.

#include <cstdint>

#include "power/powerd/system.hpp"

namespace sonde::power {

inline constexpr double most_power_w = 1e9, most_shed_s = 30 * 86400.0;

inline std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }
inline double seconds(std::int64_t value_ns) { return static_cast<double>(value_ns) / 1e9; }
inline std::uint32_t code(bus::ReplyCode c) { return static_cast<std::uint32_t>(c); }
inline std::uint32_t code(PowerCode c) { return static_cast<std::uint32_t>(c); }

inline const char* name_of(SystemOrder order) {
  switch (order) {
    case SystemOrder::SET_POWER: return "SET_POWER";
    case SystemOrder::SHED: return "SHED";
    case SystemOrder::SET_JOB: return "SET_JOB";
    case SystemOrder::END_JOB: return "END_JOB";
  }
  return "unknown";
}

}  // namespace sonde::power
