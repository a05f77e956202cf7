// libFuzzer: the lines that tell sonde-io-watch, which may be root, what to read.
#include <cstddef>
#include <cstdint>

#include "core/fuzz/input.hpp"
#include "io/watch/spec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  const auto spec = sonde::io::parse_spec(sonde::fuzz::text_of(bytes, n));
  if (!spec) sonde::fuzz::hold(spec.error(), "io.bad_spec");
  return 0;
}
