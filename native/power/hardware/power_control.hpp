#pragma once
/// Numbers in Redfish's answers, and which of the members of the older resource Power means the whole chassis. For this
/// folder only. Any-thread.

#include <cstddef>
#include <optional>
#include <string>

#include "power/hardware/json_value.hpp"

namespace sonde::power::kinds {

/// No node draws more: a higher value from a BMC is wrong.
inline constexpr double most_w = 1e6;

/// Some BMCs write numbers as texts. NaN: not a number.
double number_of(const JsonValue& value);
/// NaN: no value, or an impossible one.
double sane(double value, double most);
double sane(const JsonValue& value);

/// The meaning of the members of PowerControl in one answer. It is determined again for each answer: a total that is
/// null or 0 while a BMC starts is known later, and never is a part the total meanwhile.
struct ControlMembers {
  std::size_t drawn = 0;               ///< the member with the power of the whole
  std::optional<std::size_t> limited;  ///< the member whose PowerLimit is that of the whole
  std::string why_not;                 ///< there is a PowerLimit, but not of the whole
};
ControlMembers control_members(const JsonValue& controls);

}  // namespace sonde::power::kinds
