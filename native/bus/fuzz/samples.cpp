// libFuzzer: the input is IDL, a NUL and a payload of the last structure in it, as fuzz::judge() reads it.
#include <cstddef>
#include <cstdint>

#include "bus/fuzz/hostile.hpp"
#include "core/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  sonde::fuzz::hold(sonde::bus::fuzz::judge({reinterpret_cast<const std::byte*>(bytes), n}));
  return 0;
}
