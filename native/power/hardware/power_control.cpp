#include "power/hardware/power_control.hpp"

#include <cmath>

#include "core/number.hpp"
#include "core/text.hpp"
#include "power/policy.hpp"

namespace sonde::power::kinds {

double number_of(const JsonValue& value) {
  double out = unknown;
  return value.text().empty() || !number(value.text(), out) ? value.number() : out;
}

double sane(double value, double most) { return value >= 0 && value <= most ? value : unknown; }
double sane(const JsonValue& value) { return sane(number_of(value), most_w); }

ControlMembers control_members(const JsonValue& controls) {
  constexpr const char* watts = "PowerConsumedWatts";
  // No machine draws 0 W: so some BMCs report what they do not know.
  const auto drawn = [&](std::size_t k) {
    const double w = sane(controls[k][watts]);
    return w > 0 ? w : unknown;
  };
  const auto has_limit = [&](std::size_t k) { return controls[k]["PowerLimit"].object() != nullptr; };
  const auto silent = [&](std::size_t k) {
    return controls[k].object() && controls[k].object()->contains(watts) && std::isnan(drawn(k));
  };
  const auto more = [&](std::size_t k, std::size_t than) {
    return std::isfinite(drawn(k)) && !(drawn(than) >= drawn(k));
  };
  ControlMembers out;
  std::optional<std::size_t> first;
  bool numbered = false;
  for (std::size_t k = 0; k < controls.size() && !numbered; ++k) {
    if (!controls[k].object()) continue;
    numbered = controls[k]["MemberId"].text() == "0";
    if (numbered || !first) first = k;
  }
  if (!first) return out;
  if (has_limit(*first)) out.limited = first;
  std::size_t most = *first;
  for (std::size_t k = 0; k < controls.size(); ++k) {
    if (more(k, most)) most = k;
    const bool kept = out.limited == first && first && silent(*first);
    if (has_limit(k) && (!out.limited || (!kept && more(k, *out.limited)))) out.limited = k;
  }
  const bool limit_is_silent = out.limited && silent(*out.limited) && !(numbered && std::isfinite(drawn(*first)));
  out.drawn = silent(*first) ? *first : limit_is_silent ? *out.limited : most;
  if (!out.limited || *out.limited == out.drawn || std::isnan(drawn(*out.limited))) return out;
  const auto name = [&](std::size_t k) { return shown(controls[k]["Name"].text(), 64); };
  if (std::isnan(drawn(out.drawn)))
    out.why_not = "PowerControl " + name(out.drawn) + " reports no power, so that of " + name(*out.limited) +
                  " may cover only a part of it";
  else if (more(out.drawn, *out.limited))
    out.why_not = "PowerControl " + name(out.drawn) + " has no PowerLimit, and that of " + name(*out.limited) +
                  " covers only a part of it";
  if (!out.why_not.empty()) out.limited.reset();
  return out;
}

}  // namespace sonde::power::kinds
