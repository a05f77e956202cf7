// libFuzzer: the input is a stream of bytes for a connection, as fuzz::stream_of() reads it. If bit 2 of its first byte
// is set, the connection has not been welcomed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "store/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::store;
  static const auto server = fuzz::target();
  if (!server) std::abort();
  if (n < 1) return 0;
  const bool welcomed = (bytes[0] & 2) == 0;
  if (fuzz::attack(*server, fuzz::stream_of({reinterpret_cast<const std::byte*>(bytes), n}), welcomed) < 0)
    std::abort();  // the server hangs, or sends an invalid frame
  return 0;
}
