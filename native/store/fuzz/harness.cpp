// libFuzzer: the input is a stream of bytes for a welcomed connection, each frame's checksums mended where the first byte says so.
//   CXX=clang++ cmake --preset fuzz && cmake --build build/fuzz --target sonde-storefuzz-llvm && build/fuzz/libexec/sonde-storefuzz-llvm
#include <cstdlib>
#include <cstring>

#include "store/fuzz/hostile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::store;
  static const auto server = fuzz::target();
  if (!server) std::abort();
  if (n < 1) return 0;
  std::vector<std::byte> stream(n - 1);
  if (n > 1) std::memcpy(stream.data(), bytes + 1, n - 1);
  if (bytes[0] & 1)
    for (std::size_t at = 0; stream.size() - at >= wire::header_bytes;) {
      std::byte* head = stream.data() + at;
      std::memcpy(head, &wire::magic, 4);
      head[4] = static_cast<std::byte>(wire::version);
      std::uint32_t table, data;
      std::memcpy(&table, head + 20, 4);
      std::memcpy(&data, head + 24, 4);
      const std::size_t body = std::min<std::size_t>(std::uint64_t{table} + data, stream.size() - at - wire::header_bytes);
      const std::uint32_t body_sum = wire::crc32c({head + wire::header_bytes, body});
      std::memcpy(head + 56, &body_sum, 4);
      const std::uint32_t head_sum = wire::crc32c({head, 60});
      std::memcpy(head + 60, &head_sum, 4);
      at += wire::header_bytes + body;
    }
  if (fuzz::attack(*server, stream, true) < 0) std::abort();  // the server hangs, or sends nonsense
  return 0;
}
