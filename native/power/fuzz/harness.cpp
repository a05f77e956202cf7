// libFuzzer: the input is what fuzz::judge() reads.
//   cmake --preset fuzz -DSONDE_NET=OFF -DSONDE_STORE=OFF
//   cmake --build build/fuzz --target sonde-powerfuzz sonde-powerfuzz-llvm
//   mkdir -p build/corpus && build/fuzz/libexec/sonde-powerfuzz --seeds build/corpus
//   build/fuzz/libexec/sonde-powerfuzz-llvm -max_len=8192 build/corpus
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "power/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  const std::string wrong = sonde::power::fuzz::judge({reinterpret_cast<const char*>(bytes), n});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
