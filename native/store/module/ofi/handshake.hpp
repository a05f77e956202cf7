#pragma once
/// Parses the texts that the two halves of a transport over libfabric exchange on the Control (transport.cpp has the
/// whole exchange). Pure; any-thread.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "store/types.hpp"
#include "store/wire.hpp"

namespace sonde::store::ofi {

/// The version of the texts and of the messages after them. Version 1 sent no version number, and had no tags.
constexpr int protocol = 2;

inline std::string to_hex(Bytes bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

/// Empty for a text that is not hexadecimal with two digits a byte.
inline std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  if (text.size() % 2) return bytes;
  for (std::size_t k = 0; k < text.size(); k += 2) {
    unsigned value = 0;
    const auto [end, why] = std::from_chars(text.data() + k, text.data() + k + 2, value, 16);
    if (why != std::errc{} || end != text.data() + k + 2) return {};
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

/// The number under a name in a text; `otherwise` if the name is missing, or the value is not a number.
inline std::int64_t number_in(const wire::Text& text, std::string_view name, std::int64_t otherwise) {
  const std::string_view value = wire::text_value(text, name);
  std::int64_t result = otherwise;
  if (const auto [end, why] = std::from_chars(value.data(), value.data() + value.size(), result);
      why != std::errc{} || end != value.data() + value.size())
    return otherwise;
  return result;
}

/// The reason why this side cannot talk to the other; empty: it can.
inline std::string unlike(const wire::Text& text, const char* who) {
  const std::int64_t spoken = number_in(text, "protocol", 1);
  if (spoken == protocol) return {};
  return std::string("the ") + who + " speaks version " + std::to_string(spoken) +
         " of the transports over libfabric, but this is version " + std::to_string(protocol) +
         ": run the same version of Sonde on both sides, or the transport tcp";
}

/// The receives that the peer has posted at all times.
struct Receives {
  std::size_t count = 0, bytes = 0;
};

/// Error: store.bad_frame, if messages do not fit into them.
inline Result<Receives> receives_in(const wire::Text& text) {
  constexpr std::int64_t count_min = 4, count_max = 4096, bytes_min = 4096, bytes_max = 64 << 20;
  const std::int64_t count = number_in(text, "buffers", 0), bytes = number_in(text, "bytes", 0);
  if (count < count_min || count > count_max || bytes < bytes_min || bytes > bytes_max)
    return Error{"store.bad_frame",
                 "the peer posts " + std::to_string(count) + " receives of " + std::to_string(bytes) +
                     " bytes; at least 4 of 4096 are needed",
                 "both sides must run the same version of Sonde"};
  return Receives{static_cast<std::size_t>(count), static_cast<std::size_t>(bytes)};
}

}  // namespace sonde::store::ofi
