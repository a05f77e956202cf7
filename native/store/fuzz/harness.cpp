// libFuzzer: the input is a stream of bytes for a welcomed connection, as fuzz::stream_of() reads it. From the corpus
// of the tests:
//   cmake --preset fuzz
//   cmake --build build/fuzz --target sonde-storefuzz-llvm
//   mkdir -p build/corpus && build/fuzz/libexec/sonde-storefuzz-llvm -max_len=8192 build/corpus tests/data/storefuzz
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "store/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::store;
  static const auto server = fuzz::target();
  if (!server) std::abort();
  if (n < 1) return 0;
  if (fuzz::attack(*server, fuzz::stream_of({reinterpret_cast<const std::byte*>(bytes), n}), true) < 0)
    std::abort();  // the server hangs, or sends nonsense
  return 0;
}
