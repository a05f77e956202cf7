// libFuzzer: JSON of a service.
#include <cmath>
#include <cstdint>

#include "core/fuzz/input.hpp"
#include "power/hardware/json_value.hpp"

namespace {

std::size_t values_in(const sonde::power::JsonValue& value, int depth) {
  sonde::fuzz::hold(depth < 1000, "a tree without end");
  std::size_t n = 1;
  if (const auto* list = value.list())
    for (const auto& one : *list) n += values_in(one, depth + 1);
  if (const auto* object = value.object())
    for (const auto& [name, one] : *object) n += values_in(one, depth + 1);
  return n;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  auto parsed = sonde::power::JsonValue::parse(sonde::fuzz::text_of(bytes, n));
  if (!parsed) sonde::fuzz::hold(parsed.error(), "power.bad_json");
  else sonde::fuzz::hold(values_in(*parsed, 0) <= n, "more values than bytes");
  return 0;
}
