// libFuzzer: IDL, checked by fuzz::judge_idl().
#include <cstddef>
#include <cstdint>

#include "bus/fuzz/hostile.hpp"
#include "core/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  sonde::fuzz::hold(sonde::bus::fuzz::judge_idl(sonde::fuzz::text_of(bytes, n)));
  return 0;
}
