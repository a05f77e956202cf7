// libFuzzer: one kind of what strangers hand to the power stack, as fuzz::judge() reads it. Compiled once for each
// kind, SONDE_FUZZ_WHAT: a configuration, JSON from MQTT, a sample of the bus, a command of Sparkplug, a level of a
// topic.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/fuzz/input.hpp"
#include "power/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::power::fuzz;
  if (n < 1) return 0;
  Input input{What::SONDE_FUZZ_WHAT, bytes[0], std::string(sonde::fuzz::text_of(bytes + 1, n - 1))};
  input.type = static_cast<std::uint8_t>(input.type % types().size());
  sonde::fuzz::hold(judge(input_of(input)));
  return 0;
}
