// libFuzzer: the input is IDL, a NUL and a payload of the last structure in it, as fuzz::judge() reads it. From what
// the tests have:
//   cmake --preset fuzz -DSONDE_NET=OFF -DSONDE_STORE=OFF
//   cmake --build build/fuzz --target sonde-busfuzz sonde-busfuzz-llvm
//   mkdir -p build/corpus && build/fuzz/libexec/sonde-busfuzz --seeds build/corpus tests/data/bus/golden.txt
//   build/fuzz/libexec/sonde-busfuzz-llvm -max_len=4096 build/corpus
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bus/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  const std::string wrong = sonde::bus::fuzz::judge({reinterpret_cast<const std::byte*>(bytes), n});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
